// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools beyond the goldens: TensorFlow's CPU kernels know neither NCHW nor,
// in the goldens, batches large enough to be shared out.
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

pb::AttrValue ListAttr(const std::vector<int64_t>& list) {
  pb::AttrValue value;
  for (int64_t i : list) value.mutable_list()->add_i(i);
  return value;
}
pb::AttrValue TextAttr(const std::string& text) {
  pb::AttrValue value;
  value.set_s(text);
  return value;
}

Tensor Uniform(const Shape& shape, uint64_t seed) {
  Philox random(seed, 0);
  Tensor out(kFloat, shape);
  for (float& x : out.flat<float>()) {
    x = static_cast<float>(static_cast<double>(random()[0]) / 4294967296.0 - 0.5);
  }
  return out;
}

Tensor Widened(const Tensor& in) {
  Tensor out(kDouble, in.shape());
  for (int64_t i = 0; i < in.num_elements(); ++i) out.data<double>()[i] = in.data<float>()[i];
  return out;
}

Tensor Sizes(const Shape& shape) {
  Tensor out(kInt32, {shape.rank()});
  for (int i = 0; i < shape.rank(); ++i) {
    out.data<int32_t>()[i] = static_cast<int32_t>(shape.dim(i));
  }
  return out;
}

Shape FirstShape(const Shape& s) { return {s.dim(0), s.dim(3), s.dim(1), s.dim(2)}; }

Tensor ChannelsFirst(const Tensor& in) {
  const Shape& s = in.shape();
  Tensor out(kFloat, FirstShape(s));
  const int64_t positions = s.dim(1) * s.dim(2), channels = s.dim(3);
  for (int64_t n = 0; n < s.dim(0); ++n) {
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t c = 0; c < channels; ++c) {
        out.data<float>()[(n * channels + c) * positions + p] =
            in.data<float>()[(n * positions + p) * channels + c];
      }
    }
  }
  return out;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(),
                     static_cast<std::size_t>(a.num_elements()) * DataTypeSize(a.dtype())) == 0;
}

void ExpectClose(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_TRUE(got.shape() == want.shape())
      << got.shape().DebugString() << " vs " << want.shape().DebugString();
  double worst = 0, scale = 0;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    worst = std::max(worst, std::abs(got.data<float>()[i] - want.data<double>()[i]));
    scale = std::max(scale, std::abs(want.data<double>()[i]));
  }
  EXPECT_LE(worst, tolerance * scale);
}

// --- Convolutions ---------------------------------------------------------------------------
struct ConvCase {
  const char* name;
  Shape images, filter, outputs;
  int64_t stride, dilation;
  const char* padding;
};

pb::NodeDef Window(const std::string& op, int64_t stride, int64_t dilation, const char* padding,
                   bool first) {
  const auto along = [&](int64_t v) {
    return ListAttr(first ? std::vector<int64_t>{1, 1, v, v} : std::vector<int64_t>{1, v, v, 1});
  };
  pb::NodeDef node;
  node.set_op(op);
  auto& attr = *node.mutable_attr();
  attr["strides"] = along(stride);
  if (dilation > 1) attr["dilations"] = along(dilation);
  attr["padding"] = TextAttr(padding);
  attr["data_format"] = TextAttr(first ? "NCHW" : "NHWC");
  return node;
}

class ConvTest : public ::testing::TestWithParam<ConvCase> {
 protected:
  // Computes a pass in float and in double, alone and shared, with channels last and first.
  // `made_images` is true where the result has the layout of images.
  void Check(const std::string& op, const std::vector<Tensor>& last,
             const std::vector<Tensor>& first, bool made_images) {
    const ConvCase& c = GetParam();
    pb::NodeDef node = Window(op, c.stride, c.dilation, c.padding, false);
    (*node.mutable_attr())["T"] = TypeAttr(kFloat);
    const Tensor alone = RunNode(node, last, 0);
    EXPECT_TRUE(SameBits(alone, RunNode(node, last, 2))) << op << " depends on the threads";
    std::vector<Tensor> wide;
    for (const Tensor& t : last) wide.push_back(t.dtype() == kFloat ? Widened(t) : t);
    pb::NodeDef wide_node = node;
    (*wide_node.mutable_attr())["T"] = TypeAttr(kDouble);
    ExpectClose(alone, RunNode(wide_node, wide, 0), 2e-6);
    pb::NodeDef first_node = Window(op, c.stride, c.dilation, c.padding, true);
    (*first_node.mutable_attr())["T"] = TypeAttr(kFloat);
    EXPECT_TRUE(SameBits(RunNode(first_node, first, 2), made_images ? ChannelsFirst(alone) : alone))
        << op << " differs with channels first";
  }
};

