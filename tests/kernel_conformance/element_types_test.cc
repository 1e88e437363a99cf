// SPDX-License-Identifier: Apache-2.0
// Element types that the goldens do not have. What is expected is what TensorFlow 2.21 gave.
#include <google/protobuf/text_format.h>

#include <array>
#include <complex>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "kernels/common/dtype_dispatch.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

template <typename T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::FromValues<T>(values, Shape({static_cast<int64_t>(values.size())}));
}

TEST(ElementTypesTest, Expm1AndLog1pOfComplexNumbers) {
  const Tensor z = Vector<Complex128>({{1e-4, 2e-4}, {-0.5, 3}, {2, -1}});
  pb::NodeDef node;
  (*node.mutable_attr())["T"] = TypeAttr(z.dtype());
  const Complex128 expm1[] = {{9.998499564e-05, 2.000199946e-04},
                              {-1.600460802e+00, 8.559361159e-02},
                              {2.992324048e+00, -6.217676312e+00}};
  const Complex128 log1p[] = {{1.000149938e-04, 1.999799943e-04},
                              {1.112311776e+00, 1.405647649e+00},
                              {1.151292546e+00, -3.217505544e-01}};
  node.set_op("Expm1");
  const Tensor grown = RunNode(node, {z}, 0);
  node.set_op("Log1p");
  const Tensor logarithm = RunNode(node, {z}, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(std::abs(grown.data<Complex128>()[i] - expm1[i]), 1e-8);
    EXPECT_LT(std::abs(logarithm.data<Complex128>()[i] - log1p[i]), 1e-8);
  }
}

TEST(ElementTypesTest, TruncateDivOfFloatsRoundsTowardsZero) {
  pb::NodeDef node;
  node.set_op("TruncateDiv");
  (*node.mutable_attr())["T"] = TypeAttr(kFloat);
  const Tensor out =
      RunNode(node, {Vector<float>({7.5f, -7.5f, 1, -1}), Vector<float>({2, 2, 4, 0})}, 0);
  EXPECT_EQ(out.data<float>()[0], 3);
  EXPECT_EQ(out.data<float>()[1], -3);
  EXPECT_EQ(out.data<float>()[2], 0);
  EXPECT_EQ(out.data<float>()[3], -std::numeric_limits<float>::infinity());
}

TEST(ElementTypesTest, ScatterNdJoinsTruthsByOrAndStringsBehindEachOther) {
  pb::NodeDef node;
  node.set_op("ScatterNd");
  (*node.mutable_attr())["Tindices"] = TypeAttr(kInt32);
  const Tensor indices = Tensor::FromValues<int32_t>({1, 3, 1}, Shape({3, 1}));
  const Tensor shape = Vector<int32_t>({4});
  (*node.mutable_attr())["T"] = TypeAttr(kBool);
  Tensor updates(kBool, Shape({3}));
  updates.data<bool>()[0] = true;
  updates.data<bool>()[1] = updates.data<bool>()[2] = false;
  const Tensor truths = RunNode(node, {indices, updates, shape}, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(truths.data<bool>()[i], i == 1);
  (*node.mutable_attr())["T"] = TypeAttr(kString);
  const Tensor texts = RunNode(node, {indices, Vector<std::string>({"a", "b", "c"}), shape}, 0);
  const std::string want[] = {"", "ac", "", "b"};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(texts.data<std::string>()[i], want[i]);
}

TEST(ElementTypesTest, UniqueOfHalfFloats) {
  pb::NodeDef node;
  node.set_op("Unique");
  (*node.mutable_attr())["T"] = TypeAttr(DataTypeOf<Half>());
  const Tensor out = RunNode(node, {Vector<Half>({Half(1), Half(2), Half(1), Half(0.5)})}, 0);
  ASSERT_EQ(out.num_elements(), 3);
  const float want[] = {1, 2, 0.5};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(static_cast<float>(out.data<Half>()[i]), want[i]);
}

TEST(ElementTypesTest, SparseTimesDenseOfHalfFloats) {
  pb::NodeDef node;
  node.set_op("SparseTensorDenseMatMul");
  (*node.mutable_attr())["T"] = TypeAttr(DataTypeOf<Half>());
  const Tensor out =
      RunNode(node,
              {Tensor::FromValues<int64_t>({0, 1, 1, 0}, Shape({2, 2})),
               Vector<Half>({Half(2), Half(3)}), Vector<int64_t>({2, 2}),
               Tensor::FromValues<Half>({Half(1), Half(2), Half(3), Half(4)}, Shape({2, 2}))},
              0);
  const float want[] = {6, 8, 3, 6};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(static_cast<float>(out.data<Half>()[i]), want[i]);
}

pb::AttrValue Ints(std::initializer_list<int64_t> values) {
  pb::AttrValue list;
  for (const int64_t v : values) list.mutable_list()->add_i(v);
  return list;
}

pb::NodeDef ConvNode(const std::string& op, const std::string& padding) {
  pb::NodeDef node;
  node.set_op(op);
  (*node.mutable_attr())["T"] = TypeAttr(kInt32);
  (*node.mutable_attr())["padding"].set_s(padding);
  (*node.mutable_attr())["strides"] = Ints({1, 2, 2, 1});
  return node;
}

// first, first + step, ...
Tensor Counted(std::initializer_list<int64_t> dims, int32_t first, int32_t step = 1) {
  Tensor out(kInt32, Shape(dims));
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    out.data<int32_t>()[i] = first + static_cast<int32_t>(i) * step;
  }
  return out;
}

