// SPDX-License-Identifier: Apache-2.0
#include "base/options/engine_options.h"

#include <cstdlib>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// "" also for a variable that is not set: scripts cannot always unset one.
std::string Variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

Status ReadSwitch(const char* name, bool* value) {
  const std::string text = Variable(name);
  if (text.empty()) return OkStatus();
  if (text != "on" && text != "off") {
    return errors::InvalidArgument("the environment variable ", name, " is '", text,
                                   "', but must be on or off: set one of these, or unset it");
  }
  *value = text == "on";
  return OkStatus();
}

}  // namespace

StatusOr<EngineOptions> EngineOptions::FromEnvironment() {
  EngineOptions options;
  constexpr char kMemory[] = "MILLRACE_STEP_MEMORY_LIMIT";
  if (const std::string text = Variable(kMemory); !text.empty()) {
    if (!ParseInt64(text, &options.step_memory_limit) || options.step_memory_limit < 0) {
      return errors::InvalidArgument(
          "the environment variable ", kMemory, " is '", text,
          "', but must be a number of bytes, 0 for no limit: set that, or unset it");
    }
  }
  constexpr char kIdle[] = "MILLRACE_SESSION_IDLE_LIMIT";
  if (const std::string text = Variable(kIdle); !text.empty()) {
    double seconds = 0;
    if (!ParseDouble(text, &seconds) || !(seconds >= 0 && seconds < 1e9)) {
      return errors::InvalidArgument(
          "the environment variable ", kIdle, " is '", text,
          "', but must be a number of seconds, 0 for never: set that, or unset it");
    }
    options.session_idle_limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }
  MR_RETURN_IF_ERROR(ReadSwitch("MILLRACE_CAPTURE", &options.capture));
  MR_RETURN_IF_ERROR(ReadSwitch("MILLRACE_FUSION", &options.fusion));
  return options;
}

ProcessOptions ProcessOptions::FromEnvironment() {
  ProcessOptions options;
  const std::string jit = Variable("MILLRACE_JIT");
  options.jit = jit != "off" && jit != "0";
  options.jit_library = Variable("MILLRACE_JIT_LIBRARY");
  options.jit_cache = Variable("MILLRACE_JIT_CACHE");
  options.tls_cert = Variable("MILLRACE_TLS_CERT");
  options.tls_key = Variable("MILLRACE_TLS_KEY");
  options.tls_ca = Variable("MILLRACE_TLS_CA");
  options.token_file = Variable("MILLRACE_TOKEN_FILE");
  options.cluster_id = Variable("MILLRACE_CLUSTER_ID");
  return options;
}

std::vector<std::pair<std::string, std::string>> ProcessVariables() {
  std::vector<std::pair<std::string, std::string>> set;
  for (const char* name : {"MILLRACE_LOG_LEVEL", "MILLRACE_LOG_FORMAT", "MILLRACE_JIT"}) {
    if (std::string value = Variable(name); !value.empty()) set.emplace_back(name, value);
  }
  return set;
}

}  // namespace millrace
