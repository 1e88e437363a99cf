// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/step_trace.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

pb::NodeExecStats* AddNode(pb::DeviceStepStats* device, const std::string& name,
                           const std::string& op, int64_t start, int64_t length, uint32_t thread) {
  pb::NodeExecStats* node = device->add_node_stats();
  node->set_node_name(name);
  node->set_timeline_label(name + " = " + op + "()");
  node->set_all_start_nanos(start);
  node->set_all_end_rel_nanos(length);
  node->set_thread_id(thread);
  return node;
}

std::vector<Json> Events(const Json& trace, const std::string& kind) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == kind) events.push_back(event);
  }
  return events;
}

TEST(StepTraceTest, ANodeIsASliceOfItsThread) {
  pb::StepStats stats;
  pb::DeviceStepStats* device = stats.add_dev_stats();
  device->set_device("/job:worker/replica:0/task:0/device:CPU:0");
  (*device->mutable_thread_names())[7] = "mr-inter";
  pb::NodeExecStats* node =
      AddNode(device, "a/product", "MatMul", 1'700'000'000'000'001'000, 2'034, 7);
  pb::TensorDescription* tensor = node->add_output()->mutable_tensor_description();
  tensor->set_dtype(pb::DT_FLOAT);
  tensor->mutable_shape()->add_dim()->set_size(2);
  tensor->mutable_shape()->add_dim()->set_size(3);
  tensor->mutable_allocation_description()->set_requested_bytes(24);
  pb::AllocatorMemoryUsed* used = node->add_memory();
  used->set_allocator_name("host");
  used->set_total_bytes(40);
  used->set_peak_bytes(32);
  used->set_allocator_bytes_in_use(100);
  AddNode(device, "early", "NoOp", 1'700'000'000'000'000'000, 5, 7);

  const Json trace = Json::parse(ChromeTrace(stats));
  const std::vector<Json> slices = Events(trace, "X");
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0]["name"], "MatMul");
  EXPECT_EQ(slices[0]["tid"], 7);
  EXPECT_EQ(slices[0]["ts"], 1.0) << "microseconds after the first node";
  EXPECT_EQ(slices[0]["dur"], 2.034);
  EXPECT_EQ(slices[0]["args"]["node"], "a/product");
  EXPECT_EQ(slices[0]["args"]["outputs"], "float [2,3]");
  EXPECT_EQ(slices[0]["args"]["output_bytes"], 24);
  EXPECT_EQ(slices[0]["args"]["bytes"], 40);
  EXPECT_EQ(slices[0]["args"]["peak_bytes"], 32);
  EXPECT_EQ(slices[1]["name"], "NoOp");
  EXPECT_EQ(slices[1]["ts"], 0.0);
  const std::vector<Json> counters = Events(trace, "C");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]["args"]["host"], 100);
}

TEST(StepTraceTest, ADeviceIsAProcessWithItsThreads) {
  pb::StepStats stats;
  for (const char* name : {"/device:CPU:0", "/device:CPU:1"}) {
    pb::DeviceStepStats* device = stats.add_dev_stats();
    device->set_device(name);
    (*device->mutable_thread_names())[3] = "worker \"3\"\n";
    AddNode(device, "n", "Add", 10, 1, 3);
  }
  const Json trace = Json::parse(ChromeTrace(stats));
  const std::vector<Json> names = Events(trace, "M");
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names[0]["args"]["name"], "/device:CPU:0");
  EXPECT_EQ(names[1]["args"]["name"], "worker \"3\"\n");
  EXPECT_EQ(names[2]["args"]["name"], "/device:CPU:1");
  EXPECT_NE(names[0]["pid"], names[2]["pid"]);
  EXPECT_EQ(Events(trace, "X")[1]["pid"], names[2]["pid"]);
}

TEST(StepTraceTest, AStepThatDidNothingIsAnEmptyTrace) {
  EXPECT_TRUE(Json::parse(ChromeTrace(pb::StepStats()))["traceEvents"].empty());
}

}  // namespace
}  // namespace millrace
