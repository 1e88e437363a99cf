// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/flags_in_force.h"

#include <algorithm>

#include "base/options/engine_options.h"
#include "base/strings.h"
#include "distributed_runtime/method_limits.h"
#include "session/inter_op_pools.h"
namespace millrace {

std::vector<std::pair<std::string, std::string>> FlagsInForce(const ServerOptions& server,
                                                              const EngineOptions& engine,
                                                              const RpcLimits& limits) {
  std::vector<std::pair<std::string, std::string>> flags = {
      {"cluster_spec", server.cluster.ToString()},
      {"cpus", StrCat(server.num_cpu_devices)},
      {"inter_op_threads", StrCat(ThreadsOrCores(std::max(0, server.inter_op_threads)))},
      {"intra_op_threads", StrCat(ThreadsOrCores(std::max(0, server.intra_op_threads)))},
      {"peer_timeout", StrCat(server.peer_timeout.count(), " ms")},
      {"insecure", server.insecure ? "true" : "false"},
      {"accept_shutdown", server.accept_shutdown ? "true" : "false"},
      {"max_message_size", StrCat(limits.max_message_size)},
      {"max_connections", StrCat(limits.max_connections)},
      {"max_calls", StrCat(limits.max_calls)},
      {"max_method_calls", ToText(limits.max_method_calls)},
      {"gpus", server.num_gpu_devices < 0 ? "all" : StrCat(server.num_gpu_devices)},
  };
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) flags.emplace_back(name, value);
  };
  const auto add_quota = [&](const char* name, int64_t quota) {
    if (quota > 0) flags.emplace_back(name, StrCat(quota));
  };
  add_quota("max_sessions", server.quotas.max_sessions);
  add_quota("max_graph_nodes", server.quotas.max_graph_nodes);
  add_quota("max_graph_size", server.quotas.max_graph_size);
  add_quota("max_steps", server.quotas.max_steps);
  add_quota("session_memory_limit", server.quotas.session_memory_limit);
  add("allow", StrJoin(server.allow, ","));
  add("file_root", server.file_root);
  add("dump_dir", server.dump_dir);
  add("cluster_id", server.cluster_id);
  add("visible_gpus", server.visible_gpus);
  if (server.gpu_memory_fraction > 0) {
    flags.emplace_back("gpu_memory_fraction", StrCat(server.gpu_memory_fraction));
  }
  if (server.gpu_allow_growth) flags.emplace_back("gpu_allow_growth", "true");
  // The environment speaks where the options name no file at all.
  const Credentials& files = server.credentials;
  const ProcessOptions process = ProcessOptions::FromEnvironment();
  add("tls_cert", files.empty() ? process.tls_cert : files.tls_cert);
  add("tls_key", files.empty() ? process.tls_key : files.tls_key);
  add("tls_ca", files.empty() ? process.tls_ca : files.tls_ca);
  add("token_file", files.empty() ? process.token_file : files.token_file);
  add_quota("step_memory_limit", engine.step_memory_limit);
  if (engine.session_idle_limit.count() > 0) {
    flags.emplace_back("session_idle_limit", StrCat(engine.session_idle_limit.count(), " ms"));
  }
  flags.emplace_back("capture", engine.capture ? "on" : "off");
  flags.emplace_back("fusion", engine.fusion ? "on" : "off");
  for (auto& variable : ProcessVariables()) flags.push_back(std::move(variable));
  return flags;
}

}  // namespace millrace
