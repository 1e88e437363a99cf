// SPDX-License-Identifier: Apache-2.0
// Puts the rows of calls that wait together into one step, and hands each call its rows of what
// comes back. Nothing is waited for: a step takes what has come while others ran.
#ifndef SERVING_BATCHER_H_
#define SERVING_BATCHER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"
#include "base/thread_pool.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

struct BatchingOptions {
  int64_t max_rows = 64;  // of one step; a call with more has one of its own. 1: none are joined
  int steps_at_once = 1;  // at least 1
  int64_t max_waiting = 10'000;  // calls; more are answered with ResourceExhausted
};

// Thread-safe.
class Batcher {
 public:
  // Computes outputs of inputs; the first axis of all tensors is that of rows if they are joined.
  using Step = std::function<Status(std::span<const Tensor> inputs, std::vector<Tensor>* outputs)>;
  using Done = std::function<void(const Status& status, std::vector<Tensor> outputs)>;

  // `joins`: whether rows of several calls may go through one step. Steps run on `pool`, which must
  // outlive this.
  Batcher(Step step, bool joins, const BatchingOptions& options, ThreadPool* pool);
  // Waits until all calls are answered.
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // `done` is called once, on a thread of the pool or this one. Calls with tensors of the same
  // types and shapes beyond the first axis are joined; where a joined step fails, each of its calls
  // has a step of its own, so that none gets the error of another. A call whose deadline passes
  // before its step begins is answered DeadlineExceeded.
  void Submit(std::vector<Tensor> inputs, Deadline deadline, Done done);

 private:
  struct Call {
    std::vector<Tensor> inputs;
    int64_t rows = 0;  // 0: is not joined
    Deadline deadline;
    Done done;
  };

  void Work();
  std::vector<Call> TakeBatch();
  void Run(std::vector<Call>* batch);
  void RunAlone(Call* call);
  // False if the step failed or its outputs do not have the rows: nobody was answered.
  bool RunJoined(std::vector<Call>* batch);

  const Step step_;
  const bool joins_;
  const BatchingOptions options_;
  ThreadPool* const pool_;
  Mutex mu_;
  CondVar idle_;
  std::deque<Call> waiting_ ABSL_GUARDED_BY(mu_);
  int working_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // SERVING_BATCHER_H_
