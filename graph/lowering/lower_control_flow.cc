// SPDX-License-Identifier: Apache-2.0
#include "graph/lowering/lower_control_flow.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/functions/function_inline.h"

namespace millrace {
namespace {

DataType TypeOf(const OutputRef& output) {
  return BaseType(output.node->output_types()[output.index]);
}

// Adds the nodes that stand around the bodies.
class Lowering {
 public:
  Lowering(Node* node, int first_input, DataflowGraph* graph)
      : node_(node), graph_(graph), site_(SiteOf(*node, first_input)) {}

  // Names are TensorFlow's: "node/name/_7", with a number that no other node of the graph has.
  std::string NewName(const std::string& name) {
    return graph_->NewName(StrCat(node_->name(), "/", name));
  }
  StatusOr<Node*> Add(const std::string& name, std::string_view op, AttrMap attrs,
                      std::initializer_list<OutputRef> inputs) {
    MR_ASSIGN_OR_RETURN(Node* const node, graph_->AddNode(NewName(name), op, std::move(attrs)));
    node->set_requested_device(site_.device);
    node->set_origin(site_.origin);
    node->set_device_origin(site_.device_origin);
    int slot = 0;
    for (const OutputRef& input : inputs) {
      MR_RETURN_IF_ERROR(graph_->AddEdge(input.node, input.index, node, slot++).status());
    }
    return node;
  }
  // An op with the one type attribute T.
  StatusOr<Node*> AddTyped(const std::string& name, std::string_view op, DataType type,
                           std::initializer_list<OutputRef> inputs) {
    AttrMap attrs;
    attrs.Set("T", type);
    return Add(name, op, std::move(attrs), inputs);
  }
  StatusOr<Node*> AddConst(const std::string& name, Tensor value, Node* after) {
    AttrMap attrs;
    attrs.Set("dtype", value.dtype());
    attrs.Set("value", std::move(value));
    MR_ASSIGN_OR_RETURN(Node* const node, Add(name, "Const", std::move(attrs), {}));
    if (after != nullptr) graph_->AddControlEdge(after, node);
    return node;
  }
  StatusOr<OutputRef> AsBool(OutputRef value, const std::string& name) {
    if (TypeOf(value) == kBool) return value;
    MR_ASSIGN_OR_RETURN(Node* const node, AddTyped(name, "ToBool", TypeOf(value), {value}));
    return OutputRef{node, 0};
  }
  // The site of a body within this node.
  InlineSite Within(const std::string& prefix, std::vector<OutputRef> inputs, Node* pivot) const {
    InlineSite site = site_;
    site.prefix = prefix;
    site.inputs = std::move(inputs);
    site.controls = {pivot};
    site.controls_decide = true;
    site.effects = InlineSite::Effects::kDeclared;
    return site;
  }
  Status CheckResults(const FunctionBody& body, const std::vector<DataType>& types) const {
    if (body.result_types() == types) return OkStatus();
    return errors::InvalidArgument("Function ", body.name, " does not give what {{node ",
                                   node_->name(), "}} (op: ", node_->type(),
                                   ") expects of it: ", types.size(),
                                   " results of the node's types");
  }

  Node* node() const { return node_; }
  DataflowGraph* graph() const { return graph_; }
  const InlineSite& site() const { return site_; }

 private:
  Node* const node_;
  DataflowGraph* const graph_;
  const InlineSite site_;
};

// One branch: which inputs are live in it.
class BranchLowering : public Lowering {
 public:
  BranchLowering(Node* node, const std::vector<const FunctionBody*>& branches, DataflowGraph* graph)
      : Lowering(node, 1, graph), branches_(branches) {}

  Status Run() {
    NameBranches();
    MR_RETURN_IF_ERROR(MakeConditions());
    MR_RETURN_IF_ERROR(MakePivots());
    std::vector<std::vector<OutputRef>> inputs(branches_.size());
    for (const OutputRef& input : site().inputs) {
      for (std::size_t b = 0; b < branches_.size(); ++b) {
        MR_ASSIGN_OR_RETURN(const OutputRef value, Switched(input, b, input.node->name()));
        inputs[b].push_back(value);
      }
    }
    std::vector<std::vector<OutputRef>> outputs;
    std::vector<Node*> done;
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      MR_RETURN_IF_ERROR(CheckResults(*branches_[b], node()->output_types()));
      MR_ASSIGN_OR_RETURN(
          InlinedBody inlined,
          InlineBody(*branches_[b], Within(prefixes_[b], std::move(inputs[b]), pivots_[b]),
                     graph()));
      outputs.push_back(std::move(inlined.outputs));
      done.push_back(inlined.done);
    }
    std::vector<OutputRef> merged;
    for (int i = 0; i < node()->num_outputs(); ++i) {
      std::vector<OutputRef> alternatives;
      for (const auto& of_branch : outputs) alternatives.push_back(of_branch[i]);
      MR_ASSIGN_OR_RETURN(Node* const merge, Merge(IsIf() ? "output" : "merge", alternatives));
      merged.push_back({merge, 0});
    }
    MR_ASSIGN_OR_RETURN(Node* const executed, Executed(done));
    return ReplaceNode(node(), merged, executed, graph());
  }

