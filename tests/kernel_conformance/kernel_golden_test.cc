// SPDX-License-Identifier: Apache-2.0
// Every kernel against what TensorFlow answered: one test per case of cases.pb and
// cases_later.pb. A case whose
// ops have no kernel here is skipped and listed at the end, by op.
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/thread_pool.h"
#include "gtest/gtest.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "ops/op_registry.h"
#include "tensor/tensor_proto.h"
#include "tests/goldens/compare.h"
#include "tests/goldens/kernels/golden.pb.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace::testing {
namespace {

// Fewer cases than this passing means that a family lost its registration. Raise it as
// kernels are added.
constexpr int kLeastPassing = 5000;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const golden::CaseSet& Cases() {
  static const golden::CaseSet* const cases = [] {
    auto* set = new golden::CaseSet;
    for (const char* name :
         {"cases.pb", "cases_later.pb", "cases_values.pb", "cases_clients.pb", "cases_errors.pb",
          "cases_images.pb", "cases_relatives.pb", "cases_calls.pb", "cases_upstream.pb",
          "cases_domains.pb", "cases_further.pb", "cases_stages.pb"}) {
      golden::CaseSet part;
      if (!part.ParseFromString(ReadFile(std::string("tests/goldens/kernels/") + name))) {
        ADD_FAILURE() << name << " cannot be read";
      }
      set->MergeFrom(part);
    }
    return set;
  }();
  return *cases;
}

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    const Status status = RegisterAllOps(*registry);
    if (!status.ok()) ADD_FAILURE() << status.ToString();
    return registry;
  }();
  return *ops;
}

const KernelRegistry& Kernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterAllKernels(*registry);
    return registry;
  }();
  return *kernels;
}

// --- Totals ---------------------------------------------------------------------------------
class Totals : public ::testing::Environment {
 public:
  static Totals& Get() {
    static auto* const totals = new Totals;
    return *totals;
  }
  void Skip(const std::string& name, const std::set<std::string>& missing) {
    ++skipped_;
    for (const std::string& op : missing) by_missing_[op].push_back(name);
  }
  void Finish(bool failed) { ++(failed ? failed_ : passed_); }
  void TearDown() override {
    for (const auto& [op, cases] : by_missing_) {
      std::printf("[ missing  ] %s: %zu cases skipped\n", op.c_str(), cases.size());
    }
    std::printf("[ kernels  ] %d passed, %d failed, %d skipped, %d in all\n", passed_, failed_,
                skipped_, Cases().case__size());
    // Only when everything was asked for.
    if (passed_ + failed_ + skipped_ == Cases().case__size()) {
      EXPECT_GE(passed_, kLeastPassing) << "kernels have lost their registration";
    }
  }

 private:
  int passed_ = 0, failed_ = 0, skipped_ = 0;
  std::map<std::string, std::vector<std::string>> by_missing_;
};

::testing::Environment* const kTotals = ::testing::AddGlobalTestEnvironment(&Totals::Get());

// --- The cases ------------------------------------------------------------------------------
class KernelGolden : public ::testing::TestWithParam<int> {};

Tensor ReadTensor(const std::string& bytes) {
  pb::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  EXPECT_TRUE(tensor.ok()) << tensor.status().ToString();
  return tensor.ok() ? *std::move(tensor) : Tensor();
}

void CheckError(const Status& status, const golden::Step& step) {
  ASSERT_FALSE(status.ok()) << "an error was expected";
  EXPECT_EQ(static_cast<int>(status.code()), step.error_code()) << status.ToString();
  EXPECT_NE(std::string(status.message()).find(step.error_contains()), std::string::npos)
      << "\"" << step.error_contains() << "\" is not in: " << status.ToString();
}

void CheckStep(GraphInterpreter* graph, const golden::Step& step, const Tolerance& tolerance) {
  std::map<std::string, Tensor> feeds;
  for (const golden::Feed& feed : step.feed()) feeds[feed.name()] = ReadTensor(feed.tensor());
  const std::vector<std::string> fetches(step.fetch().begin(), step.fetch().end());
  const std::vector<std::string> targets(step.target().begin(), step.target().end());
  const StatusOr<std::vector<Tensor>> results = graph->Run(feeds, fetches, targets);
  if (step.error_code() != 0) return CheckError(results.status(), step);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  ASSERT_EQ(static_cast<int>(results->size()), step.expected_size());
  for (int i = 0; i < step.expected_size(); ++i) {
    EXPECT_TRUE(Matches((*results)[i], ReadTensor(step.expected(i)), tolerance)) << step.fetch(i);
  }
}

void CheckCase(const golden::Case& golden, const pb::GraphDef& def, int num_threads) {
  ThreadPool pool("kernels", num_threads);
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool, &resources);
  const Tolerance tolerance{golden.compare() == "bits", golden.rtol(), golden.atol()};
  auto graph = GraphInterpreter::Create(def, Ops(), Kernels(), device.get());
  if (!graph.ok()) {
    // A kernel may refuse already when it is made.
    ASSERT_GT(golden.step_size(), 0);
    ASSERT_NE(golden.step(0).error_code(), 0) << graph.status().ToString();
    return CheckError(graph.status(), golden.step(0));
  }
  for (int i = 0; i < golden.step_size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    CheckStep(graph->get(), golden.step(i), tolerance);
  }
}

// Where we differ on purpose, and why.
const std::map<std::string, std::string>& KnownDifferences() {
  static const auto* const differences = new std::map<std::string, std::string>{
      {"Round_int32", "TensorFlow 2.21 answers zeros; integers are round already"},
  };
  return *differences;
}

TEST(KernelRegistryTest, EveryKernelBelongsToADefinedOp) {
  for (const KernelDef* def : Kernels().All()) {
    EXPECT_NE(Ops().Find(def->op), nullptr) << def->op;
  }
}

TEST_P(KernelGolden, AnswersAsTensorFlowDoes) {
  const golden::Case& golden = Cases().case_(GetParam());
  pb::GraphDef def;
  ASSERT_TRUE(def.ParseFromString(golden.graph_def()));
  const std::set<std::string> missing = GraphInterpreter::Missing(def, Ops(), Kernels());
  if (!missing.empty()) {
    Totals::Get().Skip(golden.name(), missing);
    GTEST_SKIP() << "no kernel for " << *missing.begin();
  }
  if (const auto it = KnownDifferences().find(golden.name()); it != KnownDifferences().end()) {
    Totals::Get().Skip(golden.name(), {"known difference (" + it->second + ")"});
    GTEST_SKIP() << it->second;
  }
  // Alone, and shared with two more threads.
  for (const int threads : {0, 2}) CheckCase(golden, def, threads);
  Totals::Get().Finish(HasFailure());
}

std::string CaseName(const ::testing::TestParamInfo<int>& info) {
  std::string name = Cases().case_(info.param).name();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, KernelGolden, ::testing::Range(0, Cases().case__size()), CaseName);

}  // namespace
}  // namespace millrace::testing
