// SPDX-License-Identifier: Apache-2.0
// All links of one task: who may open one, and the threads that read them.
#ifndef TRANSPORT_LINK_LINK_HUB_H_
#define TRANSPORT_LINK_LINK_HUB_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/string_map.h"
#include "base/thread_pool.h"
#include "millrace/status.h"
#include "proto/link.pb.h"
#include "transport/link/link.h"
#include "transport/peer_table.h"

namespace millrace {

// A link is a Unix socket with a random abstract name, so it joins processes of one user on one
// host. A peer learns name and token over gRPC, and the kernel says whose process it is: whoever
// may not call this task over gRPC, or runs as somebody else, gets no link. Where gRPC proves who
// called, the token is good in the name of that task alone. Tasks without a link use gRPC for
// everything.
//
// Whatever a thread of the hub reads it handles itself as long as another one is free to read on;
// long work goes to the pool. Thread-safe.
class LinkHub final : public MethodServer, public Connections {
 public:
  // How long a connection may take to greet, and how many may be about to.
  static constexpr std::chrono::seconds kGreetingLimit{5};
  static constexpr int kMostGreeting = 64;

  // `task` is this end's name. The pools must outlive the hub: `control` for what must happen
  // whatever the steps do, such as cancellations; `work` for calls that compute. So must `peers`,
  // which says who this task and the others are (null: every task is who it says it is).
  LinkHub(std::string task, ThreadPool* control, ThreadPool* work,
          const PeerTable* peers = nullptr);
  // Stops with no grace if nobody did.
  ~LinkHub() override;
  LinkHub(const LinkHub&) = delete;
  LinkHub& operator=(const LinkHub&) = delete;

  // Before Start: who is told of each link that has ended although this end has not stopped.
  void set_on_closed(std::function<void(const std::string& task)> told) {
    on_closed_ = std::move(told);
  }
  // Before the first AddMethod, if somebody counts; both must outlive the hub.
  void Observe(RpcTable* methods, PeerTraffic* peers) {
    counted_methods_ = methods;
    counted_peers_ = peers;
  }
  // Before Start: how many bytes of large tensors on their way may lie in memory that peers map,
  // and whether what peers share is copied out at once. 0: tensors go through the sockets.
  void ShareMemory(int64_t budget, bool copies);
  // What it is if nobody says: an eighth of the machine's memory, at most kMostShared.
  static int64_t DefaultBudget();
  static constexpr int64_t kMostShared = int64_t{512} << 20;
  // Of it in use, or kept to be used again.
  int64_t shared_bytes() const { return memory_.arena ? memory_.arena->used() : 0; }
  // Before Start. Leaves out what has no number.
  void AddMethod(std::string path, Handler handler, RpcLane lane = RpcLane::kControl) override;
  Status Start();
  // What a peer needs to open a link to this task; empty before Start and after Stop. `caller` is
  // the task that asks, as its certificate proves: it cannot greet as another one. "": whoever.
  pb::OfferLinkResponse offer(std::string_view caller = {});

  // Opens a link to `task`, which has made the offer; `done` is called once there is one, or
  // it turned out that there can be none, on a thread of the hub or before this returns.
  void Connect(const std::string& task, const pb::OfferLinkResponse& offer,
               std::function<void()> done);
  // The link to a task; null if there is none that works. One that is alive stays the task's until
  // it ends or a process that is confirmed to be the task has one.
  RefPtr<Link> Find(std::string_view task) const;
  RefPtr<ConnectedChannel> FindChannel(std::string_view task) const override { return Find(task); }

  // Ends in two steps. First no call is served any more: those that run have until `grace`,
  // the rest is cancelled and waited for. Then own calls fail and the threads end.
  void StopServing(Deadline grace);
  void Stop();

 private:
  void ThreadMain(int index);
  void Accept();
  void Add(int fd, std::string expected_peer, std::function<void()> on_open);
  void Serve(const RefPtr<Link>& link);
  void HandleAll(const RefPtr<Link>& link, std::vector<Link::Incoming> incoming);
  // Milliseconds that a thread may wait; what is due before is done.
  int Housekeep();
  bool AcceptAndClose();
  bool Greet(const RefPtr<Link>& link, const InFrame& frame);
  OutFrame Greeting(FrameKind kind, const std::string& task, const std::string& token) const;
  Status CheckHello(const pb::LinkHello& hello) const;
  bool HasToken(const pb::LinkHello& hello) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Name(const RefPtr<Link>& link, const pb::LinkHello& hello, bool connected)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(const RefPtr<Link>& link, const Status& reason);
  void Arm(int fd, uint64_t data, uint32_t events, bool add);
  RefPtr<Link> ById(uint64_t id) const;
  std::vector<RefPtr<Link>> AllLinks() const;

  const std::string task_;
  ThreadPool* const control_;
  ThreadPool* const work_;
  const PeerTable* const peers_;
  std::function<void(const std::string& task)> on_closed_;
  RpcTable* counted_methods_ = nullptr;
  PeerTraffic* counted_peers_ = nullptr;
  Link::Methods methods_;
  LinkMemory memory_;         // constant after Start
  std::string name_, token_;  // constant after Start
  int epoll_ = -1, listener_ = -1, wake_ = -1;
  int spare_ = -1;  // given up to take, and close, a connection when there are no descriptors
  std::atomic<int> reading_{0};  // threads that wait for something to read
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;

  struct Entry {
    RefPtr<Link> link;
    int write_fd = -1;                 // a duplicate, to wait for room apart from waiting for bytes
    std::string expected_peer;         // set if this end connected
    std::function<void()> on_open;     // until the greeting is over
    Deadline greets_by = kNoDeadline;  // kNoDeadline: it has
  };
  // The link for this end's calls to a task.
  struct Named {
    RefPtr<Link> link;
    uint64_t incarnation = 0;
    bool confirmed = false;  // that it is the task's: this end went to its address, or it is known
  };
  mutable Mutex mu_;
  // Of the tasks that have proven who they are: no more than the cluster has.
  StringMap<std::string> tokens_ ABSL_GUARDED_BY(mu_);
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 2;
  bool serving_ ABSL_GUARDED_BY(mu_) = true;
  int greeting_ ABSL_GUARDED_BY(mu_) = 0;                      // links that have not greeted
  Deadline listens_again_ ABSL_GUARDED_BY(mu_) = kNoDeadline;  // kNoDeadline: it does
  absl::flat_hash_map<uint64_t, Entry> links_ ABSL_GUARDED_BY(mu_);
  StringMap<Named> by_task_ ABSL_GUARDED_BY(mu_);
  std::vector<RefPtr<Link>> ending_ ABSL_GUARDED_BY(mu_);  // broken, but calls may run
};

}  // namespace millrace

#endif  // TRANSPORT_LINK_LINK_HUB_H_
