// SPDX-License-Identifier: Apache-2.0
// Gradients against TensorFlow's, case by case: once by running the gradient graph that
// TensorFlow built, once by building our own from the forward part alone. What cannot be done
// yet is listed here by name with its reason, and the test fails when the list is out of date.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/node_name.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "proto/graph.pb.h"
#include "tensor/tensor_proto.h"
#include "tests/goldens/compare.h"
#include "tests/goldens/kernels/golden.pb.h"

namespace millrace::testing {
namespace {

// Ops of the cases that this build does not define. A case that needs one is refused when its
// graph is read.
const std::set<std::string>& UndefinedOps() {
  static const auto* const ops = new std::set<std::string>{};
  return *ops;
}

// Cases whose ops all exist, but whose gradient cannot be built: what the refusal says.
const std::map<std::string, std::string>& WithoutGradient() {
  static const auto* const cases = new std::map<std::string, std::string>{};
  return *cases;
}

const golden::CaseSet& Cases() {
  static const golden::CaseSet* const cases = [] {
    auto* set = new golden::CaseSet;
    for (const char* name : {"cases.pb", "cases_later.pb", "cases_relatives.pb", "cases_domains.pb",
                             "cases_further.pb"}) {
      std::ifstream file(std::string("tests/goldens/gradients/") + name, std::ios::binary);
      golden::CaseSet read;
      if (!read.ParseFromIstream(&file) || read.case__size() == 0) {
        ADD_FAILURE() << name << " cannot be read";
      }
      // Ops of one name with others' forms are in several files.
      for (golden::Case& each : *read.mutable_case_()) {
        if (std::string_view(name) == "cases_relatives.pb")
          each.set_name(each.name() + " relative");
      }
      set->MergeFrom(read);
    }
    return set;
  }();
  return *cases;
}

// MILLRACE_TEST_DEVICE, "/device:GPU:0": where nodes are put that have a kernel there; "": nowhere.
const std::string& TestDevice() {
  static const auto* const device = new std::string([] {
    const char* const value = std::getenv("MILLRACE_TEST_DEVICE");
    return std::string(value == nullptr ? "" : value);
  }());
  return *device;
}

void PutOnTestDevice(pb::GraphDef* def) {
  if (TestDevice().empty()) return;
  for (pb::NodeDef& node : *def->mutable_node()) node.set_device(TestDevice());
}

pb::GraphDef GraphOf(const golden::Case& golden) {
  pb::GraphDef def;
  EXPECT_TRUE(def.ParseFromString(golden.graph_def()));
  PutOnTestDevice(&def);
  return def;
}

// The nodes that `node` is computed from, itself among them.
pb::GraphDef ForwardPart(const pb::GraphDef& def, const std::string& node) {
  std::map<std::string, const pb::NodeDef*> by_name;
  for (const pb::NodeDef& n : def.node()) by_name[n.name()] = &n;
  std::set<std::string> needed;
  std::vector<std::string> stack = {node};
  while (!stack.empty()) {
    const std::string name = stack.back();
    stack.pop_back();
    if (!needed.insert(name).second) continue;
    EXPECT_TRUE(by_name.contains(name)) << name;
    for (const std::string& input : by_name[name]->input()) {
      std::string_view text = input;
      if (text.starts_with("^")) text.remove_prefix(1);
      stack.emplace_back(text.substr(0, text.find(':')));
    }
  }
  pb::GraphDef part;
  *part.mutable_versions() = def.versions();
  for (const pb::NodeDef& n : def.node()) {
    if (needed.contains(n.name())) *part.add_node() = n;
  }
  return part;
}

// The first op of the graph that this build does not define, "" if there is none.
std::string FirstUndefinedOp(const pb::GraphDef& def) {
  for (const pb::NodeDef& node : def.node()) {
    if (UndefinedOps().contains(node.op())) return node.op();
  }
  return "";
}

Tensor ReadTensor(const std::string& bytes) {
  pb::TensorProto proto;
  EXPECT_TRUE(proto.ParseFromString(bytes));
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *std::move(tensor) : Tensor();
}

StatusOr<std::vector<Tensor>> Evaluate(Graph& graph, const std::vector<Output>& fetches) {
  MR_ASSIGN_OR_RETURN(Session session,
                      Session::Create(graph, {.allow_soft_placement = !TestDevice().empty()}));
  return session.Run({}, fetches);
}

Tolerance ToleranceOf(const golden::Case& golden) {
  return {golden.compare() == "bits", golden.rtol(), golden.atol()};
}

// --- TensorFlow's gradient graph ------------------------------------------------------------
StatusOr<std::vector<Tensor>> RunStoredGraph(const pb::GraphDef& def, const golden::Step& step) {
  Graph graph;
  MR_RETURN_IF_ERROR(graph.ImportGraphDef(def.SerializeAsString()));
  std::vector<Output> fetches;
  for (const std::string& fetch : step.fetch()) {
    MR_ASSIGN_OR_RETURN(const TensorName name, ParseTensorName(fetch));
    fetches.push_back(graph.FindOperation(name.node).output(name.index));
  }
  return Evaluate(graph, fetches);
}

// --- Our gradient graph ---------------------------------------------------------------------
struct LossAndGradients {
  Tensor loss;
  std::vector<Tensor> gradients;  // of those inputs that have one, in order
};

// The floating and complex inputs of a case are its constants x0, x1, ...
std::vector<Output> FloatingInputs(const Graph& graph) {
  std::vector<Output> xs;
  for (int i = 0;; ++i) {
    const Operation x = graph.FindOperation("x" + std::to_string(i));
    if (!x.valid()) return xs;
    const DataType type = x.output(0).dtype();
    if (IsFloating(type) || type == kComplex64 || type == kComplex128) xs.push_back(x.output(0));
  }
}

StatusOr<LossAndGradients> BuildAndRun(const pb::GraphDef& forward) {
  Graph graph;
  MR_RETURN_IF_ERROR(graph.ImportGraphDef(forward.SerializeAsString()));
  const Output loss = graph.FindOperation("loss").output(0);
  const std::vector<Output> xs = FloatingInputs(graph);
  if (xs.empty()) return errors::Internal("the case has no inputs");
  MR_ASSIGN_OR_RETURN(
      const std::vector<Output> gradients,
      Gradients(graph.root().WithDevice(TestDevice()), std::vector<Output>{loss}, xs));
  std::vector<Output> fetches = {loss};
  for (const Output& gradient : gradients) {
    if (gradient.valid()) fetches.push_back(gradient);
  }
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values, Evaluate(graph, fetches));
  LossAndGradients result{values[0], {values.begin() + 1, values.end()}};
  return result;
}

// Rows `values` added up at `indices` of zeros with the shape of `like`.
Tensor Densified(const Tensor& values, const Tensor& indices, const Shape& like) {
  EXPECT_EQ(values.dtype(), kDouble);
  Tensor dense(kDouble, like);
  std::fill_n(dense.data<double>(), dense.num_elements(), 0.0);
  const int64_t row = dense.num_elements() / like.dim(0);
  for (int64_t i = 0; i < indices.num_elements(); ++i) {
    const int64_t at =
        indices.dtype() == kInt32 ? indices.data<int32_t>()[i] : indices.data<int64_t>()[i];
    for (int64_t j = 0; j < row; ++j) {
      dense.data<double>()[at * row + j] += values.data<double>()[i * row + j];
    }
  }
  return dense;
}

void CompareGradients(const std::vector<Tensor>& got, const golden::Step& step,
                      const Tolerance& tolerance) {
  std::size_t next = 0;
  for (int i = 1; i < step.expected_size(); ++i) {
    SCOPED_TRACE(step.fetch(i));
    ASSERT_LT(next, got.size()) << "TensorFlow has a gradient here";
    Tensor want = ReadTensor(step.expected(i));
    if (i + 1 < step.expected_size()) {
      const Tensor indices = ReadTensor(step.expected(i + 1));
      if (IsInteger(indices.dtype())) {  // the pair is an indexed-slices gradient
        want = Densified(want, indices, got[next].shape());
        ++i;
      }
    }
    EXPECT_TRUE(Matches(got[next++], want, tolerance));
  }
  EXPECT_EQ(next, got.size()) << "TensorFlow has no gradient for the further inputs";
}

// --- The cases ------------------------------------------------------------------------------
class GradientGolden : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_EQ(golden_.step_size(), 1);
    ASSERT_EQ(golden_.step(0).error_code(), 0);
    ASSERT_EQ(golden_.step(0).feed_size(), 0);
    ASSERT_EQ(golden_.step(0).fetch_size(), golden_.step(0).expected_size());
  }
  const golden::Case& golden_ = Cases().case_(GetParam());
};

