// SPDX-License-Identifier: Apache-2.0
// Good plans pass, and plans into which a fault was put do not: random graphs with loops,
// references and control edges over several tasks, cut as the master cuts them.
#include "partitioner/verify.h"

#include <random>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/tensor.h"
#include "ops/all_ops.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

const OpRegistry& Ops() {
  static const OpRegistry* const ops = [] {
    auto* registry = new OpRegistry;
    EXPECT_TRUE(RegisterAllOps(*registry).ok());
    return registry;
  }();
  return *ops;
}

std::string Device(int task) { return StrCat("/job:w/replica:0/task:", task, "/device:CPU:0"); }

class Plan {
 public:
  explicit Plan(unsigned seed) : graph_(&Ops()), random_(seed) {}

  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Node* Add(const std::string& op, const std::vector<Node*>& inputs, AttrMap attrs, int task) {
    Node* node = graph_.AddNode(StrCat("n", graph_.num_node_ids()), op, std::move(attrs)).value();
    node->set_assigned_device(Device(task));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(graph_.AddEdge(inputs[i], 0, node, static_cast<int>(i)).ok());
    }
    return node;
  }

  static AttrMap Float(const char* name = "T") {
    AttrMap attrs;
    attrs.Set(name, kFloat);
    return attrs;
  }

  Node* Const(const Tensor& value, int task) {
    AttrMap attrs;
    attrs.Set("dtype", value.dtype());
    attrs.Set("value", value);
    return Add("Const", {}, std::move(attrs), task);
  }

  Node* AnyValue() { return values_[Pick(static_cast<int>(values_.size()))]; }

  // A loop that adds up on other tasks than the one that counts.
  void AddLoop() {
    const int at = Pick(kTasks), other = Pick(kTasks);
    AttrMap enter = Float();
    enter.Set("frame_name", StrCat("loop", graph_.num_node_ids()));
    Node* const start = Add("Enter", {AnyValue()}, enter, at);
    AttrMap constant = enter;
    constant.Set("is_constant", true);
    Node* const limit = Add("Enter", {AnyValue()}, constant, at);
    Node* const step = Add("Enter", {AnyValue()}, constant, other);
    AttrMap merge = Float();
    merge.Set("N", 2);
    Node* const next =
        graph_.AddNode(StrCat("next", graph_.num_node_ids()), "NextIteration", Float()).value();
    next->set_assigned_device(Device(at));
    Node* const loop = Add("Merge", {start, next}, merge, at);
    Node* const cond = Add("LoopCond", {Add("Less", {loop, limit}, Float(), at)}, {}, at);
    Node* const branch = Add("Switch", {loop, cond}, Float(), at);
    AttrMap t = Float();
    Node* const body = graph_.AddNode(StrCat("body", graph_.num_node_ids()), "AddV2", t).value();
    body->set_assigned_device(Device(other));
    EXPECT_TRUE(graph_.AddEdge(branch, 1, body, 0).ok());
    EXPECT_TRUE(graph_.AddEdge(step, 0, body, 1).ok());
    EXPECT_TRUE(graph_.AddEdge(body, 0, next, 0).ok());
    values_.push_back(Add("Exit", {branch}, Float(), at));
  }

  void Build(int size) {
    values_.push_back(Const(Tensor::Scalar(1.f), Pick(kTasks)));
    AttrMap variable = Float("dtype");
    variable.Set("shape", PartialShape({}));
    while (graph_.num_nodes() < size) {
      const int task = Pick(kTasks);
      switch (Pick(7)) {
        case 0:
          values_.push_back(Const(Tensor::Scalar(2.f), task));
          break;
        case 1:
          AddLoop();
          break;
        case 2: {
          Node* const v = Add("VariableV2", {}, variable, task);
          values_.push_back(Add("AddV2", {v, AnyValue()}, Float(), Pick(kTasks)));
          break;
        }
        default:
          values_.push_back(Add("AddV2", {AnyValue(), AnyValue()}, Float(), task));
      }
      if (Pick(4) == 0) {
        Node* const last = values_.back();
        Node* const before = values_[Pick(static_cast<int>(values_.size()) - 1)];
        if (last->type() == "AddV2") graph_.AddControlEdge(before, last);
      }
    }
    graph_.FixSourceAndSink();
  }

  std::vector<Partition> Cut() {
    PartitionOptions options;
    options.node_to_location = [](const Node& node) { return node.assigned_device(); };
    int made = 0;
    options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_S", made++); };
    StatusOr<std::vector<Partition>> parts = PartitionGraph(graph_, options);
    EXPECT_TRUE(parts.ok()) << parts.status();
    return parts.ok() ? *std::move(parts) : std::vector<Partition>();
  }

  DataflowGraph& graph() { return graph_; }

 private:
  static constexpr int kTasks = 3;
  DataflowGraph graph_;
  std::mt19937 random_;
  std::vector<Node*> values_;
};

