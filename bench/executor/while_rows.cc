// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/while_rows.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "proto/graph.pb.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr int kIterations = 100'000, kBodyOps = 5;

// Adds nodes to a graph or to a function, in which outputs are named otherwise.
class Nodes {
 public:
  explicit Nodes(pb::GraphDef* graph) : add_([graph] { return graph->add_node(); }) {}
  explicit Nodes(pb::FunctionDef* function)
      : add_([function] { return function->add_node_def(); }), in_function_(true) {}

  pb::NodeDef* Add(const std::string& name, const std::string& op,
                   const std::vector<std::string>& inputs) {
    pb::NodeDef* const node = add_();
    node->set_name(name);
    node->set_op(op);
    for (const std::string& input : inputs) node->add_input(input);
    return node;
  }
  pb::NodeDef* Add(const std::string& name, const std::string& op,
                   const std::vector<std::string>& inputs, pb::DataType type,
                   const char* key = "T") {
    pb::NodeDef* const node = Add(name, op, inputs);
    (*node->mutable_attr())[key].set_type(type);
    return node;
  }
  // `after` is the node that runs before it; "": none.
  std::string Constant(const std::string& name, const Tensor& value, const std::string& after) {
    std::vector<std::string> inputs;
    if (!after.empty()) inputs.push_back("^" + after);
    pb::NodeDef* const node =
        Add(name, "Const", inputs, static_cast<pb::DataType>(value.dtype()), "dtype");
    TensorToProto(value, (*node->mutable_attr())["value"].mutable_tensor());
    return in_function_ ? name + ":output:0" : name;
  }
  // i + 1 and what five operations make of v; `after` as above.
  std::pair<std::string, std::string> AddBody(const std::string& i, const std::string& v,
                                              const std::string& after) {
    const struct {
      const char *name, *op, *constant;
      float value;
    } body[kBodyOps] = {{"b1", "AddV2", "c1", 1.0f},
                        {"b2", "Mul", "c2", 0.5f},
                        {"b3", "Sub", "c3", 0.25f},
                        {"b4", "Mul", "c4", 0.75f},
                        {"b5", "AddV2", "c5", 0.125f}};
    std::string value = v;
    for (const auto& op : body) {
      const std::string constant = Constant(op.constant, Tensor::Scalar<float>(op.value), after);
      Add(op.name, op.op, {value, constant}, pb::DT_FLOAT);
      value = in_function_ ? StrCat(op.name, ":z:0") : op.name;
    }
    const std::string one = Constant("one", Tensor::Scalar<int32_t>(1), after);
    Add("i_plus", "AddV2", {i, one}, pb::DT_INT32);
    return {in_function_ ? "i_plus:z:0" : "i_plus", value};
  }

 private:
  const std::function<pb::NodeDef*()> add_;
  const bool in_function_ = false;
};

// Placeholders "n" and "x", the loop's start "zero".
pb::GraphDef Start() {
  pb::GraphDef graph;
  graph.mutable_versions()->set_producer(1000);
  Nodes nodes(&graph);
  nodes.Add("n", "Placeholder", {}, pb::DT_INT32, "dtype");
  nodes.Add("x", "Placeholder", {}, pb::DT_FLOAT, "dtype");
  nodes.Constant("zero", Tensor::Scalar<int32_t>(0), "");
  return graph;
}

// i = 0; v = x; while (i < n) { v = five operations of v; ++i }; out = v.
pb::GraphDef LoopOfNodes() {
  pb::GraphDef graph = Start();
  Nodes nodes(&graph);
  const auto enter = [&](const char* name, const char* from, pb::DataType type, bool is_constant) {
    pb::NodeDef* const node = nodes.Add(name, "Enter", {from}, type);
    (*node->mutable_attr())["frame_name"].set_s("loop");
    (*node->mutable_attr())["is_constant"].set_b(is_constant);
  };
  const auto merge = [&](const char* name, std::vector<std::string> inputs, pb::DataType type) {
    (*nodes.Add(name, "Merge", std::move(inputs), type)->mutable_attr())["N"].set_i(2);
  };
  enter("i_in", "zero", pb::DT_INT32, false);
  enter("v_in", "x", pb::DT_FLOAT, false);
  enter("n_in", "n", pb::DT_INT32, true);
  merge("i", {"i_in", "i_next"}, pb::DT_INT32);
  merge("v", {"v_in", "v_next"}, pb::DT_FLOAT);
  nodes.Add("less", "Less", {"i", "n_in"}, pb::DT_INT32);
  nodes.Add("cond", "LoopCond", {"less"});
  nodes.Add("i_switch", "Switch", {"i", "cond"}, pb::DT_INT32);
  nodes.Add("v_switch", "Switch", {"v", "cond"}, pb::DT_FLOAT);
  nodes.Add("i_body", "Identity", {"i_switch:1"}, pb::DT_INT32);
  nodes.Add("v_body", "Identity", {"v_switch:1"}, pb::DT_FLOAT);
  const auto [i, v] = nodes.AddBody("i_body", "v_body", "i_body");
  nodes.Add("i_next", "NextIteration", {i}, pb::DT_INT32);
  nodes.Add("v_next", "NextIteration", {v}, pb::DT_FLOAT);
  nodes.Add("out", "Exit", {"v_switch"}, pb::DT_FLOAT);
  return graph;
}