void ExpectRefusal(const Status& status, const std::string& phrase) {
  ASSERT_FALSE(status.ok()) << "this works now: take it off the list";
  EXPECT_NE(std::string(Message(status)).find(phrase), std::string::npos)
      << "\"" << phrase << "\" is not in: " << status;
}

TEST_P(GradientGolden, TensorFlowsGradientGraphGivesItsValues) {
  const pb::GraphDef def = GraphOf(golden_);
  const auto values = RunStoredGraph(def, golden_.step(0));
  if (const std::string op = FirstUndefinedOp(def); !op.empty()) {
    return ExpectRefusal(values.status(), op);
  }
  ASSERT_TRUE(values.ok()) << values.status();
  for (int i = 0; i < golden_.step(0).expected_size(); ++i) {
    EXPECT_TRUE(
        Matches((*values)[i], ReadTensor(golden_.step(0).expected(i)), ToleranceOf(golden_)))
        << golden_.step(0).fetch(i);
  }
}

TEST_P(GradientGolden, OurGradientsOfItsForwardPartAreEqual) {
  const pb::GraphDef forward = ForwardPart(GraphOf(golden_), "loss");
  const auto result = BuildAndRun(forward);
  if (const std::string op = FirstUndefinedOp(forward); !op.empty()) {
    return ExpectRefusal(result.status(), op);
  }
  if (const auto it = WithoutGradient().find(golden_.name()); it != WithoutGradient().end()) {
    return ExpectRefusal(result.status(), it->second);
  }
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(Matches(result->loss, ReadTensor(golden_.step(0).expected(0)), ToleranceOf(golden_)));
  CompareGradients(result->gradients, golden_.step(0), ToleranceOf(golden_));
}

std::string CaseName(const ::testing::TestParamInfo<int>& info) {
  std::string name = Cases().case_(info.param).name();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GradientGolden, ::testing::Range(0, Cases().case__size()),
                         CaseName);

// --- The lists ------------------------------------------------------------------------------
TEST(GradientGoldenLists, NameOnlyOpsThatAreNotDefined) {
  for (const std::string& op : UndefinedOps()) {
    EXPECT_EQ(BuiltinOps().Find(op), nullptr) << op << " is defined now: take it off the list";
  }
}

TEST(GradientGoldenLists, NameOnlyWhatTheCasesUse) {
  std::set<std::string> ops, names;
  for (const golden::Case& golden : Cases().case_()) {
    names.insert(golden.name());
    const pb::GraphDef def = GraphOf(golden);
    for (const pb::NodeDef& node : def.node()) ops.insert(node.op());
  }
  for (const std::string& op : UndefinedOps()) EXPECT_TRUE(ops.contains(op)) << op;
  for (const auto& [name, phrase] : WithoutGradient()) EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace millrace::testing
