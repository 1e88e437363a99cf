// SPDX-License-Identifier: Apache-2.0
// Hooks that write into the event files that TensorBoard reads.
#include <cstdio>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/hooks.h"
#include "millrace/monitored_session.h"
#include "millrace/step_trace.h"
#include "training/hooks/hook_support.h"
#include "training/hooks/timeline.h"

namespace millrace {
namespace {

// What is given, or that of the directory. `Options`: with both of them.
template <typename Options>
StatusOr<std::shared_ptr<EventWriter>> WriterOf(const Options& options, const Graph& graph) {
  if (!options.summary_writer) return hooks::EventWriterFor(options.output_dir, graph);
  if (options.output_dir.empty()) return options.summary_writer;
  return errors::InvalidArgument("both a directory (", options.output_dir,
                                 ") and a summary writer were given; events go to one of them");
}

class StepCounter : public SessionRunHook {
 public:
  explicit StepCounter(const StepCounterOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    MR_ASSIGN_OR_RETURN(timer_, StepTimer::Create(options_.every, options_.io));
    MR_RETURN_IF_ERROR(hooks::CheckStepsPerRun("StepCounterHook", options_.steps_per_run));
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "StepCounterHook"));
    tag_ = StrCat(Variables(graph, kGlobalStep).front().name(), "/sec");
    if (options_.output_dir.empty() && !options_.summary_writer) return OkStatus();
    MR_ASSIGN_OR_RETURN(events_, WriterOf(options_, graph));
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    return SessionRunArgs{.fetches = {global_step_}};
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    MR_ASSIGN_OR_RETURN(const int64_t before, hooks::StepIn(values.results[0]));
    if (timer_->ShouldTrigger(before + options_.steps_per_run)) {
      MR_ASSIGN_OR_RETURN(const int64_t step, hooks::ReadStep(context.session(), global_step_));
      if (timer_->ShouldTrigger(step)) {
        const std::optional<StepTimer::Elapsed> elapsed = timer_->Update(step);
        if (elapsed) MR_RETURN_IF_ERROR(Tell(*elapsed, step));
      }
    }
    WarnIfItStands(before);
    return OkStatus();
  }
  Status End(Session&) override { return events_ ? events_->Flush() : OkStatus(); }

 private:
  Status Tell(const StepTimer::Elapsed& elapsed, int64_t step) {
    const double rate = static_cast<double>(elapsed.steps) / elapsed.seconds;
    char text[64];
    std::snprintf(text, sizeof(text), ": %g", rate);
    hooks::Log(options_.io, tag_ + text);
    return events_ ? hooks::WriteNumber(*events_, tag_, rate, step) : OkStatus();
  }
  void WarnIfItStands(int64_t step) {
    constexpr int kMostWarnings = 5;
    if (step == last_fetched_ && warnings_ < kMostWarnings) {
      ++warnings_;
      hooks::Log(options_.io, StrCat("the global step stays at ", step,
                                     " although steps are run: give it to the optimizer's "
                                     "Minimize or ApplyGradients, which lets it grow"));
    }
    last_fetched_ = step;
  }

  const StepCounterOptions options_;
  std::optional<StepTimer> timer_;
  Output global_step_;
  std::string tag_;
  std::shared_ptr<EventWriter> events_;
  std::optional<int64_t> last_fetched_;
  int warnings_ = 0;
};

