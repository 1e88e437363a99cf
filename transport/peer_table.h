// SPDX-License-Identifier: Apache-2.0
// Who the other tasks of the cluster are, so that no task takes another job's for its own.
#ifndef TRANSPORT_PEER_TABLE_H_
#define TRANSPORT_PEER_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/calls/call_options.h"
#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/thread_pool.h"
#include "millrace/status.h"
#include "proto/device_attributes.pb.h"

namespace millrace {

// What a task of ours says of itself with every call to another task, in gRPC's metadata, which
// TensorFlow's servers ignore: on the wire "<incarnation, 16 hex digits> <task> <whom it means to
// call> <cluster id>".
struct PeerIdentity {
  std::string task;           // "/job:J/replica:R/task:T"
  uint64_t incarnation = 0;   // of its first device: another one after a restart
  std::string cluster_id;     // "": none
  std::string expected_task;  // at the other end; "": whoever it is

  std::string ToString() const;
  // False if the text is not of this form.
  static bool Parse(std::string_view text, PeerIdentity* identity);
};
inline constexpr char kPeerMetadata[] = "millrace-peer";

// InvalidArgument unless it is up to 128 letters, digits, dots, dashes and underscores.
Status CheckClusterId(std::string_view id);

// An identity is a task, the incarnation of its process and, if the job has one, the name of the
// cluster. Cluster specs are never compared: the same task may have several addresses. Where there
// is no name, a process is a task's if it is the one that answers at that task's address in the
// spec of this task, which is asked once for each process. Thread-safe.
class PeerTable {
 public:
  using Devices = std::vector<pb::DeviceAttributes>;
  // Asks whoever answers at the address of `task` for its devices (GetStatus).
  using Ask = std::function<void(const std::string& task, const CallOptions& options,
                                 Devices* devices, std::function<void(Status)> done)>;

  // `addresses`: "host:port" by task. `pool`, on which it asks again, must outlive the table.
  PeerTable(PeerIdentity own, std::map<std::string, std::string> addresses, ThreadPool* pool);
  // Nobody may be waiting for an answer any more.
  ~PeerTable();
  // Before the first call.
  void set_ask(Ask ask) { ask_ = std::move(ask); }

  const PeerIdentity& own() const { return own_; }
  // What to say to the task at one of the addresses.
  std::string IdentityFor(std::string_view task) const;
  // "" if the cluster has no such task.
  std::string Address(std::string_view task) const;

  // Without asking anybody: FailedPrecondition, naming both tasks and the address, if the caller
  // means another task or belongs to another cluster.
  Status CheckNames(const PeerIdentity& caller) const;

  enum class Standing {
    kUnknown,    // not in the spec, or nobody answers there: it may be who it says it is
    kConfirmed,  // it is what answers at the task's address
    kRefuted,    // something else was confirmed, or answered
  };
  // What is known by now.
  Standing StandingOf(std::string_view task, uint64_t incarnation) const;

  // Whether the process may call this task in the name of `task`; asks, for at most kAskTimeout, if
  // that is not known. FailedPrecondition, naming both and the address, if another process answers
  // there; Unavailable if another one did before and nobody answers now. `done` may be called
  // before this returns.
  using Admitted = std::function<void(StatusOr<Standing>)>;
  void Admit(const std::string& task, uint64_t incarnation, Admitted done);
  static constexpr std::chrono::seconds kAskTimeout{2};

  // Ends what waits for an answer with Unavailable; later calls of Admit end so too.
  void Stop();

 private:
  struct Inquiry;
  struct Peer {
    uint64_t confirmed = 0;  // 0: nobody yet
    // Nobody answered when this one was asked about.
    uint64_t unknown = 0;
    Deadline ask_again = kNoDeadline;
  };
  void Send(std::shared_ptr<Inquiry> inquiry);
  void Answered(const std::shared_ptr<Inquiry>& inquiry, const Status& status);
  Status Contradiction(const std::string& task) const;

  const PeerIdentity own_;
  const std::map<std::string, std::string> addresses_;
  ThreadPool* const pool_;
  Ask ask_;
  CancellationManager stopping_;
  mutable Mutex mu_;
  StringMap<Peer> peers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // TRANSPORT_PEER_TABLE_H_
