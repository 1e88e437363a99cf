// SPDX-License-Identifier: Apache-2.0
// The placer's rules, each as a small cluster and graph.
#include "placer/placer.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placer/place_added.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kPs0[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kPs1[] = "/job:ps/replica:0/task:1/device:CPU:0";
constexpr char kWorker0[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kWorker0Gpu[] = "/job:worker/replica:0/task:0/device:GPU:0";

pb::OpDef Def(const std::string& name, const std::vector<std::string>& inputs,
              const std::vector<std::string>& outputs) {
  pb::OpDef def;
  def.set_name(name);
  const auto fill = [](const std::string& type, int index, pb::OpDef::ArgDef* arg) {
    arg->set_name(StrCat("a", index));
    arg->set_is_ref(type == "ref");
    arg->set_type(type == "resource"  ? pb::DT_RESOURCE
                  : type == "variant" ? pb::DT_VARIANT
                                      : pb::DT_FLOAT);
  };
  for (const std::string& type : inputs) fill(type, def.input_arg_size(), def.add_input_arg());
  for (const std::string& type : outputs) fill(type, def.output_arg_size(), def.add_output_arg());
  def.set_is_stateful(name == "Variable" || name == "Handle");
  return def;
}

class PlacerTest : public ::testing::Test {
 protected:
  PlacerTest() : graph_(&ops_) {
    for (const pb::OpDef& def :
         {Def("Const", {}, {"float"}), Def("Add", {"float", "float"}, {"float"}),
          Def("Neg", {"float"}, {"float"}), Def("Shape", {"float"}, {"float"}),
          Def("Identity", {"float"}, {"float"}), Def("Variable", {}, {"ref"}),
          Def("Assign", {"ref", "float"}, {"ref"}), Def("Handle", {}, {"resource"}),
          Def("Read", {"resource"}, {"float"}), Def("Decode", {"float"}, {"float"}),
          Def("GpuOnly", {"float"}, {"float"}), Def("Nowhere", {}, {"float", "float"}),
          Def("MapDataset", {"variant"}, {"variant"}), Def("RangeDataset", {}, {"variant"}),
          Def("PartitionedCall", {"resource"}, {"float"}), Def("Prefer", {"float"}, {"float"})}) {
      EXPECT_TRUE(ops_.Register({.def = def}).ok()) << def.name();
    }
    input_.kernel = [](const OpInfo& op, const AttrMap&,
                       std::string_view type) -> std::optional<int> {
      const std::string& name = op.def.name();
      if (name == "Nowhere") return std::nullopt;
      if (name == "Decode" && type != "CPU") return std::nullopt;
      if (name == "GpuOnly" && type != "GPU") return std::nullopt;
      return name == "Prefer" && type == "CPU" ? 1 : 0;
    };
    // As seen from worker 0.
    AddDevice(kWorker0, true);
    AddDevice(kPs1, false);
    AddDevice(kPs0, false);
  }

  void AddDevice(const std::string& name, bool is_local) {
    const bool gpu = name.find("GPU") != std::string::npos;
    input_.devices.push_back({.name = name, .type = gpu ? "GPU" : "CPU", .is_local = is_local});
  }

  Node* Add(const std::string& name, const std::string& op, const std::vector<Node*>& inputs,
            const std::string& device = "", const std::vector<std::string>& with = {}) {
    AttrMap attrs;
    std::vector<std::string> labels;
    for (const std::string& other : with) labels.push_back("loc:@" + other);
    if (!labels.empty()) attrs.Set("_class", labels);
    Node* node = graph_.AddNode(name, op, std::move(attrs)).value();
    node->set_requested_device(device);
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
      EXPECT_TRUE(graph_.AddEdge(inputs[i], 0, node, i).ok());
    }
    return node;
  }

  Status Run() {
    graph_.FixSourceAndSink();
    return Place(&graph_, input_, &log_);
  }

  void ExpectDevices(const std::map<std::string, std::string>& expected) {
    const Status status = Run();
    ASSERT_TRUE(status.ok()) << status;
    for (const auto& [name, device] : expected) {
      EXPECT_EQ(graph_.FindNode(name)->assigned_device(), device) << log_.ToText(name);
    }
  }

  void ExpectError(StatusCode code, const std::vector<std::string>& phrases) {
    const Status status = Run();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& phrase : phrases) {
      EXPECT_THAT(std::string(Message(status)), HasSubstr(phrase));
    }
  }

  OpRegistry ops_;
  DataflowGraph graph_;
  PlacerInput input_;
  PlacementLog log_;
};

