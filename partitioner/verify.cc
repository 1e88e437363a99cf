// SPDX-License-Identifier: Apache-2.0
#include "partitioner/verify.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "millrace/tensor.h"
#include "partitioner/control_flow.h"

namespace millrace {
namespace {

struct Placed {
  const Node* node = nullptr;
  int part = -1;
};

struct Pair {
  Placed send, receive;
};

class Verifier {
 public:
  explicit Verifier(std::span<const Partition> parts) : parts_(parts) {}

  Status Run() {
    for (int part = 0; part < static_cast<int>(parts_.size()); ++part) {
      first_id_.push_back(num_nodes_);
      num_nodes_ += parts_[part].graph->num_node_ids();
      for (const Node* node : parts_[part].graph->OpNodes()) {
        MR_RETURN_IF_ERROR(Collect({node, part}));
      }
    }
    MR_RETURN_IF_ERROR(CheckPairs());
    return CheckCycles();
  }

 private:
  std::string Describe(const Placed& placed) const {
    return StrCat("{{node ", placed.node->name(), "}} in ", parts_[placed.part].location);
  }

  Status Collect(const Placed& placed) {
    const std::string& type = placed.node->type();
    const bool is_send = type == "_Send" || type == "_HostSend";
    const bool is_receive = type == "_Recv" || type == "_HostRecv";
    if (!is_send && !is_receive) return OkStatus();
    const AttrMap& attrs = placed.node->attrs();
    if (!attrs.Has("_src") || attrs.GetOr<bool>("client_terminated", false)) return OkStatus();
    MR_ASSIGN_OR_RETURN(const std::string from, attrs.Get<std::string>("send_device"));
    MR_ASSIGN_OR_RETURN(const std::string to, attrs.Get<std::string>("recv_device"));
    MR_ASSIGN_OR_RETURN(const std::string name, attrs.Get<std::string>("tensor_name"));
    const auto [slot, added] =
        pair_of_.try_emplace(StrCat(from, ";", to, ";", name), static_cast<int>(pairs_.size()));
    if (added) pairs_.emplace_back();
    Pair& pair = pairs_[slot->second];
    Placed& mine = is_send ? pair.send : pair.receive;
    if (mine.node != nullptr) {
      return errors::Internal(Describe(mine), " and ", Describe(placed), " both ",
                              is_send ? "send '" : "receive '", name, "' from ", from, " to ", to);
    }
    mine = placed;
    return OkStatus();
  }

  Status CheckPairs() const {
    for (const Pair& pair : pairs_) {
      if (pair.send.node == nullptr) {
        return errors::Internal(Describe(pair.receive), " waits for a value that nothing sends");
      }
      if (pair.receive.node == nullptr) {
        return errors::Internal(Describe(pair.send), " sends a value that nothing receives");
      }
      const AttrMap& send = pair.send.node->attrs();
      const AttrMap& receive = pair.receive.node->attrs();
      const auto differ = [&](std::string_view what) {
        return errors::Internal(Describe(pair.send), " and ", Describe(pair.receive),
                                " disagree about the ", what);
      };
      if (send.GetOr<int64_t>("send_device_incarnation", 0) !=
          receive.GetOr<int64_t>("send_device_incarnation", 0)) {
        return differ("incarnation of the sending device");
      }
      if (send.GetOr<DataType>("T", DataType::kInvalid) !=
          receive.GetOr<DataType>("tensor_type", DataType::kInvalid)) {
        return differ("type");
      }
    }
    return OkStatus();
  }

  int Id(const Placed& placed) const { return first_id_[placed.part] + placed.node->id(); }

  // Takes away, again and again, what waits for nothing; what stays is a circle or behind one.
  Status CheckCycles() const {
    std::vector<int> waits(num_nodes_, 0);
    std::vector<Placed> partner(num_nodes_);  // the receive of a send
    for (const Pair& pair : pairs_) {
      partner[Id(pair.send)] = pair.receive;
      ++waits[Id(pair.receive)];
    }
    std::vector<Placed> ready;
    int left = 0;
    for (int part = 0; part < static_cast<int>(parts_.size()); ++part) {
      for (const Node* node : parts_[part].graph->OpNodes()) {
        const Placed placed{node, part};
        for (const Edge* edge : node->in_edges()) waits[Id(placed)] += Counts(*edge);
        ++left;
        if (waits[Id(placed)] == 0) ready.push_back(placed);
      }
    }
    while (!ready.empty()) {
      const Placed placed = ready.back();
      ready.pop_back();
      --left;
      const auto release = [&](const Placed& next) {
        if (--waits[Id(next)] == 0) ready.push_back(next);
      };
      for (const Edge* edge : placed.node->out_edges()) {
        if (Counts(*edge)) release({edge->dst, placed.part});
      }
      if (partner[Id(placed)].node != nullptr) release(partner[Id(placed)]);
    }
    return left == 0 ? OkStatus() : NameCircle(waits);
  }

  static bool Counts(const Edge& edge) {
    return edge.src->IsOp() && edge.dst->IsOp() && !IsNextIteration(*edge.src);
  }

