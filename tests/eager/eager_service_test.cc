// Eager contexts as a client of TensorFlow 2 uses them: messages over loopback to servers of this
// process.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "distributed_runtime/stub/remote_worker.h"
#include "ops/op_registry.h"
#include "proto/eager.pb.h"
#include "rendezvous/rendezvous.h"
#include "tensor/tensor_proto.h"
#include "tests/cluster/in_process_cluster.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kContext = 0xfedcba9876543210;
constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";

Tensor Floats(const std::vector<float>& values) {
  Tensor tensor(kFloat, Shape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// One task, as a client that knows it by `device` speaks with it.
class Task {
 public:
  Task(const testing::InProcessCluster& cluster, const std::string& job, std::string device)
      : device_(std::move(device)),
        address_(cluster.Target(job, 0).substr(std::string("grpc://").size())),
        channel_(address_, address_, ClientPool()),
        worker_(NewGrpcRemoteWorker(address_, device_, ClientPool(), ClientPool())) {}

  template <typename Request, typename Response>
  Status Call(const char* method, const Request& request, Response* response,
              CancellationManager* cancellation = nullptr) {
    Notification answered;
    Status result;
    channel_.Call(method, {DeadlineAfter(seconds(60)), cancellation}, ToByteBuffer(request),
                  RpcChannel::IfDown::kFail, [&](Status status, const grpc::ByteBuffer& bytes) {
                    if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                    result = std::move(status);
                    answered.Notify();
                  });
    answered.Wait();
    return result;
  }

  Status Enqueue(const pb::QueueItem& item, pb::QueueResponse* answer = nullptr,
                 CancellationManager* cancellation = nullptr) {
    pb::EnqueueRequest request;
    request.set_context_id(kContext);
    *request.add_queue() = item;
    pb::EnqueueResponse response;
    Status status = Call(methods::kEagerEnqueue, request, &response, cancellation);
    if (status.ok() && answer != nullptr) *answer = response.queue_response(0);
    return status;
  }

  Status Send(int64_t id, const Tensor& value) {
    pb::QueueItem item;
    item.mutable_send_tensor()->set_op_id(id);
    item.mutable_send_tensor()->set_device_name(device_);
    TensorToProto(value, item.mutable_send_tensor()->add_tensors());
    return Enqueue(item);
  }

  Status Drop(int64_t id, int output = 0) {
    pb::QueueItem item;
    item.mutable_handle_to_decref()->set_op_id(id);
    item.mutable_handle_to_decref()->set_output_num(output);
    return Enqueue(item);
  }

  // An op here whose inputs are the first outputs of these ops.
  pb::QueueItem Op(int64_t id, const std::string& name, const std::vector<int64_t>& inputs,
                   const std::vector<std::pair<std::string, DataType>>& types = {
                       {"T", kFloat}}) const {
    pb::QueueItem item;
    pb::Operation& op = *item.mutable_operation();
    op.set_id(id);
    op.set_name(name);
    op.set_device(device_);
    for (const auto& [attr, type] : types)
      AttrToProto(AttrValue(type), &(*op.mutable_attrs())[attr]);
    for (const int64_t input : inputs) {
      pb::RemoteTensorHandle& handle = *op.add_op_inputs()->mutable_remote_handle();
      handle.set_op_id(input);
      handle.set_device(device_);
      handle.set_op_device(device_);
    }
    return item;
  }

  // What a client does to read a tensor: the worker service gives what an op _Send has sent.
  StatusOr<Tensor> Read(int64_t id, int output = 0) {
    const std::string name = StrCat("read_", next_read_++);
    pb::QueueItem send = Op(-1, "_Send", {id});
    auto& attrs = *send.mutable_operation()->mutable_attrs();
    send.mutable_operation()->mutable_op_inputs(0)->mutable_remote_handle()->set_output_num(output);
    AttrToProto(AttrValue(name), &attrs["tensor_name"]);
    AttrToProto(AttrValue(device_), &attrs["send_device"]);
    AttrToProto(AttrValue(device_), &attrs["recv_device"]);
    AttrToProto(AttrValue(static_cast<int64_t>(incarnation_)), &attrs["send_device_incarnation"]);
    AttrToProto(AttrValue(false), &attrs["client_terminated"]);
    MR_RETURN_IF_ERROR(Enqueue(send));
    RendezvousKey key;
    key.src_device = key.dst_device = device_;
    key.src_incarnation = incarnation_;
    key.edge_name = name;
    Notification received;
    StatusOr<Tensor> value = errors::Unknown("no answer");
    worker_->RecvTensorAsync({.deadline = DeadlineAfter(seconds(60))},
                             static_cast<int64_t>(kContext), key.ToString(),
                             [&](const Status& status, const Tensor& tensor, bool) {
                               if (status.ok()) {
                                 value = tensor;
                               } else {
                                 value = status;
                               }
                               received.Notify();
                             });
    received.Wait();
    return value;
  }

  std::string device_;
  std::string address_;
  uint64_t incarnation_ = 0;
  int next_read_ = 0;
  RpcChannel channel_;
  std::unique_ptr<RemoteWorker> worker_;
};

// A ps and a worker, and a client with a context in both.
class EagerServiceTest : public ::testing::Test {
 protected:
  EagerServiceTest()
      : cluster_(1, 1), ps_(cluster_, "ps", kPs), worker_(cluster_, "worker", kWorker) {}

  static pb::CreateContextRequest ContextOf(const Task& task, const std::string& job) {
    pb::CreateContextRequest request;
    request.set_context_id(kContext);
    request.set_keep_alive_secs(600);
    request.mutable_server_def()->set_job_name(job);
    (void)task;
    return request;
  }

  void AddTasks(pb::CreateContextRequest* request) const {
    const auto add = [request](const std::string& job, const Task& task) {
      pb::JobDef& def = *request->mutable_server_def()->mutable_cluster()->add_job();
      def.set_name(job);
      (*def.mutable_tasks())[0] = task.address_;
      if (task.incarnation_ == 0) return;
      pb::DeviceAttributes& device = *request->add_cluster_device_attributes();
      device.set_name(task.device_);
      device.set_device_type("CPU");
      device.set_incarnation(task.incarnation_);
    };
    add("ps", ps_);
    add("worker", worker_);
  }

  static void FindIncarnation(Task* task) {
    std::vector<pb::DeviceAttributes> devices;
    Notification answered;
    task->worker_->GetStatusAsync({.deadline = DeadlineAfter(seconds(60))}, &devices,
                                  [&](const Status& status) {
                                    EXPECT_TRUE(status.ok()) << status;
                                    answered.Notify();
                                  });
    answered.Wait();
    ASSERT_FALSE(devices.empty());
    task->incarnation_ = devices.front().incarnation();
  }

  void Connect(int64_t keep_alive = 600) {
    FindIncarnation(&ps_);
    FindIncarnation(&worker_);
    for (Task* task : {&ps_, &worker_}) {
      pb::CreateContextRequest request = ContextOf(*task, task == &ps_ ? "ps" : "worker");
      request.set_keep_alive_secs(keep_alive);
      AddTasks(&request);
      pb::CreateContextResponse response;
      const Status made = task->Call(methods::kEagerCreateContext, request, &response);
      ASSERT_TRUE(made.ok()) << made;
      ASSERT_EQ(response.device_attributes_size(), 1);
      EXPECT_EQ(response.device_attributes(0).name(), task->device_);
      EXPECT_EQ(response.device_attributes(0).incarnation(), task->incarnation_);
    }
  }

  static void ExpectFloats(const StatusOr<Tensor>& value, const std::vector<float>& expected) {
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(value->num_elements(), static_cast<int64_t>(expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(value->data<float>()[i], expected[i]) << i;
    }
  }

  // A variable at the ps as op `id`, initialized from the tensor `value`, which is sent as id + 1.
  void MakeVariable(int64_t id, const Tensor& value) {
    pb::QueueItem make = ps_.Op(id, "VarHandleOp", {}, {{"dtype", kFloat}});
    auto& attrs = *make.mutable_operation()->mutable_attrs();
    AttrToProto(AttrValue(value.shape()), &attrs["shape"]);
    AttrToProto(AttrValue("cd2c89b7-88b7-44c8-ad83-06c2a9158347"), &attrs["shared_name"]);
    ASSERT_TRUE(ps_.Enqueue(make).ok());
    ASSERT_TRUE(ps_.Send(id + 1, value).ok());
    const Status assigned =
        ps_.Enqueue(ps_.Op(id + 2, "AssignVariableOp", {id, id + 1}, {{"dtype", kFloat}}));
    ASSERT_TRUE(assigned.ok()) << assigned;
  }

  testing::InProcessCluster cluster_;
  Task ps_, worker_;
};

TEST_F(EagerServiceTest, AnOpRunsAndItsResultIsReadAndGivenBack) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats({1, -2, 3})).ok());
  pb::QueueResponse answer;
  const Status ran = worker_.Enqueue(worker_.Op(2, "Neg", {1}), &answer);
  ASSERT_TRUE(ran.ok()) << ran;
  ASSERT_EQ(answer.shape_size(), 1);
  EXPECT_EQ(answer.shape(0).dim(0).size(), 3);
  ExpectFloats(worker_.Read(2), {-1, 2, -3});
  EXPECT_TRUE(worker_.Drop(2).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Drop(2)));
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Enqueue(worker_.Op(3, "Neg", {2}))));
}

