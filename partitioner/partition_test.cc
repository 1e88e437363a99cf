// SPDX-License-Identifier: Apache-2.0
// What becomes of the edges of a cut graph, as text.
#include "partitioner/partition.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partitioner/receive_schedule.h"
#include "partitioner/verify.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kA[] = "/job:w/replica:0/task:0/device:CPU:0";
constexpr char kB[] = "/job:w/replica:0/task:1/device:CPU:0";
constexpr char kB1[] = "/job:w/replica:0/task:1/device:CPU:1";

// name | inputs | outputs, each of float, ref or bool.
pb::OpDef Def(const std::string& name, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs, const std::vector<std::string>& attrs = {}) {
  pb::OpDef def;
  def.set_name(name);
  const auto fill = [](const std::string& type, int index, pb::OpDef::ArgDef* arg) {
    arg->set_name(StrCat("a", index));
    arg->set_is_ref(type == "ref");
    if (type == "T" || type == "tensor_type" || type == "SrcT" || type == "DstT" ||
        type == "dtype") {
      arg->set_type_attr(type);
    } else {
      arg->set_type(type == "bool" ? pb::DT_BOOL : pb::DT_FLOAT);
    }
    if (type.starts_with("N*")) {
      arg->set_number_attr("N");
    }
  };
  for (const std::string& type : inputs) fill(type, def.input_arg_size(), def.add_input_arg());
  for (const std::string& type : outputs) fill(type, def.output_arg_size(), def.add_output_arg());
  for (const std::string& attr : attrs) {
    pb::OpDef::AttrDef* added = def.add_attr();
    added->set_name(attr.substr(0, attr.find(':')));
    added->set_type(attr.substr(attr.find(':') + 1));
    if (added->type() == "bool") added->mutable_default_value()->set_b(false);
  }
  return def;
}

class PartitionTest : public ::testing::Test {
 protected:
  PartitionTest() : graph_(&ops_) {
    const std::vector<std::string> transfer = {"tensor_name:string", "send_device:string",
                                               "send_device_incarnation:int", "recv_device:string",
                                               "client_terminated:bool"};
    std::vector<std::string> send = transfer, receive = transfer;
    send.insert(send.begin(), "T:type");
    receive.insert(receive.begin(), "tensor_type:type");
    for (const pb::OpDef& def :
         {Def("Make", {}, {"float"}),
          Def("Two", {}, {"float", "float"}),
          Def("Neg", {"float"}, {"float"}),
          Def("Add", {"float", "float"}, {"float"}),
          Def("Less", {"float"}, {"bool"}),
          Def("Variable", {}, {"ref"}),
          Def("Assign", {"ref", "float"}, {"ref"}),
          Def("Const", {}, {"dtype"}, {"dtype:type", "value:tensor"}),
          Def("Identity", {"T"}, {"T"}, {"T:type"}),
          Def("_Send", {"T"}, {}, send),
          Def("_Recv", {}, {"tensor_type"}, receive),
          Def("_HostSend", {"T"}, {}, send),
          Def("_HostRecv", {}, {"tensor_type"}, receive),
          Def("Cast", {"SrcT"}, {"DstT"}, {"SrcT:type", "DstT:type", "Truncate:bool"}),
          Def("Enter", {"T"}, {"T"}, {"T:type", "frame_name:string", "parallel_iterations:int"}),
          Def("Exit", {"T"}, {"T"}, {"T:type"}),
          Def("NextIteration", {"T"}, {"T"}, {"T:type"}),
          Def("Merge", {"N*float"}, {"float"}, {"T:type", "N:int"}),
          Def("Switch", {"float", "bool"}, {"float", "float"}, {"T:type"}),
          Def("ControlTrigger", {}, {}),
          Def("LoopCond", {"bool"}, {"bool"})}) {
      const Status status = ops_.Register({.def = def});
      EXPECT_TRUE(status.ok()) << status;
    }
    options_.node_to_location = [](const Node& node) { return node.assigned_device(); };
    options_.new_name = [this](std::string_view prefix) {
      return StrCat(prefix, "_S", next_name_++);
    };
    options_.get_incarnation = [](std::string_view device) -> uint64_t {
      return device == kA ? 17 : 23;
    };
  }

