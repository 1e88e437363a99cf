// SPDX-License-Identifier: Apache-2.0
// A master that clients of the same process call directly, until its server stops.
#ifndef DISTRIBUTED_RUNTIME_GATED_MASTER_H_
#define DISTRIBUTED_RUNTIME_GATED_MASTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "session/master_interface.h"

namespace millrace {

// Passes calls on while it is open. Clients may keep it longer than its server lives. Once
// closed every call is Unavailable. Thread-safe.
class GatedMaster : public MasterInterface {
 public:
  // `name` is how errors call the server: its target.
  GatedMaster(MasterInterface* master, std::string name);
  ~GatedMaster() override;

  // Lets no new call in, cancels those that are still inside at `grace`, and waits until all
  // have ended: the master may then go.
  void Close(Deadline grace);

  void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                          CreateSessionResult* result, Done done) override;
  void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                          int64_t* new_graph_version, Done done) override;
  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override;
  void PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                            std::string* partial_run_handle, Done done) override;
  void MakeCallableAsync(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                         Done done) override;
  void RunCallableAsync(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                        Done done) override;
  void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                            int64_t callable, Done done) override;
  void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                         Done done) override;
  void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                        ListDevicesResult* result, Done done) override;
  void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                  std::vector<std::string> device_filters, Done done) override;

 private:
  struct Call;
  // Calls `body` with the options and callback that keep count; refuses once closed. A step whose
  // `request_id` is 0 has one meanwhile, by which other tasks and its error call it.
  template <typename Body>
  void Pass(const CallOptions& options, Done done, Body body, int64_t* request_id = nullptr);
  void Leave(Call* call);

  MasterInterface* const master_;
  const std::string name_;
  Mutex mu_;
  CondVar empty_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  Call* first_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// The masters of the servers of this process, by the address they listen on.
void PublishMaster(std::string address, std::shared_ptr<GatedMaster> master);
void WithdrawMaster(std::string_view address);
// Null if no server of this process listens there.
std::shared_ptr<MasterInterface> FindPublishedMaster(std::string_view address);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GATED_MASTER_H_
