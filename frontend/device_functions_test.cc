// SPDX-License-Identifier: Apache-2.0
// replica_device_setter: who goes where, and who is asked.
#include <gtest/gtest.h>

#include <algorithm>
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

// Bytes of the fullest of two tasks over the mean, for variables of these sizes in order.
double FullestOverMean(const std::vector<int64_t>& sizes) {
  const PsStrategy strategy = ByteBalanced(2);
  std::vector<double> bytes(2);
  const DataType dtype = kFloat;
  for (const int64_t size : sizes) {
    const PartialShape shape({size});
    const int task =
        strategy(NodeView{"v", "VariableV2", "", std::span(&dtype, 1), std::span(&shape, 1)});
    bytes[task] += static_cast<double>(size);
  }
  return std::max(bytes[0], bytes[1]) / ((bytes[0] + bytes[1]) / 2);
}

TEST(ByteBalanced, KeepsTwoTasksWithinAFifthOfEachOtherForUsualModels) {
  const std::vector<int64_t> mlp = {784 * 512, 512, 512 * 512, 512, 512 * 10, 10};
  std::vector<int64_t> vgg;
  const std::vector<int64_t> widths = {3,   64,  64,  128, 128, 256, 256,
                                       256, 512, 512, 512, 512, 512, 512};
  for (std::size_t i = 1; i < widths.size(); ++i) {
    vgg.push_back(9 * widths[i - 1] * widths[i]);
    vgg.push_back(widths[i]);
  }
  for (const int64_t size : {512 * 512, 512, 512 * 512, 512, 512 * 10, 10}) vgg.push_back(size);
  std::vector<int64_t> embeddings;
  for (const int64_t rows :
       {50000, 1000, 20000, 7000, 120000, 300, 64000, 15000, 90000, 33000, 8000, 100000}) {
    embeddings.push_back(rows * 64);
  }
  for (const int64_t size : {12 * 64 * 256, 256, 256 * 64, 64, 64, 1}) embeddings.push_back(size);
  EXPECT_LE(FullestOverMean(mlp), 1.2);
  EXPECT_LE(FullestOverMean(vgg), 1.2);
  EXPECT_LE(FullestOverMean(embeddings), 1.2);
}

}  // namespace
}  // namespace millrace
