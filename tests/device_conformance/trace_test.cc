// SPDX-License-Identifier: Apache-2.0
// What the trace of a step tells of its devices, over the devices that there are; what only a
// simulated one can be made to do comes last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/errors.h"
#include "base/strings.h"
#include "executor/stats/step_trace.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Level = pb::RunOptions;

constexpr int64_t kBytes = 64 * 64 * sizeof(float);

Tensor Square(float value) {
  Tensor t(kFloat, {64, 64});
  for (float& x : t.flat<float>()) x = value;
  return t;
}

// Lists of the statistics by what follows the device's name: "", "/stream:all", "/stream:0".
using Lists = std::map<std::string, pb::DeviceStepStats>;

Lists ListsOf(const pb::RunMetadata& metadata, const std::string& device) {
  Lists lists;
  for (const pb::DeviceStepStats& list : metadata.step_stats().dev_stats()) {
    if (list.device().starts_with(device)) lists[list.device().substr(device.size())] = list;
  }
  return lists;
}

std::vector<std::string> Names(const pb::DeviceStepStats& list) {
  std::vector<std::string> names;
  for (const pb::NodeExecStats& node : list.node_stats()) names.push_back(node.node_name());
  return names;
}

// Fetches `y` and traces it.
StatusOr<pb::RunMetadata> Traced(ClientSession& session, const Output& x, const Output& y,
                                 pb::RunOptions::TraceLevel level) {
  ClientSession::RunRequest request;
  request.feeds.emplace_back(x.name(), Square(1));
  request.fetches.push_back(y.name());
  request.options.set_trace_level(level);
  pb::RunMetadata metadata;
  const auto values = session.Run(std::move(request), &metadata);
  if (!values.ok()) return values.status();
  EXPECT_EQ((*values)[0].data<float>()[0], 64);
  return metadata;
}

class TraceTest : public ::testing::TestWithParam<Kind> {
 protected:
  TraceTest() : p(GetParam().type) {
    Prepare(GetParam(), &p.config);
    SetFakeDeviceOptions({.jitter_seed = GetParam().jitter_seed});
    x = Placeholder(p.root, kFloat, {64, 64});
    y = ops::MatMul(p.device.WithOpName("product"), x, x);
  }
  ~TraceTest() override { SetFakeDeviceOptions({}); }
  void SetUp() override {
    ASSERT_EQ(Obstacle(), "");
    p.Open(GetParam().threads);
    // The first steps choose algorithms and load code.
    for (int i = 0; i < 2; ++i) p.Eval(y, {{x, Square(1)}});
  }
  Program p;
  Output x, y;
};

