// SPDX-License-Identifier: Apache-2.0
// Options of the engine that an environment gives: this is the one place where it is asked for
// them. Whoever composes a task reads them once and hands them down; two tasks of a process may
// differ.
#ifndef BASE_OPTIONS_ENGINE_OPTIONS_H_
#define BASE_OPTIONS_ENGINE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Options of one task; the defaults are those of an empty environment.
struct EngineOptions {
  // Bytes that the tensors of one step may take on one device (docs/memory.md); 0: no limit.
  int64_t step_memory_limit = 0;
  // Sessions of the task that nobody calls for so long are closed; 0: never.
  std::chrono::milliseconds session_idle_limit{0};
  // Whether parts that are the same in every step are recorded and launched as one (docs/gpu.md).
  bool capture = true;
  // Whether elementwise nodes are run together (docs/fusion.md), for sessions that do not say.
  bool fusion = false;

  // MILLRACE_STEP_MEMORY_LIMIT (bytes), MILLRACE_SESSION_IDLE_LIMIT (seconds), MILLRACE_CAPTURE and
  // MILLRACE_FUSION (on or off); what is not set, or empty, is as above. InvalidArgument, naming
  // the variable, its value and what is expected, for any other value.
  static StatusOr<EngineOptions> FromEnvironment();
};

// Options of what a process has once, whatever the number of its tasks.
struct ProcessOptions {
  // The compiler of fused loops: whether there is one, its library ("": looked for), and where what
  // it makes is kept ("": nowhere).
  bool jit = true;
  std::string jit_library{};
  std::string jit_cache{};
  // Files of the credentials that the process shows where a server or session names none.
  std::string tls_cert{};
  std::string tls_key{};
  std::string tls_ca{};
  std::string token_file{};
  // The job of the servers that a program starts by the way (ranks, strategies).
  std::string cluster_id{};

  // MILLRACE_JIT (off or 0), MILLRACE_JIT_LIBRARY, MILLRACE_JIT_CACHE, MILLRACE_TLS_CERT,
  // MILLRACE_TLS_KEY, MILLRACE_TLS_CA, MILLRACE_TOKEN_FILE, MILLRACE_CLUSTER_ID.
  static ProcessOptions FromEnvironment();
};

// Variables of the environment about the process as a whole that are set, with their values, for
// people to read: how lines are logged and whether loops are compiled.
std::vector<std::pair<std::string, std::string>> ProcessVariables();

}  // namespace millrace

#endif  // BASE_OPTIONS_ENGINE_OPTIONS_H_
