// SPDX-License-Identifier: Apache-2.0
// Convolutions through a cuDNN that computes on the host what its descriptors say: paddings that
// differ at the two ends, layouts, filters, groups, biases, and the choice of algorithms. The
// reference are our own loops, which goldens check.
#include <functional>
#include <set>

#include "base/errors.h"
#include "frontend/graph_builder.h"
#include "gtest/gtest.h"
#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/library_test.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

struct FakeImages {
  DataType type = kFloat;
  int n = 0, c = 0, h = 0, w = 0, sn = 0, sc = 0, sh = 0, sw = 0;
  int64_t size() const { return int64_t{n} * c * h * w; }
  int64_t At(int in, int ic, int ih, int iw) const {
    return static_cast<int64_t>(in) * sn + ic * sc + ih * sh + iw * sw;
  }
};
struct FakeFilter {
  DataType type = kFloat;
  bool first = false;
  int k = 0, c = 0, r = 0, s = 0;
  int64_t size() const { return int64_t{k} * c * r * s; }
  int64_t At(int ik, int ic, int ir, int is) const {
    return first ? ((ik * c + ic) * r + ir) * s + is : ((ik * r + ir) * s + is) * c + ic;
  }
};
struct FakeConv {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
  cudnnMathType_t math{};
};

struct FakeActivation {
  cudnnActivationMode_t mode{};
};

struct Seen {
  int choices = 0, runs = 0, attempts = 0, biased = 0;
  bool channels_first = false;
  bool refuses_last = false, refuses_all = false, refuses_bias = false;
  // When they are called, although they were offered.
  std::set<int> refused_algorithms;
  // Of algorithms 0, 1 and 2, the fastest first. The first takes more than anybody has, the second
  // is not deterministic.
  std::size_t workspaces[3] = {std::size_t{100} << 30, 128, 128};
  cudnnMathType_t math{};
  cudnnActivationMode_t activation{};
  int algorithm = -1;
} seen;

DataType TypeOf(cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF) return kHalf;
  return type == CUDNN_DATA_BFLOAT16 ? kBfloat16 : kFloat;
}

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
  *count = 3;
  for (int i = 0; i < 3; ++i) {
    found[i].status = CUDNN_STATUS_SUCCESS;
    found[i].memory = seen.workspaces[i];
    found[i].determinism = i == 1 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    found[i].mathType = CUDNN_DEFAULT_MATH;
    found[i].algo = static_cast<decltype(found[i].algo)>(i);
  }
  return CUDNN_STATUS_SUCCESS;
}

// What cuDNN says of a call with an algorithm that it does not support after all.
cudnnStatus_t Try(int algorithm, const void* workspace, std::size_t bytes) {
  ++seen.attempts;
  seen.algorithm = algorithm;
  if (bytes != seen.workspaces[algorithm] || (workspace == nullptr) != (bytes == 0)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return seen.refused_algorithms.contains(algorithm) ? CUDNN_STATUS_NOT_SUPPORTED_LAYOUT
                                                     : CUDNN_STATUS_SUCCESS;
}

using testing::Element;
using testing::SetElement;

// Sums in float, finished and rounded once.
cudnnStatus_t Write(cudnnStatus_t status, const std::vector<float>& sums, DataType type, void* to) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    SetElement(type, to, static_cast<int64_t>(i), sums[i]);
  }
  return status;
}

cudnnStatus_t Forward(cudnnTensorDescriptor_t xd, const void* x, cudnnFilterDescriptor_t wd,
                      const void* w, cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t yd,
                      std::vector<float>* sums) {
  const DataType type = reinterpret_cast<FakeImages*>(xd)->type;
  sums->assign(reinterpret_cast<FakeImages*>(yd)->size(), 0);
  return ForEachProduct(xd, wd, conv, yd, [&](int64_t i, int64_t f, int64_t o) {
    (*sums)[o] += Element(type, x, i) * Element(type, w, f);
  });
}