TEST_F(EagerServiceTest, ErrorsHaveTheCodesOfTheirOpsAndHarmNothingElse) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Send(2, Floats({1, 2, 3})).ok());
  EXPECT_TRUE(errors::IsNotFound(worker_.Enqueue(worker_.Op(3, "NoSuchOp", {1}))));
  const Status shapes = worker_.Enqueue(worker_.Op(4, "AddV2", {1, 2}));
  EXPECT_TRUE(errors::IsInvalidArgument(shapes)) << shapes;
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Enqueue(worker_.Op(5, "AddV2", {1}))));
  pb::QueueItem elsewhere = worker_.Op(6, "Neg", {1});
  elsewhere.mutable_operation()->set_device("/job:worker/replica:0/task:7/device:CPU:0");
  const Status device = worker_.Enqueue(elsewhere);
  EXPECT_NE(Message(device).find("unknown device"), std::string::npos) << device;
  ASSERT_TRUE(worker_.Enqueue(worker_.Op(7, "AddV2", {1, 1})).ok());
  ExpectFloats(worker_.Read(7), {2, 4});
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Send(7, Floats({0})))) << "the number is taken";
}

TEST_F(EagerServiceTest, AVariableGoesWithTheLastHandleThatNamesIt) {
  Connect();
  MakeVariable(1, Floats({1, 2}));
  ASSERT_TRUE(ps_.Enqueue(ps_.Op(10, "Identity", {1}, {{"T", kResource}})).ok());
  ASSERT_TRUE(ps_.Drop(1).ok());
  ASSERT_TRUE(ps_.Enqueue(ps_.Op(11, "ReadVariableOp", {10}, {{"dtype", kFloat}})).ok());
  ExpectFloats(ps_.Read(11), {1, 2});
  // A second one of the same shape and without a name is another variable.
  MakeVariable(20, Floats({5, 6}));
  ASSERT_TRUE(ps_.Enqueue(ps_.Op(23, "ReadVariableOp", {10}, {{"dtype", kFloat}})).ok());
  ExpectFloats(ps_.Read(23), {1, 2});
  // With the last handle the variable goes, though the op that made it is long over.
  ASSERT_TRUE(ps_.Drop(10).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(ps_.Enqueue(ps_.Op(31, "VarIsInitializedOp", {10}, {}))));
}