TEST_P(ConvTest, FloatIsAsGoodAsDoubleAndIndependentOfThreadsAndLayout) {
  const ConvCase& c = GetParam();
  const Tensor images = Uniform(c.images, 1), filter = Uniform(c.filter, 2);
  const Tensor gradient = Uniform(c.outputs, 3);
  Check("Conv2D", {images, filter}, {ChannelsFirst(images), filter}, true);
  Check("Conv2DBackpropInput", {Sizes(c.images), filter, gradient},
        {Sizes(FirstShape(c.images)), filter, ChannelsFirst(gradient)}, true);
  Check("Conv2DBackpropFilter", {images, Sizes(c.filter), gradient},
        {ChannelsFirst(images), Sizes(c.filter), ChannelsFirst(gradient)}, false);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvTest,
    ::testing::Values(
        ConvCase{"FirstLayer", {21, 28, 28, 1}, {5, 5, 1, 32}, {21, 28, 28, 32}, 1, 1, "SAME"},
        ConvCase{"SecondLayer", {9, 14, 14, 32}, {5, 5, 32, 64}, {9, 14, 14, 64}, 1, 1, "SAME"},
        ConvCase{"Strided", {3, 15, 17, 16}, {3, 3, 16, 24}, {3, 8, 9, 24}, 2, 1, "SAME"},
        ConvCase{"Dilated", {2, 12, 12, 8}, {3, 3, 8, 16}, {2, 8, 8, 16}, 1, 2, "VALID"},
        ConvCase{"Pointwise", {2, 9, 9, 32}, {1, 1, 32, 16}, {2, 9, 9, 16}, 1, 1, "VALID"},
        ConvCase{"Grouped", {2, 10, 10, 16}, {3, 3, 8, 16}, {2, 10, 10, 16}, 1, 1, "SAME"},
        ConvCase{"OddChannels", {3, 7, 7, 3}, {3, 3, 3, 5}, {3, 4, 4, 5}, 2, 1, "SAME"},
        ConvCase{"OneImage", {1, 6, 6, 13}, {3, 3, 13, 11}, {1, 4, 4, 11}, 1, 1, "VALID"}),
    [](const auto& info) { return std::string(info.param.name); });

// --- Pools ------------------------------------------------------------------------------------
pb::NodeDef Pool(const std::string& op, bool first) {
  pb::NodeDef node = Window(op, 2, 1, "SAME", first);
  (*node.mutable_attr())["ksize"] =
      ListAttr(first ? std::vector<int64_t>{1, 1, 3, 2} : std::vector<int64_t>{1, 3, 2, 1});
  (*node.mutable_attr())["T"] = TypeAttr(kFloat);
  return node;
}

TEST(PoolTest, ChannelsFirstGivesTheSameNumbers) {
  // More channels than are worked on at a time.
  const Tensor images = Uniform({3, 9, 8, 70}, 1), gradient = Uniform({3, 5, 4, 70}, 2);
  const Tensor images_first = ChannelsFirst(images), gradient_first = ChannelsFirst(gradient);
  const Tensor largest = RunNode(Pool("MaxPool", false), {images}, 2);
  EXPECT_TRUE(SameBits(RunNode(Pool("MaxPool", true), {images_first}, 0), ChannelsFirst(largest)));
  EXPECT_TRUE(SameBits(
      RunNode(Pool("MaxPoolGrad", true), {images_first, ChannelsFirst(largest), gradient_first}, 0),
      ChannelsFirst(RunNode(Pool("MaxPoolGrad", false), {images, largest, gradient}, 2))));
  EXPECT_TRUE(SameBits(RunNode(Pool("AvgPool", true), {images_first}, 0),
                       ChannelsFirst(RunNode(Pool("AvgPool", false), {images}, 2))));
  EXPECT_TRUE(SameBits(
      RunNode(Pool("AvgPoolGrad", true), {Sizes(images_first.shape()), gradient_first}, 0),
      ChannelsFirst(RunNode(Pool("AvgPoolGrad", false), {Sizes(images.shape()), gradient}, 2))));
}

}  // namespace
}  // namespace millrace::testing
