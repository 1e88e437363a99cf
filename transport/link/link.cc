// SPDX-License-Identifier: Apache-2.0
#include "transport/link/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "base/calls/maybe_applied.h"
#include "base/errors.h"
#include "base/log.h"
#include "proto/link.pb.h"
#include "transport/status_payloads.h"

namespace millrace {

namespace {

WireWriter EncodeStatus(const Status& status) {
  pb::LinkStatus proto;
  proto.set_code(static_cast<int32_t>(status.code()));
  proto.set_message(std::string(Message(status)));
  proto.set_payloads(EncodeStatusPayloads(status));
  WireWriter out;
  out.AppendMessage(proto);
  return out;
}

Status NotCarried(const char* method) {
  return errors::Unimplemented("links do not carry ", method);
}

// For an answer to a call that was never sent.
Status BogusAnswer() { return errors::Internal("a link's peer answered before it was asked"); }

Status DecodeStatus(std::span<const WirePiece> pieces) {
  pb::LinkStatus proto;
  Status parsed = ParseMessage(pieces, &proto);
  if (!parsed.ok()) return parsed;
  if (proto.code() == 0) return errors::Internal("an error without a code came over a link");
  Status status = MakeStatus(static_cast<StatusCode>(proto.code()), proto.message());
  DecodeStatusPayloads(proto.payloads(), &status);
  return status;
}

}  // namespace

// A call that this end made.
struct Link::Pending {
  uint8_t method = 0;
  Done done;
  CancellationManager* cancellation = nullptr;
  CancellationManager::Token token = 0;
  DeadlineTimer::Token timer = DeadlineTimer::kNone;
  bool starting = true;  // Call is at work on it: it alone may end the call
  Status early;          // what the call shall end with as soon as it has started
};

// A call that this end serves. Alive until it has finished and no cancellation of it runs.
class Link::Served final : public ServerCall, public RefCounted {
 public:
  Served(RefPtr<Link> link, std::unique_ptr<InFrame> frame)
      : link_(std::move(link)),
        frame_(std::move(frame)),
        begin_by_(FrameHeader::DecodeDeadline(
            link_->same_clock_.load(std::memory_order_relaxed) ? frame_->header.begin_by : 0,
            arrival_)) {}

  uint64_t id() const { return frame_->header.call_id; }  // 0: nobody waits for an answer
  uint8_t method() const { return frame_->header.method; }
  uint64_t key = 0;                   // in served_: ids come from the peer and need not be unique
  std::atomic<bool> given_up{false};  // by the caller
  std::span<const WirePiece> request() override { return frame_->pieces(); }
  CallOptions options() override { return {kNoDeadline, &cancellation_}; }
  Deadline arrival() const override { return arrival_; }
  Deadline begin_by() const override { return begin_by_; }
  void Finish(const Status& status) override {
    if (status.ok()) return Finish(WireWriter());
    link_->FinishServed(this, FrameKind::kError, EncodeStatus(status));
  }
  void Finish(WireWriter response) override {
    link_->FinishServed(this, FrameKind::kResponse, std::move(response));
  }

  // Cancelling runs callbacks of the engine: not on this thread. Called with a reference.
  void CancelOnPool(ThreadPool* pool) {
    pool->Schedule(ThreadPool::Task{[](void* arg) {
                                      RefPtr<Served> call(static_cast<Served*>(arg));
                                      call->cancellation_.StartCancel(errors::Cancelled(
                                          "the caller cancelled the call or went away"));
                                    },
                                    this});
  }

