// SPDX-License-Identifier: Apache-2.0
// A connection between two tasks on one host over which either calls the other.
#ifndef TRANSPORT_LINK_LINK_H_
#define TRANSPORT_LINK_LINK_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/calls/call_options.h"
#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "millrace/ref_ptr.h"
#include "observe/peer_traffic.h"
#include "observe/rpc_table.h"
#include "transport/channel.h"
#include "transport/link/frame.h"
#include "transport/method_server.h"
#include "transport/methods.h"
#include "transport/shm/shared_arena.h"
#include "transport/shm/shared_inbox.h"
#include "transport/shm/shared_outbox.h"

namespace millrace {

// The shared memory of a hub's links.
struct LinkMemory {
  RefPtr<SharedArena> arena;  // null: none
  bool copies = false;        // what peers share is copied out at once (SharedInbox)
};

// Carries the methods that have a number. Thread-safe. Both ends make calls and serve them; answers
// and requests are handled on the threads of the hub that owns the link, except where that is said.
class Link final : public ConnectedChannel {
 public:
  struct Method {
    MethodServer::Handler handler;
    // It may run kernels: on the thread that reads only while another one is free to read on.
    bool computes = false;
    MethodStats* stats = nullptr;  // null: nobody counts
  };
  using Methods = std::vector<Method>;  // by number

  // Takes over `fd`, a connected stream socket that does not block. `methods` and the pools must
  // outlive the link's last call. Until the peer is named it serves nothing. No kernel runs on
  // `control`.
  Link(int fd, uint64_t id, const Methods* methods, ThreadPool* control, ThreadPool* work,
       const LinkMemory& memory = LinkMemory());

  bool Carries(std::string_view method) const override { return methods::NumberOf(method) != 0; }
  // Ends on a thread of the hub, or on `control` after a cancellation, a deadline or the end of the
  // link.
  void Call(const char* method, const CallOptions& options, WireWriter request, Done done,
            const CallTerms& terms = CallTerms()) override;
  // Tells at once: the message may go out up to kLazyDelay later, with whatever is sent next.
  void Notify(const char* method, const CallOptions& options, WireWriter message,
              std::function<void(Status)> told) override;
  bool waits() const override { return num_active() > 0; }
  // As Break, and the calls of this end fail with `why`.
  void FailWaiting(const Status& why) override;
  // Breaks the connection: the hub's thread that finds it broken ends the calls.
  void Break();
  bool broken() const { return broken_.load(std::memory_order_acquire); }

  int fd() const { return fd_; }
  uint64_t id() const { return id_; }
  // The task at the other end; "" before the greeting.
  std::string peer() const;
  // After the greeting. `same_clock`: both ends mean the same by a deadline; `shares_memory`: the
  // peer takes tensors in shared memory.
  void set_peer(std::string task, bool same_clock, bool shares_memory = false);
  // Before the greeting is answered: where calls of the peer show that it is alive. May be null.
  void set_peer_stats(PeerStats* stats) { peer_stats_.store(stats, std::memory_order_release); }

  // For the hub. Only one thread at a time may be in Read and Admit of a link's frames.
  StatusOr<FrameReader::Result> Read(std::vector<std::unique_ptr<InFrame>>* frames) {
    // The kernel gives the turn from one thread to the next, where sanitizers do not see it.
    (void)turns_.load(std::memory_order_acquire);
    StatusOr<FrameReader::Result> result = reader_.Read(fd_, frames);
    turns_.fetch_add(1, std::memory_order_release);
    return result;
  }
  class Served;
  // Something that was read: an answer, or a request that can be cancelled from now on.
  struct Incoming {
    std::unique_ptr<InFrame> answer;
    Served* request = nullptr;
  };
  // What there is to handle, in order. A request whose cancellation was read as well, then or
  // before its turn, is answered without being begun.
  std::vector<Incoming> Admit(std::vector<std::unique_ptr<InFrame>> frames);
  void Handle(Incoming incoming);
  // Queues a frame and, outside of a burst, writes it.
  void Send(OutFrame frame);
  static constexpr std::chrono::milliseconds kLazyDelay{20};
  // Writes what is queued; asks `want_write` to call again when the socket takes no more.
  void Flush();
  std::function<void()> want_write;

