// SPDX-License-Identifier: Apache-2.0
// Every op of ours is defined exactly as TensorFlow defines it.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "ops/all_ops.h"
#include "proto/op_def.pb.h"

namespace millrace {
namespace {

std::map<std::string, pb::OpDef> GoldenOps() {
  std::map<std::string, pb::OpDef> ops;
  for (const char* name : {"ops.pb", "ops_later.pb", "ops_extra.pb", "ops_further.pb",
                           "ops_relatives.pb", "ops_stages.pb"}) {
    std::ifstream file(std::string("tests/goldens/opdefs/") + name, std::ios::binary);
    pb::OpList list;
    EXPECT_TRUE(list.ParseFromIstream(&file)) << name;
    for (const pb::OpDef& op : list.op()) ops[op.name()] = op;
  }
  return ops;
}

TEST(OpDefGoldenTest, EveryRegisteredOpEqualsTensorFlows) {
  const std::map<std::string, pb::OpDef> golden = GoldenOps();
  OpRegistry registry;
  const Status status = RegisterAllOps(registry);
  ASSERT_TRUE(status.ok()) << status;
  int compared = 0;
  for (const OpInfo* op : registry.SortedOps()) {
    if (op->def.name().starts_with("_Fused")) continue;      // never leaves a worker
    if (op->def.name().starts_with("_Staleness")) continue;  // ours alone
    if (op->def.name().ends_with("IteratorPosition")) continue;
    if (op->def.name() == "_GeneratorDataset") continue;
    const auto it = golden.find(op->def.name());
    if (it == golden.end()) {
      ADD_FAILURE() << op->def.name() << " is not among the golden ops";
      continue;
    }
    EXPECT_EQ(op->def.DebugString(), it->second.DebugString());
    EXPECT_EQ(op->def.SerializeAsString(), it->second.SerializeAsString()) << op->def.name();
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(OpDefGoldenTest, FamiliesDoNotOverlap) {
  OpRegistry registry;
  ASSERT_TRUE(RegisterAllOps(registry).ok());
  EXPECT_EQ(RegisterAllOps(registry).code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace millrace
