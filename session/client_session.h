// SPDX-License-Identifier: Apache-2.0
// A session as a client holds it, over any master.
#ifndef SESSION_CLIENT_SESSION_H_
#define SESSION_CLIENT_SESSION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "session/master_interface.h"

namespace millrace {

// Calls block. Thread-safe; the destructor closes the session if Close was not called.
class ClientSession {
 public:
  struct Options {
    pb::ConfigProto config;
    std::chrono::milliseconds start_timeout{60'000};  // creating, extending, preparing
    // Of a run that names none; 0: no limit but the config's operation_timeout_in_ms.
    std::chrono::milliseconds step_timeout{300'000};
  };
  struct RunRequest {
    std::vector<std::pair<std::string, Tensor>> feeds;
    std::vector<std::string> fetches;  // "n" or "n:0"
    std::vector<std::string> targets;
    pb::RunOptions options;
  };

  // Opens a session at `master`, which it shares. The graph may be empty. `cancellation` ends the
  // wait for other tasks.
  static StatusOr<std::unique_ptr<ClientSession>> Create(
      std::shared_ptr<MasterInterface> master, pb::GraphDef graph, Options options,
      CancellationManager* cancellation = nullptr);
  // The same at a master of this process, from nodes.
  static StatusOr<std::unique_ptr<ClientSession>> Create(
      std::shared_ptr<MasterInterface> master, NodeBatch nodes, Options options,
      CancellationManager* cancellation = nullptr);
  ~ClientSession();
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  Status Extend(pb::GraphDef graph);
  Status Extend(NodeBatch nodes);
  // The fetches in their order. `metadata` may be null.
  StatusOr<std::vector<Tensor>> Run(RunRequest request, pb::RunMetadata* metadata = nullptr,
                                    CancellationManager* cancellation = nullptr);
  StatusOr<std::vector<Tensor>> Run(std::initializer_list<std::pair<std::string, Tensor>> feeds,
                                    std::initializer_list<std::string> fetches,
                                    std::initializer_list<std::string> targets = {}) {
    RunRequest request;
    request.feeds = feeds;
    request.fetches = fetches;
    request.targets = targets;
    return Run(std::move(request));
  }

  StatusOr<std::string> PartialRunSetup(std::vector<std::string> feeds,
                                        std::vector<std::string> fetches,
                                        std::vector<std::string> targets);
  StatusOr<std::vector<Tensor>> PartialRun(std::string partial_run_handle,
                                           std::vector<std::pair<std::string, Tensor>> feeds,
                                           std::vector<std::string> fetches);

  // A prepared run: feeds by position, no lookups by name.
  StatusOr<int64_t> MakeCallable(pb::CallableOptions options);
  // A timeout above 0 may shorten the one of the callable's RunOptions.
  StatusOr<std::vector<Tensor>> RunCallable(
      int64_t callable, std::vector<Tensor> feeds, pb::RunMetadata* metadata = nullptr,
      std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
  // The same; the values replace what `fetches` holds. What a call needs is kept for the next.
  Status RunCallable(int64_t callable, std::span<const Tensor> feeds, std::vector<Tensor>* fetches,
                     pb::RunMetadata* metadata = nullptr,
                     std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
  bool PreparesRuns() const { return master_->PreparesRuns(); }
  // The callable as its master runs it on the caller's thread; null if it does not. Destroyed
  // before the session.
  std::shared_ptr<PreparedRun> Prepare(int64_t callable);
  Status ReleaseCallable(int64_t callable);

  StatusOr<ListDevicesResult> ListDevices();
  // Cancels what runs. Everything else fails afterwards; a second Close does nothing.
  Status Close();

  const std::string& handle() const { return handle_; }

 private:
  static StatusOr<std::unique_ptr<ClientSession>> Create(std::shared_ptr<MasterInterface> master,
                                                         CreateSessionArgs args, Options options,
                                                         CancellationManager* cancellation);
  Status Extend(ExtendSessionArgs args);
  ClientSession(std::shared_ptr<MasterInterface> master, Options options);
  CallOptions StartLimit() const;
  void SetDefaultTimeout(pb::RunOptions* options) const;
  CallOptions StepLimit(std::chrono::milliseconds timeout, CancellationManager* cancellation) const;

  const std::shared_ptr<MasterInterface> master_;
  const Options options_;
  std::string handle_;  // constant once created
  Mutex extend_mu_;
  int64_t graph_version_ ABSL_GUARDED_BY(extend_mu_) = 0;
  struct Call;
  Mutex calls_mu_;
  std::vector<std::unique_ptr<Call>> idle_calls_ ABSL_GUARDED_BY(calls_mu_);
  Mutex close_mu_;
  bool closed_ ABSL_GUARDED_BY(close_mu_) = false;
};

}  // namespace millrace

#endif  // SESSION_CLIENT_SESSION_H_
