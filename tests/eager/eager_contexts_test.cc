// SPDX-License-Identifier: Apache-2.0
// What contexts keep at the edge of what they may, with tasks that answer when the test says so.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "distributed_runtime/remote_rendezvous.h"
#include "eager/context.h"
#include "eager/eager_server.h"
#include "rendezvous/rendezvous.h"
#include "session/rendezvous_manager.h"

namespace millrace {
namespace {

constexpr char kOwnTask[] = "/job:worker/replica:0/task:0";
constexpr char kOwnDevice[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kPsTask[] = "/job:ps/replica:0/task:0";
constexpr char kPsDevice[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr std::size_t kMostContexts = 1024;  // of a server without a quota

// What was asked and has not been answered, and the clusters that are there.
struct Asked {
  std::atomic<int> clusters{0};  // one that is replaced may go on another thread
  std::vector<EagerPeer::Done> enqueued;
  std::vector<WorkerInterface::RecvDone> received;
};

class SlowPeer : public EagerPeer {
 public:
  explicit SlowPeer(Asked* asked) : asked_(asked) {}
  void EnqueueAsync(const CallOptions&, const pb::EnqueueRequest&, Done done) override {
    asked_->enqueued.push_back(std::move(done));
  }
  void RunComponentFunctionAsync(const CallOptions&, const pb::RunComponentFunctionRequest&,
                                 pb::RunComponentFunctionResponse*, Done done) override {
    done(errors::Unimplemented("functions"));
  }

 private:
  Asked* const asked_;
};

class SlowWorker : public WorkerInterface {
 public:
  explicit SlowWorker(Asked* asked) : asked_(asked) {}
  void GetStatusAsync(const CallOptions&, std::vector<pb::DeviceAttributes>*, Done done) override {
    done(errors::Unimplemented("status"));
  }
  void CreateSessionAsync(const CallOptions&, const WorkerSessionOptions&, Done done) override {
    done(errors::Unimplemented("sessions"));
  }
  void DeleteSessionAsync(const CallOptions&, const std::string&, Done done) override {
    done(errors::Unimplemented("sessions"));
  }
  void RegisterGraphAsync(const CallOptions&, RegisterGraphArgs, std::string*, Done done) override {
    done(errors::Unimplemented("graphs"));
  }
  void DeregisterGraphAsync(const CallOptions&, const std::string&, const std::string&,
                            Done done) override {
    done(errors::Unimplemented("graphs"));
  }
  void RunGraphAsync(const CallOptions&, RunGraphArgs*, RunGraphResult*, Done done) override {
    done(errors::Unimplemented("graphs"));
  }
  void CleanupGraphAsync(const CallOptions&, int64_t, Done done) override {
    done(errors::Unimplemented("graphs"));
  }
  void CleanupAllAsync(const CallOptions&, std::vector<std::string>, Done done) override {
    done(errors::Unimplemented("containers"));
  }
  void RecvTensorAsync(const CallOptions&, int64_t, const std::string&, RecvDone done) override {
    asked_->received.push_back(std::move(done));
  }

 private:
  Asked* const asked_;
};

class SlowCluster : public EagerCluster {
 public:
  explicit SlowCluster(Asked* asked) : asked_(asked), peer_(asked), worker_(asked) {
    ++asked_->clusters;
    workers_.Add(kPsTask, &worker_);
  }
  ~SlowCluster() override { --asked_->clusters; }
  WorkerCache* workers() override { return &workers_; }
  EagerPeer* FindPeer(std::string_view task) override { return task == kPsTask ? &peer_ : nullptr; }

 private:
  Asked* const asked_;
  SlowPeer peer_;
  SlowWorker worker_;
  FixedWorkerCache workers_;
};

class SlowTransport : public EagerTransport {
 public:
  SlowTransport(RendezvousManager* rendezvous, Asked* asked)
      : rendezvous_(rendezvous), asked_(asked) {}
  std::unique_ptr<EagerCluster> Connect(std::map<std::string, std::string>, const std::string&,
                                        const CallerHost&) override {
    return std::make_unique<SlowCluster>(asked_);
  }
  std::unique_ptr<RendezvousManager> NewRendezvous(const std::string& own_task,
                                                   FindWorker find) override {
    return NewRenamedRendezvousManager(own_task, std::move(find), rendezvous_);
  }

 private:
  RendezvousManager* const rendezvous_;
  Asked* const asked_;
};

// A cluster whose ps is at this port.
pb::ClusterDef ClusterAt(int port) {
  pb::ClusterDef cluster;
  pb::JobDef& ps = *cluster.add_job();
  ps.set_name("ps");
  (*ps.mutable_tasks())[0] = StrCat("127.0.0.1:", port);
  return cluster;
}

class EagerContextsTest : public ::testing::Test {
 protected:
  EagerContextsTest()
      : device_(NewCpuDevice(kOwnDevice, 1, &pool_, &resources_)),
        rendezvous_(NewLocalRendezvousManager()),
        transport_(rendezvous_.get(), &asked_) {
    task_.task = kOwnTask;
    task_.devices = {device_.get()};
    task_.ops = &ops_;
    task_.kernels = &kernels_;
    task_.inter_op_pool = &pool_;
    task_.rendezvous = rendezvous_.get();
    env_.task = &task_;
    env_.transport = &transport_;
  }

  // One that does at once what may be done later.
  std::shared_ptr<EagerContext> MakeContext(const EagerLimits& limits = {}) {
    auto resources = std::make_shared<SessionResources>();
    resources->devices = task_.devices;
    auto context = std::make_shared<EagerContext>(
        env_, 7, kOwnTask, resources, limits, [](const std::function<void()>& work) { work(); });
    context->SetCluster(0, ClusterAt(1), {});
    return context;
  }

  static pb::CreateContextRequest Request(uint64_t id, int64_t keep_alive = 600) {
    pb::CreateContextRequest request;
    request.set_context_id(id);
    request.set_keep_alive_secs(keep_alive);
    request.mutable_server_def()->set_job_name("worker");
    *request.mutable_server_def()->mutable_cluster() = ClusterAt(1);
    return request;
  }

  static Status Create(EagerServer* server, const pb::CreateContextRequest& request) {
    pb::CreateContextResponse response;
    return server->CreateContext(request, &response);
  }

  Asked asked_;
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_{"test", 0};
  ResourceManager resources_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<RendezvousManager> rendezvous_;
  SlowTransport transport_;
  WorkerEnv task_;
  EagerEnv env_;
};

TEST_F(EagerContextsTest, ClustersThatNoCallUsesGoWhenTheyAreReplaced) {
  const std::shared_ptr<EagerContext> context = MakeContext();
  for (int view = 1; view <= 1000; ++view) {
    context->SetCluster(view, ClusterAt(1 + view % 2), {});
    ASSERT_EQ(asked_.clusters, 1) << view;
  }
}

TEST_F(EagerContextsTest, ACallKeepsTheClusterThatItWasMadeIn) {
  const std::shared_ptr<EagerContext> context = MakeContext();
  context->Tell(kPsTask, {});
  ASSERT_EQ(asked_.enqueued.size(), 1u);
  context->SetCluster(1, ClusterAt(2), {});
  EXPECT_EQ(asked_.clusters, 2);
  EagerPeer::Done answer = std::move(asked_.enqueued.front());
  asked_.enqueued.clear();
  answer(OkStatus());
  answer = nullptr;
  EXPECT_EQ(asked_.clusters, 1);

  StatusOr<std::shared_ptr<EagerPeer>> peer = context->FindPeer(kPsTask);
  ASSERT_TRUE(peer.ok()) << peer.status();
  context->SetCluster(2, ClusterAt(3), {});
  EXPECT_EQ(asked_.clusters, 2) << "somebody is about to call";
  peer = errors::Unknown("over");
  EXPECT_EQ(asked_.clusters, 1);
}

TEST_F(EagerContextsTest, AReceiveKeepsTheClusterThatItWasMadeIn) {
  std::shared_ptr<EagerContext> context = MakeContext();
  RendezvousKey key;
  key.src_device = kPsDevice;
  key.dst_device = kOwnDevice;
  key.edge_name = "x";
  Status received = errors::Unknown("no answer");
  context->shared_rendezvous()->RecvAsync(
      key.ToString(), nullptr,
      [&](const Status& status, const Tensor&, bool) { received = status; });
  ASSERT_EQ(asked_.received.size(), 1u);
  context->SetCluster(1, ClusterAt(2), {});
  EXPECT_EQ(asked_.clusters, 2);
  context.reset();
  EXPECT_EQ(asked_.clusters, 1) << "the one of the receive";
  WorkerInterface::RecvDone answer = std::move(asked_.received.front());
  asked_.received.clear();
  answer(OkStatus(), Tensor(), false);
  answer = nullptr;
  EXPECT_TRUE(received.ok()) << received;
  EXPECT_EQ(asked_.clusters, 0);
}

TEST_F(EagerContextsTest, AClientOpensAsManyContextsAsAServerKeepsAndClosesThemAgain) {
  EagerServer server(env_);
  for (std::size_t id = 1; id <= kMostContexts; ++id) {
    const Status made = Create(&server, Request(id));
    ASSERT_TRUE(made.ok()) << id << ": " << made;
  }
  for (std::size_t id = kMostContexts + 1; id <= 3 * kMostContexts; ++id) {
    const Status refused = Create(&server, Request(id));
    ASSERT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused;
    ASSERT_NE(Message(refused).find("1024 eager contexts"), std::string_view::npos) << refused;
  }
  EXPECT_EQ(server.num_contexts(), kMostContexts);
  pb::CloseContextRequest close;
  close.set_context_id(kMostContexts / 2);
  ASSERT_TRUE(server.CloseContext(close).ok());
  EXPECT_TRUE(Create(&server, Request(kMostContexts + 1)).ok()) << "one was closed";
  EXPECT_EQ(Create(&server, Request(kMostContexts + 2)).code(), StatusCode::kResourceExhausted);
}

TEST_F(EagerContextsTest, ContextsOfAClientThatVanishedAreGivenBack) {
  EagerServer server(env_);
  for (std::size_t id = 1; id <= kMostContexts; ++id) {
    ASSERT_TRUE(Create(&server, Request(id, 1)).ok()) << id;
  }
  const Deadline end = DeadlineAfter(std::chrono::seconds(60));
  while (server.num_contexts() > 0 && SteadyClock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_EQ(server.num_contexts(), 0u);
  const Status made = Create(&server, Request(1));
  EXPECT_TRUE(made.ok()) << made;
}

TEST_F(EagerContextsTest, FunctionsHaveABoundAndWhatIsNotThereIsNoneOfThem) {
  EagerLimits limits;
  limits.functions = 2;
  const std::shared_ptr<EagerContext> context = MakeContext(limits);
  const auto add = [&](const char* name) {
    pb::RegisterFunctionOp op;
    op.mutable_function_def()->mutable_signature()->set_name(name);
    return context->RegisterFunction(op);
  };
  ASSERT_TRUE(add("f").ok());
  ASSERT_TRUE(add("g").ok());
  EXPECT_EQ(add("h").code(), StatusCode::kResourceExhausted);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(errors::IsNotFound(context->RemoveFunction("h")));
  EXPECT_EQ(add("h").code(), StatusCode::kResourceExhausted) << "nothing was removed";
  ASSERT_TRUE(context->RemoveFunction("f").ok());
  EXPECT_TRUE(errors::IsNotFound(context->RemoveFunction("f")));
  EXPECT_TRUE(add("h").ok());
  EXPECT_EQ(add("f").code(), StatusCode::kResourceExhausted);
}

TEST_F(EagerContextsTest, TensorsPackedHandlesAndStepsHaveABound) {
  EagerLimits limits;
  limits.tensors = 2;
  const std::shared_ptr<EagerContext> context = MakeContext(limits);
  for (const int64_t id : {1, 2}) {
    ASSERT_TRUE(context->handles()->Put(id, 0, Tensor::Scalar(1.0f)).ok());
    ASSERT_TRUE(context->AddStep(-id).ok());
    pb::SendPackedHandleOp packed;
    packed.set_op_id(10 + id);
    packed.add_handles();
    ASSERT_TRUE(context->PutPacked(packed).ok());
  }
  EXPECT_EQ(context->handles()->Put(3, 0, Tensor::Scalar(1.0f)).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(context->AddStep(-3).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(context->AddStep(-2).ok()) << "known already";
  pb::SendPackedHandleOp packed;
  packed.set_op_id(13);
  packed.add_handles();
  EXPECT_EQ(context->PutPacked(packed).code(), StatusCode::kResourceExhausted);

  ASSERT_TRUE(context->handles()->Drop(1, 0).ok());
  EXPECT_TRUE(context->handles()->Put(3, 0, Tensor::Scalar(1.0f)).ok());
  context->ForgetStep(-1);
  EXPECT_TRUE(context->AddStep(-3).ok());
  pb::RemoteTensorHandle handle;
  handle.set_op_id(11);
  ASSERT_TRUE(context->Drop(handle).ok());
  EXPECT_TRUE(context->PutPacked(packed).ok());
}

}  // namespace
}  // namespace millrace
