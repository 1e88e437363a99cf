// Convolutions through a cuDNN that computes on the host what its descriptors say: paddings that
// differ at the two ends, layouts, filters, groups, and the choice of algorithms. The reference are
// our own loops, which goldens check.
#include <map>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/library_test.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

struct FakeImages {
  int n = 0, c = 0, h = 0, w = 0, sn = 0, sc = 0, sh = 0, sw = 0;
  int64_t At(int in, int ic, int ih, int iw) const {
    return static_cast<int64_t>(in) * sn + ic * sc + ih * sh + iw * sw;
  }
};
struct FakeFilter {
  bool first = false;
  int k = 0, c = 0, r = 0, s = 0;
  int64_t At(int ik, int ic, int ir, int is) const {
    return first ? ((ik * c + ic) * r + ir) * s + is : ((ik * r + ir) * s + is) * c + ic;
  }
};
struct FakeConv {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
  cudnnMathType_t math{};
};

struct Seen {
  int choices = 0, runs = 0;
  bool channels_first = false;
  bool refuses_last = false, refuses_all = false;
  cudnnMathType_t math{};
  int algorithm = -1;
} seen;

// Calls f(image offset, filter offset, made offset) for every product of the convolution.
template <typename F>
cudnnStatus_t ForEachProduct(cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
                             cudnnConvolutionDescriptor_t desc, cudnnTensorDescriptor_t y_desc,
                             F&& f) {
  const auto& x = *reinterpret_cast<FakeImages*>(x_desc);
  const auto& y = *reinterpret_cast<FakeImages*>(y_desc);
  const auto& w = *reinterpret_cast<FakeFilter*>(w_desc);
  const auto& conv = *reinterpret_cast<FakeConv*>(desc);
  // What cuDNN itself demands of the sizes.
  const int out_h = (x.h + 2 * conv.pad_h - ((w.r - 1) * conv.dilation_h + 1)) / conv.stride_h + 1;
  const int out_w = (x.w + 2 * conv.pad_w - ((w.s - 1) * conv.dilation_w + 1)) / conv.stride_w + 1;
  if (out_h != y.h || out_w != y.w || x.c != w.c * conv.groups || w.k != y.c || x.n != y.n) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  ++seen.runs;
  seen.math = conv.math;
  const int outputs = w.k / conv.groups;
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < y.c; ++k) {
      for (int oh = 0; oh < y.h; ++oh) {
        for (int ow = 0; ow < y.w; ++ow) {
          for (int c = 0; c < w.c; ++c) {
            for (int r = 0; r < w.r; ++r) {
              const int ih = oh * conv.stride_h - conv.pad_h + r * conv.dilation_h;
              for (int s = 0; s < w.s; ++s) {
                const int iw = ow * conv.stride_w - conv.pad_w + s * conv.dilation_w;
                if (ih < 0 || ih >= x.h || iw < 0 || iw >= x.w) continue;
                f(x.At(n, k / outputs * w.c + c, ih, iw), w.At(k, c, r, s), y.At(n, k, oh, ow));
              }
            }
          }
        }
      }
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename Perf>
cudnnStatus_t Choose(cudnnTensorDescriptor_t images, int* count, Perf* found) {
  ++seen.choices;
  const auto& x = *reinterpret_cast<FakeImages*>(images);
  seen.channels_first = x.sw == 1;
  if (seen.refuses_all || (seen.refuses_last && !seen.channels_first)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  // The fastest takes too much memory, the next is not deterministic.
  *count = 3;
  for (int i = 0; i < 3; ++i) {
    found[i].status = CUDNN_STATUS_SUCCESS;
    found[i].memory = i == 0 ? std::size_t{100} << 30 : 128;
    found[i].determinism = i == 1 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    found[i].mathType = CUDNN_DEFAULT_MATH;
    found[i].algo = static_cast<decltype(found[i].algo)>(i);
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename Real, typename Handle>
cudnnStatus_t Create(Handle* made) {
  *made = reinterpret_cast<Handle>(new Real);
  return CUDNN_STATUS_SUCCESS;
}
template <typename Real, typename Handle>
cudnnStatus_t Destroy(Handle handle) {
  delete reinterpret_cast<Real*>(handle);
  return CUDNN_STATUS_SUCCESS;
}

CudnnLibrary HostCudnn() {
  CudnnLibrary lib;
  lib.cudnnCreateTensorDescriptor = &Create<FakeImages, cudnnTensorDescriptor_t>;
  lib.cudnnDestroyTensorDescriptor = &Destroy<FakeImages, cudnnTensorDescriptor_t>;
  lib.cudnnCreateFilterDescriptor = &Create<FakeFilter, cudnnFilterDescriptor_t>;
  lib.cudnnDestroyFilterDescriptor = &Destroy<FakeFilter, cudnnFilterDescriptor_t>;
  lib.cudnnCreateConvolutionDescriptor = &Create<FakeConv, cudnnConvolutionDescriptor_t>;
  lib.cudnnDestroyConvolutionDescriptor = &Destroy<FakeConv, cudnnConvolutionDescriptor_t>;
  lib.cudnnSetTensor4dDescriptorEx = [](cudnnTensorDescriptor_t to, cudnnDataType_t, int n, int c,
                                        int h, int w, int sn, int sc, int sh, int sw) {
    *reinterpret_cast<FakeImages*>(to) = {n, c, h, w, sn, sc, sh, sw};
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnSetFilter4dDescriptor = [](cudnnFilterDescriptor_t to, cudnnDataType_t,
                                      cudnnTensorFormat_t format, int k, int c, int r, int s) {
    *reinterpret_cast<FakeFilter*>(to) = {format == CUDNN_TENSOR_NCHW, k, c, r, s};
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnSetConvolution2dDescriptor = [](cudnnConvolutionDescriptor_t to, int pad_h, int pad_w,
                                           int u, int v, int dilation_h, int dilation_w,
                                           cudnnConvolutionMode_t mode, cudnnDataType_t) {
    *reinterpret_cast<FakeConv*>(to) = {pad_h, pad_w, u, v, dilation_h, dilation_w};
    return mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  };
  lib.cudnnSetConvolutionGroupCount = [](cudnnConvolutionDescriptor_t to, int groups) {
    reinterpret_cast<FakeConv*>(to)->groups = groups;
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnSetConvolutionMathType = [](cudnnConvolutionDescriptor_t to, cudnnMathType_t math) {
    reinterpret_cast<FakeConv*>(to)->math = math;
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnGetConvolutionForwardAlgorithm_v7 =
      [](cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t,
         cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int, int* count,
         cudnnConvolutionFwdAlgoPerf_t* found) { return Choose(x, count, found); };
  lib.cudnnGetConvolutionBackwardDataAlgorithm_v7 =
      [](cudnnHandle_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,
         cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t x, int, int* count,
         cudnnConvolutionBwdDataAlgoPerf_t* found) { return Choose(x, count, found); };
  lib.cudnnGetConvolutionBackwardFilterAlgorithm_v7 =
      [](cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t,
         cudnnConvolutionDescriptor_t, cudnnFilterDescriptor_t, int, int* count,
         cudnnConvolutionBwdFilterAlgoPerf_t* found) { return Choose(x, count, found); };
  lib.cudnnConvolutionForward = [](cudnnHandle_t, const void*, cudnnTensorDescriptor_t xd,
                                   const void* x, cudnnFilterDescriptor_t wd, const void* w,
                                   cudnnConvolutionDescriptor_t conv,
                                   cudnnConvolutionFwdAlgo_t algorithm, void*, std::size_t,
                                   const void*, cudnnTensorDescriptor_t yd, void* y) {
    seen.algorithm = static_cast<int>(algorithm);
    const auto& made = *reinterpret_cast<FakeImages*>(yd);
    std::memset(y, 0, sizeof(float) * made.n * made.c * made.h * made.w);
    return ForEachProduct(xd, wd, conv, yd, [&](int64_t i, int64_t f, int64_t o) {
      static_cast<float*>(y)[o] +=
          static_cast<const float*>(x)[i] * static_cast<const float*>(w)[f];
    });
  };
  lib.cudnnConvolutionBackwardData = [](cudnnHandle_t, const void*, cudnnFilterDescriptor_t wd,
                                        const void* w, cudnnTensorDescriptor_t yd, const void* dy,
                                        cudnnConvolutionDescriptor_t conv,
                                        cudnnConvolutionBwdDataAlgo_t, void*, std::size_t,
                                        const void*, cudnnTensorDescriptor_t xd, void* dx) {
    const auto& images = *reinterpret_cast<FakeImages*>(xd);
    std::memset(dx, 0, sizeof(float) * images.n * images.c * images.h * images.w);
    return ForEachProduct(xd, wd, conv, yd, [&](int64_t i, int64_t f, int64_t o) {
      static_cast<float*>(dx)[i] +=
          static_cast<const float*>(dy)[o] * static_cast<const float*>(w)[f];
    });
  };
  lib.cudnnConvolutionBackwardFilter = [](cudnnHandle_t, const void*, cudnnTensorDescriptor_t xd,
                                          const void* x, cudnnTensorDescriptor_t yd, const void* dy,
                                          cudnnConvolutionDescriptor_t conv,
                                          cudnnConvolutionBwdFilterAlgo_t, void*, std::size_t,
                                          const void*, cudnnFilterDescriptor_t wd, void* dw) {
    const auto& filter = *reinterpret_cast<FakeFilter*>(wd);
    std::memset(dw, 0, sizeof(float) * filter.k * filter.c * filter.r * filter.s);
    return ForEachProduct(xd, wd, conv, yd, [&](int64_t i, int64_t f, int64_t o) {
      static_cast<float*>(dw)[f] +=
          static_cast<const float*>(dy)[o] * static_cast<const float*>(x)[i];
    });
  };
  return lib;
}

StatusOr<const CudnnLibrary*> FakeSource() {
  static const auto* const lib = new CudnnLibrary(HostCudnn());
  return lib;
}

using testing::Numbered;

struct Geometry {
  int64_t height, width, rows, columns, stride, dilation, groups;
  const char* padding;
  std::vector<int64_t> explicit_paddings = {};
};

class ConvLibraryTest : public testing::LibraryTest {
 protected:
  void SetUp() override { seen = Seen(); }

  void Check(const std::string& op, const Geometry& g, bool channels_first,
             bool expect_done = true) {
    constexpr int64_t kBatch = 2, kChannels = 4, kOutputs = 6;
    AttrMap attrs;
    const auto four = [&](int64_t v) {
      return channels_first ? std::vector<int64_t>{1, 1, v, v} : std::vector<int64_t>{1, v, v, 1};
    };
    attrs.Set("T", AttrValue(kFloat));
    attrs.Set("strides", AttrValue(four(g.stride)));
    attrs.Set("dilations", AttrValue(four(g.dilation)));
    attrs.Set("padding", AttrValue(std::string(g.padding)));
    attrs.Set("data_format", AttrValue(std::string(channels_first ? "NCHW" : "NHWC")));
    std::vector<int64_t> paddings = g.explicit_paddings;
    if (channels_first && !paddings.empty()) {  // given for NHWC
      std::rotate(paddings.begin() + 2, paddings.begin() + 6, paddings.end());
    }
    attrs.Set("explicit_paddings", AttrValue(paddings));
    const OpInfo* const info = BuiltinOps().Find(op);
    ASSERT_NE(info, nullptr);
    const std::vector<DataType> types(3, kFloat), made_types = {kFloat};
    KernelConstruction c(nullptr, info, "node", &attrs, types, made_types);
    const Shape images = channels_first ? Shape({kBatch, kChannels, g.height, g.width})
                                        : Shape({kBatch, g.height, g.width, kChannels});
    const Shape filter{g.rows, g.columns, kChannels / g.groups, kOutputs};
    const WindowAttrs window(c);
    ASSERT_TRUE(c.status().ok()) << c.status();
    const auto geometry = gpu::PlanConvolution(window, false, images, filter);
    ASSERT_TRUE(geometry.ok()) << geometry.status();
    const gpu::ConvKind kind = gpu::ConvKindOf(op);
    Shape shape = geometry->output_shape;
    if (kind == gpu::ConvKind::kInput) shape = images;
    if (kind == gpu::ConvKind::kFilter) shape = filter;
    CheckAgainstLoops(
        c, MakeConvLibraryBody(c, &FakeSource).get(),
        {Numbered(images, 1), Numbered(filter, 2), Numbered(geometry->output_shape, 3)}, shape,
        expect_done);
  }

  // All passes and both layouts.
  void CheckAll(const Geometry& g) {
    for (const char* op : {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
      for (const bool first : {false, true}) {
        SCOPED_TRACE(std::string(op) + (first ? " NCHW " : " NHWC ") + g.padding + " " +
                     std::to_string(g.height) + "x" + std::to_string(g.width));
        Check(op, g, first);
      }
    }
  }
};

const Geometry kGeometries[] = {
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

TEST_F(ConvLibraryTest, ComputesAllPassesForAllPaddings) {
  for (const Geometry& g : kGeometries) CheckAll(g);
}

TEST_F(ConvLibraryTest, TakesTheOtherLayoutWhereTheLibraryKnowsNoWay) {
  seen.refuses_last = true;
  for (const Geometry& g : kGeometries) CheckAll(g);
  EXPECT_TRUE(seen.channels_first);
}

TEST_F(ConvLibraryTest, LeavesToOurLoopsWhatTheLibraryDoesNotKnow) {
  seen.refuses_all = true;
  Check("Conv2D", kGeometries[0], false, /*expect_done=*/false);
}

TEST_F(ConvLibraryTest, ChoosesTheFastestThatFitsOncePerGeometry) {
  Check("Conv2D", kGeometries[0], false);
  Check("Conv2D", kGeometries[0], false);
  EXPECT_EQ(seen.choices, 1);
  EXPECT_EQ(seen.runs, 2);
  EXPECT_EQ(seen.algorithm, 1);
  EXPECT_EQ(seen.math, CUDNN_FMA_MATH);
  machine_.math_.deterministic = true;
  Check("Conv2D", kGeometries[0], false);
  EXPECT_EQ(seen.algorithm, 2);
  machine_.math_.tf32 = true;
  Check("Conv2D", kGeometries[0], false);
  EXPECT_EQ(seen.math, CUDNN_DEFAULT_MATH);
  EXPECT_EQ(seen.choices, 3);
}

TEST(PlanPadding, GivesTheLibraryWhatBothEndsShare) {
  // 4 rows, a window of 3, stride 2: one row of padding, after the last.
  gpu::WindowParams axis{.input = 4, .output = 2, .size = 3, .stride = 2, .pad = 0};
  AxisPadding padding = PlanPadding(axis);
  EXPECT_EQ(padding.both, 0);
  EXPECT_EQ(padding.before, 0);
  EXPECT_EQ(padding.after, 1);
  axis = {.input = 5, .output = 5, .size = 3, .stride = 1, .pad = 1};
  padding = PlanPadding(axis);
  EXPECT_EQ(padding.both, 1);
  EXPECT_FALSE(padding.extends());
}

}  // namespace
}  // namespace millrace