// Of the loop's variables i, n and v, which it calls so.
pb::FunctionDef* AddFunction(const char* name, pb::GraphDef* graph) {
  pb::FunctionDef* const function = graph->mutable_library()->add_function();
  function->mutable_signature()->set_name(name);
  for (const char* arg : {"i", "n", "v"}) {
    auto* const to = function->mutable_signature()->add_input_arg();
    to->set_name(arg);
    to->set_type(*arg == 'v' ? pb::DT_FLOAT : pb::DT_INT32);
  }
  return function;
}

void AddResult(const char* name, pb::DataType type, const std::string& from,
               pb::FunctionDef* function) {
  auto* const to = function->mutable_signature()->add_output_arg();
  to->set_name(name);
  to->set_type(type);
  (*function->mutable_ret())[name] = from;
}

pb::GraphDef LoopOfFunctions(bool lowered) {
  pb::GraphDef graph = Start();
  pb::FunctionDef* const condition = AddFunction("condition", &graph);
  Nodes(condition).Add("less", "Less", {"i", "n"}, pb::DT_INT32);
  AddResult("go_on", pb::DT_BOOL, "less:z:0", condition);
  pb::FunctionDef* const body = AddFunction("body", &graph);
  const auto [i, v] = Nodes(body).AddBody("i", "v", "");
  AddResult("next_i", pb::DT_INT32, i, body);
  AddResult("same_n", pb::DT_INT32, "n", body);
  AddResult("next_v", pb::DT_FLOAT, v, body);
  Nodes nodes(&graph);
  pb::NodeDef* const loop = nodes.Add("loop", "StatelessWhile", {"zero", "n", "x"});
  auto& attrs = *loop->mutable_attr();
  for (const pb::DataType type : {pb::DT_INT32, pb::DT_INT32, pb::DT_FLOAT}) {
    attrs["T"].mutable_list()->add_type(type);
  }
  attrs["cond"].mutable_func()->set_name("condition");
  attrs["body"].mutable_func()->set_name("body");
  attrs["parallel_iterations"].set_i(10);
  attrs["_lower_using_switch_merge"].set_b(lowered);
  nodes.Add("out", "Identity", {"loop:2"}, pb::DT_FLOAT);
  return graph;
}

}  // namespace

Row WhileRow(LoopForm form, int threads) {
  pb::ConfigProto config;
  config.set_inter_op_parallelism_threads(threads);
  auto master = ConnectTarget("", config, "");
  MR_CHECK(master.ok());
  ClientSession::Options options;
  options.config = config;
  const pb::GraphDef graph =
      form == LoopForm::kNodes ? LoopOfNodes() : LoopOfFunctions(form == LoopForm::kLowered);
  auto opened = ClientSession::Create(*master, graph, options);
  if (!opened.ok()) MR_LOG(kError, opened.status().ToString());
  MR_CHECK(opened.ok());
  std::shared_ptr<ClientSession> session = *std::move(opened);
  pb::CallableOptions wanted;
  for (const char* feed : {"n:0", "x:0"}) wanted.add_feed(feed);
  wanted.add_fetch("out:0");
  const auto callable = session->MakeCallable(wanted);
  MR_CHECK(callable.ok());
  const auto run = [session, callable](int32_t iterations) {
    const auto result = session->RunCallable(
        *callable, {Tensor::Scalar<int32_t>(iterations), Tensor::Scalar<float>(1)});
    if (!result.ok()) MR_LOG(kError, result.status().ToString());
    MR_CHECK(result.ok());
    return (*result)[0].scalar<float>();
  };
  float expected = 1;
  for (int i = 0; i < 3; ++i) expected = ((expected + 1) * 0.5f - 0.25f) * 0.75f + 0.125f;
  // With a pool the first steps learn what nodes cost; short ones do as well as long ones.
  for (int i = 0; i < 20; ++i) MR_CHECK(run(3) == expected);
  run(kIterations);
  const char* const forms[] = {"of nodes", "of functions, lowered", "of functions"};
  return {StrCat("while loop ", forms[static_cast<int>(form)], ", ",
                 threads < 0 ? "caller alone" : "pool as by default"),
          "ns/body op",
          {"A.while_100k_5ops"},
          [run] { return NanosPer(2, [&] { run(kIterations); }) / (kIterations * kBodyOps); }};
}

}  // namespace millrace
