// SPDX-License-Identifier: Apache-2.0
// A task that is not called: whoever asks something of it is told why.
#ifndef DISTRIBUTED_RUNTIME_STUB_REFUSING_WORKER_H_
#define DISTRIBUTED_RUNTIME_STUB_REFUSING_WORKER_H_

#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "session/worker_interface.h"

namespace millrace {

// Thread-safe. Answers on `pool`, as stubs do; it must outlive the last answer.
class RefusingWorker final : public WorkerInterface {
 public:
  RefusingWorker(Status why, ThreadPool* pool) : why_(std::move(why)), pool_(pool) {}

  void GetStatusAsync(const CallOptions&, std::vector<pb::DeviceAttributes>*, Done done) override {
    Refuse(std::move(done));
  }
  void CreateSessionAsync(const CallOptions&, const WorkerSessionOptions&, Done done) override {
    Refuse(std::move(done));
  }
  void DeleteSessionAsync(const CallOptions&, const std::string&, Done done) override {
    Refuse(std::move(done));
  }
  void RegisterGraphAsync(const CallOptions&, RegisterGraphArgs, std::string*, Done done) override {
    Refuse(std::move(done));
  }
  void DeregisterGraphAsync(const CallOptions&, const std::string&, const std::string&,
                            Done done) override {
    Refuse(std::move(done));
  }
  void RunGraphAsync(const CallOptions&, RunGraphArgs*, RunGraphResult*, Done done) override {
    Refuse(std::move(done));
  }
  void CleanupGraphAsync(const CallOptions&, int64_t, Done done) override {
    Refuse(std::move(done));
  }
  void CleanupAllAsync(const CallOptions&, std::vector<std::string>, Done done) override {
    Refuse(std::move(done));
  }
  void RecvTensorAsync(const CallOptions&, int64_t, const std::string&, RecvDone done) override {
    Refuse([done = std::move(done)](const Status& why) { done(why, Tensor(), false); });
  }

 private:
  void Refuse(Done done) {
    pool_->Schedule([why = why_, done = std::move(done)] { done(why); });
  }

  const Status why_;
  ThreadPool* const pool_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_REFUSING_WORKER_H_
