// SPDX-License-Identifier: Apache-2.0
// The kernels' golden cases again, with every node that can be on the device: what TensorFlow
// answered on its CPU is what comes back through copies, streams and host-memory ports.
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "gtest/gtest.h"
#include "kernels/kernel_registry.h"
#include "proto/graph.pb.h"
#include "runtime/registries.h"
#include "tensor/tensor_proto.h"
#include "tests/device_conformance/golden_device.h"
#include "tests/device_conformance/program.h"
#include "tests/goldens/compare.h"
#include "tests/goldens/kernels/golden.pb.h"

namespace millrace::testing {
namespace {

const golden::CaseSet& Cases() {
  static const golden::CaseSet* const cases = [] {
    auto* set = new golden::CaseSet;
    for (const char* name : {"cases.pb", "cases_later.pb"}) {
      std::ifstream file(std::string("tests/goldens/kernels/") + name, std::ios::binary);
      std::stringstream text;
      text << file.rdbuf();
      golden::CaseSet part;
      if (!part.ParseFromString(text.str())) ADD_FAILURE() << name << " cannot be read";
      set->MergeFrom(part);
    }
    return set;
  }();
  return *cases;
}

const std::set<std::string>& OpsOf(const std::string& type) {
  static auto* const by_type = [] {
    auto* ops = new std::map<std::string, std::set<std::string>>;
    for (const KernelDef* def : AllKernels().All()) (*ops)[def->device_type].insert(def->op);
    return ops;
  }();
  return (*by_type)[type];
}

Tensor ReadTensor(const std::string& bytes) {
  pb::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  EXPECT_TRUE(tensor.ok()) << tensor.status().ToString();
  return tensor.ok() ? *std::move(tensor) : Tensor();
}

// One cluster for all cases; a session for each.
Program& Cluster() {
  static auto* const cluster = [] {
    auto* program = new Program(GoldenDeviceType());
    program->devices = 1;
    program->config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(
        pb::OptimizerOptions::L0);  // a constant that is folded runs nowhere
    program->Open();
    return program;
  }();
  return *cluster;
}

// Why no case can run; "" if they can.
const std::string& Obstacle() {
  static const auto* const obstacle = new std::string(PrepareGoldenDevice());
  return *obstacle;
}

class Totals : public ::testing::Environment {
 public:
  static Totals& Get() {
    static auto* const totals = new Totals;
    return *totals;
  }
  void Add(const std::set<std::string>& ops) {
    ++passed_;
    ops_.insert(ops.begin(), ops.end());
  }
  void TearDown() override {
    std::string missing;
    for (const std::string& op : OpsOf(GoldenDeviceType())) {
      if (!ops_.contains(op)) missing += " " + op;
    }
    std::printf("[ device   ] %d cases passed, %zu ops; without a case:%s\n", passed_, ops_.size(),
                missing.c_str());
    const auto& tests = *::testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() != tests.total_test_count()) return;
    for (const std::string& op : OpsWithoutACase(ops_)) ADD_FAILURE() << "no case has " << op;
  }

 private:
  int passed_ = 0;
  std::set<std::string> ops_;
};

::testing::Environment* const kTotals = ::testing::AddGlobalTestEnvironment(&Totals::Get());

class DeviceGolden : public ::testing::TestWithParam<int> {};

// Errors that are seen in data only.
bool MayOverlook(const golden::Case& golden) {
  static const auto* const names = new std::set<std::string>{"DynamicPartition_err",
                                                             "GatherNd_err",
                                                             "GatherV2_err",
                                                             "GatherV2_err_neg",
                                                             "ScatterNd_err",
                                                             "SegmentMax_err_unsorted",
                                                             "SegmentMean_err_unsorted",
                                                             "SegmentMin_err_unsorted",
                                                             "SegmentProd_err_unsorted",
                                                             "SegmentSum_err_unsorted",
                                                             "SparseXent_err_label",
                                                             "UnsortedSegmentMax_err",
                                                             "UnsortedSegmentMin_err",
                                                             "UnsortedSegmentProd_err",
                                                             "UnsortedSegmentSum_err",
                                                             "resource_scatter_family"};
  return OverlooksErrorsInData() && names->contains(golden.name());
}

void CheckStep(ClientSession& session, const golden::Case& golden, const golden::Step& step,
               const Tolerance& tolerance) {
  ClientSession::RunRequest request;
  for (const golden::Feed& feed : step.feed()) {
    request.feeds.emplace_back(feed.name(), ReadTensor(feed.tensor()));
  }
  request.fetches = {step.fetch().begin(), step.fetch().end()};
  request.targets = {step.target().begin(), step.target().end()};
  const auto results = session.Run(std::move(request));
  if (step.error_code() != 0) {
    // Shapes are checked before a kernel is asked: the text may be another one.
    EXPECT_TRUE(!results.ok() || MayOverlook(golden))
        << "an error was expected: " << step.error_contains();
    return;
  }
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(static_cast<int>(results->size()), step.expected_size());
  for (int i = 0; i < step.expected_size(); ++i) {
    EXPECT_TRUE(Matches((*results)[i], ReadTensor(step.expected(i)), tolerance)) << step.fetch(i);
  }
}

TEST_P(DeviceGolden, AnswersAsTensorFlowDoes) {
  const golden::Case& golden = Cases().case_(GetParam());
  ASSERT_EQ(Obstacle(), "");
  pb::GraphDef def;
  ASSERT_TRUE(def.ParseFromString(golden.graph_def()));
  std::set<std::string> on_device;
  for (pb::NodeDef& node : *def.mutable_node()) {
    if (!OpsOf("CPU").contains(node.op())) GTEST_SKIP() << "no kernel for " << node.op();
    if (!OpsOf(GoldenDeviceType()).contains(node.op())) continue;
    node.set_device("/device:" + GoldenDeviceType() + ":0");
    if (node.op() != "Const" && node.op() != "Placeholder") on_device.insert(node.op());
  }
  if (on_device.empty()) GTEST_SKIP() << "nothing in it has a kernel for the device";
  if (golden.name() == "Round_int32") GTEST_SKIP() << "a known difference of the kernel";
  if (golden.name() == "Equal_incompatible_allowed") {
    GTEST_SKIP() << "whether the shapes fit, and with it the output's, is known to the kernel only";
  }
  Program& cluster = Cluster();
  ClientSession::Options options;
  options.config = cluster.config;
  options.config.set_isolate_session_state(true);  // variables of a case are its own
  options.step_timeout = std::chrono::seconds(60);
  auto session = ClientSession::Create(cluster.master, def, options);
  const Tolerance tolerance{golden.compare() == "bits", golden.rtol(), golden.atol()};
  if (!session.ok()) {
    ASSERT_NE(golden.step(0).error_code(), 0) << session.status();
    return;
  }
  for (int i = 0; i < golden.step_size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    CheckStep(**session, golden, golden.step(i), tolerance);
  }
  if (!HasFailure()) Totals::Get().Add(on_device);
}

std::string CaseName(const ::testing::TestParamInfo<int>& info) {
  std::string name = Cases().case_(info.param).name();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, DeviceGolden, ::testing::Range(0, Cases().case__size()), CaseName);

}  // namespace
}  // namespace millrace::testing