TEST_F(PlacerTest, NodesWithoutRequestsStayLocal) {
  Node* a = Add("a", "Const", {});
  Add("b", "Neg", {a});
  ExpectDevices({{"a", kWorker0}, {"b", kWorker0}});
}

TEST_F(PlacerTest, PartialRequestsTakeTheFirstDeviceThatFits) {
  Node* a = Add("a", "Const", {});
  Add("by_job", "Neg", {a}, "/job:ps");
  Add("by_task", "Neg", {a}, "/task:1");
  Add("by_type", "Neg", {a}, "/cpu:0");
  ExpectDevices({{"by_job", kPs0}, {"by_task", kPs1}, {"by_type", kWorker0}});
}

TEST_F(PlacerTest, DeviceNamesAreSortedAsText) {
  AddDevice("/job:ps/replica:0/task:10/device:CPU:0", false);
  input_.devices.erase(input_.devices.begin() + 2);  // ps task 0
  Node* a = Add("a", "Const", {});
  AddDevice("/job:ps/replica:0/task:2/device:CPU:0", false);
  input_.devices.erase(input_.devices.begin() + 1);  // ps task 1
  Add("b", "Neg", {a}, "/job:ps");
  ExpectDevices({{"b", "/job:ps/replica:0/task:10/device:CPU:0"}});
}

TEST_F(PlacerTest, AcceleratorsComeFirstUnlessThereIsNoKernel) {
  AddDevice(kWorker0Gpu, true);
  Node* a = Add("a", "Const", {});
  Add("neg", "Neg", {a});
  Add("decode", "Decode", {a});
  ExpectDevices({{"neg", kWorker0Gpu}, {"decode", kWorker0}});
}

TEST_F(PlacerTest, KernelPriorityBeatsTheOrderOfTypes) {
  AddDevice(kWorker0Gpu, true);
  Add("b", "Prefer", {Add("a", "Const", {})});
  ExpectDevices({{"b", kWorker0}});
}

TEST_F(PlacerTest, TheDefaultDeviceBeatsEverything) {
  AddDevice(kWorker0Gpu, true);
  input_.default_local_device = kWorker0;
  Add("b", "Neg", {Add("a", "Const", {})});
  ExpectDevices({{"b", kWorker0}});
}

TEST_F(PlacerTest, UpdatesFollowTheirVariable) {
  Node* v = Add("v", "Variable", {}, "/job:ps/task:1");
  Node* a = Add("a", "Const", {}, "/job:worker");
  Add("assign", "Assign", {v, a}, "/job:worker/task:0");
  ExpectDevices({{"v", kPs1}, {"assign", kPs1}, {"a", kWorker0}});
}

TEST_F(PlacerTest, ReadsFollowTheirHandle) {
  Node* v = Add("v", "Handle", {}, "/job:ps/task:1");
  Add("read", "Read", {v}, "/job:worker/task:0");
  ExpectDevices({{"v", kPs1}, {"read", kPs1}});
}

TEST_F(PlacerTest, AVariableWithoutRequestGoesWhereItsUpdateMust) {
  Node* v = Add("v", "Variable", {});
  Add("assign", "Assign", {v, Add("a", "Const", {})}, "/job:ps/task:1");
  ExpectDevices({{"v", kPs1}, {"assign", kPs1}});
}

TEST_F(PlacerTest, CallsMayLeaveTheResource) {
  Node* v = Add("v", "Handle", {}, "/job:ps/task:1");
  Add("call", "PartitionedCall", {v}, "/job:worker");
  ExpectDevices({{"v", kPs1}, {"call", kWorker0}});
}

TEST_F(PlacerTest, DatasetsStayTogether) {
  Node* range = Add("range", "RangeDataset", {}, "/job:ps/task:1");
  Add("map", "MapDataset", {range});
  ExpectDevices({{"range", kPs1}, {"map", kPs1}});
}