  static std::string TaskOf(const Node& node) {
    return node.assigned_device().substr(0, node.assigned_device().find("/device"));
  }

  // Inputs: "n", "n:1" and "^n".
  Node* Add(const std::string& name, const std::string& op, const std::vector<std::string>& inputs,
            const std::string& device, AttrMap attrs = {}) {
    Node* node = graph_.AddNode(name, op, std::move(attrs)).value();
    node->set_assigned_device(device);
    int slot = 0;
    for (const std::string& input : inputs) Connect(input, node, slot++);
    return node;
  }

  void Connect(const std::string& input, Node* node, int slot) {
    if (input[0] == '^') {
      graph_.AddControlEdge(graph_.FindNode(input.substr(1)), node);
      return;
    }
    const std::size_t colon = input.find(':');
    const int output = colon == std::string::npos ? 0 : input[colon + 1] - '0';
    const auto edge = graph_.AddEdge(graph_.FindNode(input.substr(0, colon)), output, node, slot);
    EXPECT_TRUE(edge.ok()) << edge.status();
  }

  // One line a node, by part: "name = Op(inputs) [tensor name]".
  static std::string Text(const std::vector<Partition>& parts) {
    std::string text;
    for (const Partition& part : parts) {
      StrAppend(&text, part.location, "\n");
      for (const Node* node : part.graph->OpNodes()) {
        std::vector<std::string> inputs;
        for (int i = 0; i < node->num_inputs(); ++i) {
          const Edge* edge = node->input_edge(i);
          inputs.push_back(edge->src_output == 0
                               ? edge->src->name()
                               : StrCat(edge->src->name(), ":", edge->src_output));
        }
        for (const Edge* edge : node->in_edges()) {
          if (edge->IsControl() && edge->src->IsOp()) inputs.push_back("^" + edge->src->name());
        }
        StrAppend(&text, "  ", node->name(), " = ", node->type(), "(", StrJoin(inputs, ", "), ")");
        if (node->attrs().Has("tensor_name")) {
          StrAppend(&text, " [", node->attrs().Get<std::string>("tensor_name").value(), "]");
        }
        StrAppend(&text, "\n");
      }
    }
    return text;
  }

  std::vector<Partition> Cut() {
    graph_.FixSourceAndSink();
    StatusOr<std::vector<Partition>> parts = PartitionGraph(graph_, options_);
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return {};
    const Status status = VerifyPartitions(*parts);
    EXPECT_TRUE(status.ok()) << status;
    return *std::move(parts);
  }

  static const Node* Find(const std::vector<Partition>& parts, std::string_view name) {
    for (const Partition& part : parts) {
      if (const Node* node = part.graph->FindNode(name)) return node;
    }
    ADD_FAILURE() << "no node " << name << " in\n" << Text(parts);
    static const OpRegistry* const no_ops = new OpRegistry;
    static const DataflowGraph* const empty = new DataflowGraph(no_ops);
    return empty->source();
  }

  // A counting loop on A whose body adds on B.
  void AddLoop(bool with_cond) {
    AttrMap t;
    t.Set("T", kFloat);
    AttrMap enter = t, merge = t, b;
    enter.Set("frame_name", "loop");
    enter.Set("parallel_iterations", 7);
    merge.Set("N", 2);
    Add("zero", "Make", {}, kA);
    Add("enter", "Enter", {"zero"}, kA, enter);
    Node* m = graph_.AddNode("merge", "Merge", merge).value();
    m->set_assigned_device(kA);
    Connect("enter", m, 0);
    Add("less", "Less", {"merge"}, kA);
    if (with_cond) Add("cond", "LoopCond", {"less"}, kA);
    Add("switch", "Switch", {"merge", with_cond ? "cond" : "less"}, kA, t);
    Add("body", "Neg", {"switch:1"}, kB);
    Add("next", "NextIteration", {"body"}, kB, t);
    Connect("next", m, 1);
    Add("exit", "Exit", {"switch"}, kB, t);
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  PartitionOptions options_;
  int next_name_ = 0;
};

TEST_F(PartitionTest, AGraphOnOneDeviceIsOnePart) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kA);
  EXPECT_EQ(Text(Cut()), StrCat(kA, "\n  a = Make()\n  b = Neg(a)\n"));
}