// The transfers of one kind, with their parts.
std::vector<std::pair<Node*, DataflowGraph*>> Transfers(const std::vector<Partition>& parts,
                                                        std::string_view op) {
  std::vector<std::pair<Node*, DataflowGraph*>> found;
  for (const Partition& part : parts) {
    for (Node* node : part.graph->OpNodes()) {
      if (node->type() == op) found.emplace_back(node, part.graph.get());
    }
  }
  return found;
}

// One fault, or false if the plan has no place for it.
bool Break(int kind, Plan* plan, std::vector<Partition>* parts) {
  const auto sends = Transfers(*parts, "_Send"), receives = Transfers(*parts, "_Recv");
  if (sends.empty()) return false;
  const auto [send, send_part] = sends[plan->Pick(static_cast<int>(sends.size()))];
  const auto [receive, receive_part] = receives[plan->Pick(static_cast<int>(receives.size()))];
  switch (kind) {
    case 0:
      send_part->RemoveNode(send);
      return true;
    case 1: {  // as far as the verifier knows, nothing receives
      receive->mutable_attrs().Set("tensor_name", "another");
      return true;
    }
    case 2: {
      Node* const twin = send_part->AddNode("twin", "_Send", send->attrs()).value();
      twin->set_assigned_device(send->assigned_device());
      const Edge* const value = send->input_edge(0);
      return send_part->AddEdge(value->src, value->src_output, twin, 0).ok();
    }
    case 3:
      receive->mutable_attrs().Set("send_device_incarnation", 99);
      return true;
    case 4:
      send->mutable_attrs().Set("T", kInt32);
      return true;
    case 5: {  // the send waits, over there and back, for itself
      const std::string name = send->attrs().Get<std::string>("tensor_name").value();
      for (const auto& [other, part] : receives) {
        if (other->attrs().Get<std::string>("tensor_name").value() != name ||
            other->attrs().Get<std::string>("recv_device").value() !=
                send->attrs().Get<std::string>("recv_device").value()) {
          continue;
        }
        AttrMap attrs = send->attrs();
        attrs.Set("tensor_name", "back");
        const std::string here = send->assigned_device(), there = other->assigned_device();
        attrs.Set("send_device", there);
        attrs.Set("recv_device", here);
        Node* const back = part->AddNode("back_send", "_Send", attrs).value();
        back->set_assigned_device(there);
        EXPECT_TRUE(part->AddEdge(other, 0, back, 0).ok());
        attrs.Set("tensor_type", attrs.GetOr<DataType>("T", kFloat));
        attrs.Erase("T");
        Node* const again = send_part->AddNode("back_recv", "_Recv", attrs).value();
        again->set_assigned_device(here);
        send_part->AddControlEdge(again, send);
        return true;
      }
      return false;
    }
  }
  return false;
}

