// SPDX-License-Identifier: Apache-2.0
#include "model/source.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "model/loops.h"

namespace millrace::model {
namespace {

class InMemory : public Source {
 public:
  InMemory(Steps* steps, Kind kind, std::unique_ptr<Batches> batches, Steps::Function* function)
      : steps_(*steps), kind_(kind), batches_(std::move(batches)), function_(function) {}

  int64_t count() const override { return batches_->count(); }
  std::string Size() const override { return StrCat(batches_->rows(), " samples"); }
  Status Restart() override {
    if (is_new_) {
      is_new_ = false;
    } else {
      batches_->Restart();
    }
    return OkStatus();
  }
  bool at_end() const override { return batches_->at_end(); }
  StatusOr<Tensor> Position() override {
    return is_new_ ? Tensor(kInt64, Shape({0})) : batches_->Position();
  }
  Status SetPosition(const Tensor& position) override {
    if (position.IsInitialized() && position.num_elements() == 0) return OkStatus();
    MR_RETURN_IF_ERROR(batches_->SetPosition(position));
    is_new_ = false;
    return OkStatus();
  }
  Status Step(Logs* logs) override {
    if (at_end()) return errors::OutOfRange("there are no more batches");
    const Batch batch = batches_->Next();
    const Status status = steps_.Run(function_, FeedsOf(kind_, batch), logs);
    return status.ok() ? status : ExplainFailure(steps_, status);
  }
  // Samples that are there do not end within a step: what says so is an op of the model.
  bool IsEnd(const Status&) const override { return false; }
  Status Execute(int64_t limit, Logs* logs, int64_t* done) override {
    if (!steps_.HasExecutions(*function_)) return Source::Execute(limit, logs, done);
    *done = 0;
    const int64_t steps = std::min(limit, batches_->left());
    if (steps == 0) return OkStatus();
    const Batch rows = batches_->Next(steps);
    const Status status = steps_.Execute(kind_, function_, FeedsOf(kind_, rows),
                                         batches_->batch_size(), steps, logs, done);
    return status.ok() ? status : ExplainFailure(steps_, status);
  }
  StatusOr<std::vector<Tensor>> Predict() override {
    if (at_end()) return errors::OutOfRange("there are no more batches");
    return steps_.Predict(function_, FeedsOf(kind_, batches_->Next()));
  }

 private:
  Steps& steps_;
  const Kind kind_;
  const std::unique_ptr<Batches> batches_;
  Steps::Function* const function_;
  bool is_new_ = true;
};

}  // namespace

bool Source::IsEnd(const Status& status) const { return errors::IsOutOfRange(status) && at_end(); }

Status Source::Execute(int64_t limit, Logs* logs, int64_t* done) {
  for (*done = 0; *done < limit && !at_end(); ++*done) MR_RETURN_IF_ERROR(Step(logs));
  return OkStatus();
}

StatusOr<std::unique_ptr<Source>> MakeSource(Steps* steps, Kind kind,
                                             std::unique_ptr<Batches> batches) {
  const Batch like = RowsOf(batches->all(), 0, 1);
  MR_ASSIGN_OR_RETURN(Steps::Function * function, steps->FunctionFor(kind, like));
  if (kind != Kind::kPredict) MR_RETURN_IF_ERROR(CheckLabels(*steps, batches->all().y));
  return std::make_unique<InMemory>(steps, kind, std::move(batches), function);
}

}  // namespace millrace::model