TEST_F(PartitionTest, EachPartGetsTheFunctionsThatItCanReach) {
  pb::FunctionDefLibrary library;
  const auto add_function = [&](const std::string& name, const std::string& calls) {
    pb::FunctionDef& function = *library.add_function();
    function.mutable_signature()->set_name(name);
    function.mutable_signature()->add_output_arg()->set_name("out");
    function.mutable_signature()->mutable_output_arg(0)->set_type(pb::DT_FLOAT);
    pb::NodeDef& node = *function.add_node_def();
    node.set_name("n");
    node.set_op(calls.empty() ? "Make" : calls);
    (*function.mutable_ret())["out"] = calls.empty() ? "n:a0:0" : "n:out:0";
  };
  add_function("Leaf", "");
  add_function("Calls", "Leaf");
  add_function("Unused", "");
  graph_.set_library(FunctionLibrary::Extend(nullptr, library).value());
  Add("a", "Calls", {}, kA);
  Add("b", "Leaf", {}, kB);
  Add("c", "Neg", {"b"}, kB1);
  std::string text;
  for (const Partition& part : Cut()) {
    StrAppend(&text, part.location, ":");
    if (part.graph->library() != nullptr) {
      for (const auto& function : part.graph->library()->functions()) {
        StrAppend(&text, " ", function->name());
      }
    }
    StrAppend(&text, "\n");
  }
  EXPECT_EQ(text, StrCat(kA, ": Leaf Calls\n", kB, ": Leaf\n", kB1, ":\n"));
}

TEST_F(PartitionTest, ConsumersOfOnePartShareOnePair) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  Add("c", "Add", {"a", "a"}, kB);
  EXPECT_EQ(Text(Cut()), StrCat(kA, "\n  a = Make()\n  a_S0 = _Send(a) [edge_1_a]\n", kB,
                                "\n  b = Neg(a_S1)\n  c = Add(a_S1, a_S1)\n  a_S1 = _Recv() "
                                "[edge_1_a]\n"));
}

TEST_F(PartitionTest, TransfersCarryTensorFlowsAttributes) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  const auto parts = Cut();
  for (const char* name : {"a_S0", "a_S1"}) {
    const Node* node = Find(parts, name);
    const AttrMap& attrs = node->attrs();
    EXPECT_EQ(attrs.Get<std::string>("send_device").value(), kA);
    EXPECT_EQ(attrs.Get<std::string>("recv_device").value(), kB);
    EXPECT_EQ(attrs.Get<int64_t>("send_device_incarnation").value(), 17);
    EXPECT_FALSE(attrs.Get<bool>("client_terminated").value());
    EXPECT_EQ(attrs.Get<std::string>("_src").value(), "a");
    EXPECT_EQ(attrs.Get<std::string>("_dst").value(), "b");
  }
  EXPECT_EQ(Find(parts, "a_S0")->attrs().Get<DataType>("T").value(), kFloat);
  EXPECT_EQ(Find(parts, "a_S1")->attrs().Get<DataType>("tensor_type").value(), kFloat);
  EXPECT_EQ(Find(parts, "a_S0")->assigned_device(), kA);
  EXPECT_EQ(Find(parts, "a_S1")->requested_device(), kB);
}

TEST_F(PartitionTest, EachOutputAndPartHasItsOwnPair) {
  Add("a", "Two", {}, kA);
  Add("b", "Add", {"a", "a:1"}, kB);
  Add("c", "Neg", {"a"}, kB1);
  const std::string text = Text(Cut());
  EXPECT_THAT(text, HasSubstr("a_S0 = _Send(a) [edge_1_a]"));
  EXPECT_THAT(text, HasSubstr("a_S2 = _Send(a:1) [edge_2_a]"));
  EXPECT_THAT(text, HasSubstr("b = Add(a_S1, a_S3)"));
  EXPECT_THAT(text, HasSubstr("a_S4 = _Send(a) [edge_3_a]"));
  EXPECT_THAT(text, HasSubstr("c = Neg(a_S5)"));
}