class SummarySaver : public SessionRunHook {
 public:
  explicit SummarySaver(const SummarySaverOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    if (options_.summary_ops.empty() == (options_.scaffold == nullptr)) {
      return errors::InvalidArgument(
          "SummarySaverHook: exactly one of summary ops and a scaffold must be given");
    }
    MR_ASSIGN_OR_RETURN(timer_, StepTimer::Create(options_.every, options_.io));
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "SummarySaverHook"));
    MR_ASSIGN_OR_RETURN(events_, WriterOf(options_, graph));
    next_step_.reset();
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    is_due_ = !next_step_ || timer_->ShouldTrigger(*next_step_);
    SessionRunArgs args{.fetches = {global_step_}};
    if (is_due_) {
      for (const Output& op : SummaryOps()) args.fetches.push_back(op);
    }
    return args;
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    MR_ASSIGN_OR_RETURN(int64_t step, hooks::StepIn(values.results[0]));
    ++step;
    if (is_due_) {
      MR_ASSIGN_OR_RETURN(step, hooks::ReadStep(context.session(), global_step_));
    }
    if (!next_step_) MR_RETURN_IF_ERROR(events_->WriteSessionStart(step));
    if (is_due_) {
      timer_->Update(step);
      for (const Tensor& summaries : values.results.subspan(1)) {
        MR_ASSIGN_OR_RETURN(const auto texts, summaries.TryFlat<std::string>());
        for (const std::string& summary : texts) {
          MR_RETURN_IF_ERROR(events_->WriteSummary(summary, step));
        }
      }
    }
    next_step_ = step + 1;
    return OkStatus();
  }
  Status End(Session&) override { return events_->Flush(); }

 private:
  std::vector<Output> SummaryOps() const {
    if (!options_.scaffold) return options_.summary_ops;
    const Output& op = options_.scaffold->summary_op;
    return op.valid() ? std::vector<Output>{op} : std::vector<Output>();
  }

  const SummarySaverOptions options_;
  std::optional<StepTimer> timer_;
  Output global_step_;
  std::shared_ptr<EventWriter> events_;
  std::optional<int64_t> next_step_;
  bool is_due_ = false;
};

class Profiler : public SessionRunHook {
 public:
  explicit Profiler(const ProfilerOptions& options) : options_(options) {}

  Status Begin(Graph& graph) override {
    MR_ASSIGN_OR_RETURN(timer_, StepTimer::Create(options_.every, options_.io));
    MR_ASSIGN_OR_RETURN(global_step_, hooks::GlobalStepOf(graph, "ProfilerHook"));
    MR_ASSIGN_OR_RETURN(events_, hooks::EventWriterFor(options_.output_dir, graph));
    next_step_.reset();
    graph_ = &graph;
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    is_due_ = next_step_ && timer_->ShouldTrigger(*next_step_);
    SessionRunArgs args{.fetches = {global_step_}};
    args.options.trace = is_due_;
    return args;
  }
  Status AfterRun(SessionRunContext& context, const SessionRunValues& values) override {
    MR_ASSIGN_OR_RETURN(int64_t step, hooks::StepIn(values.results[0]));
    if (!next_step_) timer_->Update(step);
    ++step;
    if (is_due_) {
      MR_ASSIGN_OR_RETURN(step, hooks::ReadStep(context.session(), global_step_));
      timer_->Update(step);
      MR_RETURN_IF_ERROR(Save(step, values.metadata));
    }
    next_step_ = step + 1;
    return OkStatus();
  }
  Status End(Session&) override { return events_->Flush(); }

 private:
  Status Save(int64_t step, const RunMetadata& metadata) {
    const std::string file = StrCat(options_.output_dir, "/timeline-", step, ".json");
    hooks::Log(options_.io, StrCat("Saving timeline for ", step, " into '", file, "'."));
    MR_ASSIGN_OR_RETURN(const std::string trace, StepTrace(metadata.step_stats));
    MR_ASSIGN_OR_RETURN(
        const std::string timeline,
        hooks::Timeline(trace, *graph_, options_.show_dataflow, options_.show_memory));
    MR_RETURN_IF_ERROR(PosixFileSystem()->WriteFileAtomically(file, timeline));
    return events_->WriteRunMetadata(StrCat("step_", step), metadata, step);
  }

  const ProfilerOptions options_;
  const Graph* graph_ = nullptr;  // outlives the monitored session
  std::optional<StepTimer> timer_;
  Output global_step_;
  std::shared_ptr<EventWriter> events_;
  std::optional<int64_t> next_step_;
  bool is_due_ = false;
};

}  // namespace

HookPtr StepCounterHook(const StepCounterOptions& options) {
  return std::make_shared<StepCounter>(options);
}
HookPtr SummarySaverHook(const SummarySaverOptions& options) {
  return std::make_shared<SummarySaver>(options);
}
HookPtr ProfilerHook(const ProfilerOptions& options) { return std::make_shared<Profiler>(options); }

}  // namespace millrace