void ExpectInts(const Tensor& got, const std::vector<int32_t>& want) {
  ASSERT_EQ(got.num_elements(), static_cast<int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got.data<int32_t>()[i], want[i]) << i;
}

TEST(ElementTypesTest, ConvolutionsOfIntegers) {
  const Tensor images = Counted({1, 5, 5, 2}, -20), filter = Counted({3, 3, 2, 3}, -10);
  for (const int threads : {0, 2}) {
    ExpectInts(
        RunNode(ConvNode("Conv2D", "SAME"), {images, filter}, threads),
        {-2580, -2688, -2796, -2442, -2568, -2694, -900, -960, -1020, 1818, 1836, 1854, 3573, 3654,
         3735,  2610,  2700,  2790,  1644,  1776,  1908, 2166, 2400,  2634, 1020, 1200, 1380});
    ExpectInts(RunNode(ConvNode("Conv2DBackpropInput", "SAME"),
                       {Vector<int32_t>({1, 5, 5, 2}), filter, Counted({1, 3, 3, 3}, -7)}, threads),
               {-268,  -322, -455, -536, -133, -160, -185, -212, 2,    2,   -617, -644, -1072,
                -1072, -347, -320, -532, -424, -77,  4,    137,  164,  355, 436,  272,  326,
                625,   760,  407,  488,  193,  328,  548,  872,  463,  652, 1088, 1520, 733,
                976,   542,  650,  1165, 1408, 677,  812,  1435, 1732, 812, 974});
  }
}

TEST(ElementTypesTest, ConvolutionsOfIntegersWrapAround) {
  ExpectInts(
      RunNode(ConvNode("Conv2D", "VALID"),
              {Counted({1, 5, 5, 2}, -2000000, 100000), Counted({3, 3, 2, 3}, -10000, 1000)}, 0),
      {1025163520, 410065408, -205032704, 956013824, -1049018880, 1240915712, 679415040, 1704578560,
       -1565225216, 610265344, 245494272, -119276800});
}

TEST(ElementTypesTest, ConvolutionsOfIntegersInGroups) {
  Tensor filter(kInt32, Shape({3, 3, 1, 2}));  // Counted({3, 3, 2, 3}, -10)[:, :, :1, :2]
  for (int i = 0; i < 18; ++i) filter.data<int32_t>()[i] = i / 2 * 6 + i % 2 - 10;
  ExpectInts(RunNode(ConvNode("Conv2D", "VALID"), {Counted({1, 5, 5, 2}, -20), filter}, 0),
             {144, 207, 648, 747, 2664, 2907, 3168, 3447});
}

TEST(ElementTypesTest, ClippingComplexNumbersClipsBothParts) {
  pb::NodeDef node;
  node.set_op("ClipByValue");
  (*node.mutable_attr())["T"] = TypeAttr(kComplex64);
  const Tensor z = Vector<Complex64>({{1, 2}, {-3, 4}, {0.5, -1}, {2, 0}});
  const Tensor one = Tensor::Scalar<Complex64>({1, 0});
  const Tensor limited = RunNode(node, {z, one, Tensor::Scalar<Complex64>({2, 1})}, 0);
  const Complex64 want[] = {{1, 1}, {1, 1}, {1, 0}, {2, 0}};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(limited.data<Complex64>()[i], want[i]);
  // Where the limits cross, the lower one counts.
  const Tensor low = Vector<Complex64>({{0.5, 1}, {-1.5, 2}, {0.25, -0.5}, {1, 0}});
  const Tensor crossed = RunNode(node, {z, low, one}, 0);
  const Complex64 want_crossed[] = {{1, 1}, {-1.5, 2}, {0.5, -0.5}, {1, 0}};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(crossed.data<Complex64>()[i], want_crossed[i]);
}

