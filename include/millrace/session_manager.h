// SPDX-License-Identifier: Apache-2.0
// How a task of a training job comes to a session in which everything has a value: the chief
// restores or initialises, the others wait for it.
#ifndef MILLRACE_SESSION_MANAGER_H_
#define MILLRACE_SESSION_MANAGER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

class Saver;

// How sessions are opened and found ready; the same at every task, but for the target.
struct SessionManagerOptions {
  SessionOptions session{};  // what every session is opened with
  // String vectors that name what has no value yet (ReportUninitializedVariables); one that is not
  // valid means that everything has. A variable that cannot be asked counts as not ready.
  Output ready_op{};                 // before the session is used
  Output ready_for_local_init_op{};  // before local_init_op is run
  // Run by every task for each of its sessions.
  Operation local_init_op{};
  std::vector<Feed> local_init_feeds{};  // of local_init_op
  RunOptions local_init_run{};           // how local_init_op is run
  // How often a task that waits looks again.
  std::chrono::milliseconds recovery_wait{1'000};
  // DeadlineExceeded, naming what is missing, after that.
  std::chrono::milliseconds max_wait{1'800'000};
  // Told, at once and when it changes, why this task waits.
  std::function<void(const std::string& reason)> on_wait{};
  std::function<void(const std::string& line)> log{};  // where lines go: the log, if empty
};

// Where the chief takes values from: the first of these that there is.
struct InitialValues {
  // 1. A checkpoint: this one, or the newest of the directory.
  std::shared_ptr<Saver> saver{};
  std::string checkpoint_path{};  // a prefix, as Saver::Save returns it; "": that of the directory
  std::string checkpoint_dir{};   // looked at if checkpoint_path is ""; "": no checkpoint
  // Without a checkpoint: waits for one, up to max_wait, before it goes on.
  bool wait_for_checkpoint = false;
  // 2. An op with its feeds, then a function.
  Operation init_op{};
  std::vector<Feed> init_feeds{};             // of init_op
  std::function<Status(Session&)> init_fn{};  // run after init_op; its error is PrepareSession's
  // Variables that all have values, because servers have kept them, stay as they are: nothing that
  // other workers have learned is lost with the chief. If some have lost theirs, all are restored;
  // without a checkpoint, those are initialised. false: 1 or 2 in any case, as TensorFlow does.
  bool keep_values = true;
};

// One thread at a time. Adds nodes to the graph of jobs with servers ("supervised_session/..."), by
// which the chief tells the others that they may go on.
class SessionManager {
 public:
  // Opens nothing yet; the graph must outlive the manager. The error of the graph; InvalidArgument
  // for a ready_for_local_init_op without a local_init_op.
  static StatusOr<std::unique_ptr<SessionManager>> Create(Graph& graph,
                                                          const SessionManagerOptions& options);
  ~SessionManager();

  // The chief's. FailedPrecondition if there is nothing to initialise with, or if something has no
  // value afterwards. A task that is not there yet is waited for.
  StatusOr<Session> PrepareSession(const InitialValues& values);
  // Restores and never initialises. `recovered` says whether everything has a value.
  StatusOr<Session> RecoverSession(const InitialValues& values, bool* recovered);
  // The others': until the chief is done.
  StatusOr<Session> WaitForSession();

 private:
  struct Impl;
  explicit SessionManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_SESSION_MANAGER_H_
