// SPDX-License-Identifier: Apache-2.0
// Gradients(): walks the nodes between ys and xs in reverse topological order, adds up what
// arrives at each output and asks the op's gradient function for its inputs.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/gradient_registry.h"
#include "graph/gradients/loop_grad.h"
#include "graph/gradients/popped_values.h"
#include "millrace/sparse_gradients.h"

namespace millrace {

const GradientRegistry& BuiltinGradients() {
  static const GradientRegistry* const registry = [] {
    auto* r = new GradientRegistry();
    RegisterMathGradients(*r);
    RegisterReductionGradients(*r);
    RegisterArrayGradients(*r);
    RegisterIndexingGradients(*r);
    RegisterMatrixGradients(*r);
    RegisterEinsumGradients(*r);
    RegisterNnGradients(*r);
    RegisterActivationGradients(*r);
    RegisterWindowGradients(*r);
    RegisterDomainGradients(*r);
    RegisterRaggedGradients(*r);
    RegisterSpecialGradients(*r);
    RegisterCallGradients(*r);
    RegisterListGradients(*r);
    RegisterControlFlowGradients(*r);
    RegisterStateGradients(*r);
    RegisterCollectiveGradients(*r);
    RegisterCustomGradients(*r);
    return r;
  }();
  return *registry;
}

namespace {

// Derivatives exist for these types only (variants: lists of tensors); an integer output stops
// the flow.
bool CarriesGradient(DataType dtype) {
  const DataType base = BaseType(dtype);
  return IsFloating(base) || IsComplex(base) || base == kResource || base == kVariant;
}

// " made at train.cc:42", of a node that C++ built.
std::string MadeAt(const Node& node) {
  return node.origin().empty() ? "" : StrCat(" made at ", node.origin());
}

class GradientBuilder {
 public:
  // `keep_rows`: gradients of tables of which rows are taken come with indices.
  GradientBuilder(const std::string& source, const Scope& scope, std::span<const Output> ys,
                  std::span<const Output> xs, bool keep_rows)
      : source_(source),
        scope_(scope),
        xs_(xs),
        keep_rows_(keep_rows),
        num_ids_(scope.graph()->graph->num_node_ids()) {
    from_x_ = ReachableForward(xs);
    to_y_ = ReachableBackward(ys);
  }

  StatusOr<std::vector<SparseGradient>> Build(std::span<const Output> ys,
                                              std::span<const Output> grad_ys) {
    for (std::size_t i = 0; i < ys.size(); ++i) {
      const Output seed =
          grad_ys.empty() ? ops::OnesLike(scope_.Named("grad_ys"), ys[i]) : grad_ys[i];
      Add(ys[i], seed);
    }
    loops_ = FindLoops(*scope_.graph()->graph, num_ids_);
    for (const Output& x : xs_) {
      if (LoopOf(x.op().node()) >= 0 && x.op().type() != "Exit") {
        return errors::Unimplemented("the gradient with respect to ", x.name(),
                                     ", which is within a loop");
      }
    }
    // Ids grow along every edge but a loop's back edge, so descending ids visit each consumer
    // before its producers only if nodes were made in order; an explicit order is computed
    // instead.
    MR_ASSIGN_OR_RETURN(const std::vector<int> order, ReverseOrder());
    for (const int unit : order) {
      MR_RETURN_IF_ERROR(unit < num_ids_ ? Visit(scope_.graph()->graph->node(unit))
                                         : VisitLoop(unit - num_ids_));
    }
    std::vector<SparseGradient> results;
    for (const Output& x : xs_) results.push_back(SumOrRows(x));
    MR_RETURN_IF_ERROR(scope_.status());
    return results;
  }

 private:
  using Key = std::pair<int, int>;  // node id, output

  std::vector<bool> ReachableForward(std::span<const Output> xs) const {
    std::vector<bool> seen(num_ids_, false);
    std::vector<Node*> stack;
    for (const Output& x : xs) stack.push_back(x.op().node());
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (seen[node->id()]) continue;
      seen[node->id()] = true;
      for (const Edge* edge : node->out_edges()) {
        if (!edge->IsControl()) stack.push_back(edge->dst);
      }
    }
    return seen;
  }

  std::vector<bool> ReachableBackward(std::span<const Output> ys) const {
    std::vector<bool> seen(num_ids_, false);
    std::vector<Node*> stack;
    for (const Output& y : ys) stack.push_back(y.op().node());
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (seen[node->id()]) continue;
      seen[node->id()] = true;
      if (IsX(node)) continue;
      for (const Edge* edge : node->in_edges()) {
        if (!edge->IsControl()) stack.push_back(edge->src);
      }
    }
    return seen;
  }