// cuDNN's convolution, bias and activation, as its documentation limits them.
cudnnStatus_t ForwardWithBias(cudnnHandle_t, const void* alpha, cudnnTensorDescriptor_t xd,
                              const void* x, cudnnFilterDescriptor_t wd, const void* w,
                              cudnnConvolutionDescriptor_t conv,
                              cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                              std::size_t bytes, const void* added, cudnnTensorDescriptor_t zd,
                              const void* z, cudnnTensorDescriptor_t bias_desc, const void* bias,
                              cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t yd,
                              void* y) {
  if (const cudnnStatus_t status = Try(algorithm, workspace, bytes); status != CUDNN_STATUS_SUCCESS)
    return status;
  if (seen.refuses_bias) return CUDNN_STATUS_NOT_SUPPORTED;
  const auto& made = *reinterpret_cast<FakeImages*>(yd);
  const auto& biases = *reinterpret_cast<FakeImages*>(bias_desc);
  seen.activation = reinterpret_cast<FakeActivation*>(activation)->mode;
  const bool relu = seen.activation == CUDNN_ACTIVATION_RELU;
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(added) != 0 ||
      zd == nullptr || z == nullptr || biases.type != made.type || biases.c != made.c ||
      biases.size() != made.c ||
      (!relu && (seen.activation != CUDNN_ACTIVATION_IDENTITY ||
                 algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  ++seen.biased;
  std::vector<float> sums;
  const cudnnStatus_t status = Forward(xd, x, wd, w, conv, yd, &sums);
  for (int n = 0; n < made.n; ++n) {
    for (int c = 0; c < made.c; ++c) {
      for (int h = 0; h < made.h; ++h) {
        for (int i = 0; i < made.w; ++i) {
          float& sum = sums[made.At(n, c, h, i)];
          sum += Element(made.type, bias, c);
          if (relu) sum = std::max(sum, 0.0f);
        }
      }
    }
  }
  return Write(status, sums, made.type, y);
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
  lib.cudnnCreateActivationDescriptor = &Create<FakeActivation, cudnnActivationDescriptor_t>;
  lib.cudnnDestroyActivationDescriptor = &Destroy<FakeActivation, cudnnActivationDescriptor_t>;
  lib.cudnnSetActivationDescriptor = [](cudnnActivationDescriptor_t to, cudnnActivationMode_t mode,
                                        cudnnNanPropagation_t nans, double) {
    reinterpret_cast<FakeActivation*>(to)->mode = mode;
    return nans == CUDNN_PROPAGATE_NAN ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  };
  lib.cudnnSetTensor4dDescriptorEx = [](cudnnTensorDescriptor_t to, cudnnDataType_t type, int n,
                                        int c, int h, int w, int sn, int sc, int sh, int sw) {
    *reinterpret_cast<FakeImages*>(to) = {TypeOf(type), n, c, h, w, sn, sc, sh, sw};
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnSetFilter4dDescriptor = [](cudnnFilterDescriptor_t to, cudnnDataType_t type,
                                      cudnnTensorFormat_t format, int k, int c, int r, int s) {
    *reinterpret_cast<FakeFilter*>(to) = {TypeOf(type), format == CUDNN_TENSOR_NCHW, k, c, r, s};
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
  lib.cudnnConvolutionBiasActivationForward = &ForwardWithBias;
  lib.cudnnConvolutionForward =
      [](cudnnHandle_t, const void*, cudnnTensorDescriptor_t xd, const void* x,
         cudnnFilterDescriptor_t wd, const void* w, cudnnConvolutionDescriptor_t conv,
         cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t bytes, const void*,
         cudnnTensorDescriptor_t yd, void* y) {
        const cudnnStatus_t status = Try(algorithm, workspace, bytes);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        std::vector<float> sums;
        return Write(Forward(xd, x, wd, w, conv, yd, &sums), sums,
                     reinterpret_cast<FakeImages*>(yd)->type, y);
      };
  lib.cudnnConvolutionBackwardData =
      [](cudnnHandle_t, const void*, cudnnFilterDescriptor_t wd, const void* w,
         cudnnTensorDescriptor_t yd, const void* dy, cudnnConvolutionDescriptor_t conv,
         cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, std::size_t bytes, const void*,
         cudnnTensorDescriptor_t xd, void* dx) {
        const cudnnStatus_t status = Try(algorithm, workspace, bytes);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        const auto& images = *reinterpret_cast<FakeImages*>(xd);
        std::vector<float> sums(images.size());
        return Write(ForEachProduct(xd, wd, conv, yd,
                                    [&](int64_t i, int64_t f, int64_t o) {
                                      sums[i] +=
                                          Element(images.type, dy, o) * Element(images.type, w, f);
                                    }),
                     sums, images.type, dx);
      };
  lib.cudnnConvolutionBackwardFilter =
      [](cudnnHandle_t, const void*, cudnnTensorDescriptor_t xd, const void* x,
         cudnnTensorDescriptor_t yd, const void* dy, cudnnConvolutionDescriptor_t conv,
         cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace, std::size_t bytes, const void*,
         cudnnFilterDescriptor_t wd, void* dw) {
        const cudnnStatus_t status = Try(algorithm, workspace, bytes);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        const auto& filter = *reinterpret_cast<FakeFilter*>(wd);
        std::vector<float> sums(filter.size());
        return Write(ForEachProduct(xd, wd, conv, yd,
                                    [&](int64_t i, int64_t f, int64_t o) {
                                      sums[f] +=
                                          Element(filter.type, dy, o) * Element(filter.type, x, i);
                                    }),
                     sums, filter.type, dw);
      };
  return lib;
}

StatusOr<const CudnnLibrary*> FakeSource() {
  static const auto* const lib = new CudnnLibrary(HostCudnn());
  return lib;
}

using testing::Numbered;

using Geometry = testing::ConvCase;
using testing::kConvCases;

class ConvLibraryTest : public testing::LibraryTest {
 protected:
  void SetUp() override { seen = Seen(); }

  using NodeFn =
      std::function<void(KernelConstruction&, std::vector<Tensor> inputs, const Shape& output)>;

  // A node for the geometry, and its operands: small whole numbers.
  void WithNode(const std::string& op, const Geometry& g, bool channels_first, const NodeFn& fn) {
    testing::WithConvNode(
        BuiltinOps(), {op, type_, channels_first, activation_}, g,
        [&](KernelConstruction& c, const std::vector<Shape>& shapes, const Shape& output) {
          fn(c,
             {Numbered(shapes[0], 1, type_), Numbered(shapes[1], 2, type_),
              Numbered(shapes[2], 3, type_)},
             output);
        });
  }

  void Check(const std::string& op, const Geometry& g, bool channels_first,
             bool expect_done = true) {
    WithNode(op, g, channels_first,
             [&](KernelConstruction& c, std::vector<Tensor> inputs, const Shape& shape) {
               CheckAgainstLoops(c, MakeConvLibraryBody(c, &FakeSource).get(), std::move(inputs),
                                 shape, expect_done);
             });
  }

  // What the library's body says, without a look at what it made.
  Status Outcome(const std::string& op, const Geometry& g) {
    Status outcome;
    WithNode(op, g, false, [&](KernelConstruction& c, std::vector<Tensor> inputs, const Shape& s) {
      StreamCall call;
      call.inputs = std::move(inputs);
      call.outputs = {Tensor(type_, s)};
      outcome =
          MakeConvLibraryBody(c, &FakeSource)->Run(call, &machine_, gpu::HostLoops()).status();
    });
    return outcome;
  }

  // All passes and both layouts.
  void CheckAll(const Geometry& g) {
    for (const char* op : {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
      for (const bool first : {false, true}) {
        SCOPED_TRACE(std::string(DataTypeName(type_)) + " " + op + (first ? " NCHW " : " NHWC ") +
                     g.padding + " " + std::to_string(g.height) + "x" + std::to_string(g.width));
        Check(op, g, first);
      }
    }
  }

  DataType type_ = kFloat;
  std::string activation_;
};

TEST_F(ConvLibraryTest, ComputesAllPassesForAllPaddings) {
  for (const DataType type : {kFloat, kHalf, kBfloat16}) {
    type_ = type;
    for (const Geometry& g : kConvCases) CheckAll(g);
    EXPECT_EQ(seen.math, type == kFloat ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH);
  }
}

TEST_F(ConvLibraryTest, TakesTheOtherLayoutWhereTheLibraryKnowsNoWay) {
  seen.refuses_last = true;
  for (const Geometry& g : kConvCases) CheckAll(g);
  EXPECT_TRUE(seen.channels_first);
}

TEST_F(ConvLibraryTest, LeavesToOurLoopsWhatTheLibraryDoesNotKnow) {
  seen.refuses_all = true;
  Check("Conv2D", kConvCases[0], false, /*expect_done=*/false);
}

TEST_F(ConvLibraryTest, ChoosesTheFastestThatFitsOncePerGeometry) {
  Check("Conv2D", kConvCases[0], false);
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.choices, 1);
  EXPECT_EQ(seen.runs, 2);
  EXPECT_EQ(seen.algorithm, 1);
  EXPECT_EQ(seen.math, CUDNN_FMA_MATH);
  machine_.math_.deterministic = true;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 2);
  machine_.math_.tf32 = true;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.math, CUDNN_DEFAULT_MATH);
  EXPECT_EQ(seen.choices, 3);
}

// On a GPU of 1 GiB a convolution takes 128 MiB at most, however much may be asked for.
TEST_F(ConvLibraryTest, TakesNoMoreWorkspaceThanItsPartOfTheMemory) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  seen.workspaces[0] = 129 * kMiB;
  seen.workspaces[1] = 128 * kMiB;
  machine_.allocator_.limit = 1024 * kMiB;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 1);
  // Another device of the same GPU, with more.
  machine_.allocator_.limit = 4096 * kMiB;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 0);
  // What somebody set holds for all.
  machine_.math_.convolution_workspace = 100;
  Check("Conv2D", kConvCases[0], false, /*expect_done=*/false);
  seen.workspaces[2] = 0;
  machine_.math_.convolution_workspace = 0;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 2);
}