TEST_F(PlacerTest, NodesOfOneClassShareADevice) {
  Node* a = Add("a", "Const", {}, "/job:ps/task:1");
  Node* b = Add("b", "Neg", {a}, "", {"a"});
  Add("c", "Neg", {b}, "", {"label"});
  Add("d", "Neg", {a}, "/job:ps/task:0", {"label"});
  ExpectDevices({{"b", kPs1}, {"c", kPs0}, {"d", kPs0}});
}

TEST_F(PlacerTest, ANodeMayNameALaterOne) {
  Node* a = Add("a", "Const", {});
  Add("b", "Neg", {a}, "", {"c"});
  Add("c", "Neg", {a}, "/job:ps/task:1");
  ExpectDevices({{"b", kPs1}, {"c", kPs1}});
}

TEST_F(PlacerTest, AGroupGoesWhereAllItsMembersHaveKernels) {
  AddDevice(kWorker0Gpu, true);
  Node* a = Add("a", "Const", {});
  Add("b", "Neg", {a});
  Add("c", "Decode", {a}, "", {"b"});
  ExpectDevices({{"b", kWorker0}, {"c", kWorker0}});
}

TEST_F(PlacerTest, ShapeFollowsItsInput) {
  Node* a = Add("a", "Neg", {Add("zero", "Const", {})}, "/job:ps/task:1");
  Add("shape", "Shape", {a});
  Add("elsewhere", "Shape", {a}, "/job:ps/task:0");
  ExpectDevices({{"shape", kPs1}, {"elsewhere", kPs0}});
}

TEST_F(PlacerTest, AnIdentityBetweenEqualRequestsFollowsItsInput) {
  Node* zero = Add("zero", "Const", {});
  Node* a = Add("a", "Neg", {zero}, "/job:ps/task:1");
  Node* same = Add("same", "Identity", {a});
  Add("b", "Neg", {same}, "/job:ps/task:1");
  Node* other = Add("other", "Identity", {a});
  Add("c", "Neg", {other}, "/job:ps");
  Node* shared = Add("shared", "Identity", {a});
  Add("d", "Add", {shared, shared}, "/job:ps/task:1");
  ExpectDevices({{"same", kPs1}, {"other", kWorker0}, {"shared", kWorker0}});
}

TEST_F(PlacerTest, AConstantFollowsConsumersThatAgree) {
  Node* a = Add("a", "Const", {});
  Add("b", "Neg", {a}, "/job:ps/task:1");
  Node* c = Add("c", "Const", {});
  Add("d", "Neg", {c}, "/job:ps/task:1");
  Add("e", "Neg", {c}, "/job:ps/task:0");
  ExpectDevices({{"a", kPs1}, {"c", kWorker0}});
}

TEST_F(PlacerTest, WhatWasPlacedBeforeStays) {
  Node* v = Add("v", "Variable", {});
  v->set_assigned_device(kPs1);
  Add("assign", "Assign", {v, Add("a", "Const", {})});
  ExpectDevices({{"v", kPs1}, {"assign", kPs1}});
}

TEST_F(PlacerTest, SoftPlacementGivesUpTypeAndNumberOnly) {
  input_.allow_soft_placement = true;
  Node* a = Add("a", "Const", {});
  Add("b", "Neg", {a}, "/job:ps/task:1/gpu:3");
  Add("c", "Neg", {a}, "/device:CPU:7");
  Add("v", "Variable", {}, "/job:ps/task:1/gpu:0");
  ExpectDevices({{"b", kPs1}, {"c", kWorker0}, {"v", kPs1}});
}

TEST_F(PlacerTest, SoftPlacementDoesNotMoveToAnotherTask) {
  input_.allow_soft_placement = true;
  Add("b", "Neg", {Add("a", "Const", {})}, "/job:ps/task:7/gpu:3");
  ExpectError(StatusCode::kInvalidArgument, {"explicitly assigned to /job:ps/task:7/gpu:3"});
}

