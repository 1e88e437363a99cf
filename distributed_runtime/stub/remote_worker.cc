// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/remote_worker.h"

#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "distributed_runtime/messages.h"
#include "distributed_runtime/stub/remote_collectives.h"
#include "graph/graph_def_io.h"
#include "graph/graph_def_size.h"
#include "proto/step_state.pb.h"
#include "proto/worker.pb.h"
#include "transport/channel_picker.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/link/link_opener.h"
#include "transport/message_call.h"
#include "transport/methods.h"

namespace millrace {
namespace {

class GrpcRemoteWorker : public RemoteWorker {
 public:
  GrpcRemoteWorker(const std::string& address, const std::string& task, ThreadPool* pool,
                   ThreadPool* control, LinkHub* links, std::string identity,
                   std::shared_ptr<const LoadedCredentials> credentials)
      : link_(task, links, &rpc_),
        channel_(task, {links}, &rpc_),
        collectives_(task, &channel_),
        rpc_(address, task, pool, std::move(identity), std::move(credentials), task) {
    rpc_.SetControlPool(control);
  }
  ~GrpcRemoteWorker() override { link_.CloseAndWait(); }

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    Ask<pb::GetStatusResponse>(methods::kWorkerGetStatus, options, pb::GetStatusRequest(),
                               std::move(done), [this, devices](pb::GetStatusResponse& response) {
                                 Remember(response.version());
                                 auto* attributes = response.mutable_device_attributes();
                                 devices->assign(std::make_move_iterator(attributes->begin()),
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
    if (session.server_def != nullptr) *request.mutable_server_def() = *session.server_def;
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
    link_.Ensure(options, [this, options, graph_handle, bytes = ToWire(request),
                           done = std::move(done)]() mutable {
      CallMessage<pb::RegisterGraphResponse>(
          &channel_, methods::kWorkerRegisterGraph, options, std::move(bytes),
          [graph_handle, done = std::move(done)](const Status& status,
                                                 pb::RegisterGraphResponse& response) {
            if (status.ok()) *graph_handle = std::move(*response.mutable_graph_handle());
            done(status);
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
    channel_.Call(
        methods::kWorkerRunGraph, options, std::move(request),
        [args, result, done = std::move(done)](Status status, WireReader in) {
          if (status.ok()) status = DecodeRunGraphResponse(in, *args, result);
          done(std::move(status));
        },
        CallTerms{.begins_nothing = true, .begin_by = args->begin_by});
  }

  void CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) override {
    pb::CleanupGraphRequest request;
    request.set_step_id(step_id);
    channel_.Notify(methods::kWorkerCleanupGraph, options, ToWire(request), std::move(done));
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
    channel_.Call(methods::kWorkerRecvTensor, options, ToWire(request),
                  [done = std::move(done)](Status status, WireReader in) {
                    Tensor tensor;
                    bool is_dead = false;
                    if (status.ok()) status = DecodeRecvTensorResponse(in, &tensor, &is_dead);
                    done(status, tensor, is_dead);
                  });
  }

  void ListWaitsAsync(const CallOptions& options, std::optional<int64_t> step_id,
                      pb::TaskWaits* waits, Done done) override {
    pb::DescribeStepRequest request;
    request.set_all_steps(!step_id);
    request.set_step_id(step_id.value_or(0));
    Ask<pb::DescribeStepResponse>(
        methods::kControlDescribeStep, options, request, std::move(done),
        [waits](pb::DescribeStepResponse& response) { waits->Swap(response.mutable_waits()); });
  }

  CollectivePeer* collectives() override { return &collectives_; }

  bool has_answered() const override { return rpc_.has_answered(); }
  bool waits() const override { return channel_.waits(); }
  std::string version() const override {
    MutexLock lock(&mu_);
    return version_;
  }
  void FailWaiting(const Status& why) override { channel_.FailWaiting(why); }

 private:
  template <typename Response>
  void Ask(const char* method, const CallOptions& options,
           const google::protobuf::MessageLite& request, Done done,
           std::function<void(Response&)> use) {
    CallMessage<Response>(
        &channel_, method, options, ToWire(request),
        [use = std::move(use), done = std::move(done)](const Status& status, Response& response) {
          if (status.ok()) use(response);
          done(status);
        });
  }

  // It comes with every sign of life, and seldom changes.
  void Remember(const std::string& version) {
    MutexLock lock(&mu_);
    version_ = version.empty() ? "not Millrace" : StrCat("Millrace ", version);
  }

  // Methods whose answer says nothing.
  void CallEmpty(const char* method, const CallOptions& options,
                 const google::protobuf::MessageLite& request, Done done) {
    channel_.Call(
        method, options, ToWire(request),
        [done = std::move(done)](Status status, WireReader) { done(std::move(status)); },
        CallTerms{.begins_nothing = true});
  }

  mutable Mutex mu_;
  std::string version_ ABSL_GUARDED_BY(mu_) = "unknown";
  // Used by callbacks that rpc_ waits for, which is why it comes last.
  LinkOpener link_;
  ChannelPicker channel_;
  RemoteCollectives collectives_;
  RpcChannel rpc_;
};

}  // namespace

std::unique_ptr<RemoteWorker> NewGrpcRemoteWorker(
    const std::string& address, std::string task, ThreadPool* pool, ThreadPool* control,
    LinkHub* links, std::string identity, std::shared_ptr<const LoadedCredentials> credentials) {
  return std::make_unique<GrpcRemoteWorker>(address, task, pool, control, links,
                                            std::move(identity), std::move(credentials));
}

}  // namespace millrace
