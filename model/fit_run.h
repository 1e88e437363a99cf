// SPDX-License-Identifier: Apache-2.0
// One call of Fit: its loop, and what a run that goes on from it needs to know.
#ifndef MODEL_FIT_RUN_H_
#define MODEL_FIT_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/status_macros.h"
#include "millrace/training_run.h"
#include "model/loops.h"
#include "model/notices.h"

namespace millrace::model {

class FitRun : public TrainingRun, public KnowsNotices {
 public:
  // `validation` may be null.
  FitRun(Model* model, Steps* steps, const FitOptions& options, std::unique_ptr<Source> train,
         std::unique_ptr<Source> validation, int64_t count);

  StatusOr<History> Run();

  int64_t epoch() const override { return epoch_; }
  int64_t batch() const override { return batch_; }
  int num_workers() const override { return steps_.strategy().num_workers(); }
  int worker() const override { return steps_.strategy().worker(); }
  StatusOr<std::vector<int64_t>> OfAllWorkers(int64_t value) override {
    return steps_.OfAllWorkers(value);
  }
  int notice() const override { return steps_.notice(); }
  void AfterHook(std::string owner, std::function<Status()> action) override {
    after_hook_.emplace_back(std::move(owner), std::move(action));
  }
  StatusOr<TrainingState> State() override;
  Status SetState(TrainingState state) override;

 private:
  Status Epoch();
  Status BeginEpoch();
  Status Executions();
  StatusOr<int64_t> Execution();
  Status EndEpoch();
  // The hook of all callbacks, then what they want to have done after it.
  template <typename Hook, typename... Place>
  Status Call(const Hook& hook, const Place&... place) {
    after_hook_.clear();
    MR_RETURN_IF_ERROR(callbacks_.Call(hook, place...));
    return RunActions();
  }
  Status RunActions();
  void WarnOfEnd() const;
  bool ValidationIsDue() const;
  // Variables and data as `resumed_` has them.
  Status TakeUp();
  Status CheckState(const TrainingState& state) const;
  Status SetCallbackStates(const TrainingState& state);

  Model* const model_;
  Steps& steps_;
  const FitOptions& o_;
  const std::unique_ptr<Source> train_, validation_;
  const LoopParams params_;
  CallbackList callbacks_;
  const bool reads_logs_;
  int64_t epoch_, batch_ = 0;
  bool data_began_ = false;
  std::optional<TrainingState> resumed_;  // until the first step
  std::vector<std::pair<std::string, std::function<Status()>>> after_hook_;
  Logs logs_;  // of the last batch, then of the epoch
  History history_;
};

}  // namespace millrace::model

#endif  // MODEL_FIT_RUN_H_
