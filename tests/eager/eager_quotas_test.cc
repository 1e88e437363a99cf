// SPDX-License-Identifier: Apache-2.0
// Quotas and admission of eager contexts: what is refused names itself, the rule and its flag, and
// changes nothing.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/cancellation.h"
#include "millrace/server.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

void ExpectRefused(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_NE(Message(status).find(word), std::string_view::npos) << word << " in " << status;
  }
}

class EagerQuotasTest : public EagerServiceTest {
 protected:
  EagerQuotasTest()
      : EagerServiceTest([](ServerOptions* options) {
          options->quotas.max_sessions = 2;
          options->quotas.max_graph_nodes = 4;
          options->quotas.max_steps = 1;
          options->quotas.session_memory_limit = 1 << 16;
        }) {}

  Status OpenContext(uint64_t id) {
    pb::CreateContextRequest request = ContextOf(worker_, "worker");
    request.set_context_id(id);
    AddTasks(&request);
    pb::CreateContextResponse response;
    return worker_.Call(methods::kEagerCreateContext, request, &response);
  }
};

TEST_F(EagerQuotasTest, ContextsCountAsSessionsDo) {
  ASSERT_TRUE(OpenContext(1).ok());
  ASSERT_TRUE(OpenContext(2).ok());
  ExpectRefused(OpenContext(3), StatusCode::kResourceExhausted,
                {"2 eager contexts", "/job:worker/replica:0/task:0", "--max_sessions"});
  pb::CloseContextRequest close;
  close.set_context_id(1);
  pb::CloseContextResponse closed;
  ASSERT_TRUE(worker_.Call(methods::kEagerCloseContext, close, &closed).ok());
  EXPECT_TRUE(OpenContext(3).ok());
}

TEST_F(EagerQuotasTest, FunctionsCountTheirNodesOnce) {
  Connect();
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok()) << "three nodes";
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok()) << "the same three";
  pb::QueueItem other = AddToVariable();
  other.mutable_register_function()->mutable_function_def()->mutable_signature()->set_name("more");
  ExpectRefused(worker_.Enqueue(other), StatusCode::kResourceExhausted,
                {"more", "4 nodes", "--max_graph_nodes", "would have 6"});
  pb::QueueItem remove;
  remove.mutable_remove_function()->set_function_name("add_to");
  ASSERT_TRUE(worker_.Enqueue(remove).ok());
  EXPECT_TRUE(worker_.Enqueue(other).ok());
}

// A component has a library of its own: what is in several of them is there several times.
TEST_F(EagerQuotasTest, FunctionsOfComponentsCountInEach) {
  Connect();
  const auto component = [](const char* name, bool with_nested) {
    pb::QueueItem item;
    pb::RegisterFunctionOp& op = *item.mutable_register_function();
    op.set_is_component_function(true);
    op.mutable_function_def()->mutable_signature()->set_name(name);
    pb::NodeDef& node = *op.mutable_function_def()->add_node_def();
    node.set_name("nothing");
    node.set_op("NoOp");
    if (with_nested) {
      *op.mutable_library()->add_function() = AddToVariable().register_function().function_def();
    }
    return item;
  };
  ASSERT_TRUE(worker_.Enqueue(component("first", true)).ok()) << "four nodes";
  ExpectRefused(worker_.Enqueue(component("second", true)), StatusCode::kResourceExhausted,
                {"second", "--max_graph_nodes", "would have 8"});
  // What was refused takes nothing, and what takes the place of another one takes its room.
  ASSERT_TRUE(worker_.Enqueue(component("first", true)).ok());
  ASSERT_TRUE(worker_.Enqueue(component("first", false)).ok()) << "one node";
  ASSERT_TRUE(worker_.Enqueue(AddToVariable()).ok()) << "four in all";
  ExpectRefused(worker_.Enqueue(component("third", false)), StatusCode::kResourceExhausted,
                {"third", "would have 5"});
  pb::QueueItem remove;
  remove.mutable_remove_function()->set_function_name("nowhere");
  EXPECT_EQ(worker_.Enqueue(remove).code(), StatusCode::kNotFound);
  EXPECT_FALSE(worker_.Enqueue(component("third", false)).ok()) << "nothing was removed";
  remove.mutable_remove_function()->set_function_name("first");
  ASSERT_TRUE(worker_.Enqueue(remove).ok());
  EXPECT_TRUE(worker_.Enqueue(component("third", false)).ok());
}