TEST_F(ConvLibraryTest, TakesTheNextAlgorithmAfterARefusalAndRemembersIt) {
  seen.refused_algorithms = {1};
  for (const char* op : {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
    const int before = seen.attempts;
    Check(op, kConvCases[1], false);
    EXPECT_EQ(seen.algorithm, 2);
    EXPECT_EQ(seen.attempts, before + 2);
    Check(op, kConvCases[1], false);
    EXPECT_EQ(seen.attempts, before + 3);
  }
}

TEST_F(ConvLibraryTest, LeavesToOurLoopsWhatTheLibraryRefusesWithEveryAlgorithm) {
  seen.refused_algorithms = {1, 2};
  Check("Conv2DBackpropInput", kConvCases[0], false, /*expect_done=*/false);
  EXPECT_EQ(seen.attempts, 4);  // in either layout
  Check("Conv2DBackpropInput", kConvCases[0], false, /*expect_done=*/false);
  EXPECT_EQ(seen.attempts, 4);
}

TEST_F(ConvLibraryTest, TakesAnAlgorithmThatNeedsLessWhereMemoryIsShort) {
  seen.workspaces[0] = std::size_t{64} << 20;
  seen.workspaces[1] = std::size_t{32} << 20;
  machine_.free_ = std::size_t{1} << 20;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 2);
  EXPECT_EQ(seen.attempts, 1);
  // Steps do not change their minds, and their bits, whenever there is more for a while.
  machine_.free_ = std::size_t{1} << 30;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 2);
  EXPECT_EQ(seen.choices, 1);
}