  bool IsX(const Node* node) const {
    return std::any_of(xs_.begin(), xs_.end(),
                       [&](const Output& x) { return x.op().node() == node; });
  }
  bool Between(const Node* node) const {
    return node->id() < num_ids_ && from_x_[node->id()] && to_y_[node->id()];
  }

  int LoopOf(const Node* node) const {
    return node->id() < static_cast<int>(loops_.loop_of.size()) ? loops_.loop_of[node->id()] : -1;
  }
  // A node that is in no loop by its id; an outermost loop, as a whole, by a number behind all.
  int UnitOf(const Node* node) const {
    const int loop = LoopOf(node);
    return loop < 0 ? node->id() : num_ids_ + loop;
  }

  // Kahn's algorithm from the ys towards the xs, over data edges between them.
  StatusOr<std::vector<int>> ReverseOrder() const {
    const std::size_t num_units = num_ids_ + loops_.loops.size();
    std::vector<int> pending(num_units, 0), ready, order;
    std::vector<std::vector<Node*>> members(num_units);
    const DataflowGraph& graph = *scope_.graph()->graph;
    std::size_t total = 0;
    for (int id = 2; id < num_ids_; ++id) {
      Node* node = graph.node(id);
      if (node == nullptr || !Between(node)) continue;
      const int unit = UnitOf(node);
      if (members[unit].empty()) ++total;
      members[unit].push_back(node);
      for (const Edge* edge : node->out_edges()) {
        if (edge->IsControl() || !Between(edge->dst) || UnitOf(edge->dst) == unit) continue;
        ++pending[unit];
      }
    }
    for (std::size_t unit = 0; unit < num_units; ++unit) {
      if (!members[unit].empty() && pending[unit] == 0) ready.push_back(static_cast<int>(unit));
    }
    while (!ready.empty()) {
      const int unit = ready.back();
      ready.pop_back();
      order.push_back(unit);
      for (const Node* node : members[unit]) {
        for (const Edge* edge : node->in_edges()) {
          if (edge->IsControl() || !Between(edge->src)) continue;
          const int before = UnitOf(edge->src);
          if (before != unit && --pending[before] == 0) ready.push_back(before);
        }
      }
    }
    if (order.size() != total) {
      return errors::InvalidArgument("there is a cycle between ys and xs that is not a loop");
    }
    return order;
  }

  Status VisitLoop(int index) {
    const Loop& loop = loops_.loops[index];
    const auto arrives_here = [&](const auto& arrived) {
      return LoopOf(scope_.graph()->graph->node(arrived.first.first)) == index;
    };
    if (std::none_of(arrived_.begin(), arrived_.end(), arrives_here)) return OkStatus();
    MR_RETURN_IF_ERROR(loop.well_formed);
    std::vector<Output> dys(loop.variables.size());
    std::set<int> exits;
    for (std::size_t i = 0; i < dys.size(); ++i) {
      std::vector<Input> parts;
      for (const Edge* edge : loop.variables[i].branch->out_edges()) {
        if (edge->src_output != 0 ||
            (edge->dst->type() != "Exit" && edge->dst->type() != "RefExit"))
          continue;
        exits.insert(edge->dst->id());
        if (IsX(edge->dst)) continue;
        const Output dy = Sum(Output(scope_.graph(), edge->dst, 0));
        if (dy.valid()) parts.push_back(dy);
      }
      if (!parts.empty()) dys[i] = parts.size() == 1 ? parts[0].output() : ops::AddN(scope_, parts);
    }
    for (const auto& arrived : arrived_) {
      if (!arrives_here(arrived) || exits.contains(arrived.first.first)) continue;
      const Node* const node = scope_.graph()->graph->node(arrived.first.first);
      return errors::InvalidArgument("{{node ", node->name(), "}} is no variable of the loop '",
                                     loop.frame, "' that it leaves");
    }
    const bool any =
        std::any_of(dys.begin(), dys.end(), [](const Output& dy) { return dy.valid(); });
    if (!any) return OkStatus();
    const Status status = LoopGradient(
        source_, scope_, loops_, index, dys,
        [&](const Output& source) { return Between(source.op().node()); },
        [&](const Output& source, const Output& dx) {
          if (Between(source.op().node())) Add(source, dx);
        });
    return status.ok() ? status
                       : Annotate(status, StrCat(" (gradient of the loop '", loop.frame, "')"));
  }

  static Key KeyOf(const Output& at) { return Key(at.op().node()->id(), at.index()); }

  void Add(const Output& at, const Output& gradient) {
    if (gradient.valid()) arrived_[KeyOf(at)].push_back(gradient);
  }

