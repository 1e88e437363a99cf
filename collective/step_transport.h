// SPDX-License-Identifier: Apache-2.0
#ifndef COLLECTIVE_STEP_TRANSPORT_H_
#define COLLECTIVE_STEP_TRANSPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "collective/algorithms.h"
#include "collective/buffer_exchange.h"
#include "collective/known_tasks.h"

namespace millrace {

// The pieces of one step, and how it ends early.
class StepTransport final : public CollectiveTransport {
 public:
  StepTransport(std::shared_ptr<KnownTasks> tasks, int64_t step_id, RefPtr<BufferExchange> exchange)
      : tasks_(std::move(tasks)), step_id_(step_id), exchange_(std::move(exchange)) {}

  void Send(const std::string& key, Tensor piece, Sent sent) override {
    exchange_->Provide(key, std::move(piece), &cancellation_,
                       [self = RefPtr<StepTransport>::Share(this),
                        sent = std::move(sent)](const Status& status) { sent(status); });
  }
  void Receive(const std::string& key, int64_t num_bytes, const ResolvedCollective& collective,
               int src_rank, Received received) override;
  void Abort(const Status& reason) override;

  // Looks after the tasks of a group from now on: an error there ends the step here.
  void Watch(const CollectiveGroup& group, const std::string& device);
  // Adds the members of which pieces have not come.
  void ListWaits(std::vector<Wait>* waits) const;
  void StopWatching() { watching_.StartCancel(errors::Cancelled("the step has ended")); }

  CancellationManager* cancellation() { return &cancellation_; }
  Status aborted() const { return exchange_->aborted(); }
  int64_t step_id() const { return step_id_; }

 private:
  // A piece that has not come.
  struct Pending {
    const ResolvedCollective* collective;  // lives as long as that is so
    int src_rank;
    int64_t since_nanos;
  };

  const std::shared_ptr<KnownTasks> tasks_;
  const int64_t step_id_;
  const RefPtr<BufferExchange> exchange_;
  CancellationManager cancellation_;  // of everything but watching
  CancellationManager watching_;
  mutable Mutex mu_;
  int64_t next_pending_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, bool> watched_ ABSL_GUARDED_BY(mu_);  // by name
};

}  // namespace millrace

#endif  // COLLECTIVE_STEP_TRANSPORT_H_
