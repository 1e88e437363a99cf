// replica_device_setter: who goes where, and who is asked.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "millrace/cluster.h"

namespace millrace {
namespace {

// What the setter says of one float node of the given shape.
std::string Place(const DeviceFunction& setter, std::string_view type, std::string_view device = "",
                  const PartialShape& shape = PartialShape({}), DataType dtype = kFloat) {
  return setter(NodeView{"node", type, device, std::span(&dtype, 1), std::span(&shape, 1)});
}

ReplicaDeviceSetterOptions TwoPs() {
  ReplicaDeviceSetterOptions options;
  options.ps_tasks = 2;
  return options;
}

TEST(ReplicaDeviceSetter, PutsVariablesOnPsTasksInTurnAndTheRestOnTheWorker) {
  const DeviceFunction setter = ReplicaDeviceSetter(TwoPs());
  EXPECT_EQ(Place(setter, "VariableV2"), "/job:ps/task:0");
  EXPECT_EQ(Place(setter, "MatMul"), "/job:worker");
  EXPECT_EQ(Place(setter, "VarHandleOp"), "/job:ps/task:1");
  EXPECT_EQ(Place(setter, "Const"), "/job:worker");
  EXPECT_EQ(Place(setter, "MutableHashTableV2"), "/job:ps/task:0");
}

TEST(ReplicaDeviceSetter, WithoutPsTasksLeavesEveryDeviceAsItIs) {
  const DeviceFunction setter = ReplicaDeviceSetter({});
  EXPECT_EQ(Place(setter, "VariableV2"), "");
  EXPECT_EQ(Place(setter, "MatMul", "/job:a/task:3"), "/job:a/task:3");
}

TEST(ReplicaDeviceSetter, LetsTheNodesOwnFieldsOverrideItsOwn) {
  ReplicaDeviceSetterOptions options = TwoPs();
  options.ps_device = "/job:ps/cpu:0";
  options.worker_device = "/job:worker/task:1";
  const DeviceFunction setter = ReplicaDeviceSetter(options);
  EXPECT_EQ(Place(setter, "MatMul", "/device:GPU:2"), "/job:worker/task:1/device:GPU:2");
  EXPECT_EQ(Place(setter, "MatMul", "/job:other"), "/job:other/task:1");
  EXPECT_EQ(Place(setter, "VariableV2", "/task:7"), "/job:ps/task:7/device:CPU:0");
}

TEST(ReplicaDeviceSetter, DoesNotCountAVariableOfAnotherJob) {
  const DeviceFunction setter = ReplicaDeviceSetter(TwoPs());
  EXPECT_EQ(Place(setter, "VariableV2", "/job:worker/task:0"), "/job:worker/task:0");
  EXPECT_EQ(Place(setter, "VariableV2"), "/job:ps/task:0");
  EXPECT_EQ(Place(setter, "VariableV2", "/job:ps"), "/job:ps/task:1");
}

TEST(ReplicaDeviceSetter, WithoutMergingKeepsARequestedDeviceUnchanged) {
  ReplicaDeviceSetterOptions options = TwoPs();
  options.merge_devices = false;
  const DeviceFunction setter = ReplicaDeviceSetter(options);
  EXPECT_EQ(Place(setter, "VariableV2", "/device:CPU:1"), "/device:CPU:1");
  EXPECT_EQ(Place(setter, "VariableV2"), "/job:ps/task:0");
}

TEST(ReplicaDeviceSetter, TakesAListOfOpsThatLiveOnPsTasks) {
  ReplicaDeviceSetterOptions options = TwoPs();
  options.ps_ops = {"MyTable"};
  const DeviceFunction setter = ReplicaDeviceSetter(options);
  EXPECT_EQ(Place(setter, "MyTable"), "/job:ps/task:0");
  EXPECT_EQ(Place(setter, "VariableV2"), "/job:worker");
}

TEST(ReplicaDeviceSetter, WithAPsDeviceThatNamesNoJobChoosesNoTask) {
  ReplicaDeviceSetterOptions options = TwoPs();
  options.ps_device = "/device:CPU:0";
  EXPECT_EQ(Place(ReplicaDeviceSetter(options), "VariableV2"), "/device:CPU:0");
}

TEST(ReplicaDeviceSetter, AsksTheStrategyForNodesOfThePsAlone) {
  ReplicaDeviceSetterOptions options = TwoPs();
  std::vector<std::string> asked;
  options.strategy = [&](const NodeView& node) {
    asked.emplace_back(node.type);
    return 1;
  };
  const DeviceFunction setter = ReplicaDeviceSetter(options);
  EXPECT_EQ(Place(setter, "VariableV2"), "/job:ps/task:1");
  Place(setter, "Add");
  EXPECT_EQ(asked, std::vector<std::string>{"VariableV2"});
}

TEST(ReplicaDeviceSetter, LeavesADeviceThatCannotBeReadToThePlacer) {
  const DeviceFunction setter = ReplicaDeviceSetter(TwoPs());
  EXPECT_EQ(Place(setter, "MatMul", "no device at all"), "no device at all");
}

TEST(ByteBalanced, GivesEachVariableToTheTaskThatHoldsTheFewestBytes) {
  ReplicaDeviceSetterOptions options = TwoPs();
  options.strategy = ByteBalanced(2);
  const DeviceFunction setter = ReplicaDeviceSetter(options);
  const auto place = [&](const PartialShape& shape, DataType dtype = kFloat) {
    return Place(setter, "VariableV2", "", shape, dtype);
  };
  EXPECT_EQ(place({784, 100}), "/job:ps/task:0");        // 313,600 bytes
  EXPECT_EQ(place({100}), "/job:ps/task:1");             // 400
  EXPECT_EQ(place({100, 10}), "/job:ps/task:1");         // 4,000
  EXPECT_EQ(place({10}), "/job:ps/task:1");              // 40
  EXPECT_EQ(place({40000}, kDouble), "/job:ps/task:1");  // 320,000: now the heavier one
  EXPECT_EQ(place({1}), "/job:ps/task:0");
}

TEST(ByteBalanced, TakesTheLowestNumberAmongEqualsAndAnUnknownSizeAsOne) {
  const PsStrategy strategy = ByteBalanced(3);
  const auto ask = [&](const PartialShape& shape) {
    const DataType dtype = MakeRefType(kFloat);
    return strategy(NodeView{"v", "VariableV2", "", std::span(&dtype, 1), std::span(&shape, 1)});
  };
  EXPECT_EQ(ask({4}), 0);
  EXPECT_EQ(ask({-1, 4}), 1);
  EXPECT_EQ(ask(PartialShape()), 2);  // 4 bytes
  EXPECT_EQ(ask({2}), 2);
  EXPECT_EQ(ask({1}), 2);
  EXPECT_EQ(ask({1}), 0);
}

TEST(RoundRobin, CountsFromZeroAndStartsAnewForEveryStrategy) {
  const NodeView node{"v", "VariableV2", "", {}, {}};
  const PsStrategy first = RoundRobin(3), second = RoundRobin(3);
  for (const int expected : {0, 1, 2, 0, 1}) EXPECT_EQ(first(node), expected);
  EXPECT_EQ(second(node), 0);
}

}  // namespace
}  // namespace millrace