  // What arrived at an output, added up once.
  Output Sum(const Output& at) {
    MakeDense(at);
    const auto it = arrived_.find(KeyOf(at));
    if (it == arrived_.end()) return Output();
    std::vector<Output>& parts = it->second;
    if (parts.size() > 1) {
      const std::vector<Input> inputs(parts.begin(), parts.end());
      parts = {ops::AddN(scope_, inputs)};
    }
    return parts.front();
  }

  // --- Rows of tables -----------------------------------------------------------------------

  // Rows that arrived at an output become a gradient of its shape.
  void MakeDense(const Output& at) {
    const auto rows = rows_.find(KeyOf(at));
    if (rows == rows_.end()) return;
    const Scope s = scope_.ColocateWith(at.op());
    const Output shape = at.dtype() == kResource ? ops::VariableShape(s, at) : ops::Shape(s, at);
    const Output count =
        ops::Reshape(s, ops::Slice(s, shape, {0}, {1}), Tensor(kInt32, Shape({0})));
    for (const SparseGradient& part : rows->second) {
      Add(at, ops::UnsortedSegmentSum(s, part.values, part.indices, count));
    }
    rows_.erase(rows);
  }

  // All that arrived, with indices if it is nothing but rows.
  SparseGradient SumOrRows(const Output& at) {
    const auto rows = rows_.find(KeyOf(at));
    if (rows == rows_.end() || arrived_.contains(KeyOf(at))) return {Sum(at)};
    const std::vector<SparseGradient>& parts = rows->second;
    if (parts.size() == 1) return parts.front();
    std::vector<Input> values, indices;
    for (const SparseGradient& part : parts) {
      values.push_back(part.values);
      const bool wide = part.indices.dtype() == kInt64;
      indices.push_back(wide ? part.indices : ops::Cast(scope_, part.indices, kInt64));
    }
    return {ops::ConcatV2(scope_, values, 0), ops::ConcatV2(scope_, indices, 0)};
  }

  static bool IsRead(const Node* node) {
    return node->type() == "Identity" || node->type() == "ReadVariableOp";
  }

  // An x, or read from one.
  bool LeadsToX(const Output& table) const {
    Output at = table;
    while (true) {
      if (std::find(xs_.begin(), xs_.end(), at) != xs_.end()) return true;
      if (!IsRead(at.op().node()) || LoopOf(at.op().node()) >= 0) return false;
      at = at.op().input(0);
    }
  }

  // Of what a node takes of an x, if that is rows along the first axis.
  bool TakesRows(const Operation& op) const {
    if (!keep_rows_ || op.num_inputs() < 2) return false;
    if (op.type() == "GatherV2") {
      const Output axis = op.input(2);
      const Tensor* value = scope_.graph()->shapes.constant(axis.op().node(), axis.index());
      if (value == nullptr || value->num_elements() != 1) return false;
      if (value->dtype() == kInt32 ? value->scalar<int32_t>() != 0
                                   : value->scalar<int64_t>() != 0) {
        return false;
      }
    } else if (op.type() != "Gather" && op.type() != "ResourceGather") {
      return false;
    }
    return op.node()->attrs().GetOr<int64_t>("batch_dims", 0) == 0 && LeadsToX(op.input(0));
  }

  // The rows of `dy`, one for each index, whatever shape the indices have.
  void AddRows(const Operation& op, const Output& dy) {
    const Scope s = scope_.Named(StrCat(op.name(), "_grad"));
    const Output indices = op.input(1);
    const int rank = indices.shape().has_rank() ? indices.shape().rank() : -1;
    if (rank == 1) {
      rows_[KeyOf(op.input(0))].push_back({dy, indices});
      return;
    }
    const Output flat = ops::Reshape(s, indices, {-1});
    const Output row_shape =
        ops::Slice(s, ops::Shape(s, dy), ops::Reshape(s, ops::Rank(s, indices), {1}), {-1});
    const Output values = ops::Reshape(
        s, dy, ops::ConcatV2(s, {ops::Reshape(s, ops::Size(s, flat), {1}), row_shape}, 0));
    rows_[KeyOf(op.input(0))].push_back({values, flat});
  }

  // Hands rows on from what was read of a variable to the variable; false if there is more.
  bool PassRowsOn(const Node* node, const Operation& op) {
    if (!IsRead(node)) return false;
    const auto rows = rows_.find(KeyOf(op.output(0)));
    if (rows == rows_.end() || arrived_.contains(KeyOf(op.output(0)))) return false;
    std::vector<SparseGradient> parts = std::move(rows->second);
    rows_.erase(rows);
    std::vector<SparseGradient>& all = rows_[KeyOf(op.input(0))];
    all.insert(all.end(), parts.begin(), parts.end());
    return true;
  }

