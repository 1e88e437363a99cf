// SPDX-License-Identifier: Apache-2.0
// The check lets the picture through and catches what is planted against it.

#include "tools/check_layers/layers.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace millrace::layers {
namespace {

// The violations of one file of that content.
std::vector<Violation> Check(const std::string& path, const std::string& text) {
  return CheckIncludes({{path, text}});
}

bool Allowed(const std::string& path, const std::string& include) {
  return Check(path, "#include " + include + "\n").empty();
}

TEST(LayersTest, ArrowsAreFollowedToTheirEnds) {
  EXPECT_TRUE(Allowed("kernels/linear_algebra/matmul.cc", "\"tensor/tensor.h\""));
  EXPECT_TRUE(Allowed("kernels/linear_algebra/matmul.cc", "\"base/errors.h\""));
  EXPECT_TRUE(Allowed("distributed_runtime/master.cc", "\"executor/executor.h\""));
  EXPECT_TRUE(Allowed("runtime/runtime.cc", "\"kernels/all_kernels.h\""));
}

TEST(LayersTest, UpwardsIsRefused) {
  EXPECT_FALSE(Allowed("base/log.h", "\"tensor/tensor.h\""));
  EXPECT_FALSE(Allowed("tensor/tensor.cc", "\"device/device.h\""));
  EXPECT_FALSE(Allowed("session/session.cc", "\"distributed_runtime/server.h\""));
  EXPECT_FALSE(Allowed("graph/graph.cc", "\"runtime/runtime.h\""));
  EXPECT_FALSE(Allowed("ops/math_ops.cc", "\"graph/graph.h\""));
}

TEST(LayersTest, KernelsNeverSeeTheGraph) {
  EXPECT_FALSE(Allowed("kernels/linear_algebra/matmul.cc", "\"graph/graph.h\""));
  EXPECT_FALSE(Allowed("kernels/data/map.cc", "\"graph/graph.h\""));
}

TEST(LayersTest, FoldersWithinFoldersAreLayersToo) {
  EXPECT_TRUE(Allowed("kernels/linear_algebra/matmul.cc", "\"kernels/common/gemm.h\""));
  EXPECT_TRUE(Allowed("kernels/common/gemm.cc", "\"kernels/kernel.h\""));
  EXPECT_FALSE(Allowed("kernels/common/gemm.cc", "\"kernels/math/elementwise_special.h\""));
  EXPECT_FALSE(Allowed("kernels/kernel.cc", "\"kernels/common/gemm.h\""));
  EXPECT_FALSE(Allowed("kernels/nn/conv.cc", "\"kernels/cuda/launch.h\""));
  EXPECT_FALSE(Allowed("graph/graph.cc", "\"graph/lowering/lower_functions.h\""));
  EXPECT_FALSE(Allowed("device/device.cc", "\"device/cuda/driver/context.h\""));
}

TEST(LayersTest, KernelsOfAllDevicesBeginWithThePlanOfTheirOp) {
  for (const char* path : {"kernels/gpu/move_bodies.cc", "kernels/cuda/conv.cc",
                           "kernels/sparse/rows.cc", "kernels/array/layout.cc"}) {
    EXPECT_TRUE(Allowed(path, "\"kernels/array/layout_plan.h\"")) << path;
  }
  EXPECT_FALSE(Allowed("kernels/gpu/move_bodies.cc", "\"kernels/array/bad_indices.h\""));
  EXPECT_FALSE(Allowed("kernels/gpu/window_bodies.cc", "\"kernels/nn/window.h\""));
  EXPECT_FALSE(Allowed("executor/executor.cc", "\"kernels/array/layout_plan.h\""));
  // How a GPU does something is its own business.
  EXPECT_FALSE(Allowed("kernels/array/layout.cc", "\"kernels/gpu/move_plan.h\""));
}

TEST(LayersTest, APlanSeesWhatAllKernelsShareAndNoStep) {
  const char* const plan = "kernels/array/scatter_plan.cc";
  EXPECT_TRUE(Allowed(plan, "\"kernels/array/scatter_plan.h\""));
  EXPECT_TRUE(Allowed(plan, "\"kernels/nn/window_plan.h\""));
  EXPECT_TRUE(Allowed(plan, "\"kernels/common/kernel_util.h\""));
  EXPECT_TRUE(Allowed(plan, "\"base/errors.h\""));
  EXPECT_FALSE(Allowed(plan, "\"kernels/kernel_context.h\""));
  EXPECT_FALSE(Allowed(plan, "\"kernels/array/bad_indices.h\""));
  EXPECT_FALSE(Allowed(plan, "\"kernels/state/variable.h\""));
}

TEST(LayersTest, AFolderThatIsNotListedBelongsToTheOneAround) {
  EXPECT_TRUE(Allowed("executor/engine/flat_step.cc", "\"executor/executor.h\""));
  EXPECT_TRUE(Allowed("executor/executor.cc", "\"executor/engine/flat_step.h\""));
  EXPECT_FALSE(Allowed("executor/engine/flat_step.cc", "\"executor/capture/capture_plan.h\""));
}

TEST(LayersTest, OneFileMayStandAboveItsFolder) {
  EXPECT_TRUE(Allowed("kernels/all_kernels.cc", "\"kernels/data/data_kernels.h\""));
  EXPECT_FALSE(Allowed("kernels/all_kernels.h", "\"kernels/data/data_kernels.h\""));
}

TEST(LayersTest, AMasterKnowsNoWorkerAndAWorkerNoMaster) {
  EXPECT_FALSE(Allowed("worker/local_worker.cc", "\"master/master.h\""));
  EXPECT_FALSE(Allowed("master/plan.cc", "\"worker/local_worker.h\""));
  EXPECT_FALSE(Allowed("master/plan.cc", "\"kernels/nn/window.h\""));
  EXPECT_FALSE(Allowed("master/plan.cc", "\"executor/compiled_graph.h\""));
}

TEST(LayersTest, PlacerPartitionerAndExecutorDoNotKnowEachOther) {
  EXPECT_FALSE(Allowed("placer/placer.cc", "\"partitioner/partition.h\""));
  EXPECT_FALSE(Allowed("partitioner/cut.cc", "\"executor/executor.h\""));
  EXPECT_FALSE(Allowed("executor/executor.cc", "\"placer/placer.h\""));
  EXPECT_FALSE(Allowed("placer/placer.cc", "\"kernels/kernel_registry.h\""));
}

TEST(LayersTest, OfTheDevicesPlacerAndPartitionerSeeTheNamesOnly) {
  EXPECT_TRUE(Allowed("placer/placer.cc", "\"device/device_name.h\""));
  EXPECT_TRUE(Allowed("partitioner/cut.h", "\"device/device_name.h\""));
  EXPECT_FALSE(Allowed("placer/placer.cc", "\"device/device.h\""));
}

TEST(LayersTest, PublicHeadersKnowTheStandardLibraryAndThemselves) {
  EXPECT_TRUE(Allowed("include/millrace/graph.h", "<vector>"));
  EXPECT_TRUE(Allowed("include/millrace/graph.h", "<stdint.h>"));
  EXPECT_FALSE(Allowed("include/millrace/status.h", "\"absl/status/status.h\""));
  EXPECT_FALSE(Allowed("include/millrace/status.h", "<absl/status/status.h>"));
  EXPECT_TRUE(Allowed("include/millrace/graph.h", "\"millrace/status.h\""));
  EXPECT_FALSE(Allowed("include/millrace/graph.h", "<google/protobuf/message.h>"));
  EXPECT_FALSE(Allowed("include/millrace/graph.h", "<Eigen/Core>"));
  EXPECT_FALSE(Allowed("include/millrace/graph.h", "\"base/mutex.h\""));
  EXPECT_FALSE(Allowed("include/millrace/graph.h", "\"proto/graph.pb.h\""));
}

TEST(LayersTest, AnythingMayIncludePublicHeaders) {
  EXPECT_TRUE(Allowed("base/errors.h", "\"millrace/status.h\""));
  EXPECT_TRUE(Allowed("examples/mnist.cc", "\"millrace/millrace.h\""));
  EXPECT_FALSE(Allowed("base/errors.h", "\"include/millrace/status.h\""));
}

TEST(LayersTest, OneFolderKnowsGrpc) {
  EXPECT_TRUE(Allowed("transport/grpc/channel.cc", "<grpcpp/grpcpp.h>"));
  EXPECT_FALSE(Allowed("distributed_runtime/server.cc", "<grpcpp/grpcpp.h>"));
  EXPECT_FALSE(Allowed("transport/link/link.cc", "<grpcpp/grpcpp.h>"));
  EXPECT_FALSE(Allowed("distributed_runtime/server.cc", "<grpc/grpc.h>"));
  EXPECT_FALSE(Allowed("tools/millrace.cc", "<grpcpp/grpcpp.h>"));
  EXPECT_FALSE(Allowed("tools/millrace.cc", "\"grpcpp/grpcpp.h\""));
}

TEST(LayersTest, ProtobufBeginsAboveBase) {
  EXPECT_FALSE(Allowed("base/log.cc", "<google/protobuf/message.h>"));
  EXPECT_TRUE(Allowed("tensor/tensor_proto.cc", "<google/protobuf/message.h>"));
}

TEST(LayersTest, OuterFoldersSeeMoreInImplementationsThanInHeaders) {
  EXPECT_TRUE(Allowed("training/saver.cc", "\"session/session.h\""));
  EXPECT_FALSE(Allowed("training/saver.h", "\"session/session.h\""));
  EXPECT_FALSE(Allowed("training/saver.cc", "\"distributed_runtime/server.h\""));
  EXPECT_TRUE(Allowed("data/records.h", "\"io/filesystem.h\""));
}

TEST(LayersTest, TestsMayIncludeAnythingAndNobodyIncludesThem) {
  EXPECT_TRUE(Allowed("placer/placer_test.cc", "\"kernels/all_kernels.h\""));
  EXPECT_TRUE(Allowed("tests/cluster/cluster_test.cc", "\"runtime/runtime.h\""));
  EXPECT_TRUE(Allowed("tools/millrace.cc", "\"runtime/runtime.h\""));
  EXPECT_FALSE(Allowed("session/session.cc", "\"graph/graph_test_util.h\""));
  EXPECT_FALSE(Allowed("session/session.cc", "\"tests/fixture.h\""));
}

TEST(LayersTest, PathsStartAtTheRoot) {
  EXPECT_FALSE(Allowed("graph/graph.cc", "\"graph.h\""));
  EXPECT_FALSE(Allowed("graph/graph.cc", "\"../ops/op.h\""));
  EXPECT_FALSE(Allowed("graph/graph.cc", "\"unheard_of/op.h\""));
}

TEST(LayersTest, AFolderOutsideThePictureIsReported) {
  const std::vector<Violation> found = Check("misc/misc.cc", "");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, "misc/misc.cc");
}

