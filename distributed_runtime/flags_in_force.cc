#include "distributed_runtime/flags_in_force.h"

#include <algorithm>
#include <cstdlib>

#include "base/strings.h"
#include "session/inter_op_pools.h"
namespace millrace {

std::vector<std::pair<std::string, std::string>> FlagsInForce(const ServerOptions& server,
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
  const auto add_file = [&](const char* name, const std::string& file, const char* variable) {
    const char* const other = std::getenv(variable);
    // The environment speaks where the options name no file at all.
    const bool from_options = !server.credentials.empty() || other == nullptr;
    add(name, from_options ? file : std::string(other));
  };
  add_file("tls_cert", server.credentials.tls_cert, "MILLRACE_TLS_CERT");
  add_file("tls_key", server.credentials.tls_key, "MILLRACE_TLS_KEY");
  add_file("tls_ca", server.credentials.tls_ca, "MILLRACE_TLS_CA");
  add_file("token_file", server.credentials.token_file, "MILLRACE_TOKEN_FILE");
  for (const char* variable :
       {"MILLRACE_STEP_MEMORY_LIMIT", "MILLRACE_SESSION_IDLE_LIMIT", "MILLRACE_LOG_LEVEL",
        "MILLRACE_LOG_FORMAT", "MILLRACE_FUSION", "MILLRACE_JIT", "MILLRACE_CAPTURE"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr) add(variable, value);
  }
  return flags;
}

}  // namespace millrace