TEST_F(PartitionTest, AControlEdgeTravelsAsAnEmptyTensor) {
  Add("a", "Make", {}, kA);
  Add("b", "Make", {"^a"}, kB);
  Add("c", "Make", {"^a"}, kB);
  const auto parts = Cut();
  EXPECT_EQ(Text(parts), StrCat(kA,
                                "\n  a = Make()\n  a/ctrl_S0 = Const(^a)\n  a_S1 = "
                                "_Send(a/ctrl_S0) [edge_1_a]\n",
                                kB,
                                "\n  b = Make(^a_S3)\n  c = Make(^a_S3)\n  a_S2 = _Recv() "
                                "[edge_1_a]\n  a_S3 = Identity(a_S2)\n"));
  EXPECT_EQ(Find(parts, "a/ctrl_S0")->attrs().Get<Tensor>("value").value().num_elements(), 0);
}

TEST_F(PartitionTest, DataAndControlFromOneNodeAreTwoPairs) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a", "^a"}, kB);
  const std::string text = Text(Cut());
  EXPECT_THAT(text, HasSubstr("b = Neg(a_S1, ^a_S5)"));
}

TEST_F(PartitionTest, AReferenceIsReadAfterAllOtherInputs) {
  Add("v", "Variable", {}, kA);
  Add("x", "Make", {}, kB);
  Add("y", "Add", {"v", "x", "^x"}, kB);
  Add("z", "Neg", {"v"}, kB);
  const auto parts = Cut();
  const std::string text = Text(parts);
  EXPECT_THAT(text, HasSubstr("v_S1 = _Recv(^x) [edge_1_v]"));
  EXPECT_THAT(text, HasSubstr("y = Add(v_S1, x, ^x)"));
  EXPECT_THAT(text, HasSubstr("z = Neg(v_S3)"));
  EXPECT_EQ(Find(parts, "v_S0")->attrs().Get<DataType>("T").value(), kFloat);
}

TEST_F(PartitionTest, ASecondCutKeepsTheTransfersOfTheFirst) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  Add("c", "Neg", {"b"}, kB1);
  options_.node_to_location = TaskOf;
  options_.get_incarnation = nullptr;
  const auto tasks = Cut();
  ASSERT_EQ(tasks.size(), 2u);
  PartitionOptions worker = options_;
  worker.control_flow_added = true;
  worker.node_to_location = [](const Node& node) { return node.assigned_device(); };
  worker.new_name = [n = 0](std::string_view prefix) mutable { return StrCat(prefix, "_G", n++); };
  worker.get_incarnation = [](std::string_view device) -> uint64_t {
    return device == kA ? 17 : 23;
  };
  const auto devices = PartitionGraph(*tasks[1].graph, worker).value();
  EXPECT_EQ(Text(devices), StrCat(kB,
                                  "\n  b = Neg(a_S1)\n  a_S1 = _Recv() [edge_1_a]\n  b_G0 = "
                                  "_Send(b) [edge_2_b]\n",
                                  kB1, "\n  c = Neg(b_G1)\n  b_G1 = _Recv() [edge_2_b]\n"));
  // What the master did not know, the worker fills in.
  EXPECT_EQ(Find(tasks, "a_S1")->attrs().Get<int64_t>("send_device_incarnation").value(), 0);
  EXPECT_EQ(Find(devices, "a_S1")->attrs().Get<int64_t>("send_device_incarnation").value(), 17);
}

TEST_F(PartitionTest, EdgesMayTravelInAShorterType) {
  options_.should_cast = [](const Edge& edge) {
    return edge.src->type() == "Make" ? kBfloat16 : kFloat;
  };
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  const auto parts = Cut();
  EXPECT_EQ(Text(parts), StrCat(kA,
                                "\n  a = Make()\n  a_S0 = Cast(a)\n  a_S1 = _Send(a_S0) "
                                "[edge_1_a]\n",
                                kB,
                                "\n  b = Neg(a_S3)\n  a_S2 = _Recv() [edge_1_a]\n  a_S3 = "
                                "Cast(a_S2)\n"));
  EXPECT_TRUE(Find(parts, "a_S0")->attrs().Get<bool>("Truncate").value());
  EXPECT_EQ(Find(parts, "a_S2")->attrs().Get<DataType>("tensor_type").value(), kBfloat16);
}

