// SPDX-License-Identifier: Apache-2.0
// A client of TensorFlow 2, played by messages of our own: contexts at a ps and a worker of this
// process.
#ifndef TESTS_EAGER_EAGER_CLIENT_H_
#define TESTS_EAGER_EAGER_CLIENT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_worker.h"
#include "proto/eager.pb.h"
#include "rendezvous/rendezvous.h"
#include "tensor/tensor_proto.h"
#include "tests/cluster/in_process_cluster.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr uint64_t kContext = 0xfedcba9876543210;
inline constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
inline constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";

inline Tensor Floats(const std::vector<float>& values) {
  Tensor tensor(kFloat, Shape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

// One task, as a client that knows it by `device` speaks with it.
class EagerTask {
 public:
  EagerTask(const testing::InProcessCluster& cluster, const std::string& job, std::string device,
            const std::shared_ptr<const LoadedCredentials>& credentials = nullptr)
      : device_(std::move(device)),
        address_(cluster.Target(job, 0).substr(std::string("grpc://").size())),
        told_address_(address_),
        channel_(address_, address_, ClientPool(), "", credentials),
        worker_(NewGrpcRemoteWorker(address_, device_.substr(0, device_.find("/device:")),
                                    ClientPool(), ClientPool(), nullptr, "", credentials)) {}

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
  std::string told_address_;  // where the context says that the task is
  uint64_t incarnation_ = 0;
  int next_read_ = 0;
  RpcChannel channel_;
  std::unique_ptr<RemoteWorker> worker_;
};

// A ps and a worker, and a client with a context in both.
class EagerServiceTest : public ::testing::Test {
 protected:
  explicit EagerServiceTest(const testing::InProcessCluster::Configure& configure = nullptr,
                            const std::shared_ptr<const LoadedCredentials>& credentials = nullptr)
      : cluster_(1, 1, configure),
        ps_(cluster_, "ps", kPs, credentials),
        worker_(cluster_, "worker", kWorker, credentials) {}

  static pb::CreateContextRequest ContextOf(const EagerTask& task, const std::string& job) {
    pb::CreateContextRequest request;
    request.set_context_id(kContext);
    request.set_keep_alive_secs(600);
    request.mutable_server_def()->set_job_name(job);
    (void)task;
    return request;
  }

  void AddTasks(pb::CreateContextRequest* request) const {
    const auto add = [request](const std::string& job, const EagerTask& task) {
      pb::JobDef& def = *request->mutable_server_def()->mutable_cluster()->add_job();
      def.set_name(job);
      (*def.mutable_tasks())[0] = task.told_address_;
      if (task.incarnation_ == 0) return;
      pb::DeviceAttributes& device = *request->add_cluster_device_attributes();
      device.set_name(task.device_);
      device.set_device_type("CPU");
      device.set_incarnation(task.incarnation_);
    };
    add("ps", ps_);
    add("worker", worker_);
  }

  static void FindIncarnation(EagerTask* task) {
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
    for (EagerTask* task : {&ps_, &worker_}) {
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
  EagerTask ps_, worker_;
};

// x is at the worker, where the function is called, and the variable at the ps.
inline pb::QueueItem AddToVariable() {
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

}  // namespace millrace

#endif  // TESTS_EAGER_EAGER_CLIENT_H_
