// SPDX-License-Identifier: Apache-2.0
// What libraries are tested with, on the host and on GPUs: operands, and nodes of convolutions.
#ifndef KERNELS_CUDA_LIBRARY_CASES_H_
#define KERNELS_CUDA_LIBRARY_CASES_H_

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/products.h"
#include "kernels/kernel.h"
#include "millrace/tensor.h"
#include "ops/op_registry.h"

namespace millrace::testing {

// Elements of float, half and bfloat16, and of double as floats.
inline float Element(DataType type, const void* data, int64_t at) {
  if (type == kHalf) return static_cast<float>(static_cast<const Half*>(data)[at]);
  if (type == kBfloat16) return static_cast<float>(static_cast<const BFloat16*>(data)[at]);
  if (type == kDouble) return static_cast<float>(static_cast<const double*>(data)[at]);
  return static_cast<const float*>(data)[at];
}
inline void SetElement(DataType type, void* data, int64_t at, float value) {
  if (type == kHalf) {
    static_cast<Half*>(data)[at] = Half(value);
  } else if (type == kBfloat16) {
    static_cast<BFloat16*>(data)[at] = BFloat16(value);
  } else if (type == kDouble) {
    static_cast<double*>(data)[at] = value;
  } else {
    static_cast<float*>(data)[at] = value;
  }
}

// Small whole numbers: sums are exact in any order.
inline Tensor Numbered(const Shape& shape, int first, DataType type = kFloat) {
  Tensor t(type, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    SetElement(type, t.raw_data(), i, static_cast<float>((i * 7 + first) % 11 - 5));
  }
  return t;
}

struct ConvCase {
  int64_t height, width, rows, columns, stride, dilation, groups;
  const char* padding;
  std::vector<int64_t> explicit_paddings = {};  // for channels last
  int64_t batch = 2, channels = 4, outputs = 6;
};

inline const ConvCase kConvCases[] = {
    {6, 7, 3, 3, 1, 1, 1, "SAME"},   // the same at both ends
    {7, 6, 2, 4, 1, 1, 1, "SAME"},   // more after than before
    {8, 9, 3, 3, 2, 1, 1, "SAME"},   // as images with even sides and a stride
    {7, 5, 5, 4, 3, 1, 1, "SAME"},   //
    {6, 7, 3, 2, 1, 1, 1, "VALID"},  //
    {8, 8, 3, 3, 3, 1, 1, "VALID"},  // a last row that no window reaches
    {9, 9, 3, 3, 1, 2, 1, "SAME"},   // dilated
    {6, 6, 3, 3, 2, 1, 2, "SAME"},   // in groups
    {5, 5, 1, 1, 2, 1, 1, "SAME"},   // no padding at all
    {5, 6, 3, 3, 2, 1, 1, "EXPLICIT", {0, 0, 2, 1, 0, 2, 0, 0}},
    {6, 5, 3, 3, 3, 1, 1, "EXPLICIT", {0, 0, 2, 0, 1, 2, 0, 0}},
};

struct ConvNode {
  std::string op;  // "Conv2D", a gradient of it, "_FusedConv2D"
  DataType type = kFloat;
  bool channels_first = false;
  std::string activation;
};

// Calls fn(construction, shapes of the three inputs, shape of the output). The second input of a
// gradient stands for sizes as well as for what has them: bodies look at shapes.
inline void WithConvNode(
    const OpRegistry& ops, const ConvNode& node, const ConvCase& g,
    const std::function<void(KernelConstruction&, const std::vector<Shape>&, const Shape&)>& fn) {
  AttrMap attrs;
  const auto four = [&](int64_t v) {
    return node.channels_first ? std::vector<int64_t>{1, 1, v, v}
                               : std::vector<int64_t>{1, v, v, 1};
  };
  attrs.Set("T", AttrValue(node.type));
  attrs.Set("strides", AttrValue(four(g.stride)));
  attrs.Set("dilations", AttrValue(four(g.dilation)));
  attrs.Set("padding", AttrValue(std::string(g.padding)));
  attrs.Set("data_format", AttrValue(std::string(node.channels_first ? "NCHW" : "NHWC")));
  attrs.Set("activation", AttrValue(node.activation));
  std::vector<int64_t> paddings = g.explicit_paddings;
  if (node.channels_first && !paddings.empty()) {
    std::rotate(paddings.begin() + 2, paddings.begin() + 6, paddings.end());
  }
  attrs.Set("explicit_paddings", AttrValue(paddings));
  const OpInfo* const info = ops.Find(node.op);
  ASSERT_NE(info, nullptr);
  const std::vector<DataType> types(3, node.type), made_types = {node.type};
  KernelConstruction c(nullptr, info, "node", &attrs, types, made_types);
  const Shape images = node.channels_first ? Shape({g.batch, g.channels, g.height, g.width})
                                           : Shape({g.batch, g.height, g.width, g.channels});
  const Shape filter{g.rows, g.columns, g.channels / g.groups, g.outputs};
  const WindowAttrs window(c);
  ASSERT_TRUE(c.status().ok()) << c.status();
  const auto geometry = gpu::PlanConvolution(window, false, images, filter);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  const gpu::ConvKind kind = gpu::ConvKindOf(node.op);
  Shape output = geometry->output_shape;
  if (kind == gpu::ConvKind::kInput) output = images;
  if (kind == gpu::ConvKind::kFilter) output = filter;
  const Shape third = node.op == "_FusedConv2D" ? Shape({g.outputs}) : geometry->output_shape;
  fn(c, {images, filter, third}, output);
}

}  // namespace millrace::testing

#endif  // KERNELS_CUDA_LIBRARY_CASES_H_