INSTANTIATE_TEST_SUITE_P(Kinds, TraceTest, ::testing::ValuesIn([] {
                           std::vector<Kind> kinds;
                           for (const Kind& kind : SessionKinds()) {
                             if (std::string_view(kind.type) != "CPU") kinds.push_back(kind);
                           }
                           return kinds;
                         }()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(TraceTest, TellsWhatTheDeviceRanForWhichNode) {
  const int64_t before = WallNanos();
  const auto metadata = Traced(*p.session, x, y, Level::FULL_TRACE);
  const int64_t after = WallNanos();
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  Lists lists = ListsOf(*metadata, p.DeviceName(0));
  EXPECT_THAT(Names(lists[""]), Contains("product")) << "the host's part, as ever";
  EXPECT_THAT(Names(lists["/stream:all"]), Contains("product:MatMul"));
  EXPECT_THAT(Names(lists["/memcpy"]), Contains(HasSubstr(":MEMCPYHtoD")));
  EXPECT_THAT(Names(lists["/memcpy"]), Contains(HasSubstr(":MEMCPYDtoH")));
  EXPECT_TRUE(lists["/stream:all"].thread_names().empty()) << "nothing is missing";
  int64_t in_streams = 0;
  int64_t copied = 0;
  for (const auto& [row, list] : lists) {
    if (row.empty()) continue;
    if (row != "/stream:all" && row != "/memcpy") in_streams += list.node_stats_size();
    for (const pb::NodeExecStats& node : list.node_stats()) {
      EXPECT_GE(node.all_start_nanos(), before) << row << " " << node.node_name();
      EXPECT_LE(node.all_start_nanos() + node.all_end_rel_nanos(), after) << node.node_name();
      EXPECT_GE(node.all_end_rel_nanos(), 0);
      if (row != "/memcpy") continue;
      copied += node.output(0).tensor_description().allocation_description().requested_bytes();
    }
  }
  EXPECT_EQ(in_streams,
            lists["/stream:all"].node_stats_size() + lists["/memcpy"].node_stats_size());
  EXPECT_EQ(copied, 2 * kBytes);
}

TEST_P(TraceTest, FollowsTheOrderOfTheStreams) {
  const auto metadata = Traced(*p.session, x, y, Level::FULL_TRACE);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  Lists lists = ListsOf(*metadata, p.DeviceName(0));
  int64_t arrived = 0;
  int64_t left = 0;
  for (const pb::NodeExecStats& copy : lists["/memcpy"].node_stats()) {
    const bool is_in = copy.node_name().ends_with("HtoD");
    (is_in ? arrived : left) = copy.all_start_nanos() + (is_in ? copy.all_end_rel_nanos() : 0);
  }
  const auto& kernels = lists["/stream:all"].node_stats();
  const auto product = std::find_if(kernels.begin(), kernels.end(), [](const auto& node) {
    return node.node_name() == "product:MatMul";
  });
  ASSERT_NE(product, kernels.end());
  EXPECT_LE(arrived, product->all_start_nanos());
  EXPECT_LE(product->all_start_nanos() + product->all_end_rel_nanos(), left);
}

TEST_P(TraceTest, HasARowForEachStreamInThePicture) {
  const auto metadata = Traced(*p.session, x, y, Level::FULL_TRACE);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  const std::string trace = ChromeTrace(metadata->step_stats());
  for (const char* purpose : {" compute\"", " copy in\"", " copy out\""}) {
    EXPECT_THAT(trace, HasSubstr(purpose));
  }
}

TEST_P(TraceTest, OfSoftwareAloneHasNothingOfDevices) {
  const auto metadata = Traced(*p.session, x, y, Level::SOFTWARE_TRACE);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  const Lists lists = ListsOf(*metadata, p.DeviceName(0));
  EXPECT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists.count(""), 1u);
}

// ---- what only a simulated device can be made to do ----

class FakeTraceTest : public ::testing::Test {
 protected:
  FakeTraceTest() : p("FAKE") {
    x = Placeholder(p.root, kFloat, {64, 64});
    y = ops::MatMul(p.device.WithOpName("y"), x, x);
    z = ops::MatMul(p.device.WithOpName("z"), x, x);
    p.Open();
  }
  Program p;
  Output x, y, z;
};

TEST_F(FakeTraceTest, HoldsTheHostsPartWhereADeviceRefuses) {
  static int times = 0;  // a reason is told once in a process, and tests may be repeated
  const std::string reason = StrCat("the tracer is out of ink, ", ++times);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    p.machine(0)->FailNextRecordings(errors::FailedPrecondition(reason));
    const auto metadata = Traced(*p.session, x, y, Level::FULL_TRACE);
    ASSERT_TRUE(metadata.ok()) << metadata.status();
    const Lists lists = ListsOf(*metadata, p.DeviceName(0));
    ASSERT_EQ(lists.size(), 1u);
    EXPECT_THAT(Names(lists.at("")), Contains("y"));
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::size_t told = log.find(reason);
  ASSERT_NE(told, std::string::npos) << log;
  EXPECT_EQ(log.find(reason, told + 1), std::string::npos) << "once: " << log;
}

TEST_F(FakeTraceTest, OfTwoStepsAtOnceHasTheirOwnEach) {
  p.machine(0)->CloseGate("");
  StatusOr<pb::RunMetadata> first = errors::Unknown("has not run");
  StatusOr<pb::RunMetadata> second = first;
  std::thread one([&] { first = Traced(*p.session, x, y, Level::FULL_TRACE); });
  std::thread two([&] { second = Traced(*p.session, x, z, Level::FULL_TRACE); });
  std::thread untraced([&] { p.Eval(y, {{x, Square(1)}}); });
  EXPECT_TRUE(p.machine(0)->WaitUntilSomethingStands());
  p.machine(0)->OpenGate("");
  one.join();
  two.join();
  untraced.join();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Names(ListsOf(*first, p.DeviceName(0))["/stream:all"]),
            std::vector<std::string>{"y:MatMul"});
  EXPECT_EQ(Names(ListsOf(*second, p.DeviceName(0))["/stream:all"]),
            std::vector<std::string>{"z:MatMul"});
}

TEST_F(FakeTraceTest, AFailedStepHasItsErrorAndTheNextOneItsTrace) {
  p.machine(0)->FailNext("y", errors::Internal("bad luck"));
  EXPECT_THAT(std::string(Message(Traced(*p.session, x, y, Level::FULL_TRACE).status())),
              HasSubstr("bad luck"));
  const auto metadata = Traced(*p.session, x, y, Level::FULL_TRACE);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(Names(ListsOf(*metadata, p.DeviceName(0))["/stream:all"]),
            std::vector<std::string>{"y:MatMul"});
}

}  // namespace
}  // namespace millrace::testing
