#include "distributed_runtime/grpc/remote_worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "distributed_runtime/grpc/methods.h"
#include "distributed_runtime/grpc/remote_collectives.h"
#include "distributed_runtime/grpc/rpc_channel.h"
#include "distributed_runtime/link/link_hub.h"
#include "distributed_runtime/messages.h"
#include "graph/graph_def_io.h"
#include "graph/graph_def_size.h"
#include "proto/link.pb.h"
#include "proto/step_state.pb.h"
#include "proto/worker.pb.h"
#include "session/maybe_applied.h"

namespace millrace {
namespace {

class GrpcRemoteWorker : public RemoteWorker {
 public:
  GrpcRemoteWorker(const std::string& address, const std::string& task, ThreadPool* pool,
                   ThreadPool* control, LinkHub* links, std::string identity,
                   std::shared_ptr<const LoadedCredentials> credentials)
      : task_(task),
        links_(links),
        collectives_(task, &channel_, links),
        channel_(address, task, pool, std::move(identity), std::move(credentials), task) {
    channel_.SetControlPool(control);
  }
  ~GrpcRemoteWorker() override { opening_.CloseAndWait(); }

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    CallMessage<pb::GetStatusResponse>(methods::kWorkerGetStatus, options, pb::GetStatusRequest(),
                                       std::move(done), [devices](pb::GetStatusResponse& response) {
                                         auto* attributes = response.mutable_device_attributes();
                                         devices->assign(
                                             std::make_move_iterator(attributes->begin()),
                                             std::make_move_iterator(attributes->end()));
                                       });
  }

  void CreateSessionAsync(const CallOptions& options, const WorkerSessionOptions& session,
                          Done done) override {
    pb::CreateWorkerSessionRequest request;
    request.set_session_handle(session.session_handle);
    request.set_isolate_session_state(session.isolate_session_state);
    request.set_master_task(session.master_task);
    request.set_master_incarnation(session.master_incarnation);
    CallEmpty(methods::kWorkerCreateWorkerSession, options, request, std::move(done));
  }

  void DeleteSessionAsync(const CallOptions& options, const std::string& session_handle,
                          Done done) override {
    pb::DeleteWorkerSessionRequest request;
    request.set_session_handle(session_handle);
    CallEmpty(methods::kWorkerDeleteWorkerSession, options, request, std::move(done));
  }

  void RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                          std::string* graph_handle, Done done) override {
    pb::RegisterGraphRequest request;
    request.set_session_handle(args.session_handle);
    request.set_create_worker_session_called(!args.session_handle.empty());
    // With the origins of its nodes: errors at run time name them.
    Status exported = CheckMessageSize(*args.graph, 0);
    if (exported.ok()) {
      exported =
          ExportGraphDef(*args.graph, ExportOptions{.origins = true, .strip_default_attrs = true},
                         request.mutable_graph_def());
    }
    if (!exported.ok()) {
      done(exported);
      return;
    }
    request.mutable_graph_options()->Swap(&args.graph_options);
    request.mutable_config_proto()->Swap(&args.config);
    request.set_collective_graph_key(args.collective_graph_key);
    request.set_forget_graph(!args.keep_graph);
    // Steps follow: this is the time to open a link for them.
    EnsureLink(options, [this, options, graph_handle, bytes = ToByteBuffer(request),
                         done = std::move(done)]() mutable {
      channel_.Call(
          methods::kWorkerRegisterGraph, options, std::move(bytes), RpcChannel::IfDown::kFail,
          [graph_handle, done = std::move(done)](Status status, const grpc::ByteBuffer& bytes) {
            pb::RegisterGraphResponse response;
            if (status.ok()) status = ReceivedBytes(bytes).Parse(&response);
            if (status.ok()) *graph_handle = std::move(*response.mutable_graph_handle());
            done(std::move(status));
          });
    });
  }

  void DeregisterGraphAsync(const CallOptions& options, const std::string& session_handle,
                            const std::string& graph_handle, Done done) override {
    pb::DeregisterGraphRequest request;
    request.set_session_handle(session_handle);
    request.set_create_worker_session_called(!session_handle.empty());
    request.set_graph_handle(graph_handle);
    CallEmpty(methods::kWorkerDeregisterGraph, options, request, std::move(done));
  }