TEST_F(PlacerTest, SoftPlacementDropsImpossibleColocation) {
  input_.allow_soft_placement = true;
  Node* a = Add("a", "Neg", {Add("zero", "Const", {})}, "/job:ps/task:0");
  Add("b", "Neg", {a}, "/job:ps/task:1", {"a"});
  ExpectDevices({{"a", kPs0}, {"b", kPs1}});
  EXPECT_THAT(log_.ToText("b"), HasSubstr("colocation with a by label a was given up"));
}

TEST_F(PlacerTest, AMissingKernelIsTrustedToARemoteTask) {
  Add("here", "Nowhere", {}, "/job:ps/task:1/cpu:0");
  ExpectDevices({{"here", kPs1}});
}

TEST_F(PlacerTest, NoDevicesAreAnError) {
  input_.devices.clear();
  ExpectError(StatusCode::kFailedPrecondition, {"No devices are registered"});
}

TEST_F(PlacerTest, ANodeWithoutKernelsIsNamed) {
  Add("n", "Nowhere", {}, "/job:worker");
  ExpectError(StatusCode::kInvalidArgument,
              {"No OpKernel was registered to support Op 'Nowhere' used by {{node n}}",
               "Registered devices: [CPU]", "<no registered kernels>"});
}

TEST_F(PlacerTest, ADeviceThatDoesNotExistIsNamed) {
  Add("n", "Neg", {Add("a", "Const", {})}, "/job:moon/gpu:0");
  ExpectError(StatusCode::kInvalidArgument,
              {StrCat("Cannot assign a device for operation n: {{node n}} was explicitly assigned "
                      "to /job:moon/gpu:0 but available devices are [ ",
                      kPs0, ", ", kPs1, ", ", kWorker0,
                      " ]. Make sure the device specification refers to a valid device."),
               "CUDA is not enabled", "[[{{node n}}]]"});
}

TEST_F(PlacerTest, ADeviceWithoutKernelIsNamed) {
  AddDevice(kWorker0Gpu, true);
  Add("n", "Decode", {Add("a", "Const", {})}, "/gpu:0");
  ExpectError(StatusCode::kInvalidArgument,
              {"Could not satisfy explicit device specification '/gpu:0' because no supported "
               "kernel for GPU devices is available."});
}

TEST_F(PlacerTest, AGroupThatCannotBeSatisfiedIsExplained) {
  Node* v = Add("v", "Variable", {}, "/job:ps");
  Add("assign", "Assign", {v, Add("a", "Const", {})}, "/task:5");
  ExpectError(StatusCode::kInvalidArgument,
              {"Could not satisfy explicit device specification '/job:ps' because the node "
               "{{colocation_node v}} was colocated with a group of nodes that required "
               "incompatible device '/job:ps/task:5'",
               "Colocation Debug Info", "Variable: CPU "});
}

TEST_F(PlacerTest, MalformedNamesAreErrors) {
  Node* a = Add("a", "Const", {}, "/job:ps/nonsense");
  ExpectError(StatusCode::kInvalidArgument, {"Malformed device specification '/job:ps/nonsense'"});
  a->set_assigned_device("nonsense/");
  ExpectError(StatusCode::kInternal, {"Malformed assigned device 'nonsense/'"});
  a->set_assigned_device("/job:ps");
  ExpectError(StatusCode::kInternal, {"does not match any device"});
}

TEST_F(PlacerTest, AnAssignedDeviceNeedsAKernel) {
  Add("a", "Const", {});
  Add("n", "GpuOnly", {graph_.FindNode("a")})->set_assigned_device(kPs0);
  ExpectError(StatusCode::kInternal, {"does not have registered OpKernel support for GpuOnly"});
}

TEST_F(PlacerTest, ClassesWithDifferentJobsCannotBeJoined) {
  Node* a = Add("a", "Const", {}, "/job:ps/task:0");
  Add("b", "Neg", {a}, "/job:worker/task:0", {"a"});
  ExpectError(StatusCode::kInvalidArgument,
              {"Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}"});
}

TEST_F(PlacerTest, ClassesWithoutACommonKernelCannotBeJoined) {
  AddDevice(kWorker0Gpu, true);
  Node* a = Add("a", "Const", {});
  Node* b = Add("b", "GpuOnly", {a});
  Add("c", "Decode", {b}, "", {"b"});
  ExpectError(StatusCode::kInvalidArgument,
              {"because no device type supports both of those nodes and the other nodes colocated "
               "with them."});
}

