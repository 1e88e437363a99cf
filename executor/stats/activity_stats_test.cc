// SPDX-License-Identifier: Apache-2.0
// How activities stand among the statistics of a step, and in its picture.
#include "executor/stats/activity_stats.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "executor/stats/step_trace.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Kind = DeviceActivity::Kind;

constexpr char kDevice[] = "/job:worker/replica:0/task:0/device:GPU:0";
constexpr int64_t kStart = 1'700'000'000'000'000'000;  // ns

pb::StepStats HostStats() {
  pb::StepStats stats;
  pb::DeviceStepStats* const device = stats.add_dev_stats();
  device->set_device(kDevice);
  (*device->mutable_thread_names())[7] = "mr-inter";
  pb::NodeExecStats* const node = device->add_node_stats();
  node->set_node_name("fc/product");
  node->set_timeline_label("fc/product = MatMul()");
  node->set_all_start_nanos(kStart);
  node->set_all_end_rel_nanos(1000);
  node->set_thread_id(7);
  return stats;
}

ActivityReport Report() {
  ActivityReport report;
  report.activities.push_back(
      {Kind::kToDevice, "", "x", 14, "copy in", kStart + 1000, kStart + 6000, 4096});
  report.activities.push_back(
      {Kind::kKernel, "gemm<float>", "fc/product", 13, "compute", kStart + 7000, kStart + 9500, 0});
  report.activities.push_back(
      {Kind::kKernel, "odd", "inner", 13, "compute", kStart + 9500, kStart + 9600, 0});
  report.activities.push_back(
      {Kind::kFill, "", "fc/product", 13, "compute", kStart + 9600, kStart + 9700, 64});
  return report;
}

const pb::DeviceStepStats* Find(const pb::StepStats& stats, const std::string& row) {
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    if (device.device() == kDevice + row) return &device;
  }
  return nullptr;
}

std::vector<std::string> Names(const pb::DeviceStepStats& device) {
  std::vector<std::string> names;
  for (const pb::NodeExecStats& node : device.node_stats()) names.push_back(node.node_name());
  return names;
}

using Strings = std::vector<std::string>;

TEST(ActivityStatsTest, StandWhereTensorFlowPutsThem) {
  pb::StepStats stats = HostStats();
  AddActivities(kDevice, Report(), &stats);
  ASSERT_EQ(stats.dev_stats_size(), 5);
  EXPECT_EQ(Names(*Find(stats, "")), Strings{"fc/product"});
  EXPECT_EQ(Names(*Find(stats, "/stream:all")),
            (Strings{"fc/product:MatMul", "inner:unknown", "fc/product:MEMSET"}));
  EXPECT_EQ(Names(*Find(stats, "/stream:13")), Names(*Find(stats, "/stream:all")));
  EXPECT_EQ(Names(*Find(stats, "/stream:14")), Strings{"x:MEMCPYHtoD"});
  EXPECT_EQ(Names(*Find(stats, "/memcpy")), Strings{"x:MEMCPYHtoD"});
  EXPECT_EQ(Find(stats, "/stream:13")->thread_names().at(13), "compute");
  EXPECT_TRUE(Find(stats, "/stream:all")->thread_names().empty());
}

TEST(ActivityStatsTest, HaveTimesLabelsAndBytes) {
  pb::StepStats stats = HostStats();
  AddActivities(kDevice, Report(), &stats);
  const pb::NodeExecStats& kernel = Find(stats, "/stream:13")->node_stats(0);
  EXPECT_EQ(kernel.timeline_label(), "gemm<float>");
  EXPECT_EQ(kernel.all_start_nanos(), kStart + 7000);
  EXPECT_EQ(kernel.all_end_rel_nanos(), 2500);
  EXPECT_EQ(kernel.all_start_micros(), kStart / 1000 + 7);
  EXPECT_EQ(kernel.all_end_rel_micros(), 2);
  EXPECT_EQ(Find(stats, "/stream:13")->node_stats(1).all_end_rel_micros(), 1) << "not lost";
  const pb::NodeExecStats& copy = Find(stats, "/memcpy")->node_stats(0);
  EXPECT_EQ(copy.timeline_label(), "MEMCPYHtoD 4096 bytes");
  ASSERT_EQ(copy.output_size(), 1);
  EXPECT_EQ(copy.output(0).tensor_description().allocation_description().requested_bytes(), 4096);
}

TEST(ActivityStatsTest, WithoutAnyTheStatisticsAreWhatTheyWere) {
  pb::StepStats stats = HostStats();
  AddActivities(kDevice, ActivityReport(), &stats);
  EXPECT_EQ(stats.dev_stats_size(), 1);
}

TEST(ActivityStatsTest, WhatIsMissingIsTold) {
  pb::StepStats stats = HostStats();
  ActivityReport report;
  report.shortfall = "CUPTI had no room for 3 activities";
  AddActivities(kDevice, report, &stats);
  ASSERT_NE(Find(stats, "/stream:all"), nullptr);
  EXPECT_EQ(Find(stats, "/stream:all")->thread_names().at(0),
            "incomplete: CUPTI had no room for 3 activities");
  const std::string trace = ChromeTrace(stats);
  EXPECT_NE(trace.find("CUPTI had no room for 3 activities"), std::string::npos) << trace;
}

std::vector<Json> Events(const Json& trace, const std::string& kind) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == kind) events.push_back(event);
  }
  return events;
}

TEST(ActivityStatsTest, TheTraceHasARowForEachStreamBesideTheThreadsOfTheDevice) {
  pb::StepStats stats = HostStats();
  AddActivities(kDevice, Report(), &stats);
  const Json trace = Json::parse(ChromeTrace(stats));
  const std::vector<Json> slices = Events(trace, "X");
  ASSERT_EQ(slices.size(), 5u) << "each once";
  Strings rows;
  for (const Json& event : Events(trace, "M")) {
    EXPECT_EQ(event["pid"], slices[0]["pid"]) << "one process for the device";
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(rows, (Strings{"mr-inter", "stream:13 compute", "stream:14 copy in"}));
  // By stream, as they are in the statistics.
  const Json& kernel = slices[1];
  EXPECT_EQ(kernel["name"], "MatMul");
  EXPECT_EQ(kernel["cat"], "device");
  EXPECT_EQ(kernel["args"]["node"], "fc/product");
  EXPECT_EQ(kernel["args"]["activity"], "gemm<float>");
  EXPECT_EQ(kernel["ts"], 7.0);
  EXPECT_EQ(kernel["dur"], 2.5);
  EXPECT_NE(kernel["tid"], slices[0]["tid"]);
  EXPECT_EQ(kernel["tid"], slices[2]["tid"]);
  const Json& copy = slices[4];
  EXPECT_EQ(copy["name"], "MEMCPYHtoD");
  EXPECT_EQ(copy["args"]["node"], "x");
  EXPECT_EQ(copy["args"]["bytes"], 4096);
  EXPECT_NE(copy["tid"], kernel["tid"]);
}

}  // namespace
}  // namespace millrace