TEST(LayersTest, TheMessageNamesFileLineAndWhatIsAllowed) {
  const std::vector<Violation> found =
      Check("ops/op.cc", "#include <vector>\n\n  #  include \"graph/graph.h\"  // why not\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(ToString(found[0]),
            "ops/op.cc:3: #include \"graph/graph.h\": ops may not include graph (it may: base "
            "include proto tensor)");
}

TEST(LayersTest, CommentsAndStringsAreNoIncludes) {
  EXPECT_TRUE(Check("ops/op.cc",
                    "// #include \"graph/graph.h\"\n"
                    "/*\n#include \"graph/graph.h\"\n*/\n"
                    "const char* a = \"\\\"\"; int b = 1'000; char c = '\"';\n"
                    "const char* d = R\"(\n#include \"graph/graph.h\"\n)\";\n")
                  .empty());
  // And the code after them is code again.
  EXPECT_EQ(Check("ops/op.cc",
                  "const char* a = \"//\"; int b = 1'000; /* ' */\n"
                  "#include \"graph/graph.h\"\n")
                .size(),
            1u);
}

TEST(RegistrationsTest, ACalledOneIsFine) {
  EXPECT_TRUE(CheckRegistrations({
                                     {"ops/math_ops.h", "void RegisterMathOps(Registry& r);\n"},
                                     {"ops/math_ops.cc", "void RegisterMathOps(Registry& r) {}\n"},
                                     {"ops/all_ops.cc", "void F() { RegisterMathOps(r); }\n"},
                                 })
                  .empty());
}