// x is at the worker, where the function is called, and the variable at the ps.
pb::QueueItem AddToVariable() {
  pb::QueueItem item;
  pb::FunctionDef& f = *item.mutable_register_function()->mutable_function_def();
  f.mutable_signature()->set_name("add_to");
  const auto arg = [](const char* name, pb::DataType type, pb::OpDef::ArgDef* def) {
    def->set_name(name);
    def->set_type(type);
  };
  arg("x", pb::DT_FLOAT, f.mutable_signature()->add_input_arg());
  arg("v", pb::DT_RESOURCE, f.mutable_signature()->add_input_arg());
  arg("y", pb::DT_FLOAT, f.mutable_signature()->add_output_arg());
  const auto node = [&f](const char* name, const char* op, std::vector<const char*> inputs,
                         const char* type) {
    pb::NodeDef& def = *f.add_node_def();
    def.set_name(name);
    def.set_op(op);
    for (const char* input : inputs) def.add_input(input);
    (*def.mutable_attr())[type].set_type(pb::DT_FLOAT);
  };
  node("add", "AssignAddVariableOp", {"v", "x"}, "dtype");
  node("read", "ReadVariableOp", {"v", "^add"}, "dtype");
  node("twice", "AddV2", {"read:value:0", "x"}, "T");
  (*f.mutable_ret())["y"] = "twice:z:0";
  (*f.mutable_control_ret())["add"] = "add";
  f.mutable_signature()->add_control_output("add");
  return item;
}

TEST_F(EagerServiceTest, AFunctionUsesAVariableOfAnotherTask) {
  Connect();
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  pb::QueueItem call = worker_.Op(6, "add_to", {5, 1}, {});
  call.mutable_operation()->set_is_function(true);
  call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
  for (int64_t i = 0; i < 3; ++i) {
    call.mutable_operation()->set_id(6 + i);
    pb::QueueResponse answer;
    const Status ran = worker_.Enqueue(call, &answer);
    ASSERT_TRUE(ran.ok()) << ran;
    ASSERT_EQ(answer.device_size(), 1);
    EXPECT_EQ(answer.device(0), "") << "the result is where the call was";
    ExpectFloats(worker_.Read(6 + i),
                 {12.0f + static_cast<float>(i), 24.0f + 2 * static_cast<float>(i)});
  }
  pb::QueueItem remove;
  remove.mutable_remove_function()->set_function_name("add_to");
  ASSERT_TRUE(worker_.Enqueue(remove).ok());
  call.mutable_operation()->set_id(20);
  EXPECT_TRUE(errors::IsNotFound(worker_.Enqueue(call)));
}

