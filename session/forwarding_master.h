// SPDX-License-Identifier: Apache-2.0
// A master in front of another one, for those that change what few calls do.
#ifndef SESSION_FORWARDING_MASTER_H_
#define SESSION_FORWARDING_MASTER_H_

#include <string>
#include <utility>
#include <vector>

#include "session/master_interface.h"

namespace millrace {

// Passes on what is not overridden.
class ForwardingMaster : public MasterInterface {
 public:
  // `master` must outlive this one and its calls.
  explicit ForwardingMaster(MasterInterface* master) : master_(master) {}

  void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                          CreateSessionResult* result, Done done) override {
    master_->CreateSessionAsync(options, std::move(args), result, std::move(done));
  }
  void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                          int64_t* new_graph_version, Done done) override {
    master_->ExtendSessionAsync(options, std::move(args), new_graph_version, std::move(done));
  }
  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override {
    master_->RunStepAsync(options, args, result, std::move(done));
  }
  void PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                            std::string* partial_run_handle, Done done) override {
    master_->PartialRunSetupAsync(options, std::move(args), partial_run_handle, std::move(done));
  }
  void MakeCallableAsync(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                         Done done) override {
    master_->MakeCallableAsync(options, std::move(args), callable, std::move(done));
  }
  void RunCallableAsync(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                        Done done) override {
    master_->RunCallableAsync(options, args, result, std::move(done));
  }
  void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                            int64_t callable, Done done) override {
    master_->ReleaseCallableAsync(options, session_handle, callable, std::move(done));
  }
  void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                         Done done) override {
    master_->CloseSessionAsync(options, session_handle, std::move(done));
  }
  void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                        ListDevicesResult* result, Done done) override {
    master_->ListDevicesAsync(options, session_handle, result, std::move(done));
  }
  void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                  std::vector<std::string> device_filters, Done done) override {
    master_->ResetAsync(options, std::move(containers), std::move(device_filters), std::move(done));
  }

 protected:
  MasterInterface* master() const { return master_; }

 private:
  MasterInterface* const master_;
};

}  // namespace millrace

#endif  // SESSION_FORWARDING_MASTER_H_
