// SPDX-License-Identifier: Apache-2.0
// What the convolutions of oneDNN touch: nothing but the operands they are given, whatever the
// geometry. Sanitizers do not see code that is made while a program runs; guards around the
// operands do. DNNL_MAX_CPU_ISA chooses what the code is made for.
#include "kernels/nn/onednn_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "base/strings.h"

namespace millrace {
namespace {

constexpr int64_t kGuard = 16384;
constexpr float kMark = 12345.0F;

// `size` floats with guards on both sides, which are looked at again in the end.
class Guarded {
 public:
  explicit Guarded(int64_t size) : size_(size), floats_(size + 2 * kGuard, kMark) {
    std::fill_n(data(), size, 0.5F);
  }
  float* data() { return floats_.data() + kGuard; }
  bool IsWhole() const {
    const auto is_mark = [](float f) { return f == kMark; };
    return std::all_of(floats_.begin(), floats_.begin() + kGuard, is_mark) &&
           std::all_of(floats_.end() - kGuard, floats_.end(), is_mark);
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  std::vector<float> floats_;
};

WindowAxis Axis(int64_t input, int64_t size, int64_t stride, bool same) {
  WindowAxis axis;
  axis.input = input;
  axis.size = size;
  axis.stride = stride;
  axis.dilation = 1;
  axis.output = same ? (input + stride - 1) / stride : (input - size) / stride + 1;
  axis.pad_before = same ? std::max<int64_t>(0, (axis.output - 1) * stride + size - input) / 2 : 0;
  return axis;
}

std::string Describe(ConvPass pass, const ConvGeometry& g) {
  return StrCat("pass ", static_cast<int>(pass), ", images ", g.InputShape().DebugString(),
                ", filter ", g.FilterShape().DebugString(), ", outputs ",
                g.OutputShape().DebugString(), ", stride ", g.rows.stride);
}

// False where there is no compiled code.
bool Execute(ConvPass pass, const ConvGeometry& g) {
  const auto conv = OneDnnConv::Create(pass, g);
  if (conv == nullptr) return false;
  Guarded images(g.batch * g.image()), packed(conv->packed_filter_size()),
      outputs(g.batch * g.out_image()), scratch(conv->scratch_size());
  const Status status = conv->Execute(images.data(), packed.data(), outputs.data(), scratch.data());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(images.IsWhole()) << "images: " << Describe(pass, g);
  EXPECT_TRUE(packed.IsWhole()) << "filter: " << Describe(pass, g);
  EXPECT_TRUE(outputs.IsWhole()) << "outputs: " << Describe(pass, g);
  EXPECT_TRUE(scratch.IsWhole()) << "scratch: " << Describe(pass, g);
  return true;
}

// How many passes have compiled code.
int ExecuteAll(ConvGeometry g, int64_t height, int64_t width, int64_t size, int64_t stride,
               bool same) {
  g.batch = 2;
  g.rows = Axis(height, size, stride, same);
  g.cols = Axis(width, size, stride, same);
  int compiled = 0;
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kInput, ConvPass::kFilter}) {
    compiled += Execute(pass, g);
  }
  return compiled;
}

class OneDnnConvTest : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

// oneDNN 2.6 writes behind its scratch where a filter of one element with a stride of two meets few
// channels and an even width.
TEST_P(OneDnnConvTest, TouchesNothingButItsOperands) {
  const auto [height, width] = GetParam();
  int compiled = 0;
  for (const int64_t channels : {1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 24}) {
    for (const int64_t out_channels : {1, 2, 4, 8, 12, 17}) {
      ConvGeometry g;
      g.channels = channels;
      g.out_channels = out_channels;
      for (const int64_t size : {1, 2, 3}) {
        for (const int64_t stride : {1, 2, 3}) {
          compiled += ExecuteAll(g, height, width, size, stride, false);
          if (size > 1) compiled += ExecuteAll(g, height, width, size, stride, true);
        }
      }
    }
  }
  for (const int64_t channels : {1, 3, 4, 8, 12, 16, 20}) {
    ConvGeometry g;
    g.channels = g.out_channels = g.groups = channels;
    for (const int64_t stride : {1, 2}) compiled += ExecuteAll(g, height, width, 3, stride, true);
  }
  RecordProperty("compiled", compiled);
}

INSTANTIATE_TEST_SUITE_P(Sizes, OneDnnConvTest,
                         ::testing::Combine(::testing::Values(9, 10), ::testing::Values(11, 12)));

}  // namespace
}  // namespace millrace