  // Walks back from a node that still waits, always to one that still waits.
  Status NameCircle(const std::vector<int>& waits) const {
    std::vector<Placed> sender(num_nodes_);
    for (const Pair& pair : pairs_) sender[Id(pair.receive)] = pair.send;
    Placed at;
    for (int part = 0; part < static_cast<int>(parts_.size()) && at.node == nullptr; ++part) {
      for (const Node* node : parts_[part].graph->OpNodes()) {
        if (waits[Id({node, part})] > 0) {
          at = {node, part};
          break;
        }
      }
    }
    std::vector<int> seen_at(num_nodes_, -1);
    std::vector<Placed> walk;
    while (seen_at[Id(at)] < 0) {
      seen_at[Id(at)] = static_cast<int>(walk.size());
      walk.push_back(at);
      Placed before = sender[Id(at)];
      if (before.node == nullptr || waits[Id(before)] == 0) {
        for (const Edge* edge : at.node->in_edges()) {
          if (Counts(*edge) && waits[Id({edge->src, at.part})] > 0) {
            before = {edge->src, at.part};
            break;
          }
        }
      }
      at = before;
    }
    std::string text = "the parts wait for each other in a circle: ";
    for (int i = static_cast<int>(walk.size()) - 1; i >= seen_at[Id(at)]; --i) {
      StrAppend(&text, Describe(walk[i]), " -> ");
    }
    return errors::Internal(text, Describe(walk.back()));
  }

  const std::span<const Partition> parts_;
  std::vector<int> first_id_;  // by part
  int num_nodes_ = 0;
  StringMap<int> pair_of_;  // by devices and name
  std::vector<Pair> pairs_;
};

// ---- Counts of synchronous training

bool TakesGradient(const Node& node) {
  const std::string& type = node.type();
  return type == "AccumulatorTakeGradient" || type == "ResourceAccumulatorTakeGradient" ||
         type == "SparseAccumulatorTakeGradient";
}

// The only element of a constant of int32 or int64.
std::optional<int64_t> ConstantInput(const Node& node, int slot) {
  const Edge* const edge = node.input_edge(slot);
  if (edge == nullptr || edge->src->type() != "Const") return std::nullopt;
  const AttrValue* const value = edge->src->attrs().Find("value");
  const Tensor* const tensor = value == nullptr ? nullptr : value->tensor();
  if (tensor == nullptr || tensor->num_elements() != 1) return std::nullopt;
  if (tensor->dtype() == kInt32) return tensor->data<int32_t>()[0];
  if (tensor->dtype() == kInt64) return tensor->data<int64_t>()[0];
  return std::nullopt;
}

// How many elements a Fill of constant size makes for the node to put into a queue.
std::optional<int64_t> TokensOf(const Node& node) {
  if (node.type() != "QueueEnqueueMany" && node.type() != "QueueEnqueueManyV2") {
    return std::nullopt;
  }
  const Edge* const edge = node.num_inputs() == 2 ? node.input_edge(1) : nullptr;
  if (edge == nullptr || edge->src->type() != "Fill") return std::nullopt;
  return ConstantInput(*edge->src, 0);
}

// Takes whose end the node waits for.
std::vector<const Node*> TakesBefore(const Node& node, const DataflowGraph& graph) {
  std::vector<const Node*> takes, stack = {&node};
  std::vector<bool> seen(graph.num_node_ids());
  while (!stack.empty()) {
    const Node* const at = stack.back();
    stack.pop_back();
    if (seen[at->id()]) continue;
    seen[at->id()] = true;
    if (TakesGradient(*at)) takes.push_back(at);
    for (const Edge* edge : at->in_edges()) stack.push_back(edge->src);
  }
  std::sort(takes.begin(), takes.end(), [](auto* a, auto* b) { return a->id() < b->id(); });
  return takes;
}

}  // namespace

Status VerifySyncCounts(const DataflowGraph& graph) {
  const std::vector<Node*> nodes = graph.OpNodes();
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node* n) { return TakesGradient(*n); })) {
    return OkStatus();
  }
  for (const Node* node : nodes) {
    const std::optional<int64_t> tokens = TokensOf(*node);
    if (!tokens) continue;
    const Node* first = nullptr;
    int64_t required = 0;
    for (const Node* take : TakesBefore(*node, graph)) {
      const std::optional<int64_t> count = ConstantInput(*take, 1);
      if (!count) continue;
      if (first == nullptr) {
        first = take;
        required = *count;
      } else if (*count != required) {
        return errors::InvalidArgument(
            "the accumulators of one synchronous step must wait for the same number of "
            "gradients: {{node ",
            first->name(), "}} waits for ", required, ", {{node ", take->name(), "}} for ", *count);
      }
    }
    if (first != nullptr && *tokens < required) {
      return errors::InvalidArgument("{{node ", node->name(), "}} hands out ", *tokens,
                                     " tokens a step, but {{node ", first->name(), "}} waits for ",
                                     required,
                                     " gradients, one for each token: the step after would wait "
                                     "for ever");
    }
  }
  return OkStatus();
}

Status VerifyPartitions(std::span<const Partition> partitions) {
  return Verifier(partitions).Run();
}

}  // namespace millrace
