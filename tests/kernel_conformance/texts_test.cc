// SPDX-License-Identifier: Apache-2.0
// What TensorFlow's own tests look for: texts of errors, and texts that kernels write.
#include <complex>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

pb::NodeDef Node(const std::string& op) {
  pb::NodeDef node;
  node.set_op(op);
  return node;
}
void AddType(pb::NodeDef* node, const char* name, DataType type) {
  (*node->mutable_attr())[name] = TypeAttr(type);
}
template <typename T>
Tensor Vector(std::initializer_list<T> values) {
  return Tensor::FromValues<T>(values);
}
Tensor Text(const pb::NodeDef& node, const std::vector<Tensor>& inputs) {
  return RunNode(node, inputs, 0);
}

const Tensor& NoShape() {
  static const auto* const shape = new Tensor(Tensor::Scalar(int32_t{-1}));
  return *shape;
}
// A list of floats of three elements that nobody set.
Tensor Reserved() {
  pb::NodeDef node = Node("TensorListReserve");
  AddType(&node, "element_dtype", kFloat);
  AddType(&node, "shape_type", kInt32);
  return RunNode(node, {NoShape(), Tensor::Scalar(int32_t{3})}, 0);
}

TEST(TextsTest, ErrorsOfListsAreThoseOfTensorFlow) {
  pb::NodeDef gather = Node("TensorListGather");
  AddType(&gather, "element_dtype", kFloat);
  EXPECT_NONFATAL_FAILURE(RunNode(gather, {Reserved(), Vector<int32_t>({-1}), NoShape()}, 0),
                          "Trying to gather element -1 in a list with 3 elements.");
  EXPECT_NONFATAL_FAILURE(
      RunNode(gather, {Reserved(), Vector<int32_t>({0}), NoShape()}, 0),
      "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape");
  EXPECT_NONFATAL_FAILURE(
      RunNode(Node("TensorListResize"), {Reserved(), Tensor::Scalar(int32_t{-1})}, 0),
      "TensorListSlice expects size to be non-negative");
  pb::NodeDef concat = Node("TensorListConcatV2");
  AddType(&concat, "element_dtype", kFloat);
  AddType(&concat, "shape_type", kInt32);
  const Tensor no_lengths(kInt64, Shape({0}));
  EXPECT_NONFATAL_FAILURE(RunNode(concat, {Reserved(), NoShape(), no_lengths}, 0),
                          "Trying to concat list with only uninitialized tensors but "
                          "element_shape_except_first_dim is not fully defined");
  EXPECT_NONFATAL_FAILURE(
      RunNode(concat, {Reserved(), Vector<int32_t>({-1, 3}), no_lengths}, 0),
      "List contains uninitialized tensor at index 0 but leading_dims has only 0 elements.");
}

TEST(TextsTest, ErrorsOfSplittingIntoListsAreThoseOfTensorFlow) {
  pb::NodeDef split = Node("TensorListSplit");
  AddType(&split, "element_dtype", kFloat);
  AddType(&split, "shape_type", kInt32);
  const Tensor two = Tensor::FromValues<float>({1, 2}, Shape({2, 1}));
  EXPECT_NONFATAL_FAILURE(RunNode(split, {two, NoShape(), Vector<int64_t>({3})}, 0),
                          "Attempting to slice [0, 3] from tensor with length 2");
  EXPECT_NONFATAL_FAILURE(RunNode(split, {two, NoShape(), Vector<int64_t>({1, -1})}, 0),
                          "Invalid value in lengths: -1");
  EXPECT_NONFATAL_FAILURE(RunNode(split, {two, Vector<int32_t>({1}), Vector<int64_t>({1, 1})}, 0),
                          "tensor shape [2,1] is not compatible with element_shape [1]");
  EXPECT_NONFATAL_FAILURE(
      RunNode(split, {two, Tensor(kInt32, Shape({0})), Vector<int64_t>({1, 1})}, 0),
      "TensorListSplit requires element_shape to be at least of rank 1, but saw: []");
}

TEST(TextsTest, APartitionThatIsNoneIsNamedByItsPlace) {
  pb::NodeDef partition = Node("DynamicPartition");
  AddType(&partition, "T", kFloat);
  (*partition.mutable_attr())["num_partitions"].set_i(7);
  EXPECT_NONFATAL_FAILURE(RunNode(partition,
                                  {Tensor::FromValues<float>({1, 2, 3, 4}, Shape({2, 2})),
                                   Tensor::FromValues<int32_t>({0, 0, 17, 0}, Shape({2, 2}))},
                                  0),
                          "partitions[1,0] = 17 is not in [0, 7)");
}

TEST(TextsTest, NumbersAndTextsAreWrittenAsTensorFlowWritesThem) {
  pb::NodeDef write = Node("AsString");
  AddType(&write, "T", kComplex64);
  (*write.mutable_attr())["precision"].set_i(1);
  const Tensor complex = Tensor::FromValues<std::complex<float>>({{1, -2}, {0.5, 0}});
  EXPECT_EQ(Text(write, {complex}).data<std::string>()[1], "(0.5,0.0)");
  AddType(&write, "T", kInt32);
  EXPECT_NONFATAL_FAILURE(RunNode(write, {Vector<int32_t>({1})}, 0),
                          "precision not supported for datatype int32");
  AddType(&write, "T", kString);
  (*write.mutable_attr())["width"].set_i(3);
  const Tensor padded = Text(write, {Vector<std::string>({"ab", ""})});
  EXPECT_EQ(padded.data<std::string>()[0], "  a");
  EXPECT_EQ(padded.data<std::string>()[1], "   ");
  (*write.mutable_attr())["fill"].set_s("ab");
  EXPECT_NONFATAL_FAILURE(RunNode(write, {Vector<std::string>({"ab"})}, 0),
                          "Fill string must be one or fewer characters");

  pb::NodeDef format = Node("StringFormat");
  (*format.mutable_attr())["T"].mutable_list()->add_type(pb::DT_STRING);
  (*format.mutable_attr())["template"].set_s("{}");
  (*format.mutable_attr())["placeholder"].set_s("{}");
  EXPECT_EQ(Text(format, {Tensor::String("\xc3\xa4\"\n")}).scalar<std::string>(),
            "\"\xc3\xa4\\\"\\n\"");
}

TEST(TextsTest, PositionsOfPartsAreBroadcast) {
  pb::NodeDef cut = Node("Substr");
  AddType(&cut, "T", kInt32);
  const Tensor texts =
      Tensor::FromValues<std::string>({"ten", "eleven", "twelve", "thirty"}, Shape({2, 2}));
  const Tensor row = Text(cut, {texts, Vector<int32_t>({0, 1}), Vector<int32_t>({2, 3})});
  EXPECT_EQ(row.DebugString(), "Tensor<string [2,2]: \"te\" \"lev\" \"tw\" \"hir\">");
  const Tensor one = Tensor::FromValues<std::string>({"eleven"}, Shape({1, 1}));
  const Tensor three = Text(cut, {one, Vector<int32_t>({0, 1, 2}), Vector<int32_t>({1, 1, 1})});
  ASSERT_EQ(three.shape(), Shape({1, 3}));
  EXPECT_EQ(three.data<std::string>()[2], "e");
  EXPECT_NONFATAL_FAILURE(
      RunNode(cut, {texts, Vector<int32_t>({0, 1, 2}), Vector<int32_t>({1, 1, 1})}, 0),
      "Incompatible shapes: [2,2] vs. [3]");
}

}  // namespace
}  // namespace millrace::testing