  // Calls of the peer that have not finished or whose handlers have not returned; none begins
  // after StopServing.
  int num_served() const;
  void StopServing();
  void CancelServed();
  // After the link is broken and nobody reads it any more: ends all calls with `status`.
  void FailCalls(const Status& status);
  // Callbacks of calls that have not returned yet.
  int num_active() const;

 private:
  struct Pending;
  ~Link() override;

  MethodStats* StatsOf(const Served& call) const;
  void SendLazily(OutFrame frame);
  // With what the peer has to be told first of the memory that the frame is in.
  void Queue(OutFrame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(out_mu_);
  SharedArena* arena() const {
    return shares_memory_.load(std::memory_order_relaxed) ? arena_.get() : nullptr;
  }
  void TakeBack(const InFrame& frame);
  void GiveBack();
  void FinishServed(Served* call, FrameKind kind, WireWriter message);
  void CancelRequest(uint64_t id);
  void HandleRequest(Served* call);
  void Serve(Served* call, const Method* method);
  void HandleAnswer(std::unique_ptr<InFrame> frame);
  // Null if the call has ended already, or is starting: then it will end with `why`.
  std::unique_ptr<Pending> TakePending(uint64_t id, const Status& why);
  void Abandon(uint64_t id, StatusCode code);
  void EndOnPool(std::unique_ptr<Pending> call, Status status);
  void End(std::unique_ptr<Pending> call, const Status& status, WireReader response);
  Status LostError(uint8_t method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct FlushWork : DeferredWork {
    Link* link = nullptr;
  };

  const int fd_;
  const uint64_t id_;
  const Methods* const methods_;
  ThreadPool* const control_;
  ThreadPool* const work_;
  const RefPtr<SharedArena> arena_;      // may be null
  const RefPtr<SharedReturns> returns_;  // of what the peer shares
  FrameReader reader_;
  std::atomic<bool> same_clock_{false};
  std::atomic<bool> shares_memory_{false};
  std::atomic<uint64_t> turns_{0};
  std::atomic<bool> broken_{false};
  std::atomic<PeerStats*> peer_stats_{nullptr};

  mutable Mutex mu_;
  std::string peer_ ABSL_GUARDED_BY(mu_);
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  Status lost_ ABSL_GUARDED_BY(mu_);          // why the peer was given up; OK: it was not
  bool failed_ ABSL_GUARDED_BY(mu_) = false;  // FailCalls has begun
  bool serving_ ABSL_GUARDED_BY(mu_) = true;
  int active_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Pending>> pending_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Served*> served_ ABSL_GUARDED_BY(mu_);  // by key
  absl::flat_hash_map<uint64_t, Served*> by_id_ ABSL_GUARDED_BY(mu_);   // those with an answer
  int num_handling_ ABSL_GUARDED_BY(mu_) = 0;  // handlers that have not returned
  uint64_t last_key_ ABSL_GUARDED_BY(mu_) = 0;

  // Lock order: mu_ is never taken with out_mu_ held.
  Mutex out_mu_;
  FrameWriter writer_;  // of the thread that is writing
  std::vector<OutFrame> queued_ ABSL_GUARDED_BY(out_mu_);
  SharedOutbox outbox_ ABSL_GUARDED_BY(out_mu_);
  bool writing_ ABSL_GUARDED_BY(out_mu_) = false;
  bool flush_deferred_ ABSL_GUARDED_BY(out_mu_) = false;
  bool flush_timed_ ABSL_GUARDED_BY(out_mu_) = false;
  FlushWork flush_;
};

}  // namespace millrace

#endif  // TRANSPORT_LINK_LINK_H_