  void RunGraphAsync(const CallOptions& options, RunGraphArgs* args, RunGraphResult* result,
                     Done done) override {
    WireWriter request;
    const Status encoded = EncodeRunGraphRequest(
        *args, RequestMeta{.request_id = 0, .store_errors_in_body = true}, &request);
    if (!encoded.ok()) {
      done(encoded);
      return;
    }
    if (const RefPtr<Link> link = FindLink()) {
      return link->Call(
          LinkMethod::kRunGraph, options, std::move(request),
          [args, result, done = std::move(done)](Status status, WireReader in) {
            if (status.ok()) status = DecodeRunGraphResponse(in, *args, result);
            done(std::move(status));
          },
          args->begin_by);
    }
    channel_.Call(
        methods::kWorkerRunGraph, options, ToByteBuffer(request), RpcChannel::IfDown::kFail,
        [args, result, done = std::move(done)](Status status, const grpc::ByteBuffer& bytes) {
          if (status.ok()) {
            status = DecodeRunGraphResponse(ReceivedBytes(bytes).reader(), *args, result);
          } else {
            // What the worker itself says comes in an answer: nobody knows how far it came.
            status = MarkMaybeApplied(std::move(status));
          }
          done(std::move(status));
        },
        RpcChannel::Lane::kControl);
  }

