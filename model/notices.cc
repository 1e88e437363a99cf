// SPDX-License-Identifier: Apache-2.0
// How workers learn that one of them is to end: each step's gradients bring it to all, so that none
// waits in a collective for one that has ended. What each was told has a place of its own in a
// short vector, which is added up in the pack of the gradients.
#include <algorithm>

#include "base/status_macros.h"
#include "millrace/math.h"
#include "millrace/preemption.h"
#include "model/steps.h"

namespace millrace::model {
namespace {

// Of the values that are added up anyhow, so that there is no other exchange; all of these types
// hold the number of a signal.
DataType TypeOfPack(std::span<const PerReplica> gradients) {
  for (const PerReplica& gradient : gradients) {
    for (const Output& value : gradient.values) {
      if (!value.valid()) continue;
      const DataType type = value.dtype();
      if (type == kFloat || type == kDouble || type == kHalf || type == kBfloat16) return type;
    }
  }
  return kFloat;
}

}  // namespace

void Steps::AddNotice(const Scope& scope, std::vector<PerReplica>* gradients, Function* function) {
  const Scope named = scope.Named("notice");
  function->own_notice =
      Placeholder(named, kFloat, PartialShape({strategy_->num_workers()}), where_);
  PerReplica notice;
  notice.values.resize(static_cast<std::size_t>(strategy_->num_local_replicas()));
  const Scope first = strategy_->ReplicaScope(named, 0);
  notice.values[0] = Expr(first, function->own_notice).Cast(TypeOfPack(*gradients));
  gradients->push_back(std::move(notice));
}

Tensor Steps::OwnNotice() const {
  // Bounded: a number for each worker.
  Tensor own(kFloat, Shape({strategy_->num_workers()}));
  const std::span<float> signals = own.flat<float>();
  std::fill(signals.begin(), signals.end(), 0.0f);
  signals[static_cast<std::size_t>(strategy_->worker())] = static_cast<float>(PreemptionSignal());
  return own;
}

// As if each worker had been told what the first one was.
Status Steps::HearNotices(const Tensor& notices) {
  MR_ASSIGN_OR_RETURN(const std::span<const float> signals, notices.TryFlat<float>());
  const auto told = std::find_if(signals.begin(), signals.end(), [](float s) { return s != 0; });
  notice_of_all_ = told == signals.end() ? 0 : static_cast<int>(*told);
  if (notice_of_all_ != 0) NoticePreemption(notice_of_all_);
  return OkStatus();
}

int Steps::notice() const {
  return strategy_->num_workers() > 1 ? notice_of_all_ : PreemptionSignal();
}

}  // namespace millrace::model
