// SPDX-License-Identifier: Apache-2.0
#include "executor/engine/sequential_program.h"

#include <algorithm>
#include <map>
#include <utility>

namespace millrace {
namespace {

constexpr int kMaxNesting = 64;
constexpr uint32_t kLoopFlags = kNodeEnter | kNodeExit | kNodeNextIteration;

// Works in three passes: the order of nodes, who shares a register, and which register.
class ProgramMaker {
 public:
  explicit ProgramMaker(const CompiledGraph& graph)
      : graph_(graph), nodes_(graph.nodes()), out_(new SequentialProgram) {}

  std::unique_ptr<const SequentialProgram> Run() {
    if (graph_.num_async() > 0) return nullptr;
    ReadEdges();
    if (!CheckLoops()) return nullptr;
    FindDeadable();
    AssignMergeSlots();
    out_->loop_of_frame.assign(graph_.frames().size(), -1);
    if (!EmitFrame(0, -1)) return nullptr;
    JoinValues();
    if (CarriesMerged()) return nullptr;
    FindLifetimes();
    AssignRegisters();
    FillOps();
    out_->may_be_dead = graph_.may_be_dead() || !out_->loops.empty();
    return std::move(out_);
  }

 private:
  struct Value {             // one output of one node, or all those that share a register
    int32_t begin = -1;      // position of the first write
    int32_t end = -1;        // the register is taken until here
    int32_t last_read = -1;  // nothing reads the value after this position
    int32_t reg = -1;
    DataType type = DataType::kInvalid;
    bool constant = false;
    bool carried = false;  // of a loop's merge: written by Enter and NextIteration
    bool keeps = false;    // its memory may serve the next scalar in its register
  };
  struct LoopSpan {
    int32_t begin = 0, end = 0, parent = -1;
  };

  static bool Has(const CompiledNode& node, uint32_t flags) { return (node.flags & flags) != 0; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }

  // Who feeds each input, by node.
  void ReadEdges() {
    input_base_.resize(nodes_.size() + 1);
    output_base_.resize(nodes_.size() + 1);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      input_base_[i + 1] = input_base_[i] + nodes_[i].num_inputs;
      output_base_[i + 1] = output_base_[i] + nodes_[i].num_outputs;
    }
    sources_.resize(input_base_.back());
    for (int32_t i = 0; i < num_nodes(); ++i) {
      ForEachEdge(i, [&](const OutEdge& edge) {
        if (edge.flags & kEdgeControl) return;
        sources_[input_base_[edge.dst] + InputOf(edge)] = {i, edge.output};
      });
    }
  }
  template <typename F>
  void ForEachEdge(int32_t node, F&& f) const {
    const OutEdge* edge = graph_.edges() + nodes_[node].edges_begin;
    for (const OutEdge* end = edge + nodes_[node].num_edges; edge != end; ++edge) f(*edge);
  }
  int32_t InputOf(const OutEdge& edge) const { return edge.slot - nodes_[edge.dst].input_begin; }
  int32_t ValueOf(int32_t node, int32_t output) const { return output_base_[node] + output; }

  bool IsLoopMerge(int32_t node) const {
    if (!Has(nodes_[node], kNodeMerge)) return false;
    for (int32_t i = 0; i < nodes_[node].num_inputs; ++i) {
      const CompiledNode& source = nodes_[sources_[input_base_[node] + i].first];
      if (Has(source, kNodeEnter | kNodeNextIteration)) return true;
    }
    return false;
  }

  // Only what Enter, Merge, Switch, NextIteration and Exit make of a while loop.
  bool CheckLoops() const {
    for (int32_t i = 0; i < num_nodes(); ++i) {
      const CompiledNode& node = nodes_[i];
      if (Has(node, kNodeHasRefs) && Has(node, kLoopFlags | kNodeMerge)) return false;
      if (Has(node, kNodeTransfer) && node.frame != 0) return false;
      const bool carries = Has(node, kNodeNextIteration) ||
                           (Has(node, kNodeEnter) && !Has(node, kNodeConstantEnter));
      bool well_formed = true;
      ForEachEdge(i, [&](const OutEdge& edge) {
        const bool to_loop_merge = !(edge.flags & kEdgeControl) && IsLoopMerge(edge.dst);
        if (carries != to_loop_merge) well_formed = false;
        if (edge.output == 1 && IsLoopMerge(i)) well_formed = false;
      });
      if (!well_formed) return false;
    }
    return true;
  }
  // A loop variable that is handed on as it came in: NextIterations would overwrite what others
  // still carry.
  bool CarriesMerged() {
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (!Has(nodes_[i], kNodeNextIteration)) continue;
      const auto owner =
          std::upper_bound(output_base_.begin(), output_base_.end(), InputValue(i, 0));
      if (IsLoopMerge(static_cast<int32_t>(owner - output_base_.begin()) - 1)) return true;
    }
    return false;
  }

