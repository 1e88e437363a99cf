// SPDX-License-Identifier: Apache-2.0
// Hooks that bring values into steps and out of them.
#include <cstdio>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/hooks.h"
#include "training/hooks/hook_support.h"

namespace millrace {
namespace {

class LoggingTensor : public SessionRunHook {
 public:
  explicit LoggingTensor(const LoggingTensorOptions& options) : options_(options) {}

  Status Begin(Graph&) override {
    for (const auto& [name, tensor] : options_.tensors) {
      if (tensor.valid()) continue;
      return errors::InvalidArgument("LoggingTensorHook: there is no tensor behind \"", name, "\"");
    }
    run_ = 0;
    const bool never = options_.every.steps == 0 && options_.every.time.count() == 0;
    if (never && options_.at_end) return OkStatus();
    MR_ASSIGN_OR_RETURN(timer_, StepTimer::Create(options_.every, options_.io));
    return OkStatus();
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    is_due_ = timer_ && timer_->ShouldTrigger(run_);
    return is_due_ ? SessionRunArgs{.fetches = Tensors()} : SessionRunArgs();
  }
  Status AfterRun(SessionRunContext&, const SessionRunValues& values) override {
    if (is_due_) LogValues(values.results);
    ++run_;
    return OkStatus();
  }
  Status End(Session& session) override {
    if (!options_.at_end) return OkStatus();
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, session.Run({}, Tensors()));
    LogValues(values);
    return OkStatus();
  }

 private:
  std::vector<Output> Tensors() const {
    std::vector<Output> tensors;
    for (const auto& [name, tensor] : options_.tensors) tensors.push_back(tensor);
    return tensors;
  }
  void LogValues(std::span<const Tensor> values) {
    const std::optional<StepTimer::Elapsed> elapsed = timer_ ? timer_->Update(run_) : std::nullopt;
    if (options_.formatter) {
      hooks::Log(options_.io, options_.formatter(values));
      return;
    }
    std::string line;
    for (std::size_t i = 0; i < values.size(); ++i) {
      StrAppend(&line, i == 0 ? "" : ", ", options_.tensors[i].first, " = ",
                hooks::FormatValue(values[i]));
    }
    if (elapsed) {
      char text[64];
      std::snprintf(text, sizeof(text), " (%.3f sec)", elapsed->seconds);
      line += text;
    }
    hooks::Log(options_.io, line);
  }

  const LoggingTensorOptions options_;
  std::optional<StepTimer> timer_;
  int64_t run_ = 0;
  bool is_due_ = false;
};

class FeedFn : public SessionRunHook {
 public:
  explicit FeedFn(std::function<StatusOr<std::vector<Feed>>()> feed_fn)
      : feed_fn_(std::move(feed_fn)) {}
  Status Begin(Graph&) override {
    if (feed_fn_) return OkStatus();
    return errors::InvalidArgument("FeedFnHook was given no function to call");
  }
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext&) override {
    MR_ASSIGN_OR_RETURN(std::vector<Feed> feeds, feed_fn_());
    return SessionRunArgs{.feeds = std::move(feeds)};
  }

 private:
  const std::function<StatusOr<std::vector<Feed>>()> feed_fn_;
};

}  // namespace

HookPtr LoggingTensorHook(const LoggingTensorOptions& options) {
  return std::make_shared<LoggingTensor>(options);
}
HookPtr FeedFnHook(std::function<StatusOr<std::vector<Feed>>()> feed_fn) {
  return std::make_shared<FeedFn>(std::move(feed_fn));
}

Status FinalOpsHook::End(Session& session) {
  StatusOr<std::vector<Tensor>> values =
      session.Run(final_ops_.feeds, final_ops_.fetches, final_ops_.targets, final_ops_.options);
  if (!values.ok()) {
    if (!errors::IsOutOfRange(values.status())) return values.status();
    return Annotate(
        values.status(),
        "; the final ops have come to the end of the input: what they depend on reads "
        "the next elements of it, as each step does. Let them depend on variables only");
  }
  values_ = *std::move(values);
  return OkStatus();
}

}  // namespace millrace