TEST(ElementTypesTest, QuantizedNumbersAreEqualWhenTheirIntegersAre) {
  const std::pair<DataType, DataType> types[] = {{DataType::kQint8, kInt8},
                                                 {DataType::kQuint8, kUint8},
                                                 {DataType::kQint16, kInt16},
                                                 {DataType::kQuint16, kUint16},
                                                 {DataType::kQint32, kInt32}};
  for (const auto& [quantized, plain] : types) {
    // Elements 1, 200, 3 and 1, 5, 3 in the first byte of each.
    Tensor a(quantized, Shape({3})), b(quantized, Shape({3}));
    const std::size_t size = DataTypeSize(plain);
    ASSERT_EQ(size, DataTypeSize(quantized));
    for (Tensor* t : {&a, &b}) std::memset(t->raw_data(), 0, 3 * size);
    for (int i = 0; i < 3; ++i) {
      static_cast<uint8_t*>(a.raw_data())[i * size] = std::array{1, 200, 3}[i];
      static_cast<uint8_t*>(b.raw_data())[i * size] = std::array{1, 5, 3}[i];
    }
    pb::NodeDef node;
    node.set_op("Equal");
    (*node.mutable_attr())["T"] = TypeAttr(quantized);
    const Tensor equal = RunNode(node, {a, b}, 0);
    node.set_op("NotEqual");
    const Tensor different = RunNode(node, {a, b}, 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(equal.data<bool>()[i], i != 1) << DataTypeName(quantized);
      EXPECT_EQ(different.data<bool>()[i], i == 1) << DataTypeName(quantized);
    }
  }
}

TEST(ElementTypesTest, TensorScatterAddOfComplexNumbers) {
  pb::NodeDef node;
  (*node.mutable_attr())["T"] = TypeAttr(kComplex64);
  (*node.mutable_attr())["Tindices"] = TypeAttr(kInt32);
  const Tensor z = Vector<Complex64>({{1, 2}, {3, 4}});
  const Tensor indices = Tensor::FromValues<int32_t>({1, 1}, Shape({2, 1}));
  const Tensor updates = Vector<Complex64>({{1, 1}, {0, 2}});
  node.set_op("TensorScatterAdd");
  EXPECT_EQ(RunNode(node, {z, indices, updates}, 0).data<Complex64>()[1], Complex64(4, 7));
  node.set_op("TensorScatterSub");
  EXPECT_EQ(RunNode(node, {z, indices, updates}, 0).data<Complex64>()[1], Complex64(2, 1));
}

// A message that read them as another type would read beyond them.
TEST(ElementTypesTest, BadIndicesOfEveryTypeAreNamed) {
  pb::NodeDef node;
  node.set_op("TensorScatterUpdate");
  (*node.mutable_attr())["T"] = TypeAttr(kFloat);
  const Tensor whole = Vector<float>({1, 2, 3}), updates = Vector<float>({4, 5});
  const auto run = [&]<typename I>(I bad) {
    Tensor indices(DataTypeOf<I>(), Shape({2, 1}));
    indices.data<I>()[0] = 0;
    indices.data<I>()[1] = bad;
    (*node.mutable_attr())["Tindices"] = TypeAttr(indices.dtype());
    RunNode(node, {whole, indices, updates}, 0);
  };
  EXPECT_NONFATAL_FAILURE(run(uint16_t{65535}), "indices[1] = [65535] does not index into shape");
  EXPECT_NONFATAL_FAILURE(run(int16_t{-7}), "indices[1] = [-7] does not index into shape [3]");
  EXPECT_NONFATAL_FAILURE(run(int32_t{3}), "indices[1] = [3] does not index into shape [3]");
  EXPECT_NONFATAL_FAILURE(run(int64_t{1} << 40), "[1099511627776] does not index into shape [3]");
}

TEST(ElementTypesTest, TruthsInVariablesAreAddedByOr) {
  pb::GraphDef graph;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_BOOL } }
                attr { key: "shape" value { shape { dim { size: 4 } } } } }
         node { name: "first" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
         node { name: "indices" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
         node { name: "updates" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
         node { name: "init" op: "AssignVariableOp" input: "v" input: "first"
                attr { key: "dtype" value { type: DT_BOOL } } }
         node { name: "add" op: "ResourceScatterNdAdd" input: "v" input: "indices" input: "updates"
                input: "^init" attr { key: "T" value { type: DT_BOOL } }
                attr { key: "Tindices" value { type: DT_INT32 } } }
         node { name: "read" op: "ReadVariableOp" input: "v" input: "^add"
                attr { key: "dtype" value { type: DT_BOOL } } })",
      &graph));
  Tensor first(kBool, Shape({4})), updates(kBool, Shape({3}));
  for (int i = 0; i < 4; ++i) first.data<bool>()[i] = i == 0 || i == 3;
  for (int i = 0; i < 3; ++i) updates.data<bool>()[i] = i == 0;
  const Tensor out = RunGraph(graph,
                              {{"first:0", first},
                               {"indices:0", Tensor::FromValues<int32_t>({1, 0, 1}, Shape({3, 1}))},
                               {"updates:0", updates}},
                              "read:0", 0);
  const bool want[] = {true, true, false, true};
  ASSERT_EQ(out.num_elements(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.data<bool>()[i], want[i]) << i;
}

}  // namespace
}  // namespace millrace::testing
