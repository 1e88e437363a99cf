// SPDX-License-Identifier: Apache-2.0
// docs/op_table.md says what every op takes and what of that was compared with TensorFlow. It is
// written from the registries and from the cases that pass here; tools/op_table writes it anew.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/thread_pool.h"
#include "graph/gradients/gradient_registry.h"
#include "gtest/gtest.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "tensor/tensor_proto.h"
#include "tests/goldens/compare.h"
#include "tests/goldens/kernels/golden.pb.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Tensor ReadTensor(const std::string& bytes) {
  pb::TensorProto proto;
  if (!proto.ParseFromString(bytes)) return Tensor();
  StatusOr<Tensor> tensor = TensorFromProto(proto);
  return tensor.ok() ? *std::move(tensor) : Tensor();
}

// The step gives what TensorFlow gave, its error if it was one.
bool StepPasses(GraphInterpreter& graph, const golden::Step& step, const Tolerance& tolerance) {
  std::map<std::string, Tensor> feeds;
  for (const golden::Feed& feed : step.feed()) feeds[feed.name()] = ReadTensor(feed.tensor());
  const std::vector<std::string> fetches(step.fetch().begin(), step.fetch().end());
  const std::vector<std::string> targets(step.target().begin(), step.target().end());
  const StatusOr<std::vector<Tensor>> results = graph.Run(feeds, fetches, targets);
  if (step.error_code() != 0) return static_cast<int>(results.status().code()) == step.error_code();
  if (!results.ok() || static_cast<int>(results->size()) != step.expected_size()) return false;
  for (int i = 0; i < step.expected_size(); ++i) {
    if (!Matches((*results)[i], ReadTensor(step.expected(i)), tolerance)) return false;
  }
  return true;
}

bool CasePasses(const golden::Case& golden, const pb::GraphDef& def, const OpRegistry& ops,
                const KernelRegistry& kernels) {
  if (!GraphInterpreter::Missing(def, ops, kernels).empty()) return false;
  ThreadPool pool("kernels", 0);
  ResourceManager resources;
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool, &resources);
  auto graph = GraphInterpreter::Create(def, ops, kernels, device.get());
  if (!graph.ok()) return golden.step_size() > 0 && golden.step(0).error_code() != 0;
  const Tolerance tolerance{golden.compare() == "bits", golden.rtol(), golden.atol()};
  for (const golden::Step& step : golden.step()) {
    if (!StepPasses(**graph, step, tolerance)) return false;
  }
  return true;
}

// The attribute that says what an op's elements are: the first one of kind type.
std::string ElementAttr(const pb::OpDef& op) {
  for (const auto& attr : op.attr()) {
    if (attr.type() == "type") return attr.name();
  }
  return "";
}

using Types = std::set<DataType>;

std::string Names(const Types& types) {
  std::vector<std::string> names;
  for (const DataType type : types) names.emplace_back(DataTypeName(type));
  return StrJoin(names, " ");
}

// What the kernels take of what the op allows.
Types KernelTypes(const OpInfo& op, const std::string& attr,
                  const std::vector<const KernelDef*>& kernels) {
  Types allowed, taken;
  for (const auto& declared : op.def.attr()) {
    if (declared.name() != attr) continue;
    for (const int type : declared.allowed_values().list().type()) {
      allowed.insert(static_cast<DataType>(type));
    }
  }
  for (const KernelDef* kernel : kernels) {
    if (kernel->device_type != "CPU") continue;
    bool constrained = false;
    for (const auto& [name, types] : kernel->constraints) {
      if (name != attr) continue;
      constrained = true;
      taken.insert(types.begin(), types.end());
    }
    if (!constrained) return allowed;  // all of them; empty: any type
  }
  return taken;
}