TEST_F(PartitionTest, HostAndDeviceMemoryOfOneDeviceAreJoinedByAPair) {
  options_.in_host_memory = [](const Node& node, int, bool) { return node.type() == "Make"; };
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kA);
  EXPECT_EQ(Text(Cut()), StrCat(kA,
                                "\n  a = Make()\n  b = Neg(a_S1)\n  a_S0 = _HostSend(a) "
                                "[edge_1_a]\n  a_S1 = _Recv(^a_S0) [edge_1_a]\n"));
}

TEST_F(PartitionTest, TheSameGraphIsCutTheSameWay) {
  for (int i = 0; i < 50; ++i) {
    Add(StrCat("a", i), "Make", {}, i % 2 == 0 ? kA : kB);
    Add(StrCat("b", i), "Neg", {StrCat("a", i / 2)}, i % 3 == 0 ? kA : kB1);
  }
  const std::string first = Text(Cut());
  next_name_ = 0;
  EXPECT_EQ(Text(Cut()), first);
}

TEST_F(PartitionTest, ALoopThatCrossesDevicesIsDrivenOnBoth) {
  AddLoop(/*with_cond=*/true);
  const auto parts = Cut();
  EXPECT_EQ(Text(parts), R"(/job:w/replica:0/task:0/device:CPU:0
  zero = Make()
  enter = Enter(zero)
  merge = Merge(enter, next)
  less = Less(merge)
  cond = LoopCond(less)
  switch = Switch(merge, cond)
  next = NextIteration(body_S13)
  exit = Exit(switch)
  _cloopnext_S5 = Enter(next_S9)
  _cloopnext_S6 = Merge(_cloopnext_S5, _cloopnext_S8)
  _cloopnext_S7 = Switch(_cloopnext_S6, cond)
  _cloopnext_S8 = NextIteration(_cloopnext_S7:1)
  next_S9 = Const()
  switch_S10 = _Send(switch:1) [edge_7_switch]
  body_S13 = _Recv(^_cloopnext_S6) [edge_8_body]
  cond_S14 = _Send(cond) [edge_16_cond]
/job:w/replica:0/task:1/device:CPU:0
  body = Neg(switch_S11)
  _cloopbody_S0 = Enter(body_S4)
  _cloopbody_S1 = Merge(_cloopbody_S0, _cloopbody_S3)
  _cloopbody_S2 = Switch(_cloopbody_S1, cond_S15)
  _cloopbody_S3 = NextIteration(_cloopbody_S2:1)
  body_S4 = Const()
  switch_S11 = _Recv(^_cloopbody_S1) [edge_7_switch]
  body_S12 = _Send(body) [edge_8_body]
  cond_S15 = _Recv(^_cloopbody_S1) [edge_16_cond]
)");
  const AttrMap& enter = Find(parts, "_cloopbody_S0")->attrs();
  EXPECT_EQ(enter.Get<std::string>("frame_name").value(), "loop");
  EXPECT_EQ(enter.Get<int64_t>("parallel_iterations").value(), 7);
}

TEST_F(PartitionTest, ALoopThatCrossesDevicesNeedsACondition) {
  AddLoop(/*with_cond=*/false);
  graph_.FixSourceAndSink();
  const auto parts = PartitionGraph(graph_, options_);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(parts.status())),
              HasSubstr("A cross-device loop must have a pivot predicate"));
}

TEST_F(PartitionTest, ALoopOnOneDeviceGetsNothing) {
  AddLoop(/*with_cond=*/true);
  for (Node* node : graph_.OpNodes()) node->set_assigned_device(kA);
  const auto parts = Cut();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].graph->num_nodes(), graph_.num_nodes());
}

TEST_F(PartitionTest, InputsFromDifferentFramesAreErrors) {
  AddLoop(/*with_cond=*/true);
  Add("outside", "Make", {}, kA);
  Add("mixed", "Add", {"body", "outside"}, kA);
  graph_.FixSourceAndSink();
  const auto parts = PartitionGraph(graph_, options_);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(parts.status())), HasSubstr("inputs from different frames"));
  EXPECT_THAT(std::string(Message(parts.status())), HasSubstr("use what the loop returns"));
}