// Clients with device filters send it to tasks that may not see what has changed.
TEST_F(EagerServiceTest, AnUpdateWithoutAClusterLeavesTheTasksAsTheyAre) {
  Connect();
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  pb::UpdateContextRequest update;
  update.set_context_id(kContext);
  update.set_context_view_id(1);
  pb::UpdateContextResponse updated;
  ASSERT_TRUE(worker_.Call(methods::kEagerUpdateContext, update, &updated).ok());
  pb::QueueItem call = worker_.Op(6, "add_to", {5, 1}, {});
  call.mutable_operation()->set_is_function(true);
  call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
  const Status ran = worker_.Enqueue(call);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectFloats(worker_.Read(6), {12, 24});
}

TEST_F(EagerServiceTest, APackedHandleIsTheVariableOfEachDevice) {
  Connect();
  MakeVariable(1, Floats({10, 20}));
  pb::QueueItem pack;
  pack.mutable_send_packed_handle()->set_op_id(50);
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  const auto add = [&pack](int64_t id, const char* device) {
    pb::RemoteTensorHandle& handle =
        *pack.mutable_send_packed_handle()->add_handles()->mutable_remote_handle();
    handle.set_op_id(id);
    handle.set_device(device);
  };
  add(5, kWorker);
  add(1, kPs);
  ASSERT_TRUE(worker_.Enqueue(pack).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Enqueue(pack))) << "the number is taken";
  // The sum of what lies at the worker is made there, whatever lies at the ps.
  pb::QueueItem function;
  pb::FunctionDef& f = *function.mutable_register_function()->mutable_function_def();
  f.mutable_signature()->set_name("twice");
  pb::OpDef::ArgDef& x = *f.mutable_signature()->add_input_arg();
  x.set_name("x");
  x.set_type(pb::DT_FLOAT);
  *f.mutable_signature()->add_output_arg() = x;
  f.mutable_signature()->mutable_output_arg(0)->set_name("y");
  pb::NodeDef& sum = *f.add_node_def();
  sum.set_name("sum");
  sum.set_op("AddV2");
  sum.set_device(kWorker);
  for (int i = 0; i < 2; ++i) sum.add_input("x");
  (*sum.mutable_attr())["T"].set_type(pb::DT_FLOAT);
  (*f.mutable_ret())["y"] = "sum:z:0";
  ASSERT_TRUE(worker_.Enqueue(function).ok());
  pb::QueueItem call = worker_.Op(60, "twice", {50}, {});
  call.mutable_operation()->set_is_function(true);
  const Status ran = worker_.Enqueue(call);
  ASSERT_TRUE(ran.ok()) << ran;
  ExpectFloats(worker_.Read(60), {2, 4});
  ASSERT_TRUE(worker_.Drop(50).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Drop(50)));
}

TEST_F(EagerServiceTest, ATaskThatIsGoneEndsTheFunctionThatNeedsIt) {
  Connect();
  MakeVariable(1, Floats({10, 20}));
  ASSERT_TRUE(worker_.Send(5, Floats({1, 2})).ok());
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok());
  cluster_.Stop("ps", 0);
  pb::QueueItem call = worker_.Op(6, "add_to", {5, 1}, {});
  call.mutable_operation()->set_is_function(true);
  call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
  const Status ran = worker_.Enqueue(call);
  EXPECT_TRUE(errors::IsUnavailable(ran)) << ran;
  ASSERT_TRUE(worker_.Enqueue(worker_.Op(8, "Neg", {5})).ok());
  ExpectFloats(worker_.Read(8), {-1, -2});
}