class Table {
 public:
  std::string Write() const {
    std::string text = Head();
    for (const OpInfo* op : ops_.SortedOps()) {
      const std::string& name = op->def.name();
      const std::string attr = ElementAttr(op->def);
      const auto found = kernels_by_op_.find(name);
      std::string takes = "no kernel";
      if (found != kernels_by_op_.end()) {
        const Types types = attr.empty() ? Types() : KernelTypes(*op, attr, found->second);
        takes = attr.empty() ? "-" : types.empty() ? "any" : Names(types);
      }
      const auto compared = compared_.find(name);
      const std::string cases = compared == compared_.end()
                                    ? "-"
                                    : StrCat(compared->second.cases, " of ", compared->second.all,
                                             "; ", Names(compared->second.types));
      StrAppend(&text, "| ", name, " | ", takes, " | ", cases, " | ", Gradient(name), " |\n");
    }
    return text;
  }

  Table() {
    EXPECT_TRUE(RegisterAllOps(ops_).ok());
    RegisterAllKernels(kernels_);
    for (const KernelDef* kernel : kernels_.All()) kernels_by_op_[kernel->op].push_back(kernel);
    RunCases();
  }

 private:
  struct Compared {
    int cases = 0, all = 0;
    Types types;
  };

  void RunCases() {
    golden::CaseSet set;
    for (const char* name :
         {"cases.pb", "cases_later.pb", "cases_values.pb", "cases_clients.pb", "cases_errors.pb",
          "cases_images.pb", "cases_relatives.pb", "cases_calls.pb", "cases_upstream.pb",
          "cases_domains.pb", "cases_further.pb", "cases_stages.pb"}) {
      golden::CaseSet part;
      ASSERT_TRUE(part.ParseFromString(ReadFile(StrCat("tests/goldens/kernels/", name))));
      set.MergeFrom(part);
    }
    for (const golden::Case& golden : set.case_()) {
      pb::GraphDef def;
      ASSERT_TRUE(def.ParseFromString(golden.graph_def()));
      const bool passes = CasePasses(golden, def, ops_, kernels_);
      passed_ += passes ? 1 : 0;
      ++all_;
      const OpInfo* op = ops_.Find(golden.op());
      if (op == nullptr) continue;
      Compared& compared = compared_[golden.op()];
      ++compared.all;
      if (!passes) continue;
      ++compared.cases;
      const std::string attr = ElementAttr(op->def);
      for (const pb::NodeDef& node : def.node()) {
        if (node.op() != golden.op() || attr.empty()) continue;
        const auto type = node.attr().find(attr);
        if (type == node.attr().end()) continue;
        compared.types.insert(static_cast<DataType>(type->second.type()));
      }
    }
  }

  std::string Gradient(const std::string& op) const {
    GradFn fn = nullptr;
    if (!BuiltinGradients().Find(op, &fn)) return "-";
    return fn == nullptr ? "none flows" : "yes";
  }

  std::string Head() const {
    return StrCat(
        "# Ops, element types, gradients\n\n"
        "Written by `tools/op_table`; a test fails when it is out of date. `takes`: the values of "
        "the op's first type attribute for which there is a CPU kernel (any: every type; -: there "
        "is no such attribute). `compared`: cases that gave what TensorFlow gave, of all there "
        "are for the op, and the types in them. `gradient`: what `Gradients` in C++ does; a "
        "TensorFlow client brings its own.\n\n",
        ops_.SortedOps().size(), " ops; ", kernels_by_op_.size(), " have kernels; ", passed_,
        " of ", all_, " cases pass without a session (loops, branches and functions have tests of ",
        "their own).\n\n| op | takes | compared | gradient |\n| --- | --- | --- | --- |\n");
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  std::map<std::string, std::vector<const KernelDef*>> kernels_by_op_;
  std::map<std::string, Compared> compared_;
  int passed_ = 0, all_ = 0;
};

TEST(OpTableTest, IsUpToDate) {
  const std::string table = Table().Write();
  if (const char* path = std::getenv("MILLRACE_WRITE_OP_TABLE"); path != nullptr) {
    std::ofstream(path, std::ios::binary) << table;
    return;
  }
  EXPECT_TRUE(table == ReadFile("docs/op_table.md")) << "run tools/op_table";
}

}  // namespace
}  // namespace millrace::testing
