// Element types that the goldens do not have. What is expected is what TensorFlow 2.21 gave.
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtype_dispatch.h"
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

}  // namespace
}  // namespace millrace::testing