TEST_F(EagerServiceTest, AnOpThatWaitsEndsWithItsCall) {
  Connect();
  pb::QueueItem receive = worker_.Op(1, "_Recv", {}, {{"tensor_type", kFloat}});
  auto& attrs = *receive.mutable_operation()->mutable_attrs();
  AttrToProto(AttrValue("never"), &attrs["tensor_name"]);
  AttrToProto(AttrValue(kWorker), &attrs["send_device"]);
  AttrToProto(AttrValue(kWorker), &attrs["recv_device"]);
  AttrToProto(AttrValue(static_cast<int64_t>(worker_.incarnation_)),
              &attrs["send_device_incarnation"]);
  CancellationManager cancellation;
  std::thread canceller([&] {
    // Whether the op waits already or has not begun, it ends.
    cancellation.StartCancel(errors::Cancelled("enough"));
  });
  const Status ended = worker_.Enqueue(receive, nullptr, &cancellation);
  canceller.join();
  EXPECT_TRUE(errors::IsCancelled(ended)) << ended;
  // What the context's other ops meet in is as it was.
  ASSERT_TRUE(worker_.Send(5, Floats({7})).ok());
  ExpectFloats(worker_.Read(5), {7});
}

TEST_F(EagerServiceTest, ContextsAreOpenedUpdatedAndClosed) {
  Connect();
  pb::KeepAliveRequest alive;
  alive.set_context_id(kContext);
  pb::KeepAliveResponse view;
  ASSERT_TRUE(worker_.Call(methods::kEagerKeepAlive, alive, &view).ok());
  EXPECT_EQ(view.context_view_id(), 0u);
  pb::CreateContextRequest again = ContextOf(worker_, "worker");
  pb::CreateContextResponse made;
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Call(methods::kEagerCreateContext, again, &made)));
  pb::UpdateContextRequest update;
  update.set_context_id(kContext);
  *update.mutable_server_def() = again.server_def();
  update.set_context_view_id(3);
  pb::UpdateContextResponse updated;
  EXPECT_TRUE(
      errors::IsInvalidArgument(worker_.Call(methods::kEagerUpdateContext, update, &updated)));
  update.set_context_view_id(1);
  ASSERT_TRUE(worker_.Call(methods::kEagerUpdateContext, update, &updated).ok());
  ASSERT_TRUE(worker_.Call(methods::kEagerKeepAlive, alive, &view).ok());
  EXPECT_EQ(view.context_view_id(), 1u);
  pb::CloseContextRequest close;
  pb::CloseContextResponse closed;
  close.set_context_id(kContext);
  close.set_context_view_id(0);
  ASSERT_TRUE(worker_.Call(methods::kEagerCloseContext, close, &closed).ok());
  EXPECT_TRUE(worker_.Call(methods::kEagerKeepAlive, alive, &view).ok()) << "an older view closes";
  close.set_context_view_id(1);
  ASSERT_TRUE(worker_.Call(methods::kEagerCloseContext, close, &closed).ok());
  const Status gone = worker_.Call(methods::kEagerKeepAlive, alive, &view);
  EXPECT_TRUE(errors::IsAborted(gone)) << gone;
  EXPECT_NE(Message(gone).find("Unable to find a context_id"), std::string::npos) << gone;
}

TEST_F(EagerServiceTest, AContextWhoseClientIsSilentGoes) {
  Connect(/*keep_alive=*/1);
  pb::EnqueueRequest nothing;
  nothing.set_context_id(kContext);
  pb::EnqueueResponse response;
  Status status;
  // Each question is a sign of life, so the pauses between them grow.
  for (milliseconds pause = milliseconds(500); pause < seconds(20); pause *= 2) {
    std::this_thread::sleep_for(pause);
    status = worker_.Call(methods::kEagerEnqueue, nothing, &response);
    if (!status.ok()) break;
  }
  EXPECT_TRUE(errors::IsAborted(status)) << status;
}

TEST_F(EagerServiceTest, RequestsThatMakeNoSenseAreAnswered) {
  Connect();
  pb::CreateContextResponse made;
  EXPECT_TRUE(errors::IsInvalidArgument(
      worker_.Call(methods::kEagerCreateContext, pb::CreateContextRequest(), &made)));
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Enqueue(pb::QueueItem())));
  pb::QueueItem bad = worker_.Op(1, "Neg", {});
  bad.mutable_operation()->add_op_inputs();
  EXPECT_TRUE(errors::IsInvalidArgument(worker_.Enqueue(bad)));
  pb::QueueItem function;
  function.mutable_register_function()->mutable_function_def();
  EXPECT_FALSE(worker_.Enqueue(function).ok());
  pb::RunComponentFunctionRequest part;
  part.set_context_id(kContext);
  part.mutable_operation()->set_name("nobody");
  pb::RunComponentFunctionResponse ran;
  EXPECT_TRUE(errors::IsNotFound(worker_.Call(methods::kEagerRunComponentFunction, part, &ran)));
  ASSERT_TRUE(worker_.Send(1, Floats({1})).ok());
  ExpectFloats(worker_.Read(1), {1});
}

}  // namespace
}  // namespace millrace