TEST_F(PlacerTest, ReferenceEdgesBetweenFixedDevicesAreErrors) {
  Node* v = Add("v", "Variable", {});
  v->set_assigned_device(kPs0);
  Add("assign", "Assign", {v, Add("a", "Const", {})})->set_assigned_device(kPs1);
  ExpectError(StatusCode::kInvalidArgument,
              {StrCat("a reference or resource edge connects colocation groups with incompatible "
                      "assigned devices: ",
                      kPs0, " vs ", kPs1)});
}

TEST_F(PlacerTest, TheLogTellsGroupCandidatesAndRule) {
  Node* v = Add("v", "Variable", {}, "/job:ps");
  v->set_origin("model.cc:7");
  Add("assign", "Assign", {v, Add("a", "Const", {})}, "/job:worker")->set_origin("model.cc:9");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(log_.ToText("v"),
            R"(v (Variable) asks for /job:ps -> /job:ps/replica:0/task:0/device:CPU:0
  made at model.cc:7
  rule 11: first by name
  note on assign: the request /job:worker gave way to /job:ps of v, from which it takes a reference or resource
  group of 2:
    v (Variable) asks for /job:ps
    assign (Assign) asks for /job:worker
    assign joined v: reference edge into input 0 (model.cc:9); together they ask for /job:ps
  request: /job:ps; kernels for: CPU
    /job:ps/replica:0/task:0/device:CPU:0 chosen
    /job:ps/replica:0/task:1/device:CPU:0 would do as well
    /job:worker/replica:0/task:0/device:CPU:0 refused: another job is asked for
)");
  EXPECT_THAT(log_.ToText("assign"),
              HasSubstr("rule 5: a node of its group was placed there: v\n"));
  EXPECT_THAT(log_.ToText("b"), HasSubstr("no node 'b'"));
  EXPECT_THAT(log_.ToText(), HasSubstr("in the group of v\n"));
  EXPECT_EQ(log_.Summary(), R"(device                                 count  op
/job:ps/replica:0/task:0/device:CPU:0      1  Assign
/job:ps/replica:0/task:0/device:CPU:0      1  Const
/job:ps/replica:0/task:0/device:CPU:0      1  Variable
)");
}

TEST_F(PlacerTest, ARuleThatIsLeftOutLeavesTheExplanation) {
  Node* a = Add("a", "Neg", {Add("zero", "Const", {})}, "/job:ps/task:1");
  Add("shape", "Shape", {a});
  ExpectDevices({{"shape", kPs1}});
  EXPECT_THAT(log_.ToText("shape"),
              HasSubstr("rule 2: it needs only the shape of its input, which is there: a\n"));
  for (Node* node : graph_.OpNodes()) node->set_assigned_device("");
  input_.ignored_rules = 1u << static_cast<int>(ChoiceRule::kFollowsInput);
  ExpectDevices({{"shape", kWorker0}});
  EXPECT_THAT(log_.ToText("shape"), HasSubstr("rule 10: local before remote\n"));
  for (Node* node : graph_.OpNodes()) node->set_assigned_device("");
  input_.ignored_rules |= 1u << static_cast<int>(ChoiceRule::kLocal);
  ExpectDevices({{"shape", kPs0}});
  EXPECT_THAT(log_.ToText("shape"), HasSubstr("rule 11: first by name\n"));
}

// Random graphs that mostly can be placed.
class RandomGraph {
 public:
  RandomGraph(const OpRegistry* ops, unsigned seed) : graph_(ops), random_(seed) {
    for (const char* op : {"Const", "Variable", "Handle"}) Add(op);
  }

  DataflowGraph& graph() { return graph_; }
  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  void Grow(int count) {
    static const std::vector<std::string> ops = {"Const",    "Neg",    "Add",    "Shape",
                                                 "Identity", "Assign", "Decode", "Variable",
                                                 "Handle",   "Read",   "Prefer"};
    for (int i = 0; i < count; ++i) Add(ops[Pick(static_cast<int>(ops.size()))]);
    graph_.FixSourceAndSink();
  }