 private:
  void NameBranches() {
    prefixes_.resize(branches_.size());
    if (IsIf()) {
      for (const int b : {1, 0}) prefixes_[b] = NewName(b == 0 ? "else" : "then");
      return;
    }
    for (std::size_t b = 0; b < branches_.size(); ++b) prefixes_[b] = NewName(StrCat("branch", b));
  }

  Status MakePivots() {
    for (std::size_t b = 0; b < branches_.size(); ++b) {
      const std::string pivot =
          IsIf() ? std::string(b == 0 ? "pivot_f" : "pivot_t") : StrCat("pivot_", b);
      MR_ASSIGN_OR_RETURN(const OutputRef taken,
                          Switched(conditions_[b], b, IsIf() ? "switch_pred" : "branch_index"));
      MR_ASSIGN_OR_RETURN(Node* const node, AddTyped(pivot, "Identity", kBool, {taken}));
      pivots_.push_back(node);
    }
    return OkStatus();
  }

  // What waits for the effects of the branch that was taken; null if there are none but those of
  // the outputs.
  StatusOr<Node*> Executed(const std::vector<Node*>& done) {
    if (std::all_of(done.begin(), done.end(), [](const Node* node) { return node == nullptr; })) {
      return nullptr;
    }
    std::vector<OutputRef> ends;
    for (std::size_t b = 0; b < done.size(); ++b) {
      ends.push_back({pivots_[b], 0});
      if (done[b] == nullptr) continue;
      MR_ASSIGN_OR_RETURN(ends[b].node,
                          AddTyped(StrCat("executed_", b), "Identity", kBool, {{pivots_[b], 0}}));
      graph()->AddControlEdge(done[b], ends[b].node);
    }
    return Merge("branch_executed", ends);
  }

  bool IsIf() const { return node()->type() == "If" || node()->type() == "StatelessIf"; }

  StatusOr<Node*> Merge(const std::string& name, const std::vector<OutputRef>& alternatives) {
    AttrMap attrs;
    attrs.Set("T", TypeOf(alternatives[0]));
    attrs.Set("N", static_cast<int64_t>(alternatives.size()));
    MR_ASSIGN_OR_RETURN(Node* const merge, Add(name, "Merge", std::move(attrs), {}));
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      MR_RETURN_IF_ERROR(
          graph()
              ->AddEdge(alternatives[i].node, alternatives[i].index, merge, static_cast<int>(i))
              .status());
    }
    return merge;
  }

  // One condition for each branch: of If the same, false and true.
  Status MakeConditions() {
    const Edge* const edge = node()->input_edge(0);
    OutputRef chosen{edge->src, edge->src_output};
    if (IsIf()) {
      MR_ASSIGN_OR_RETURN(chosen, AsBool(chosen, "to_bool"));
    }
    if (!IsIf() || !site().controls.empty() ||
        IsRefType(chosen.node->output_types()[chosen.index])) {
      MR_ASSIGN_OR_RETURN(Node* const choice,
                          AddTyped("choice", "Identity", TypeOf(chosen), {chosen}));
      for (Node* control : site().controls) graph()->AddControlEdge(control, choice);
      chosen = {choice, 0};
    }
    if (IsIf()) {
      conditions_.assign(2, chosen);
      return OkStatus();
    }
    Node* const choice = chosen.node;
    // The last branch is for all other numbers.
    std::optional<OutputRef> any;
    for (std::size_t b = 0; b + 1 < branches_.size(); ++b) {
      MR_ASSIGN_OR_RETURN(
          Node* const number,
          AddConst(StrCat("number_", b), Tensor::Scalar<int32_t>(static_cast<int32_t>(b)), choice));
      MR_ASSIGN_OR_RETURN(Node* const equal,
                          AddTyped(StrCat("is_", b), "Equal", kInt32, {{choice, 0}, {number, 0}}));
      conditions_.push_back({equal, 0});
      if (!any) {
        any = conditions_.back();
      } else {
        MR_ASSIGN_OR_RETURN(Node* const either,
                            Add(StrCat("any_", b), "LogicalOr", {}, {*any, conditions_.back()}));
        any = OutputRef{either, 0};
      }
    }
    if (!any) {  // one branch: always
      MR_ASSIGN_OR_RETURN(Node* const always,
                          AddConst("always", Tensor::Scalar<bool>(true), choice));
      conditions_.push_back({always, 0});
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Node* const other, Add("other", "LogicalNot", {}, {*any}));
    conditions_.push_back({other, 0});
    return OkStatus();
  }