TEST(VerifyTest, RandomGoodPlansPassAndBrokenOnesDoNot) {
  int good = 0, broken = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Plan plan(seed);
    plan.Build(10 + static_cast<int>(seed % 100));
    const std::vector<Partition> parts = plan.Cut();
    const Status status = VerifyPartitions(parts);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status;
    ++good;
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<Partition> bad = plan.Cut();
      if (!Break(kind, &plan, &bad)) continue;
      ++broken;
      const Status found = VerifyPartitions(bad);
      EXPECT_EQ(found.code(), StatusCode::kInternal) << "seed " << seed << ", fault " << kind;
      EXPECT_THAT(std::string(Message(found)), HasSubstr("{{node "));
      if (kind == 5) {
        EXPECT_THAT(std::string(Message(found)), HasSubstr("{{node back_recv}} in /job:w"));
      }
    }
  }
  EXPECT_EQ(good, 300);
  EXPECT_GT(broken, 1500);
}

TEST(VerifyTest, TransfersOfTheUsersOwnAreTheirBusiness) {
  Plan plan(1);
  plan.Build(5);
  std::vector<Partition> parts = plan.Cut();
  AttrMap attrs;
  attrs.Set("tensor_type", kFloat);
  attrs.Set("tensor_name", "by hand");
  attrs.Set("send_device", Device(0));
  attrs.Set("send_device_incarnation", 0);
  attrs.Set("recv_device", Device(1));
  ASSERT_TRUE(parts[0].graph->AddNode("own", "_Recv", attrs).ok());
  EXPECT_TRUE(VerifyPartitions(parts).ok());
}

// ---- Counts of synchronous training

// Two accumulators, from which the given numbers are taken, and then tokens.
Status SyncStep(int first, int second, int tokens) {
  Plan plan(1);
  DataflowGraph& graph = plan.graph();
  AttrMap accumulator;
  accumulator.Set("dtype", kFloat);
  accumulator.Set("shape", PartialShape({}));
  std::vector<Node*> takes;
  for (const int count : {first, second}) {
    Node* const handle = plan.Add("ResourceConditionalAccumulator", {}, accumulator, 0);
    AttrMap take;
    take.Set("dtype", kFloat);
    takes.push_back(plan.Add("ResourceAccumulatorTakeGradient",
                             {handle, plan.Const(Tensor::Scalar<int32_t>(count), 0)}, take, 0));
  }
  Node* const update = plan.Add("AddV2", takes, Plan::Float(), 0);
  AttrMap queue, fill, enqueue;
  queue.Set("component_types", std::vector<DataType>{kInt64});
  fill.Set("T", kInt64);
  fill.Set("index_type", kInt32);
  enqueue.Set("Tcomponents", std::vector<DataType>{kInt64});
  Node* const dims = plan.Const(Tensor::FromValues<int32_t>({tokens}), 0);
  Node* const step = plan.Const(Tensor::Scalar<int64_t>(7), 0);
  Node* const many = plan.Add("Fill", {dims, step}, fill, 0);
  graph.AddControlEdge(update, many);
  plan.Add("QueueEnqueueManyV2", {plan.Add("FIFOQueueV2", {}, queue, 0), many}, enqueue, 0);
  graph.FixSourceAndSink();
  return VerifySyncCounts(graph);
}

TEST(VerifyTest, CountsOfASynchronousStepMustAgree) {
  EXPECT_TRUE(SyncStep(3, 3, 3).ok());
  EXPECT_TRUE(SyncStep(3, 3, 5).ok());  // backup workers
  const Status differ = SyncStep(3, 4, 5);
  EXPECT_EQ(differ.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(differ)), HasSubstr("waits for 3, {{node n7}} for 4"));
  const Status starved = SyncStep(3, 3, 2);
  EXPECT_EQ(starved.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(starved)), HasSubstr("hands out 2 tokens a step"));
}

}  // namespace
}  // namespace millrace