 private:
  void Add(const std::string& op) {
    static const std::vector<std::string> requests = {
        "", "", "", "", "/job:ps", "/job:ps/task:1", "/task:0", "/gpu:0", "/job:worker", "/cpu:9"};
    const int id = graph_.num_node_ids();
    AttrMap attrs;
    if (id > 2 && Pick(12) == 0) {
      attrs.Set("_class", std::vector<std::string>{StrCat("loc:@n", 2 + Pick(id - 2))});
    }
    Node* const node = graph_.AddNode(StrCat("n", id), op, std::move(attrs)).value();
    node->set_requested_device(requests[Pick(static_cast<int>(requests.size()))]);
    for (int i = 0; i < node->num_inputs(); ++i) {
      const DataType type = node->input_types()[i];
      const auto& from = IsRefType(type) ? refs_ : type == kResource ? handles_ : floats_;
      EXPECT_TRUE(graph_.AddEdge(from[Pick(static_cast<int>(from.size()))], 0, node, i).ok());
    }
    const DataType type = node->output_types()[0];
    (IsRefType(type) ? refs_ : type == kResource ? handles_ : floats_).push_back(node);
  }

  DataflowGraph graph_;
  std::mt19937 random_;
  std::vector<Node*> floats_, refs_, handles_;
};

TEST_F(PlacerTest, ReplayingTheRecordGivesEveryDeviceAgain) {
  AddDevice(kWorker0Gpu, true);
  int placed = 0, followed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomGraph random(&ops_, seed);
    random.Grow(5 + random.Pick(25));
    input_.allow_soft_placement = random.Pick(4) != 0;
    input_.default_local_device = random.Pick(4) == 0 ? kWorker0 : "";
    if (!Place(&random.graph(), input_, &log_).ok()) continue;
    for (const Node* node : random.graph().OpNodes()) {
      ++placed;
      followed += log_.ToText(node->name()).find("  rule 5") != std::string::npos;
      EXPECT_EQ(log_.Replay(node->name()), node->assigned_device()) << log_.ToText(node->name());
    }
  }
  EXPECT_GT(placed, 1000);
  EXPECT_GT(followed, 100);
}

TEST_F(PlacerTest, AddedNodesGoWhereTheyWouldGoIfAllWerePlacedAgain) {
  AddDevice(kWorker0Gpu, true);
  int simple = 0, others = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    RandomGraph random(&ops_, seed);
    random.Grow(5 + random.Pick(25));
    DataflowGraph& graph = random.graph();
    input_.allow_soft_placement = random.Pick(4) != 0;
    if (!Place(&graph, input_, nullptr).ok()) continue;
    StringSet labels;
    CollectLabels(graph, 2, graph.num_node_ids(), &labels);
    const int first = graph.num_node_ids();
    random.Grow(1 + random.Pick(4));
    const std::unique_ptr<DataflowGraph> again = graph.Clone();
    for (Node* node : again->OpNodes()) {
      if (!node->op().def.is_stateful()) node->set_assigned_device("");
    }
    const Status expected = Place(again.get(), input_, nullptr);
    const StatusOr<bool> added = PlaceAdded(&graph, first, labels, input_, &log_);
    if (added.ok() && !*added) {
      ++others;
      continue;
    }
    ++simple;
    EXPECT_EQ(added.status().code(), expected.code()) << "seed " << seed << ": " << expected;
    if (!added.ok()) continue;
    for (const Node* node : again->OpNodes()) {
      EXPECT_EQ(graph.FindNode(node->name())->assigned_device(), node->assigned_device())
          << "seed " << seed << ", node " << node->name() << " " << node->id() - first;
    }
  }
  EXPECT_GT(simple, 200);
  EXPECT_GT(others, 200);
}

TEST_F(PlacerTest, TheLogTellsWhatSoftPlacementGaveUp) {
  input_.allow_soft_placement = true;
  Add("b", "Neg", {Add("a", "Const", {})}, "/job:ps/gpu:0");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(log_.ToText("b"), HasSubstr("request: /job:ps/device:GPU:0, softened to /job:ps"));
}

}  // namespace
}  // namespace millrace