TEST_F(PartitionTest, AMissingInputIsNamed) {
  Add("a", "Make", {}, kA);
  Add("b", "Add", {"a"}, kA);
  const auto parts = PartitionGraph(graph_, options_);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(parts.status())),
              HasSubstr("Incomplete graph, missing 1 inputs for b"));
}

TEST_F(PartitionTest, ANodeWithoutDeviceIsNamed) {
  Add("a", "Make", {}, "");
  const auto parts = PartitionGraph(graph_, options_);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(parts.status())), HasSubstr("{{node a}} is on no device"));
}

// ---- VerifyPartitions

TEST_F(PartitionTest, VerifierMissesALostReceive) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  auto parts = Cut();
  DataflowGraph* graph = parts[1].graph.get();
  graph->RemoveNode(graph->FindNode("a_S1"));
  const Status status = VerifyPartitions(parts);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(status)),
              HasSubstr(StrCat("{{node a_S0}} in ", kA, " sends a value that nothing receives")));
}

TEST_F(PartitionTest, VerifierSeesTwoIncarnations) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  auto parts = Cut();
  parts[1].graph->FindNode("a_S1")->mutable_attrs().Set("send_device_incarnation", 18);
  EXPECT_THAT(std::string(Message(VerifyPartitions(parts))),
              HasSubstr("disagree about the incarnation"));
}

TEST_F(PartitionTest, VerifierNamesACircle) {
  Add("a", "Make", {}, kA);
  Add("b", "Neg", {"a"}, kB);
  Add("c", "Neg", {"b"}, kA);
  auto parts = Cut();
  DataflowGraph* graph = parts[0].graph.get();
  graph->AddControlEdge(graph->FindNode("c"), graph->FindNode("a"));
  const Status status = VerifyPartitions(parts);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  for (const char* name : {"{{node a}}", "{{node b}}", "{{node c}}", "{{node a_S0}}"}) {
    EXPECT_THAT(std::string(Message(status)), HasSubstr(name));
  }
}

TEST_F(PartitionTest, AReceiveWaitsForWhatComesLongBeforeItsFirstUse) {
  Add("early", "Make", {}, kB);
  Add("n0", "Make", {}, kA);
  for (int i = 1; i < 100; ++i) Add(StrCat("n", i), "Neg", {StrCat("n", i - 1)}, kA);
  Add("late", "Add", {"n99", "early"}, kA);
  auto parts = PartitionGraph(graph_, options_).value();
  const std::vector<int> starts = EarliestStarts(graph_);
  ASSERT_EQ(starts[graph_.FindNode("late")->id()], 100);
  ASSERT_TRUE(ScheduleReceives(graph_, starts, &parts).ok());
  const std::string text = Text(parts);
  // It is used in the last of 100 epochs, and starts when that six before it is over.
  EXPECT_THAT(text, HasSubstr("early_S1 = _Recv(^synch_93)"));
  EXPECT_THAT(text, HasSubstr("synch_93 = ControlTrigger(^n94, ^synch_92)"));
  EXPECT_THAT(text, HasSubstr("synch_0 = ControlTrigger(^n0, ^n1)"));
  EXPECT_TRUE(VerifyPartitions(parts).ok());
}

TEST_F(PartitionTest, AReceiveThatIsUsedSoonStartsAtOnce) {
  Add("early", "Make", {}, kB);
  Add("n0", "Make", {}, kA);
  Add("soon", "Add", {"n0", "early"}, kA);
  for (int i = 1; i < 100; ++i) {
    Add(StrCat("n", i), "Neg", {i == 1 ? "soon" : StrCat("n", i - 1)}, kA);
  }
  auto parts = PartitionGraph(graph_, options_).value();
  const std::string before = Text(parts);
  ASSERT_TRUE(ScheduleReceives(graph_, EarliestStarts(graph_), &parts).ok());
  EXPECT_EQ(Text(parts), before);
}

}  // namespace
}  // namespace millrace