 private:
  const RefPtr<Link> link_;
  const std::unique_ptr<InFrame> frame_;
  const Deadline arrival_ = SteadyClock::now();
  const Deadline begin_by_;
  CancellationManager cancellation_;
};

Link::Link(int fd, uint64_t id, const Methods* methods, ThreadPool* control, ThreadPool* work,
           const LinkMemory& memory)
    : fd_(fd),
      id_(id),
      methods_(methods),
      control_(control),
      work_(work),
      arena_(memory.arena),
      returns_(MakeRef<SharedReturns>([this] {
        Ref();
        control_->Schedule(ThreadPool::Task{
            [](void* arg) { RefPtr<Link>(static_cast<Link*>(arg))->GiveBack(); }, this});
      })),
      reader_(FrameHeader::kMaxSegmentBytes,
              arena_ ? std::make_unique<SharedInbox>(memory.copies, returns_) : nullptr) {
  reader_.ExpectGreeting();
  flush_.link = this;
  flush_.run = [](DeferredWork* self) {
    const RefPtr<Link> link(static_cast<FlushWork*>(self)->link);  // the reference Send took
    {
      MutexLock lock(&link->out_mu_);
      link->flush_deferred_ = false;
    }
    link->Flush();
  };
}

Link::~Link() { close(fd_); }

std::string Link::peer() const {
  MutexLock lock(&mu_);
  return peer_;
}

void Link::set_peer(std::string task, bool same_clock, bool shares_memory) {
  reader_.Welcome();
  shares_memory_.store(shares_memory, std::memory_order_relaxed);
  same_clock_.store(same_clock, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  peer_ = std::move(task);
}

void Link::Break() {
  broken_.store(true, std::memory_order_release);
  shutdown(fd_, SHUT_RDWR);
}

void Link::FailWaiting(const Status& why) {
  {
    MutexLock lock(&mu_);
    if (lost_.ok()) lost_ = why;
  }
  Break();
}

Status Link::LostError(uint8_t method) const {
  if (!lost_.ok()) {
    return Annotate(lost_, StrCat("; the call of ", methods::PathOf(method), " waited for it"));
  }
  return errors::Unavailable("Socket closed\nAdditional GRPC error information from remote target ",
                             peer_, " while calling ", methods::PathOf(method),
                             ":\nthe link between the two tasks was closed");
}

void Link::Call(const char* method, const CallOptions& options, WireWriter request, Done done,
                const CallTerms& terms) {
  auto owned = std::make_unique<Pending>();
  Pending* const call = owned.get();
  call->method = methods::NumberOf(method);
  call->done = std::move(done);
  uint64_t id;
  {
    MutexLock lock(&mu_);
    id = next_call_++;
    ++active_;
    if (failed_) call->early = LostError(call->method);
    if (call->method == 0) call->early = NotCarried(method);
    if (request.is_oversized()) {
      call->early = errors::InvalidArgument("the request of ", method, " to ", peer_,
                                            " would have 2 GiB or more besides its tensors");
    }
    pending_.emplace(id, std::move(owned));
  }
  // Nobody but this thread ends the call while it is starting, so `call` and what it was given
  // stay valid.
  const RefPtr<Link> self = RefPtr<Link>::Share(this);
  if (options.cancellation != nullptr) {
    call->cancellation = options.cancellation;
    call->token = options.cancellation->NextToken();
    if (!options.cancellation->RegisterCallback(
            call->token, [self, id] { self->Abandon(id, StatusCode::kCancelled); })) {
      call->cancellation = nullptr;
      Abandon(id, StatusCode::kCancelled);
    }
  }
  if (options.deadline != kNoDeadline) {
    call->timer = DeadlineTimer::Global().Schedule(
        options.deadline, [self, id] { self->Abandon(id, StatusCode::kDeadlineExceeded); });
  }
  Status early;
  {
    MutexLock lock(&mu_);
    call->starting = false;
    early = call->early;
  }
  if (!early.ok()) {
    if (std::unique_ptr<Pending> ended = TakePending(id, early)) {
      EndOnPool(std::move(ended), std::move(early));
    }
    return;
  }
  const bool tells = same_clock_.load(std::memory_order_relaxed);
  Send(OutFrame(FrameHeader{.kind = FrameKind::kRequest,
                            .method = methods::NumberOf(method),
                            .call_id = id,
                            .begin_by = tells ? FrameHeader::EncodeDeadline(terms.begin_by) : 0},
                std::move(request), arena()));
}

std::unique_ptr<Link::Pending> Link::TakePending(uint64_t id, const Status& why) {
  MutexLock lock(&mu_);
  const auto it = pending_.find(id);
  if (it == pending_.end()) return nullptr;
  if (it->second->starting) {
    if (it->second->early.ok()) it->second->early = why;
    return nullptr;
  }
  std::unique_ptr<Pending> call = std::move(it->second);
  pending_.erase(it);
  return call;
}

void Link::Abandon(uint64_t id, StatusCode code) {
  uint8_t method = 0;
  {
    MutexLock lock(&mu_);
    const auto it = pending_.find(id);
    if (it == pending_.end()) return;
    method = it->second->method;
  }
  Status status = code == StatusCode::kDeadlineExceeded
                      ? errors::DeadlineExceeded("no answer from ", peer(), " to ",
                                                 methods::PathOf(method), " within the deadline")
                      : MarkDerived(errors::Cancelled("the call of ", methods::PathOf(method),
                                                      " to ", peer(), " was cancelled"));
  std::unique_ptr<Pending> call = TakePending(id, status);
  if (call == nullptr) return;
  if (methods::HasEffects(methods::PathOf(method))) status = MarkMaybeApplied(std::move(status));
  Send(OutFrame(FrameHeader{.kind = FrameKind::kCancel, .call_id = id}, WireWriter()));
  EndOnPool(std::move(call), std::move(status));
}

void Link::EndOnPool(std::unique_ptr<Pending> call, Status status) {
  struct Ending {
    RefPtr<Link> link;
    std::unique_ptr<Pending> call;
    Status status;
  };
  auto* const ending = new Ending{RefPtr<Link>::Share(this), std::move(call), std::move(status)};
  control_->Schedule(ThreadPool::Task{[](void* arg) {
                                        const std::unique_ptr<Ending> e(static_cast<Ending*>(arg));
                                        e->link->End(std::move(e->call), e->status, WireReader());
                                      },
                                      ending});
}

void Link::End(std::unique_ptr<Pending> call, const Status& status, WireReader response) {
  // Not the waiting form: this may be a consequence of that very cancellation, whose callback
  // keeps the link alive and finds no call.
  if (call->cancellation != nullptr) (void)call->cancellation->TryDeregisterCallback(call->token);
  DeadlineTimer::Global().Cancel(call->timer);
  call->done(status, response);
  call.reset();
  MutexLock lock(&mu_);
  --active_;
}

std::vector<Link::Incoming> Link::Admit(std::vector<std::unique_ptr<InFrame>> frames) {
  std::vector<Incoming> admitted;
  admitted.reserve(frames.size());
  for (std::unique_ptr<InFrame>& frame : frames) {
    switch (frame->header.kind) {
      case FrameKind::kRequest: {
        auto* const call = new Served(RefPtr<Link>::Share(this), std::move(frame));
        MutexLock lock(&mu_);
        call->key = ++last_key_;
        served_.emplace(call->key, call);
        if (call->id() != 0) by_id_[call->id()] = call;
        admitted.push_back({nullptr, call});
        break;
      }
      case FrameKind::kResponse:
      case FrameKind::kError:
        admitted.push_back({std::move(frame), nullptr});
        break;
      case FrameKind::kCancel:
        CancelRequest(frame->header.call_id);
        break;
      case FrameKind::kGiveBack:
        TakeBack(*frame);
        break;
      default:
        MR_LOG(kWarning, "a link's peer greeted twice: ", peer());
        Break();
    }
  }
  return admitted;
}

void Link::CancelRequest(uint64_t id) {
  MutexLock lock(&mu_);
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;  // answered before
  it->second->given_up.store(true, std::memory_order_relaxed);
  it->second->Ref();
  it->second->CancelOnPool(control_);
}

void Link::Handle(Incoming incoming) {
  if (incoming.request != nullptr) return HandleRequest(incoming.request);
  HandleAnswer(std::move(incoming.answer));
}

void Link::HandleRequest(Served* call) {
  const Method* const method =
      call->method() < methods_->size() && (*methods_)[call->method()].handler
          ? &(*methods_)[call->method()]
          : nullptr;
  {
    MutexLock lock(&mu_);
    ++num_handling_;
  }
  // This thread is the only one that reads now: it must not be in a kernel when a cancellation
  // comes.
  if (method == nullptr || !method->computes || !HurryScope::InHurry()) return Serve(call, method);
  struct Later {
    RefPtr<Link> link;
    Served* call;
    const Method* method;
  };
  work_->Schedule(ThreadPool::Task{[](void* arg) {
                                     const std::unique_ptr<Later> later(static_cast<Later*>(arg));
                                     later->link->Serve(later->call, later->method);
                                   },
                                   new Later{RefPtr<Link>::Share(this), call, method}});
}

void Link::Serve(Served* call, const Method* method) {
  bool serves;
  {
    MutexLock lock(&mu_);
    serves = serving_;
  }
  const RefPtr<Link> self = RefPtr<Link>::Share(this);  // the call may be gone when it is answered
  if (PeerStats* const peer = peer_stats_.load(std::memory_order_acquire)) peer->Heard();
  if (MethodStats* const stats = StatsOf(*call)) stats->Begin(SizeOf(call->request()));
  if (method == nullptr) {
    call->Finish(errors::Unimplemented("method ", static_cast<int>(call->method())));
  } else if (!serves) {
    call->Finish(errors::Unavailable("the server is stopping"));
  } else if (call->given_up.load(std::memory_order_relaxed)) {
    call->Finish(errors::Cancelled("the call was cancelled before it was begun"));
  } else {
    millrace::Serve(method->handler, call);
  }
  MutexLock lock(&mu_);
  --num_handling_;
}

void Link::HandleAnswer(std::unique_ptr<InFrame> frame) {
  std::unique_ptr<Pending> call = TakePending(frame->header.call_id, BogusAnswer());
  if (call == nullptr) return;  // given up before
  if (frame->header.kind == FrameKind::kResponse) {
    End(std::move(call), OkStatus(), frame->reader());
  } else {
    End(std::move(call), DecodeStatus(frame->pieces()), WireReader());
  }
}

MethodStats* Link::StatsOf(const Served& call) const {
  return call.method() < methods_->size() ? (*methods_)[call.method()].stats : nullptr;
}

void Link::FinishServed(Served* call, FrameKind kind, WireWriter message) {
  if (MethodStats* const stats = StatsOf(*call)) {
    stats->End(kind == FrameKind::kResponse, static_cast<int64_t>(message.size()),
               NanosSince(call->arrival()));
  }
  const uint64_t id = call->id();
  if (id != 0) {
    Send(OutFrame(FrameHeader{.kind = kind, .call_id = id}, std::move(message), arena()));
  }
  {
    MutexLock lock(&mu_);
    served_.erase(call->key);
    const auto it = by_id_.find(id);
    if (it != by_id_.end() && it->second == call) by_id_.erase(it);
  }
  call->Unref();  // may be the last reference to this link
}

void Link::Send(OutFrame frame) {
  const RefPtr<Link> self = RefPtr<Link>::Share(this);
  {
    MutexLock lock(&out_mu_);
    if (broken()) return;
    Queue(std::move(frame));
    if (writing_) return;  // that thread takes it along
    if (DeferScope::Active()) {
      if (std::exchange(flush_deferred_, true)) return;
      Ref();  // dropped by the deferred work
      DeferScope::Defer(&flush_);
      return;
    }
  }
  Flush();
}

void Link::Queue(OutFrame frame) {
  bool lends = false;
  for (const OutFrame::Segment& segment : frame.segments) {
    if (!segment.lease) continue;
    if (!std::exchange(lends, true)) {
      for (const uint32_t slab : outbox_.TakeDropped()) {
        queued_.emplace_back(FrameHeader{.kind = FrameKind::kUnshare, .call_id = slab},
                             WireWriter());
      }
    }
    if (outbox_.Lend(segment.lease)) queued_.emplace_back(segment.lease->slab());
  }
  queued_.push_back(std::move(frame));
}

void Link::TakeBack(const InFrame& frame) {
  WireReader in = frame.reader();
  SharedPlace place;
  MutexLock lock(&out_mu_);
  while (in.ReadBytes(&place, sizeof(place))) {
    const Status known = outbox_.GiveBack(place);
    if (known.ok()) continue;
    MR_LOG(kWarning, Message(known));
    return Break();
  }
}

void Link::GiveBack() {
  const std::vector<SharedPlace> unread = returns_->Take();
  if (!unread.empty()) Send(OutFrame(std::span<const SharedPlace>(unread)));
}

void Link::Notify(const char* method, const CallOptions&, WireWriter message,
                  std::function<void(Status)> told) {
  const uint8_t number = methods::NumberOf(method);
  if (number == 0) return told(NotCarried(method));
  SendLazily(
      OutFrame(FrameHeader{.kind = FrameKind::kRequest, .method = number}, std::move(message)));
  told(OkStatus());
}

void Link::SendLazily(OutFrame frame) {
  const RefPtr<Link> self = RefPtr<Link>::Share(this);
  {
    MutexLock lock(&out_mu_);
    if (broken()) return;
    queued_.push_back(std::move(frame));
    if (writing_ || flush_deferred_ || std::exchange(flush_timed_, true)) return;
  }
  DeadlineTimer::Global().Schedule(DeadlineAfter(kLazyDelay), [self] {
    {
      MutexLock lock(&self->out_mu_);
      self->flush_timed_ = false;
    }
    self->Flush();
  });
}

void Link::Flush() {
  for (;;) {
    {
      MutexLock lock(&out_mu_);
      if (writing_ || (queued_.empty() && writer_.empty())) return;
      writing_ = true;
      for (OutFrame& frame : queued_) writer_.Add(std::move(frame));
      queued_.clear();
    }
    const StatusOr<bool> done = writer_.Write(fd_);
    {
      MutexLock lock(&out_mu_);
      writing_ = false;
    }
    if (!done.ok()) return Break();
    if (!*done) {
      if (want_write) want_write();
      return;
    }
  }
}

int Link::num_served() const {
  MutexLock lock(&mu_);
  return static_cast<int>(served_.size()) + num_handling_;
}

void Link::StopServing() {
  MutexLock lock(&mu_);
  serving_ = false;
}

void Link::CancelServed() {
  MutexLock lock(&mu_);
  for (const auto& [id, call] : served_) {
    call->Ref();
    call->CancelOnPool(control_);
  }
}

void Link::FailCalls(const Status& reason) {
  std::vector<std::pair<std::unique_ptr<Pending>, Status>> calls;
  {
    MutexLock lock(&mu_);
    failed_ = true;
    for (auto it = pending_.begin(); it != pending_.end();) {
      const auto here = it++;
      Status status = reason.ok() ? LostError(here->second->method) : reason;
      if (here->second->starting) {
        if (here->second->early.ok()) here->second->early = std::move(status);
        continue;
      }
      if (methods::HasEffects(methods::PathOf(here->second->method))) {
        status = MarkMaybeApplied(std::move(status));
      }
      calls.emplace_back(std::move(here->second), std::move(status));
      pending_.erase(here);
    }
  }
  for (auto& [call, status] : calls) EndOnPool(std::move(call), std::move(status));
  CancelServed();
  returns_->Close();
  MutexLock lock(&out_mu_);
  outbox_.AbandonAll();
}

int Link::num_active() const {
  MutexLock lock(&mu_);
  return active_;
}

}  // namespace millrace