  Status Visit(Node* node) {
    if (IsX(node)) return OkStatus();
    const Operation op(scope_.graph(), node);
    if (keep_rows_ && PassRowsOn(node, op)) return OkStatus();
    std::vector<Output> dys;
    bool any = false;
    for (int i = 0; i < node->num_outputs(); ++i) {
      dys.push_back(Sum(op.output(i)));
      any |= dys.back().valid();
    }
    if (!any) return OkStatus();
    if (TakesRows(op)) {
      AddRows(op, dys[0]);
      return scope_.status();
    }
    GradFn fn = nullptr;
    if (scope_.graph()->graph->IsCall(*node)) {
      fn = CallGrad;
    } else if (!BuiltinGradients().Find(node->type(), &fn)) {
      return errors::Unimplemented("op ", node->type(), " of node '", node->name(), "'",
                                   MadeAt(*node), " has no gradient; it lies between ys and xs");
    }
    if (fn == nullptr) return OkStatus();
    const Scope inner = scope_.Named(StrCat(node->name(), "_grad"));
    std::vector<bool> needed;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Output x = op.input(i);
      needed.push_back(Between(x.op().node()) && CarriesGradient(x.dtype()));
    }
    GradContext context(inner, op, dys, needed, source_);
    const Status status = fn(context);
    if (!status.ok()) {
      return Annotate(status,
                      StrCat(" (gradient of node '", node->name(), "'", MadeAt(*node), ")"));
    }
    MR_RETURN_IF_ERROR(scope_.status());
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (needed[i]) Add(op.input(i), context.dxs()[i]);
    }
    return OkStatus();
  }

  const std::string source_;
  const Scope scope_;
  const std::span<const Output> xs_;
  const bool keep_rows_;
  const int num_ids_;  // nodes made later are gradients themselves
  Loops loops_;
  std::vector<bool> from_x_, to_y_;
  std::map<Key, std::vector<Output>> arrived_;
  std::map<Key, std::vector<SparseGradient>> rows_;  // likewise, as rows
};

StatusOr<std::vector<SparseGradient>> BuildGradients(const std::string& source, const Scope& scope,
                                                     std::span<const Output> ys,
                                                     std::span<const Output> xs,
                                                     std::span<const Output> grad_ys,
                                                     bool keep_rows) {
  MR_RETURN_IF_ERROR(scope.status());
  if (!grad_ys.empty() && grad_ys.size() != ys.size()) {
    return errors::InvalidArgument("there are ", ys.size(), " ys but ", grad_ys.size(), " grad_ys");
  }
  for (const std::span<const Output> list : {ys, xs, grad_ys}) {
    for (const Output& output : list) {
      if (!output.valid() || output.op().graph() != scope.graph()) {
        return errors::InvalidArgument("an argument of Gradients is not an output of this graph");
      }
    }
  }
  const Scope inner = scope.Named("gradients");
  MR_RETURN_IF_ERROR(ReadPoppedValuesFromArrays(inner, ys, xs));
  GradientBuilder builder(source, inner, ys, xs, keep_rows);
  return builder.Build(ys, grad_ys);
}

}  // namespace

StatusOr<std::vector<Output>> GradientsWithin(const std::string& source, const Scope& scope,
                                              std::span<const Output> ys,
                                              std::span<const Output> xs,
                                              std::span<const Output> grad_ys) {
  MR_ASSIGN_OR_RETURN(const std::vector<SparseGradient> gradients,
                      BuildGradients(source, scope, ys, xs, grad_ys, /*keep_rows=*/false));
  std::vector<Output> dense;
  for (const SparseGradient& gradient : gradients) dense.push_back(gradient.values);
  return dense;
}

namespace {

// With the line that asked, unless the graph recorded it already.
template <typename T>
StatusOr<T> AskedAt(StatusOr<T> result, const Scope& scope, std::source_location where) {
  if (result.ok() || !scope.status().ok()) return result;
  return Annotate(result.status(), StrCat(" (at ", FormatOrigin(where), ")"));
}

}  // namespace

StatusOr<std::vector<SparseGradient>> SparseGradients(const Scope& scope,
                                                      std::span<const Output> ys,
                                                      std::span<const Output> xs,
                                                      std::span<const Output> grad_ys,
                                                      std::source_location where) {
  return AskedAt(BuildGradients(scope.graph()->UniqueName("gradients_source"),
                                scope.CalledFrom(where), ys, xs, grad_ys, /*keep_rows=*/true),
                 scope, where);
}

StatusOr<std::vector<Output>> Gradients(const Scope& scope, std::span<const Output> ys,
                                        std::span<const Output> xs, std::span<const Output> grad_ys,
                                        std::source_location where) {
  return AskedAt(GradientsWithin(scope.graph()->UniqueName("gradients_source"),
                                 scope.CalledFrom(where), ys, xs, grad_ys),
                 scope, where);
}

}  // namespace millrace