  // The value if branch `b` is taken, else dead.
  StatusOr<OutputRef> Switched(const OutputRef& value, std::size_t b, const std::string& name) {
    if (!IsIf()) {
      MR_ASSIGN_OR_RETURN(Node* const node, Switch(value, b, name));
      return OutputRef{node, 1};
    }
    const auto key = std::make_pair(value.node->id(), value.index);
    for (const auto& [known, node] : switches_) {
      if (known == key) return OutputRef{node, static_cast<int>(b)};
    }
    MR_ASSIGN_OR_RETURN(Node* const node, Switch(value, b, name));
    switches_.emplace_back(key, node);
    return OutputRef{node, static_cast<int>(b)};
  }

  StatusOr<Node*> Switch(const OutputRef& value, std::size_t b, const std::string& name) {
    AttrMap attrs;
    attrs.Set("T", TypeOf(value));
    // Where the value is: only what a branch takes travels.
    const InternedString device = StayBeside(*value.node, &attrs);
    MR_ASSIGN_OR_RETURN(Node* const node,
                        Add(name, "Switch", std::move(attrs), {value, conditions_[b]}));
    node->set_requested_device(device);
    return node;
  }

  const std::vector<const FunctionBody*>& branches_;
  std::vector<std::string> prefixes_;  // of the branches' nodes
  std::vector<OutputRef> conditions_;
  std::vector<Node*> pivots_;
  std::vector<std::pair<std::pair<int, int>, Node*>> switches_;
};

class LoopLowering : public Lowering {
 public:
  LoopLowering(Node* node, const FunctionBody& cond, const FunctionBody& body, DataflowGraph* graph)
      : Lowering(node, 0, graph), cond_(cond), body_(body) {}