TEST_F(EagerQuotasTest, TensorsThatAreSentHaveABound) {
  Connect();
  const std::vector<float> half(10'000, 1.0f);
  ASSERT_TRUE(worker_.Send(1, Floats(half)).ok());
  ExpectRefused(worker_.Send(2, Floats(half)), StatusCode::kResourceExhausted,
                {"op 2", "40000 bytes", "65536", "--session_memory_limit"});
  ASSERT_TRUE(worker_.Drop(1).ok());
  EXPECT_TRUE(worker_.Send(2, Floats(half)).ok());
}

TEST_F(EagerQuotasTest, WhatKernelsTakeIsGivenBackWithTheHandles) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats(std::vector<float>(10'000, 1.0f))).ok());
  ASSERT_TRUE(worker_.Enqueue(worker_.Op(2, "Neg", {1})).ok());
  ExpectRefused(worker_.Enqueue(worker_.Op(3, "Neg", {1})), StatusCode::kResourceExhausted,
                {"Neg", "65536", "--session_memory_limit"});
  ASSERT_TRUE(worker_.Drop(2).ok());
  EXPECT_TRUE(worker_.Enqueue(worker_.Op(4, "Neg", {1})).ok());
}

TEST_F(EagerQuotasTest, AsManyOpsRunAsMay) {
  Connect();
  ASSERT_TRUE(worker_.Send(1, Floats({1})).ok());
  // Waits for what nobody sends.
  pb::QueueItem receive = worker_.Op(2, "_Recv", {}, {{"tensor_type", kFloat}});
  auto& attrs = *receive.mutable_operation()->mutable_attrs();
  AttrToProto(AttrValue("never"), &attrs["tensor_name"]);
  AttrToProto(AttrValue(kWorker), &attrs["send_device"]);
  AttrToProto(AttrValue(kWorker), &attrs["recv_device"]);
  AttrToProto(AttrValue(static_cast<int64_t>(worker_.incarnation_)),
              &attrs["send_device_incarnation"]);
  AttrToProto(AttrValue(false), &attrs["client_terminated"]);
  CancellationManager cancellation;
  Status waited;
  const Deadline end = DeadlineAfter(seconds(20));
  // A Neg that runs at that moment keeps it out as well.
  std::thread waiting([&] {
    do {
      waited = worker_.Enqueue(receive, nullptr, &cancellation);
    } while (waited.code() == StatusCode::kResourceExhausted && SteadyClock::now() < end);
  });
  Status refused;
  int64_t id = 10;
  while (refused.ok() && SteadyClock::now() < end) {
    refused = worker_.Enqueue(worker_.Op(id++, "Neg", {1}));
  }
  cancellation.StartCancel(errors::Cancelled("enough"));
  waiting.join();
  EXPECT_FALSE(waited.ok());
  EXPECT_NE(waited.code(), StatusCode::kResourceExhausted) << waited;
  ExpectRefused(refused, StatusCode::kResourceExhausted, {"Neg", "already runs 1", "--max_steps"});
}

class EagerAdmissionTest : public EagerServiceTest {
 protected:
  EagerAdmissionTest()
      : EagerServiceTest([](ServerOptions* options) { options->allow = {"none"}; }) {}

  Status Run(const std::string& op, const std::vector<int64_t>& inputs,
             const std::vector<std::pair<std::string, DataType>>& types = {}) {
    return worker_.Enqueue(worker_.Op(next_id_++, op, inputs, types));
  }
  int64_t next_id_ = 100;
};

TEST_F(EagerAdmissionTest, WhatReachesFilesIsRefusedAndNamed) {
  Connect();
  Tensor path = Tensor::Scalar(std::string("/etc/hostname"));
  ASSERT_TRUE(worker_.Send(1, path).ok());
  ASSERT_TRUE(worker_.Send(2, Floats({1})).ok());
  ExpectRefused(Run("ReadFile", {1}), StatusCode::kPermissionDenied,
                {"ReadFile", "file_read", "--allow", "/job:worker"});
  ExpectRefused(Run("WriteFile", {1, 1}), StatusCode::kPermissionDenied,
                {"WriteFile", "file_write", "--allow"});
  ExpectRefused(Run("TextLineDataset", {1, 1, 1}), StatusCode::kPermissionDenied,
                {"TextLineDataset", "file_read", "--allow"});
  ExpectRefused(Run("TextLineReaderV2", {}), StatusCode::kPermissionDenied,
                {"TextLineReaderV2", "file_read", "--allow"});
  pb::QueueItem save = worker_.Op(next_id_++, "SaveV2", {1, 1, 1, 2});
  save.mutable_operation()->mutable_attrs()->clear();
  AttrToProto(AttrValue(std::vector<DataType>{kFloat}),
              &(*save.mutable_operation()->mutable_attrs())["dtypes"]);
  ExpectRefused(worker_.Enqueue(save), StatusCode::kPermissionDenied,
                {"SaveV2", "file_write", "--allow"});
  EXPECT_TRUE(Run("Neg", {2}, {{"T", kFloat}}).ok()) << "what only computes runs";
}

TEST_F(EagerAdmissionTest, AFunctionIsRefusedForWhatIsInIt) {
  Connect();
  pb::QueueItem item;
  pb::FunctionDef& f = *item.mutable_register_function()->mutable_function_def();
  f.mutable_signature()->set_name("reads");
  pb::OpDef::ArgDef& path = *f.mutable_signature()->add_input_arg();
  path.set_name("path");
  path.set_type(pb::DT_STRING);
  pb::OpDef::ArgDef& result = *f.mutable_signature()->add_output_arg();
  result.set_name("text");
  result.set_type(pb::DT_STRING);
  pb::NodeDef& node = *f.add_node_def();
  node.set_name("read");
  node.set_op("ReadFile");
  node.add_input("path");
  (*f.mutable_ret())["text"] = "read:contents:0";
  ASSERT_TRUE(worker_.Enqueue(item).ok());
  ASSERT_TRUE(worker_.Send(1, Tensor::Scalar(std::string("/etc/hostname"))).ok());
  pb::QueueItem call = worker_.Op(2, "reads", {1}, {});
  call.mutable_operation()->set_is_function(true);
  ExpectRefused(worker_.Enqueue(call), StatusCode::kPermissionDenied,
                {"ReadFile", "file_read", "--allow"});
}

}  // namespace
}  // namespace millrace