TEST_F(ConvLibraryTest, SaysThatThereIsNoMemoryIfNoAlgorithmNeedsLess) {
  seen.workspaces[1] = seen.workspaces[2] = std::size_t{32} << 20;
  machine_.free_ = std::size_t{1} << 20;
  EXPECT_TRUE(errors::IsResourceExhausted(Outcome("Conv2D", kConvCases[0])));
  machine_.free_ = std::size_t{1} << 30;
  Check("Conv2D", kConvCases[0], false);
}

// Whether somebody else has taken the memory must not change what comes out.
TEST_F(ConvLibraryTest, KeepsItsAlgorithmInDeterministicModeWhereMemoryIsShort) {
  machine_.math_.deterministic = true;
  seen.workspaces[0] = std::size_t{64} << 20;
  machine_.free_ = std::size_t{1} << 20;
  EXPECT_TRUE(errors::IsResourceExhausted(Outcome("Conv2D", kConvCases[0])));
  machine_.free_ = std::size_t{1} << 30;
  Check("Conv2D", kConvCases[0], false);
  EXPECT_EQ(seen.algorithm, 0);
}

// No sum of these two has more bits than bfloat16.
const Geometry kExact[] = {{5, 6, 1, 1, 1, 1, 1, "VALID"}, {6, 6, 2, 2, 1, 1, 2, "SAME"}};

