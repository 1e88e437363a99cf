// SPDX-License-Identifier: Apache-2.0
// A session with services of its own beside it: checkpoints and summaries by the clock, not by the
// step. Programs that call hooks around steps, or go on after a lost task, use a monitored session
// (millrace/monitored_session.h).
#ifndef MILLRACE_SUPERVISOR_H_
#define MILLRACE_SUPERVISOR_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/coordinator.h"
#include "millrace/graph.h"
#include "millrace/monitored_session.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

class EventWriter;

// What a Supervisor runs with. Of several tasks one is the chief.
struct SupervisorOptions {
  SessionOptions session{};  // what every session is opened with
  bool is_chief = true;      // whether this task restores, initialises and has the services
  // Ops that initialise, check and save; null: one of defaults. Create completes it.
  std::shared_ptr<Scaffold> scaffold{};
  // Chief: where checkpoints and events go, and what is restored from; "": neither.
  std::string logdir{};
  std::string checkpoint_basename = "model.ckpt";  // of the files in logdir, before "-<step>"
  // By which checkpoints and summaries are numbered; not valid: the graph's, if it has one.
  Output global_step{};
  std::shared_ptr<EventWriter> summary_writer{};       // instead of one of the logdir
  std::chrono::milliseconds save_model_time{600'000};  // 0: never
  std::chrono::milliseconds save_summaries_time{
      120'000};                                          // summaries and steps per second; 0: never
  bool keep_values = true;                               // InitialValues
  std::chrono::milliseconds recovery_wait{30'000};       // how often a task that waits looks again
  std::chrono::milliseconds max_wait{7'200'000};         // until values are there: DeadlineExceeded
  std::chrono::milliseconds stop_grace_period{120'000};  // for threads to end, when it stops
  int max_recoveries = 5;                                // of RunUntilStop, in a row
  std::function<void(const std::string& reason)> on_wait{};  // told why, when there is a new reason
  HookIo io{};                                               // `log` only
};

// TensorFlow's Supervisor. One thread at a time; ShouldStop and RequestStop may be called by others
// between PrepareOrWaitForSession and Stop.
class Supervisor {
 public:
  // Completes the scaffold. The error of the graph, or of the log directory.
  static StatusOr<std::unique_ptr<Supervisor>> Create(Graph& graph, SupervisorOptions options);
  // Stops.
  ~Supervisor();

  // The chief: restores or initialises, then starts the services (or leaves that to StartServices).
  // The others wait for the chief. Valid until the next call of this, which closes it, or Stop.
  // What SessionManager returns.
  StatusOr<Session*> PrepareOrWaitForSession(bool start_services = true);
  // FailedPrecondition where there are none: without a session, on other tasks than the chief, and
  // without a logdir.
  Status StartServices();
  // Writes a serialized Summary that the caller has computed; of the chief with a logdir or writer
  // (FailedPrecondition). Without a step: of the global step now.
  Status SummaryComputed(const std::string& summary, std::optional<int64_t> step = {});

  // Calls `step` with the session until a stop or an error, and stops. A lost session (a task that
  // is gone, silent or new) is prepared anew, up to max_recoveries times without a step in between,
  // and `step` is called again; the chief gives a parameter server that was restarted its values
  // back.
  Status RunUntilStop(const std::function<Status(Session&)>& step);

  // Of the session: threads started with it are waited for before that is closed.
  Coordinator& coordinator();
  // Whether a stop was asked for, or the process had a notice that it is to end
  // (millrace/preemption.h).
  bool ShouldStop() const;
  // Asks the session's threads to stop; the first cause is what Stop returns. Does not wait.
  void RequestStop(const Status& cause = OkStatus());
  // Ends the services and closes the session. The error for which it was asked to stop; OK if
  // stopped already. Checkpoints are written by the clock only: save once more before, if need be.
  Status Stop();

 private:
  struct Impl;
  explicit Supervisor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_SUPERVISOR_H_
