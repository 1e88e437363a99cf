// SPDX-License-Identifier: Apache-2.0
// Eager contexts as a client of TensorFlow 2 uses them: messages over loopback to servers of this
// process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "ops/op_registry.h"
#include "proto/eager.pb.h"
#include "tests/eager/eager_client.h"
#include "transport/methods.h"

namespace millrace {
namespace {

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

int64_t ResidentMebibytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

TEST_F(EagerServiceTest, MemoryThatNoClientUsesGoesBackToTheSystem) {
  Connect();
  const int64_t before = ResidentMebibytes();
  Tensor size(kInt32, Shape({1}));
  size.data<int32_t>()[0] = 16 << 20;
  ASSERT_TRUE(worker_.Send(1, size).ok());
  ASSERT_TRUE(worker_.Send(2, Tensor::Scalar(1.0f)).ok());
  for (const int64_t id : {3, 4, 5}) {
    const Status filled =
        worker_.Enqueue(worker_.Op(id, "Fill", {1, 2}, {{"T", kFloat}, {"index_type", kInt32}}));
    ASSERT_TRUE(filled.ok()) << filled;
  }
  EXPECT_GT(ResidentMebibytes(), before + 150);
  // As a client does that ends: its context stays until nothing was heard of it for minutes.
  for (const int64_t id : {3, 4, 5}) ASSERT_TRUE(worker_.Drop(id).ok());
  for (int i = 0; i < 600 && ResidentMebibytes() > before + 60; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_LT(ResidentMebibytes(), before + 60);
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
