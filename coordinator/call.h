// SPDX-License-Identifier: Apache-2.0
// One scheduled function: what it is given, and what became of it.
#ifndef COORDINATOR_CALL_H_
#define COORDINATOR_CALL_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

inline constexpr char kFunctionCancelled[] =
    "The corresponding function is cancelled. Please reschedule the function.";

// A function as it was added. Constant.
struct CoordinatedFunction {
  int id = 0;
  std::string name;
  FunctionParts parts;
  int per_worker_values = 0;  // so many, the first ones, exist for it to use
};

// What a RemoteValue stands for. Settled once: the first time counts. Thread-safe.
struct RemoteResult {
 public:
  using State = RemoteValue::State;
  RemoteResult(std::string function_name, std::chrono::milliseconds default_timeout)
      : function_(std::move(function_name)), default_timeout_(default_timeout) {}

  // False if it was settled before.
  bool Finish(int worker, std::vector<Tensor> outputs);
  bool Fail(Status why);

  State state() const;
  int worker() const;
  StatusOr<std::vector<Tensor>> Fetch(std::chrono::milliseconds timeout) const;

 private:
  const std::string function_;
  const std::chrono::milliseconds default_timeout_;
  mutable Mutex mu_;
  mutable CondVar settled_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kNotReady;
  Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<Tensor> outputs_ ABSL_GUARDED_BY(mu_);
  int worker_ ABSL_GUARDED_BY(mu_) = -1;
};

// What waits in the queue. Its fields are constant, but for the counters, which belong to whoever
// has taken it from there.
struct CoordinatedCall {
  std::shared_ptr<const CoordinatedFunction> function;
  std::vector<Tensor> inputs;
  std::shared_ptr<RemoteResult> result;
  int lost_with_worker = 0;   // how often
  int lost_with_session = 0;  // though no task was lost
};
using CoordinatedCallPtr = std::shared_ptr<CoordinatedCall>;

}  // namespace millrace

#endif  // COORDINATOR_CALL_H_
