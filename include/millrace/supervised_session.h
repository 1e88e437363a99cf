// SPDX-License-Identifier: Apache-2.0
// Sessions of training jobs: one chief initialises, the others wait until it has, and all go
// on after a lost peer came back.
#ifndef MILLRACE_SUPERVISED_SESSION_H_
#define MILLRACE_SUPERVISED_SESSION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

// What a SupervisedSession opens, and the ops that bring it to values. Of several tasks one is the
// chief.
struct SupervisedSessionOptions {
  SessionOptions session{};  // what every session is opened with
  bool is_chief = true;      // whether this task initialises; the others wait for it

  Operation init_op{};        // chief, unless everything has a value already
  Operation local_init_op{};  // every task, at every (re)start
  // A string vector naming what has no value yet (ReportUninitializedVariables).
  Output not_ready{};
  // Chief, after its local init; not valid: none. Not run where a chief before this one has given
  // tokens of SyncReplicas on the same servers.
  Operation init_tokens_op{};
  // Chief: each is run in a loop on a thread of its own until the session stops.
  std::vector<Operation> queue_ops{};

  // Waiting for the chief, and for a lost peer to come back, ends after this long.
  std::chrono::milliseconds ready_timeout{60'000};
  // How often in a row, without a step in between, Run recovers from a lost session before it gives
  // up, waiting longer each time; 0: never.
  int max_recoveries = 5;
  // Chief: told which variables had a value once, have lost it ("v @ /job:ps/task:0") and will be
  // initialised anew. An error ends the session instead.
  std::function<Status(const std::vector<std::string>& variables)> on_variables_lost{};
  // Told at once, and when the reason changes, why this task waits.
  std::function<void(const std::string& reason)> on_wait{};
};

// Run may be called from one thread at a time. Drives SyncReplicas where the chief has its op in
// `queue_ops`, and workers their local init op: each worker then takes its own token of each step,
// and its gradient counts once (docs/monitored_sessions.md).
class SupervisedSession {
 public:
  // DeadlineExceeded names every variable that has no value and where it lives.
  static StatusOr<std::unique_ptr<SupervisedSession>> Create(
      Graph& graph, const SupervisedSessionOptions& options);
  ~SupervisedSession();

  // One step. A session that is lost, with a task that is gone, silent or new, is made anew and the
  // step run again: what it had done in other tasks by then is done twice. A variable that has a
  // value is never initialised again. `metadata`: of the step that ended well.
  StatusOr<std::vector<Tensor>> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    std::span<const Operation> targets = {},
                                    const RunOptions& options = {},
                                    RunMetadata* metadata = nullptr);
  // The session of the moment; valid until the next Run or Stop.
  Session& session();
  // How often the session was made anew.
  int recoveries() const;
  // This task makes no further step: workers that wait for its gradient, or a token, take any token
  // from now on. What the chief runs in loops goes on. OK without SyncReplicas.
  Status Leave();
  // Ends the queue threads and closes the session; OK if already stopped. The first error of
  // a queue thread that is not a cancellation is returned. Leaves, unless the last Run has failed;
  // the destructor does not.
  Status Stop();

 private:
  struct Impl;
  explicit SupervisedSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_SUPERVISED_SESSION_H_
