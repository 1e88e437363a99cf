// SPDX-License-Identifier: Apache-2.0
// An evaluation as a monitored session whose last hook fetches what is asked for.
#include <cstdio>

#include "base/status_macros.h"
#include "millrace/monitored_session.h"
#include "training/hooks/hook_support.h"

namespace millrace {

StatusOr<std::vector<Tensor>> EvaluateOnce(Graph& graph, const EvaluateOnceOptions& options) {
  const auto final_ops = std::make_shared<FinalOpsHook>(
      SessionRunArgs{.fetches = options.final_ops, .feeds = options.feeds});
  MonitoredSessionOptions monitored;
  monitored.session = options.session;
  monitored.scaffold = options.scaffold;
  monitored.hooks = options.hooks;
  monitored.hooks.push_back(final_ops);
  monitored.checkpoint_path = options.checkpoint_path;
  monitored.keep_values = false;
  monitored.log = options.io.log;
  const int64_t begin = hooks::Now(options.io);
  MR_ASSIGN_OR_RETURN(const auto session, MonitoredSession::Create(graph, monitored));
  if (options.eval_ops.empty()) {
    MR_RETURN_IF_ERROR(session->Close());
  } else {
    MR_RETURN_IF_ERROR(session->RunUntilStop(
        [&] { return session->Run(options.feeds, {}, options.eval_ops).status(); }));
  }
  char text[64];
  std::snprintf(text, sizeof(text), "Inference Time : %.5fs",
                static_cast<double>(hooks::Now(options.io) - begin) * 1e-9);
  hooks::Log(options.io, text);
  return final_ops->values();
}

}  // namespace millrace