  // What a Switch, or what it made dead, can make dead.
  void FindDeadable() {
    deadable_.resize(nodes_.size());
    std::vector<int32_t> stack;
    auto reach = [&](const OutEdge& edge) {
      if (deadable_[edge.dst]) return;
      deadable_[edge.dst] = true;
      stack.push_back(edge.dst);
    };
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (Has(nodes_[i], kNodeOmitsOutputs)) ForEachEdge(i, reach);
    }
    while (!stack.empty()) {
      const int32_t i = stack.back();
      stack.pop_back();
      ForEachEdge(i, reach);
    }
  }

  void AssignMergeSlots() {
    out_->merge_slots.assign(nodes_.size(), -1);
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (!Has(nodes_[i], kNodeMerge)) continue;
      out_->merge_slots[i] = out_->num_merge_slots;
      out_->num_merge_slots += nodes_[i].num_inputs;
    }
  }

  // ---- order ----

  // A frame inside of `frame` is one unit: it runs when all its Enters have run, and before
  // what its Exits feed. False if something would wait for ever.
  bool EmitFrame(int32_t frame, int nesting) {
    if (nesting > kMaxNesting) return false;
    const int32_t loop = frame == 0 ? -1 : BeginLoop(frame);
    const int32_t n = num_nodes();
    std::vector<int32_t> ready, next_iterations;  // nodes, and n + the frame of an inner loop
    std::size_t emitted = 0, expected = graph_.frames()[frame].nodes.size();
    for (std::size_t f = 1; f < graph_.frames().size(); ++f) {
      if (graph_.frames()[f].parent != frame) continue;
      ++expected;
      pending_frames_[static_cast<int32_t>(f)] = graph_.frames()[f].num_enters;
    }
    if (pending_.empty()) CountPending();
    for (const int32_t node : graph_.frames()[frame].nodes) {
      if (pending_[node] == 0) ready.push_back(node);
    }
    for (std::size_t next = 0; next < ready.size(); ++next) {
      const int32_t unit = ready[next];
      ++emitted;
      if (unit >= n) {
        if (!EmitFrame(unit - n, nesting + 1)) return false;
        for (const int32_t exit : ExitsOf(unit - n)) Release(exit, &ready);
        continue;
      }
      if (Has(nodes_[unit], kNodeNextIteration)) {
        next_iterations.push_back(unit);
        continue;
      }
      Emit(unit);
      if (Has(nodes_[unit], kNodeEnter)) {
        if (--pending_frames_[nodes_[unit].operand] == 0) {
          ready.push_back(n + nodes_[unit].operand);
        }
      } else if (!Has(nodes_[unit], kNodeExit)) {
        Release(unit, &ready);
      }
    }
    if (emitted != expected) return false;
    for (const int32_t node : next_iterations) Emit(node);
    if (loop >= 0) EndLoop(loop);
    return true;
  }

  // Edges from Enters, Exits and NextIterations are not counted: their frames are in order.
  void CountPending() {
    pending_.assign(nodes_.size() + 1, 0);
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (Has(nodes_[i], kNodeEnter | kNodeNextIteration)) continue;
      ForEachEdge(i, [&](const OutEdge& edge) { ++pending_[edge.dst]; });
    }
  }
  void Release(int32_t node, std::vector<int32_t>* ready) {
    ForEachEdge(node, [&](const OutEdge& edge) {
      if (--pending_[edge.dst] == 0) ready->push_back(edge.dst);
    });
  }
  std::vector<int32_t> ExitsOf(int32_t frame) const {
    std::vector<int32_t> exits;
    for (const int32_t node : graph_.frames()[frame].nodes) {
      if (Has(nodes_[node], kNodeExit)) exits.push_back(node);
    }
    return exits;
  }

  void Emit(int32_t node) {
    position_[node] = static_cast<int32_t>(order_.size());
    context_[node] = current_loop_;
    order_.push_back(node);
  }

  int32_t BeginLoop(int32_t frame) {
    const auto loop = static_cast<int32_t>(out_->loops.size());
    out_->loop_of_frame[frame] = loop;
    SeqLoop& made = out_->loops.emplace_back();
    made.node = graph_.frames()[frame].nodes.front();
    made.exits = ExitsOf(frame);
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (Has(nodes_[i], kNodeConstantEnter) && nodes_[i].operand == frame) {
        made.constant_enters.push_back(i);
      }
    }
    for (const int32_t node : graph_.frames()[frame].nodes) {
      if (!IsLoopMerge(node)) continue;
      for (int32_t i = 0; i < nodes_[node].num_inputs; ++i) {
        const bool next = Has(nodes_[sources_[input_base_[node] + i].first], kNodeNextIteration);
        (next ? made.next_slots : made.enter_slots).push_back(out_->merge_slots[node] + i);
      }
    }
    spans_.push_back({static_cast<int32_t>(order_.size()), 0, current_loop_});
    order_.push_back(-1 - 2 * loop);
    current_loop_ = loop;
    return loop;
  }
  void EndLoop(int32_t loop) {
    spans_[loop].end = static_cast<int32_t>(order_.size());
    order_.push_back(-2 - 2 * loop);
    current_loop_ = spans_[loop].parent;
  }

  // ---- values ----

  int32_t Root(int32_t value) {
    while (group_[value] != value) value = group_[value] = group_[group_[value]];
    return value;
  }

  // Identities and constant Enters are their inputs.
  bool IsAlias(const CompiledNode& node) const {
    return Has(node, kNodeIdentity | kNodeConstantEnter) && !Has(node, kNodeHasRefs);
  }
  bool IsConstant(const CompiledNode& node) const {
    return Has(node, kNodeConst) && node.num_inputs == 0;
  }

  void JoinValues() {
    group_.resize(output_base_.back());
    for (std::size_t i = 0; i < group_.size(); ++i) group_[i] = static_cast<int32_t>(i);
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (!IsAlias(nodes_[i])) continue;
      const auto [source, output] = sources_[input_base_[i]];
      group_[Root(ValueOf(i, 0))] = Root(ValueOf(source, output));
    }
    values_.resize(group_.size());
  }

  // The loop in which the value of an output is made.
  int32_t HomeOf(int32_t node) const {
    return Has(nodes_[node], kNodeExit) ? spans_[context_[node]].parent : context_[node];
  }

  void FindLifetimes() {
    home_.assign(values_.size(), -1);
    for (int32_t i = 0; i < num_nodes(); ++i) {
      for (int32_t k = 0; k < nodes_[i].num_outputs; ++k) {
        const int32_t id = ValueOf(i, k);
        if (Root(id) != id) continue;
        Value& value = values_[id];
        home_[id] = HomeOf(i);
        value.type = nodes_[i].output_types()[k];
        value.begin = value.end = value.last_read = position_[i];
        value.constant = IsConstant(nodes_[i]);
        if (k > 0 || !IsLoopMerge(i)) continue;
        value.carried = true;
        value.end = spans_[context_[i]].end;
        for (int32_t in = 0; in < nodes_[i].num_inputs; ++in) {
          const int32_t source = sources_[input_base_[i] + in].first;
          value.begin = std::min(value.begin, position_[source]);
        }
      }
    }
    for (int32_t i = 0; i < num_nodes(); ++i) {
      if (IsLoopMerge(i)) continue;  // its inputs are written to its register
      for (int32_t in = 0; in < nodes_[i].num_inputs; ++in) {
        const auto [source, output] = sources_[input_base_[i] + in];
        Read(Root(ValueOf(source, output)), i);
      }
    }
  }

  // A value from outside of a loop is read until the loop's end.
  void Read(int32_t value, int32_t reader) {
    int32_t position = position_[reader];
    for (int32_t loop = context_[reader]; loop != home_[value] && loop >= 0;
         loop = spans_[loop].parent) {
      position = spans_[loop].end;
    }
    Value& v = values_[value];
    v.last_read = std::max(v.last_read, position);
    v.end = std::max(v.end, position);
  }

  // In the order of positions, freed ones first; of one type each, so that what a scalar leaves
  // in its register serves the next one.
  void AssignRegisters() {
    std::vector<std::vector<int32_t>> begins(order_.size()), ends(order_.size());
    for (int32_t id = 0; id < static_cast<int32_t>(values_.size()); ++id) {
      if (Root(id) != id) continue;
      Value& value = values_[id];
      if (value.constant) {
        value.reg = out_->num_registers++;
        continue;
      }
      begins[value.begin].push_back(id);
      ends[value.end].push_back(id);
    }
    std::map<DataType, std::vector<int32_t>> all_free;
    for (std::size_t p = 0; p < order_.size(); ++p) {
      for (const int32_t id : begins[p]) {
        std::vector<int32_t>& free = all_free[values_[id].type];
        if (free.empty()) {
          values_[id].reg = out_->num_registers++;
        } else {
          values_[id].reg = free.back();
          free.pop_back();
        }
      }
      for (const int32_t id : ends[p]) all_free[values_[id].type].push_back(values_[id].reg);
    }
  }

  // ---- instructions ----

  void FillOps() {
    std::vector<std::vector<int32_t>> clears(order_.size());
    for (int32_t id = 0; id < static_cast<int32_t>(values_.size()); ++id) {
      if (Root(id) == id && !values_[id].constant) clears[values_[id].last_read].push_back(id);
    }
    for (std::size_t p = 0; p < order_.size(); ++p) {
      SeqOp op;
      if (order_[p] >= 0) {
        op = MakeOp(order_[p]);
      } else {
        op.node = num_nodes();
        op.registers = (-1 - order_[p]) / 2;
        const bool begins = (-1 - order_[p]) % 2 == 0;
        op.kind = begins ? SeqOp::Kind::kLoopBegin : SeqOp::Kind::kLoopEnd;
        if (begins) out_->loops[op.registers].begin = static_cast<int32_t>(out_->ops.size());
      }
      op.clears = static_cast<int32_t>(out_->clears.size());
      std::stable_partition(clears[p].begin(), clears[p].end(),
                            [&](int32_t id) { return values_[id].keeps; });
      for (const int32_t id : clears[p]) {
        out_->clears.push_back(values_[id].reg);
        if (values_[id].keeps) ++op.num_kept;
      }
      op.num_clears = static_cast<int32_t>(out_->clears.size()) - op.clears;
      if (!IsNothing(op)) out_->ops.push_back(op);
    }
  }

  bool IsNothing(const SeqOp& op) const {
    return op.kind == SeqOp::Kind::kMark && op.num_clears == 0 && !deadable_[op.node];
  }

  SeqOp MakeOp(int32_t id) {
    const CompiledNode& node = nodes_[id];
    SeqOp op;
    op.kernel = node.kernel;
    op.output_types = node.output_types();
    op.node = id;
    op.num_inputs = node.num_inputs;
    op.num_outputs = node.num_outputs;
    op.kind = KindOf(id);
    op.registers = static_cast<int32_t>(out_->registers.size());
    for (int32_t i = 0; i < node.num_inputs; ++i) out_->registers.push_back(InputRegister(id, i));
    for (int32_t k = 0; k < node.num_outputs; ++k) {
      out_->registers.push_back(values_[Root(ValueOf(id, k))].reg);
    }
    SetLastReader(&op);
    if (IsConstant(node)) out_->constants.emplace_back(id, values_[Root(ValueOf(id, 0))].reg);
    if (op.kind == SeqOp::Kind::kMove) AddMoves(&op);
    if (op.kind == SeqOp::Kind::kArg || op.kind == SeqOp::Kind::kRetval) op.moves = node.operand;
    if (op.kind == SeqOp::Kind::kScalar) {
      op.moves = static_cast<int32_t>(out_->scalars.size());
      out_->scalars.push_back(node.kernel->scalar_function());
    }
    for (int32_t k = 0; k < node.num_outputs; ++k) {
      values_[ValueOf(id, k)].keeps = MayBeScalar(op.kind) && IsMemcpyable(node.output_types()[k]);
    }
    if (op.kind == SeqOp::Kind::kIsolated) {
      out_->max_isolated = std::max(out_->max_isolated, op.num_inputs + op.num_outputs);
    }
    return op;
  }

  SeqOp::Kind KindOf(int32_t id) const {
    const CompiledNode& node = nodes_[id];
    if (IsConstant(node) || IsAlias(node) || Has(node, kNodeNoCompute)) return SeqOp::Kind::kMark;
    if (Has(node, kLoopFlags)) return SeqOp::Kind::kMove;
    if (Has(node, kNodeMerge)) {
      return IsLoopMerge(id) ? SeqOp::Kind::kLoopMerge : SeqOp::Kind::kMerge;
    }
    if (Has(node, kNodeSwitch) && !Has(node, kNodeHasRefs)) return SeqOp::Kind::kSwitch;
    const bool plain = !Has(node, kNodeStateful | kNodeHasRefs | kNodeTransfer | kNodeOmitsOutputs);
    for (int32_t k = 0; k < node.num_outputs; ++k) {
      if (IsRefType(node.output_types()[k])) return SeqOp::Kind::kIsolated;
    }
    if (Has(node, kNodeArg) && IsOfHost()) return SeqOp::Kind::kArg;
    if (Has(node, kNodeRetval) && !Has(node, kNodeHasRefs) && IsOfHost()) {
      return SeqOp::Kind::kRetval;
    }
    if (!plain) return SeqOp::Kind::kIsolated;
    if (HasScalarFunction(node)) return SeqOp::Kind::kScalar;
    return Has(node, kNodeMaybeExpensive) ? SeqOp::Kind::kLong : SeqOp::Kind::kCompute;
  }

  // What makes scalars and what hands them on.
  static bool MayBeScalar(SeqOp::Kind kind) {
    return kind == SeqOp::Kind::kScalar || kind == SeqOp::Kind::kSwitch ||
           kind == SeqOp::Kind::kMove || kind == SeqOp::Kind::kLoopMerge;
  }
  bool IsOfHost() const { return graph_.device()->memory_space() == MemorySpace::kHost; }
  bool HasScalarFunction(const CompiledNode& node) const {
    return IsOfHost() && node.kernel->scalar_function() != nullptr && node.num_outputs == 1 &&
           (node.num_inputs == 1 || node.num_inputs == 2);
  }

  int32_t InputValue(int32_t node, int32_t input) {
    const auto [source, output] = sources_[input_base_[node] + input];
    return Root(ValueOf(source, output));
  }
  int32_t InputRegister(int32_t node, int32_t input) {
    if (IsLoopMerge(node)) return values_[Root(ValueOf(node, 0))].reg;
    return values_[InputValue(node, input)].reg;
  }

  // A value that comes in twice is not to be overwritten while it is read.
  void SetLastReader(SeqOp* op) {
    if (op->kind == SeqOp::Kind::kLoopMerge) return;
    for (int32_t i = 0; i < std::min(op->num_inputs, 64); ++i) {
      const int32_t id = InputValue(op->node, i);
      if (values_[id].constant || values_[id].last_read != position_[op->node]) continue;
      bool once = true;
      for (int32_t k = 0; k < op->num_inputs; ++k) {
        once = once && (k == i || InputValue(op->node, k) != id);
      }
      if (once) op->last_reader |= uint64_t{1} << i;
    }
  }

  void AddMoves(SeqOp* op) {
    op->moves = static_cast<int32_t>(out_->moves.size());
    if (Has(nodes_[op->node], kNodeExit)) {
      out_->moves.push_back(values_[Root(ValueOf(op->node, 0))].reg);
    } else {
      ForEachEdge(op->node, [&](const OutEdge& edge) {
        out_->moves.push_back(values_[Root(ValueOf(edge.dst, 0))].reg);
      });
    }
    op->num_moves = static_cast<int32_t>(out_->moves.size()) - op->moves;
  }

  const CompiledGraph& graph_;
  const std::vector<CompiledNode>& nodes_;
  std::unique_ptr<SequentialProgram> out_;
  std::vector<int32_t> input_base_, output_base_;     // by node
  std::vector<std::pair<int32_t, int32_t>> sources_;  // by input: node and output
  std::vector<bool> deadable_;
  std::vector<int32_t> pending_;
  std::vector<int32_t> pending_frames_ = std::vector<int32_t>(graph_.frames().size());
  std::vector<int32_t> order_;  // nodes; -1 - 2 * loop where it begins, -2 - 2 * loop its end
  std::vector<int32_t> position_ = std::vector<int32_t>(nodes_.size());
  std::vector<int32_t> context_ = std::vector<int32_t>(nodes_.size());  // loop of a node
  std::vector<LoopSpan> spans_;
  int32_t current_loop_ = -1;
  std::vector<int32_t> group_, home_;  // by output
  std::vector<Value> values_;          // by output; valid for those that are their own group
};

}  // namespace

std::unique_ptr<const SequentialProgram> SequentialProgram::Make(const CompiledGraph& graph) {
  return ProgramMaker(graph).Run();
}

}  // namespace millrace