TEST(RegistrationsTest, AListedOneIsFine) {
  EXPECT_TRUE(CheckRegistrations({
                                     {"ops/math_ops.h", "Status RegisterMathOps(Registry& r);\n"},
                                     {"ops/all_ops.cc", "auto* k[] = {&ops::RegisterMathOps};\n"},
                                 })
                  .empty());
}

TEST(RegistrationsTest, QualifiedAndReturnedCallsCount) {
  EXPECT_TRUE(CheckRegistrations({
                                     {"ops/a.h",
                                      "StatusOr<int> RegisterA(R& r);\nvoid RegisterB(R& r);\n"
                                      "void RegisterC(R& r);\n"},
                                     {"ops/b.cc",
                                      "int F() { ops::RegisterB(r); x->RegisterC(r); "
                                      "return RegisterA(r); }\n"},
                                 })
                  .empty());
}

TEST(RegistrationsTest, OneThatIsOnlyDefinedIsReported) {
  const std::vector<Violation> found = CheckRegistrations({
      {"kernels/matmul.h", "#pragma once\n\nvoid RegisterMatMul(Registry& r);\n"},
      {"kernels/linear_algebra/matmul.cc", "void millrace::RegisterMatMul(Registry& r) {}\n"},
      {"kernels/all_kernels.cc", "// RegisterMatMul(registry);\n"},
  });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(ToString(found[0]), "kernels/matmul.h:3: RegisterMatMul is declared and never called");
}

TEST(RegistrationsTest, AMethodIsNobodysRegistration) {
  EXPECT_TRUE(CheckRegistrations({{"base/cancellation.h",
                                   "class Manager {\n public:\n"
                                   "  bool RegisterCallback(Token token);\n};\n"}})
                  .empty());
}

TEST(RegistrationsTest, ACallOfATestDoesNotCount) {
  EXPECT_EQ(CheckRegistrations({
                                   {"kernels/matmul.h", "void RegisterMatMul(Registry& r);\n"},
                                   {"kernels/matmul_test.cc", "void F() { RegisterMatMul(r); }\n"},
                               })
                .size(),
            1u);
}

}  // namespace
}  // namespace millrace::layers
