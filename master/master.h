// SPDX-License-Identifier: Apache-2.0
// The master of a task: opens sessions for clients, called directly or by the service.
#ifndef MASTER_MASTER_H_
#define MASTER_MASTER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "proto/waits.pb.h"
#include "session/master_env.h"
#include "session/master_interface.h"

namespace millrace {

class MasterSession;  // master/master_session.h
class SessionGraph;   // master/session_graph.h

class Master : public MasterInterface {
 public:
  // What `env` points to must outlive the master.
  explicit Master(MasterEnv env);
  // Closes the sessions and waits for them. No call may run or begin.
  ~Master() override;

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
  bool PreparesRuns() const override { return true; }
  std::shared_ptr<PreparedRun> Prepare(const std::string& session_handle,
                                       int64_t callable) override;
  void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                            int64_t callable, Done done) override;
  void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                         Done done) override;
  void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                        ListDevicesResult* result, Done done) override;
  void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                  std::vector<std::string> device_filters, Done done) override;

  // Why the nodes of a session are where they are, for people ("" = all nodes).
  StatusOr<std::string> ExplainPlacement(std::string_view session_handle,
                                         std::string_view node) const;
  // The sessions that are open, by handle. To look at one does not count as a call of it.
  std::vector<std::string> ListSessions() const;
  // Calls `reader` with the graph of a session, placed, which does not change meanwhile. Aborted if
  // there is no such session.
  Status ReadGraph(std::string_view session_handle,
                   const std::function<void(const SessionGraph& graph)>& reader) const;

  // Adds what the steps wait for that this master runs itself, without a worker.
  void ListDirectWaits(pb::TaskWaits* waits) const;

 private:
  // Null if there is none.
  std::shared_ptr<MasterSession> Find(std::string_view handle) const;
  std::vector<std::shared_ptr<MasterSession>> TakeAll();

  // Looks from time to time for sessions that nobody has called for longer than the limit. Time
  // is counted in looks: a call only notes the number of the last one.
  class Watch;
  void CloseIdle();

  struct Entry {
    std::shared_ptr<MasterSession> session;
    mutable int64_t used = 0;  // the look before its last call
  };

  const MasterEnv env_;
  std::shared_ptr<Watch> watch_;  // null if sessions are kept
  mutable Mutex mu_;
  CondVar none_closing_;
  StringMap<Entry> sessions_ ABSL_GUARDED_BY(mu_);
  int64_t looks_ ABSL_GUARDED_BY(mu_) = 0;
  int closing_ ABSL_GUARDED_BY(mu_) = 0;  // idle sessions
};

}  // namespace millrace

#endif  // MASTER_MASTER_H_