TEST_F(ConvLibraryTest, AddsABiasAndActivatesWithinTheConvolution) {
  for (const DataType type : {kFloat, kHalf, kBfloat16}) {
    type_ = type;
    for (const char* activation : {"", "Relu", "Relu6", "Tanh"}) {
      activation_ = activation;
      for (const Geometry& g : kExact) {
        SCOPED_TRACE(std::string(DataTypeName(type)) + " " + activation);
        const int before = seen.biased;
        Check("_FusedConv2D", g, false);
        EXPECT_EQ(seen.biased, before + 1);
        EXPECT_EQ(seen.activation,
                  activation_ == "Relu" ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY);
      }
    }
  }
  // As a library of channels first.
  seen.refuses_last = true;
  Check("_FusedConv2D", kConvCases[1], false);
  EXPECT_TRUE(seen.channels_first);
}

TEST_F(ConvLibraryTest, AddsABiasItselfWhereAnotherAlgorithmIsFaster) {
  seen.workspaces[0] = 128;  // IMPLICIT_GEMM
  Check("_FusedConv2D", kConvCases[0], false);
  EXPECT_EQ(seen.biased, 0);
  EXPECT_EQ(seen.algorithm, 0);
  activation_ = "Relu";
  Check("_FusedConv2D", kConvCases[0], false);
  EXPECT_EQ(seen.biased, 1);
  EXPECT_EQ(seen.algorithm, 0);
}

TEST_F(ConvLibraryTest, AddsABiasItselfWhereTheLibraryRefusesTo) {
  seen.refuses_bias = true;
  for (const DataType type : {kFloat, kHalf, kBfloat16}) {
    type_ = type;
    for (const char* activation : {"", "Relu", "Elu"}) {
      activation_ = activation;
      for (const Geometry& g : kExact) Check("_FusedConv2D", g, false);
    }
  }
  EXPECT_EQ(seen.biased, 0);
}

// 2047 + 2 and 255 + 2 take one bit more than there are: each node by itself would round them
// before it adds the bias, which brings them back among the numbers that there are.
TEST_F(ConvLibraryTest, RoundsAConvolutionOf16BitsOnceWithItsBias) {
  for (const auto& [type, product] : {std::pair(kHalf, 2049.0f), std::pair(kBfloat16, 257.0f)}) {
    type_ = type;
    WithNode("_FusedConv2D", kExact[0], false,
             [&](KernelConstruction& c, std::vector<Tensor> inputs, const Shape& shape) {
               const float image[] = {product - 2, 2, 0, 0};
               for (int64_t i = 0; i < inputs[0].num_elements(); ++i) {
                 SetElement(type, inputs[0].raw_data(), i, image[i % 4]);
               }
               for (const int input : {1, 2}) {
                 for (int64_t i = 0; i < inputs[input].num_elements(); ++i) {
                   SetElement(type, inputs[input].raw_data(), i, 1);
                 }
               }
               StreamCall call;
               call.inputs = std::move(inputs);
               call.outputs = {Tensor(type, shape)};
               const auto done =
                   MakeConvLibraryBody(c, &FakeSource)->Run(call, &machine_, gpu::HostLoops());
               ASSERT_TRUE(done.ok() && *done) << done.status();
               for (int64_t i = 0; i < shape.num_elements(); ++i) {
                 EXPECT_EQ(Element(type, call.outputs[0].raw_data(), i), product + 1);
               }
             });
  }
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
