// SPDX-License-Identifier: Apache-2.0
// Into how many parts variables are cut, and on which parameter server each is: as TensorFlow does.
#include "millrace/partitioners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/millrace.h"

namespace millrace::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

Json Load(const std::string& file) {
  std::ifstream in("tests/goldens/training/strategies/" + file);
  return Json::parse(in);
}

DataType TypeOf(const std::string& name) {
  if (name == "float32") return kFloat;
  if (name == "float16") return kHalf;
  if (name == "int64") return kInt64;
  EXPECT_EQ(name, "string");
  return kString;
}

Shape ShapeOf(const Json& json) {
  const auto dims = json.get<std::vector<int64_t>>();
  return Shape(std::span<const int64_t>(dims));
}

// Arguments of TensorFlow's partitioners by all their names.
int64_t Argument(const Json& arguments, std::initializer_list<const char*> names, int64_t other) {
  for (const char* name : names) {
    if (arguments.contains(name) && !arguments[name].is_null()) return arguments[name];
  }
  return other;
}

Partitioner PartitionerOf(const std::string& name, const Json& a) {
  const int64_t string_bytes = Argument(a, {"bytes_per_string", "bytes_per_string_element"}, 16);
  if (name == "FixedShardsPartitioner" || name == "fixed_size_partitioner") {
    return FixedShards(Argument(a, {"num_shards"}, 0));
  }
  if (name == "MinSizePartitioner" || name == "min_max_variable_partitioner") {
    return MinSize(
        {.min_shard_bytes = Argument(a, {"min_shard_bytes", "min_slice_size"}, 256 << 10),
         .max_shards = Argument(a, {"max_shards", "max_partitions"}, 1),
         .bytes_per_string = string_bytes});
  }
  EXPECT_TRUE(name == "MaxSizePartitioner" || name == "variable_axis_size_partitioner") << name;
  return MaxSize({.max_shard_bytes = Argument(a, {"max_shard_bytes"}, 0),
                  .max_shards = Argument(a, {"max_shards"}, 0),
                  .bytes_per_string = string_bytes});
}

// Where TensorFlow raises ours says InvalidArgument.
void Compare(const Json& cases) {
  int same = 0;
  for (const Json& c : cases) {
    const int axis = static_cast<int>(c.contains("axis") ? c["axis"].get<int64_t>()
                                                         : Argument(c["arguments"], {"axis"}, 0));
    const auto parts = PartitionerOf(c["partitioner"], c["arguments"])(ShapeOf(c["shape"]),
                                                                       TypeOf(c["dtype"]), axis);
    if (c.contains("raises")) {
      EXPECT_TRUE(errors::IsInvalidArgument(parts.status())) << c;
      same += !parts.ok();
      continue;
    }
    ASSERT_TRUE(parts.ok()) << parts.status() << c;
    EXPECT_EQ(*parts, c["partitions"].get<std::vector<int64_t>>()) << c;
    same += *parts == c["partitions"].get<std::vector<int64_t>>();
  }
  std::printf("partitioners: %d of %zu pass\n", same, cases.size());
  EXPECT_GT(cases.size(), 200u);
}

TEST(Partitioners, CutAsTensorFlowsDo) { Compare(Load("partitioners.json")["partitioners"]); }
TEST(Partitioners, CutAsThoseOfTensorFlow1Do) {
  Compare(Load("partitioners.json")["v1_partitioners"]);
}

TEST(Partitioners, RefuseArgumentsThatAreNotPositive) {
  const Shape shape({4, 4});
  for (const auto& partitioner :
       {FixedShards(0), MinSize({.min_shard_bytes = 0}), MinSize({.max_shards = -1}),
        MaxSize({.max_shard_bytes = 0}), MaxSize({.max_shard_bytes = 1, .max_shards = -1})}) {
    const Status status = partitioner(shape, kFloat, 0).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("at least 1"));
  }
}

Partitioner PartitionerOf(const Json& json) {
  return json.is_null() ? FixedShards(1) : PartitionerOf(json["class"].get<std::string>(), json);
}

void ComparePlacement(const Json& golden, int* same) {
  Graph graph;
  ReplicaDeviceSetterOptions setter;
  setter.ps_tasks = golden["ps"];
  const Scope root = graph.root().WithDevice(ReplicaDeviceSetter(setter));
  for (const Json& want : golden["variables"]) {
    const std::string name = want["name"];
    const auto made =
        MakeShardedVariable(root, name, Zeros(root, ShapeOf(want["shape"]), TypeOf(want["dtype"])),
                            PartitionerOf(golden["partitioner"]));
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    Json parts = want["sharded"] ? want["shards"] : Json::array({want});
    ASSERT_EQ(made.parts.size(), parts.size()) << want;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Variable& part = made.parts[i].variable;
      const std::string full =
          parts[i].contains("variable_name") ? parts[i]["variable_name"] : parts[i]["name"];
      EXPECT_EQ(part.name() + ":0", full);
      EXPECT_EQ(part.shape().AsShape(), ShapeOf(parts[i]["shape"])) << full;
      EXPECT_THAT(part.handle.op().device(), HasSubstr(StrCat("/task:", parts[i]["ps"].get<int>())))
          << full;
      if (!parts[i].contains("offset")) continue;
      EXPECT_EQ(made.parts[i].begin, parts[i]["offset"][0]);
    }
    ++*same;
  }
}

TEST(ShardedVariables, AreWhereTensorFlowPutsThem) {
  const Json golden = Load("ps_placement.json")["placement"];
  int same = 0;
  for (const Json& placement : golden) ComparePlacement(placement, &same);
  std::printf("variables placed: %d of %zu pass\n", same, golden.size() * 9);
  EXPECT_EQ(same, static_cast<int>(golden.size()) * 9);
}

}  // namespace
}  // namespace millrace::testing
