// SPDX-License-Identifier: Apache-2.0
// MonitoredTrainingSession: the usual hooks.
#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/monitored_session.h"

namespace millrace {
namespace {

using OptionalTime = std::optional<std::chrono::milliseconds>;

// The one that is given, or `otherwise`. Nothing set: never.
StatusOr<Every> Choose(const char* what, const OptionalTime& time,
                       const std::optional<int64_t>& steps, const Every& otherwise) {
  if (time && steps) {
    return errors::InvalidArgument("save_", what, "_time and save_", what,
                                   "_steps exclude each other; both were given");
  }
  if (time) return Every{.time = *time};
  if (steps) return Every{.steps = *steps};
  return otherwise;
}

bool IsNever(const Every& every) { return every.steps == 0 && every.time.count() == 0; }

}  // namespace

StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(
    Graph& graph, const MonitoredTrainingOptions& options) {
  constexpr std::chrono::seconds kSaveEvery{600};
  MR_ASSIGN_OR_RETURN(const Every checkpoints,
                      Choose("checkpoint", options.save_checkpoint_time,
                             options.save_checkpoint_steps, {.time = kSaveEvery}));
  MR_ASSIGN_OR_RETURN(const Every summaries, Choose("summaries", options.save_summaries_time,
                                                    options.save_summaries_steps, {.steps = 100}));
  MonitoredSessionOptions session;
  session.session = options.session;
  session.is_chief = options.is_chief;
  session.scaffold = options.scaffold ? options.scaffold : std::make_shared<Scaffold>();
  session.keep_values = options.keep_values;
  session.stop_grace_period = options.stop_grace_period;
  session.max_wait = options.max_wait;
  session.recovery_wait = options.recovery_wait;
  session.max_recoveries = options.max_recoveries;
  session.on_wait = options.on_wait;
  session.log = options.io.log;
  if (!options.is_chief) {
    session.hooks = options.hooks;
    return MonitoredSession::Create(graph, std::move(session));
  }
  session.checkpoint_dir = options.checkpoint_dir;
  const std::string& summary_dir =
      options.summary_dir.empty() ? options.checkpoint_dir : options.summary_dir;
  std::vector<HookPtr>& hooks = session.hooks;
  hooks = options.chief_only_hooks;
  if (!summary_dir.empty() && options.log_step_count_steps != 0) {
    hooks.push_back(StepCounterHook({.every = {.steps = options.log_step_count_steps},
                                     .output_dir = summary_dir,
                                     .steps_per_run = options.steps_per_run,
                                     .io = options.io}));
  }
  if (!summary_dir.empty() && !IsNever(summaries)) {
    hooks.push_back(SummarySaverHook({.output_dir = summary_dir,
                                      .every = summaries,
                                      .scaffold = session.scaffold,
                                      .io = options.io}));
  }
  if (!options.checkpoint_dir.empty() && !IsNever(checkpoints)) {
    hooks.push_back(CheckpointSaverHook({.checkpoint_dir = options.checkpoint_dir,
                                         .every = checkpoints,
                                         .scaffold = session.scaffold,
                                         .save_graph_def = options.save_graph_def,
                                         .steps_per_run = options.steps_per_run,
                                         .io = options.io}));
  }
  hooks.insert(hooks.end(), options.hooks.begin(), options.hooks.end());
  return MonitoredSession::Create(graph, std::move(session));
}

}  // namespace millrace