  Status Run() {
    MR_RETURN_IF_ERROR(CheckResults(body_, node()->input_types()));
    if (cond_.results.size() != 1) {
      return errors::InvalidArgument("Function ", cond_.name, ", the condition of {{node ",
                                     node()->name(), "}}, gives ", cond_.results.size(),
                                     " results, not one");
    }
    const std::string cond_prefix = NewName("cond");
    body_prefix_ = NewName("body");
    MR_RETURN_IF_ERROR(EnterAll());
    std::vector<OutputRef> current;
    for (const Variable& variable : variables_) current.push_back(variable.current);
    if (has_counter_) current.pop_back();
    Node* const first = variables_[carried_].merge;
    MR_ASSIGN_OR_RETURN(const InlinedBody cond,
                        InlineBody(cond_, Within(cond_prefix, current, first), graph()));
    MR_ASSIGN_OR_RETURN(const OutputRef goes_on, AsBool(cond.outputs[0], "to_bool"));
    MR_ASSIGN_OR_RETURN(Node* const loop_cond, Add("LoopCond", "LoopCond", {}, {goes_on}));
    if (cond.done != nullptr) graph()->AddControlEdge(cond.done, loop_cond);
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      Variable& variable = variables_[i];
      if (variable.merge == nullptr) continue;
      MR_ASSIGN_OR_RETURN(variable.branch,
                          AddTyped(StrCat(variable.source.node->name(), "_switch"), "Switch",
                                   TypeOf(variable.current), {variable.current, {loop_cond, 0}}));
      variable.current = {variable.branch, 1};
    }
    MR_RETURN_IF_ERROR(Iterate());
    return Leave();
  }

 private:
  struct Variable {
    OutputRef source, current;
    Node* merge = nullptr;  // null if the variable stays as it is
    Node* branch = nullptr;
  };

  bool IsInvariant(std::size_t i) const {
    return body_.results[i]->input_edge(0)->src == body_.args[i];
  }

  StatusOr<Node*> Enter(const OutputRef& source, bool constant) {
    AttrMap attrs;
    attrs.Set("T", TypeOf(source));
    attrs.Set("frame_name", node()->name());
    attrs.Set("is_constant", constant);
    attrs.Set("parallel_iterations", node()->attrs().GetOr<int64_t>("parallel_iterations", 10));
    MR_ASSIGN_OR_RETURN(Node* const enter, Add("enter", "Enter", std::move(attrs), {source}));
    for (Node* control : site().controls) graph()->AddControlEdge(control, enter);
    return enter;
  }

  Status Carry(const OutputRef& source) {
    MR_ASSIGN_OR_RETURN(Node* const enter, Enter(source, /*constant=*/false));
    AttrMap attrs;
    attrs.Set("T", TypeOf(source));
    attrs.Set("N", int64_t{2});
    // Its second input is not there yet.
    MR_ASSIGN_OR_RETURN(Node* const merge, Add("merge", "Merge", std::move(attrs), {{enter, 0}}));
    variables_.push_back({source, {merge, 0}, merge, nullptr});
    return OkStatus();
  }

  Status EnterAll() {
    bool carries = false;
    for (std::size_t i = 0; i < site().inputs.size(); ++i) {
      const OutputRef& source = site().inputs[i];
      if (IsInvariant(i)) {
        MR_ASSIGN_OR_RETURN(Node* const enter, Enter(source, /*constant=*/true));
        variables_.push_back({source, {enter, 0}, nullptr, nullptr});
        continue;
      }
      if (!carries) carried_ = i;
      carries = true;
      MR_RETURN_IF_ERROR(Carry(source));
    }
    if (carries) return OkStatus();
    // Nothing changes but the world: something has to go round.
    has_counter_ = true;
    carried_ = variables_.size();
    MR_ASSIGN_OR_RETURN(Node* const token, AddConst("token", Tensor::Scalar<bool>(true), nullptr));
    for (const Edge* edge : node()->in_edges()) {
      if (edge->src->IsOp()) graph()->AddControlEdge(edge->src, token);
    }
    return Carry({token, 0});
  }

  Status Iterate() {
    std::vector<OutputRef> current;
    for (const Variable& variable : variables_) current.push_back(variable.current);
    const OutputRef pivot_value = current[carried_];
    if (has_counter_) current.pop_back();
    MR_ASSIGN_OR_RETURN(Node* const pivot, AddTyped("loop_body_control", "Identity",
                                                    TypeOf(pivot_value), {pivot_value}));
    InlineSite site = Within(body_prefix_, current, pivot);
    for (std::size_t i = 0; i < current.size(); ++i) {
      site.invariant.push_back(variables_[i].merge == nullptr);
    }
    MR_ASSIGN_OR_RETURN(const InlinedBody body, InlineBody(body_, site, graph()));
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      Variable& variable = variables_[i];
      if (variable.merge == nullptr) continue;
      const OutputRef next = i < body.outputs.size() ? body.outputs[i] : OutputRef{pivot, 0};
      MR_ASSIGN_OR_RETURN(Node* const back,
                          AddTyped("next_iteration", "NextIteration", TypeOf(next), {next}));
      if (body.done != nullptr) graph()->AddControlEdge(body.done, back);
      MR_RETURN_IF_ERROR(graph()->AddEdge(back, 0, variable.merge, 1).status());
    }
    return OkStatus();
  }

  Status Leave() {
    Node* last = nullptr;
    std::vector<OutputRef> outputs(site().inputs.size());
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Variable& variable = variables_[i];
      if (variable.merge == nullptr) continue;
      MR_ASSIGN_OR_RETURN(Node* const exit, AddTyped("exit", "Exit", TypeOf(variable.current),
                                                     {{variable.branch, 0}}));
      if (i < outputs.size()) outputs[i] = {exit, 0};
      last = exit;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].node != nullptr) continue;
      AttrMap attrs;
      attrs.Set("T", TypeOf(variables_[i].source));
      const OutputRef& source = variables_[i].source;
      const InternedString device = StayBeside(*source.node, &attrs);
      MR_ASSIGN_OR_RETURN(Node* const same,
                          Add("unchanged", "Identity", std::move(attrs), {source}));
      same->set_requested_device(device);
      graph()->AddControlEdge(last, same);
      outputs[i] = {same, 0};
    }
    return ReplaceNode(node(), outputs, last, graph());
  }

  const FunctionBody& cond_;
  const FunctionBody& body_;
  std::string body_prefix_;
  std::vector<Variable> variables_;
  std::size_t carried_ = 0;  // the first that changes
  bool has_counter_ = false;
};

}  // namespace

Status LowerBranches(Node* node, const std::vector<const FunctionBody*>& branches,
                     DataflowGraph* graph) {
  return BranchLowering(node, branches, graph).Run();
}

Status LowerWhile(Node* node, const FunctionBody& cond, const FunctionBody& body,
                  DataflowGraph* graph) {
  return LoopLowering(node, cond, body, graph).Run();
}

}  // namespace millrace
