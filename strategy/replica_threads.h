// SPDX-License-Identifier: Apache-2.0
// How a function is called once for each replica, so that the calls may wait for each other.
#ifndef STRATEGY_REPLICA_THREADS_H_
#define STRATEGY_REPLICA_THREADS_H_

#include <vector>

#include "base/mutex.h"
#include "millrace/strategy.h"

namespace millrace {

// Replicas run on threads of their own, one at a time in the order of their numbers, since a graph
// is built by one thread at a time. A replica that calls Merge stands still until all have done so,
// or have ended. Used once.
class ReplicaThreads : public ReplicaContext::Meeting {
 public:
  // `outside`: where merges take place; one scope for each replica.
  ReplicaThreads(Strategy* strategy, const Scope& outside, std::vector<Scope> scopes);

  StatusOr<std::vector<PerReplica>> Run(const Strategy::ReplicaFunction& function);
  Output Merge(int local, const Output& value, const ReplicaContext::Merge& merge) override;

 private:
  static constexpr int kNobody = -1;  // the thread that called Run goes on

  struct Replica {
    std::vector<Output> results;
    Output brought, taken;
    bool waits = false, ended = false;
  };
  void Body(int local, const Strategy::ReplicaFunction& function);
  void LetRun(int local);
  void WaitForTurn(int of);
  Status MergeAll();

  Strategy* const strategy_;
  const Scope outside_;
  const std::vector<Scope> scopes_;
  Mutex mu_;
  CondVar turned_;
  int turn_ ABSL_GUARDED_BY(mu_) = kNobody;
  // Touched by the thread whose turn it is.
  std::vector<Replica> replicas_;
  ReplicaContext::Merge merge_;
  Status first_error_;
};

}  // namespace millrace

#endif  // STRATEGY_REPLICA_THREADS_H_
