// SPDX-License-Identifier: Apache-2.0
#include "strategy/replica_threads.h"

#include <algorithm>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/math.h"

namespace millrace {

int ReplicaContext::num_replicas_in_sync() const { return strategy_->num_replicas_in_sync(); }

Output ReplicaContext::MergeCall(const Output& value, const Merge& merge) {
  return meeting_->Merge(local_, value, merge);
}

Output ReplicaContext::AllReduce(ReduceOp op, const Output& value, std::source_location where) {
  const Output reduced = MergeCall(value, [&](const Scope& scope, const PerReplica& values) {
    const Output one = strategy_->Reduce(scope, op, values, where);
    return std::vector<Output>(values.values.size(), one);
  });
  return reduced.valid() ? ops::Identity(scope_, reduced) : reduced;
}

Output ReplicaContext::AllGather(const Output& value, int axis, std::source_location where) {
  const Output gathered = MergeCall(value, [&](const Scope& scope, const PerReplica& values) {
    const Output one = strategy_->Gather(scope, values, axis, where);
    return std::vector<Output>(values.values.size(), one);
  });
  return gathered.valid() ? ops::Identity(scope_, gathered) : gathered;
}

ReplicaThreads::ReplicaThreads(Strategy* strategy, const Scope& outside, std::vector<Scope> scopes)
    : strategy_(strategy),
      outside_(outside),
      scopes_(std::move(scopes)),
      replicas_(scopes_.size()) {}

void ReplicaThreads::WaitForTurn(int of) {
  MutexLock lock(&mu_);
  while (turn_ != of) turned_.Wait(&mu_);
}

void ReplicaThreads::LetRun(int local) {
  MutexLock lock(&mu_);
  turn_ = local;
  turned_.SignalAll();
}

void ReplicaThreads::Body(int local, const Strategy::ReplicaFunction& function) {
  WaitForTurn(local);
  Replica& self = replicas_[static_cast<std::size_t>(local)];
  ReplicaContext context(strategy_, strategy_->first_replica(), local,
                         scopes_[static_cast<std::size_t>(local)], this);
  self.results = function(context);
  self.ended = true;
  LetRun(kNobody);
}

Output ReplicaThreads::Merge(int local, const Output& value, const ReplicaContext::Merge& merge) {
  Replica& self = replicas_[static_cast<std::size_t>(local)];
  if (!first_error_.ok()) return Output();
  self.brought = value;
  self.waits = true;
  // That of the first replica is called for all.
  if (!merge_) merge_ = merge;
  LetRun(kNobody);
  WaitForTurn(local);
  self.waits = false;
  return self.taken;
}

// Every replica waits, or has ended.
Status ReplicaThreads::MergeAll() {
  const auto ended =
      std::find_if(replicas_.begin(), replicas_.end(), [](const Replica& r) { return r.ended; });
  PerReplica values;
  for (Replica& r : replicas_) {
    values.values.push_back(r.brought);
    r.taken = Output();
  }
  const ReplicaContext::Merge merge = std::move(merge_);
  merge_ = nullptr;
  if (ended != replicas_.end()) {
    const auto waits =
        std::find_if(replicas_.begin(), replicas_.end(), [](const Replica& r) { return !r.ended; });
    return errors::InvalidArgument(
        "replica ", ended - replicas_.begin() + strategy_->first_replica(),
        " has ended, and replica ", waits - replicas_.begin() + strategy_->first_replica(),
        " waits for it in MergeCall or AllReduce: all replicas must make the same calls");
  }
  for (const Output& value : values.values) {
    if (!value.valid()) {
      return errors::InvalidArgument(
          "a replica brought an output that is not valid to MergeCall or AllReduce: the call that "
          "should have made it failed");
    }
  }
  const std::vector<Output> merged = merge(outside_, values);
  if (merged.size() != replicas_.size()) {
    return errors::InvalidArgument("a function given to MergeCall returned ", merged.size(),
                                   " values for ", replicas_.size(), " replicas");
  }
  for (std::size_t i = 0; i < merged.size(); ++i) replicas_[i].taken = merged[i];
  return OkStatus();
}

StatusOr<std::vector<PerReplica>> ReplicaThreads::Run(const Strategy::ReplicaFunction& function) {
  const int count = static_cast<int>(replicas_.size());
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { Body(i, function); });
  const auto all_ended = [&] {
    return std::all_of(replicas_.begin(), replicas_.end(),
                       [](const Replica& r) { return r.ended; });
  };
  for (bool first = true; first || !all_ended(); first = false) {
    if (!first) {
      const Status merged = MergeAll();
      if (!merged.ok() && first_error_.ok()) first_error_ = merged;
    }
    for (int i = 0; i < count; ++i) {
      if (replicas_[static_cast<std::size_t>(i)].ended) continue;
      LetRun(i);
      WaitForTurn(kNobody);
    }
  }
  for (std::thread& thread : threads) thread.join();
  // What the graph says came before what follows from it.
  MR_RETURN_IF_ERROR(outside_.status());
  MR_RETURN_IF_ERROR(first_error_);
  std::vector<PerReplica> results(replicas_[0].results.size());
  for (const Replica& r : replicas_) {
    if (r.results.size() != results.size()) {
      return errors::InvalidArgument("replica ", strategy_->first_replica(), " returned ",
                                     results.size(), " values, and replica ",
                                     &r - replicas_.data() + strategy_->first_replica(), " ",
                                     r.results.size());
    }
    for (std::size_t i = 0; i < results.size(); ++i) results[i].values.push_back(r.results[i]);
  }
  return results;
}

}  // namespace millrace