  void CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) override {
    pb::CleanupGraphRequest request;
    request.set_step_id(step_id);
    if (const RefPtr<Link> link = FindLink()) {
      WireWriter message;
      message.AppendMessage(request);
      link->Notify(LinkMethod::kCleanupGraph, std::move(message));
      return done(OkStatus());  // that it was sent: nobody can do more about it
    }
    CallEmpty(methods::kWorkerCleanupGraph, options, request, std::move(done));
  }

  void CleanupAllAsync(const CallOptions& options, std::vector<std::string> containers,
                       Done done) override {
    pb::CleanupAllRequest request;
    for (std::string& container : containers) request.add_container(std::move(container));
    CallEmpty(methods::kWorkerCleanupAll, options, request, std::move(done));
  }

  void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                       RecvDone done) override {
    // No request id: calls are sent once, so there is nothing to tell apart.
    pb::RecvTensorRequest request;
    request.set_step_id(step_id);
    request.set_rendezvous_key(key);
    if (const RefPtr<Link> link = FindLink()) {
      WireWriter message;
      message.AppendMessage(request);
      return link->Call(LinkMethod::kRecvTensor, options, std::move(message),
                        [done = std::move(done)](Status status, WireReader in) {
                          Tensor tensor;
                          bool is_dead = false;
                          if (status.ok()) status = DecodeRecvTensorResponse(in, &tensor, &is_dead);
                          done(status, tensor, is_dead);
                        });
    }
    channel_.Call(
        methods::kWorkerRecvTensor, options, ToByteBuffer(request), RpcChannel::IfDown::kFail,
        [done = std::move(done)](Status status, const grpc::ByteBuffer& bytes) {
          Tensor tensor;
          bool is_dead = false;
          if (status.ok()) {
            status = DecodeRecvTensorResponse(ReceivedBytes(bytes).reader(), &tensor, &is_dead);
          }
          done(status, tensor, is_dead);
        });
  }

  void ListWaitsAsync(const CallOptions& options, std::optional<int64_t> step_id,
                      pb::TaskWaits* waits, Done done) override {
    pb::DescribeStepRequest request;
    request.set_all_steps(!step_id);
    request.set_step_id(step_id.value_or(0));
    CallMessage<pb::DescribeStepResponse>(
        methods::kControlDescribeStep, options, request, std::move(done),
        [waits](pb::DescribeStepResponse& response) { waits->Swap(response.mutable_waits()); });
  }

  CollectivePeer* collectives() override { return &collectives_; }

  bool has_answered() const override { return channel_.has_answered(); }
  bool waits() const override {
    const RefPtr<Link> link = FindLink();
    return (link && link->num_active() > 0) || channel_.waits();
  }
  void FailWaiting(const Status& why) override {
    channel_.FailWaiting(why);
    if (const RefPtr<Link> link = FindLink()) link->Lose(why);
  }

 private:
  RefPtr<Link> FindLink() const { return links_ == nullptr ? nullptr : links_->Find(task_); }

  // Goes on with `then` once there is a link to the task, or it is certain that there is none
  // for now.
  void EnsureLink(const CallOptions& options, std::function<void()> then) {
    if (links_ == nullptr || SteadyNanos() < ask_again_.load(std::memory_order_relaxed) ||
        FindLink()) {
      return then();
    }
    CallOptions limit = options;
    limit.deadline = std::min(limit.deadline, DeadlineAfter(kLinkTimeout));
    channel_.Call(methods::kControlOfferLink, limit, ToByteBuffer(pb::OfferLinkRequest()),
                  RpcChannel::IfDown::kFail,
                  [this, limit, then = std::move(then)](const Status& status,
                                                        const grpc::ByteBuffer& bytes) mutable {
                    pb::OfferLinkResponse offer;
                    if (!status.ok() || !ReceivedBytes(bytes).Parse(&offer).ok() ||
                        offer.socket_name().empty()) {
                      // A server of another make says so once and for all.
                      if (errors::IsUnimplemented(status)) ask_again_.store(kNever);
                      if (status.ok()) ask_again_.store(SteadyNanos() + kAskAgainNanos);
                      return then();
                    }
                    OpenLink(limit.deadline, offer, std::move(then));
                  });
  }

  void OpenLink(Deadline deadline, const pb::OfferLinkResponse& offer, std::function<void()> then) {
    // Whichever is first, the greeting or the deadline.
    struct Once {
      std::atomic<bool> used{false};
      std::function<void()> then;
    };
    if (!opening_.Enter()) return then();  // its call fails: the channel is closing
    auto once = std::make_shared<Once>();
    once->then = std::move(then);
    const auto go_on = [this, once] {
      if (once->used.exchange(true)) return;
      once->then();
      opening_.Leave();
    };
    const DeadlineTimer::Token timer = DeadlineTimer::Global().Schedule(deadline, go_on);
    links_->Connect(task_, offer, [this, go_on, timer] {
      DeadlineTimer::Global().Cancel(timer);
      // A task on another host would be asked in vain at every registration.
      if (!opening_.Enter()) return go_on();
      if (!FindLink()) ask_again_.store(SteadyNanos() + kAskAgainNanos);
      opening_.Leave();
      go_on();
    });
  }

  template <typename Response>
  void CallMessage(const char* method, const CallOptions& options,
                   const google::protobuf::MessageLite& request, Done done,
                   std::function<void(Response&)> use) {
    channel_.Call(method, options, ToByteBuffer(request), RpcChannel::IfDown::kFail,
                  [use = std::move(use), done = std::move(done)](Status status,
                                                                 const grpc::ByteBuffer& bytes) {
                    Response response;
                    if (status.ok()) status = ReceivedBytes(bytes).Parse(&response);
                    if (status.ok()) use(response);
                    done(std::move(status));
                  });
  }

  // Methods whose answer says nothing.
  void CallEmpty(const char* method, const CallOptions& options,
                 const google::protobuf::MessageLite& request, Done done) {
    channel_.Call(
        method, options, ToByteBuffer(request), RpcChannel::IfDown::kFail,
        [done = std::move(done)](Status status, const grpc::ByteBuffer&) {
          done(std::move(status));
        },
        RpcChannel::Lane::kControl);
  }

  // Links that are being opened: the timer's thread, and the hub's, may be about to call.
  class Opening {
   public:
    bool Enter() {
      MutexLock lock(&mu_);
      if (closed_) return false;
      ++count_;
      return true;
    }
    void Leave() {
      MutexLock lock(&mu_);
      if (--count_ == 0) none_.SignalAll();
    }
    void CloseAndWait() {
      MutexLock lock(&mu_);
      closed_ = true;
      while (count_ > 0) none_.Wait(&mu_);
    }

   private:
    Mutex mu_;
    CondVar none_;
    bool closed_ ABSL_GUARDED_BY(mu_) = false;
    int count_ ABSL_GUARDED_BY(mu_) = 0;
  };

  static constexpr std::chrono::seconds kLinkTimeout{2};
  static constexpr int64_t kAskAgainNanos = 30'000'000'000;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const std::string task_;
  LinkHub* const links_;               // null: gRPC for everything
  std::atomic<int64_t> ask_again_{0};  // when, by SteadyNanos, to ask the task for a link
  Opening opening_;
  RemoteCollectives collectives_;  // used by callbacks that the channel waits for
  RpcChannel channel_;
};

}  // namespace

std::unique_ptr<RemoteWorker> NewGrpcRemoteWorker(
    const std::string& address, std::string task, ThreadPool* pool, ThreadPool* control,
    LinkHub* links, std::string identity, std::shared_ptr<const LoadedCredentials> credentials) {
  return std::make_unique<GrpcRemoteWorker>(address, task, pool, control, links,
                                            std::move(identity), std::move(credentials));
}

}  // namespace millrace
