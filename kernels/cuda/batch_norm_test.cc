// SPDX-License-Identifier: Apache-2.0
// Batch normalization through a cuDNN that computes on the host what its descriptors say: layouts,
// running statistics, what goes from a step to its gradient, and what is left to our own loops,
// which goldens check, and which are the reference.
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/graph_builder.h"
#include "gtest/gtest.h"
#include "kernels/cuda/batch_norm_plan.h"
#include "kernels/cuda/library_test.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

struct FakeTensor {
  bool channels_first = false;
  cudnnDataType_t type{};
  int n = 0, c = 0, h = 0, w = 0;

  int64_t count() const { return static_cast<int64_t>(n) * h * w; }  // of a channel
  int64_t At(int channel, int64_t i) const {
    const int64_t image = i / (h * w), pixel = i % (h * w);
    return channels_first ? (image * c + channel) * h * w + pixel : i * c + channel;
  }
  double Get(const void* data, int64_t at) const {
    switch (type) {
      case CUDNN_DATA_HALF:
        return static_cast<float>(static_cast<const Half*>(data)[at]);
      case CUDNN_DATA_BFLOAT16:
        return static_cast<float>(static_cast<const BFloat16*>(data)[at]);
      default:
        return static_cast<const float*>(data)[at];
    }
  }
  void Set(void* data, int64_t at, double value) const {
    const auto v = static_cast<float>(value);
    switch (type) {
      case CUDNN_DATA_HALF:
        static_cast<Half*>(data)[at] = Half(v);
        break;
      case CUDNN_DATA_BFLOAT16:
        static_cast<BFloat16*>(data)[at] = BFloat16(v);
        break;
      default:
        static_cast<float*>(data)[at] = v;
    }
  }
};
const FakeTensor& Real(cudnnTensorDescriptor_t d) { return *reinterpret_cast<FakeTensor*>(d); }

// What the library keeps from a step to its gradient, and its workspaces.
constexpr std::size_t kKept = 24, kForwardBytes = 100, kBackwardBytes = 200;

struct Seen {
  int forward = 0, backward = 0, persistent = 0, asked = 0;
  bool keeps_nothing = false, refuses_sizes = false, refuses_calls = false;
} seen;

cudnnStatus_t Size(std::size_t size, std::size_t* bytes) {
  ++seen.asked;
  if (seen.refuses_sizes) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = size;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Forward(const FakeTensor& x, const void* from, void* to, const void* scales,
                      const void* offsets, double factor, void* means, void* variances,
                      double epsilon, void* saved_mean, void* saved_inverse) {
  if (seen.refuses_calls) return CUDNN_STATUS_NOT_SUPPORTED;
  ++seen.forward;
  const auto n = static_cast<double>(x.count());
  for (int c = 0; c < x.c; ++c) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < x.count(); ++i) mean += x.Get(from, x.At(c, i)) / n;
    for (int64_t i = 0; i < x.count(); ++i) {
      const double d = x.Get(from, x.At(c, i)) - mean;
      squares += d * d;
    }
    const double inverse = 1 / std::sqrt(squares / n + epsilon);
    const auto scale = static_cast<const float*>(scales)[c];
    const auto offset = static_cast<const float*>(offsets)[c];
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t at = x.At(c, i);
      x.Set(to, at, (x.Get(from, at) - mean) * inverse * scale + offset);
    }
    // As cuDNN does: what does not count is multiplied by 0, and so must be a number.
    const auto mix = [&](void* running, double value) {
      float& r = static_cast<float*>(running)[c];
      r = static_cast<float>(r * (1 - factor) + value * factor);
    };
    mix(means, mean);
    mix(variances, squares / (n - 1));
    static_cast<float*>(saved_mean)[c] = static_cast<float>(mean);
    static_cast<float*>(saved_inverse)[c] = static_cast<float>(inverse);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Backward(const FakeTensor& x, const void* from, const void* dy, void* dx,
                       const void* scales, void* d_scale, void* d_offset, const void* saved_mean,
                       const void* saved_inverse) {
  if (seen.refuses_calls) return CUDNN_STATUS_NOT_SUPPORTED;
  ++seen.backward;
  const auto n = static_cast<double>(x.count());
  for (int c = 0; c < x.c; ++c) {
    const double mean = static_cast<const float*>(saved_mean)[c];
    const double inverse = static_cast<const float*>(saved_inverse)[c];
    double sum = 0, product = 0;
    const auto normal = [&](int64_t at) { return (x.Get(from, at) - mean) * inverse; };
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t at = x.At(c, i);
      sum += x.Get(dy, at);
      product += x.Get(dy, at) * normal(at);
    }
    const double slope = static_cast<const float*>(scales)[c] * inverse;
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t at = x.At(c, i);
      x.Set(dx, at, (x.Get(dy, at) - sum / n - normal(at) * product / n) * slope);
    }
    static_cast<float*>(d_scale)[c] = static_cast<float>(product);
    static_cast<float*>(d_offset)[c] = static_cast<float>(sum);
  }
  return CUDNN_STATUS_SUCCESS;
}

CudnnLibrary HostCudnn() {
  CudnnLibrary lib;
  lib.cudnnCreateTensorDescriptor = [](cudnnTensorDescriptor_t* made) {
    *made = reinterpret_cast<cudnnTensorDescriptor_t>(new FakeTensor);
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnDestroyTensorDescriptor = [](cudnnTensorDescriptor_t d) {
    delete reinterpret_cast<FakeTensor*>(d);
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnSetTensor4dDescriptor = [](cudnnTensorDescriptor_t to, cudnnTensorFormat_t format,
                                      cudnnDataType_t type, int n, int c, int h, int w) {
    *reinterpret_cast<FakeTensor*>(to) = {format == CUDNN_TENSOR_NCHW, type, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
  };
  lib.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize =
      [](cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnTensorDescriptor_t,
         cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
         cudnnActivationDescriptor_t, std::size_t* bytes) { return Size(kForwardBytes, bytes); };
  lib.cudnnGetBatchNormalizationBackwardExWorkspaceSize =
      [](cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnTensorDescriptor_t,
         cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
         cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnActivationDescriptor_t,
         std::size_t* bytes) { return Size(kBackwardBytes, bytes); };
  lib.cudnnGetBatchNormalizationTrainingExReserveSpaceSize =
      [](cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnActivationDescriptor_t,
         cudnnTensorDescriptor_t,
         std::size_t* bytes) { return Size(seen.keeps_nothing ? 0 : kKept, bytes); };
  lib.cudnnBatchNormalizationForwardTraining =
      [](cudnnHandle_t, cudnnBatchNormMode_t mode, const void*, const void*,
         cudnnTensorDescriptor_t xd, const void* x, cudnnTensorDescriptor_t, void* y,
         cudnnTensorDescriptor_t, const void* scale, const void* offset, double factor, void* mean,
         void* variance, double epsilon, void* saved_mean, void* saved_inverse) {
        if (mode != CUDNN_BATCHNORM_SPATIAL) return CUDNN_STATUS_BAD_PARAM;
        return Forward(Real(xd), x, y, scale, offset, factor, mean, variance, epsilon, saved_mean,
                       saved_inverse);
      };
  lib.cudnnBatchNormalizationForwardTrainingEx =
      [](cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const void*,
         const void*, cudnnTensorDescriptor_t xd, const void* x, cudnnTensorDescriptor_t,
         const void*, cudnnTensorDescriptor_t, void* y, cudnnTensorDescriptor_t, const void* scale,
         const void* offset, double factor, void* mean, void* variance, double epsilon,
         void* saved_mean, void* saved_inverse, cudnnActivationDescriptor_t, void* workspace,
         std::size_t workspace_bytes, void* kept, std::size_t kept_bytes) {
        if (mode != CUDNN_BATCHNORM_SPATIAL_PERSISTENT || ops != CUDNN_BATCHNORM_OPS_BN ||
            Real(xd).channels_first || workspace_bytes != kForwardBytes) {
          return CUDNN_STATUS_BAD_PARAM;
        }
        const cudnnStatus_t status = Forward(Real(xd), x, y, scale, offset, factor, mean, variance,
                                             epsilon, saved_mean, saved_inverse);
        if (status != CUDNN_STATUS_SUCCESS) return status;
        ++seen.persistent;
        std::memset(workspace, 1, workspace_bytes);
        std::memset(kept, 'k', kept_bytes);
        return status;
      };
  lib.cudnnBatchNormalizationBackward =
      [](cudnnHandle_t, cudnnBatchNormMode_t mode, const void*, const void*, const void*,
         const void*, cudnnTensorDescriptor_t xd, const void* x, cudnnTensorDescriptor_t,
         const void* dy, cudnnTensorDescriptor_t, void* dx, cudnnTensorDescriptor_t,
         const void* scale, void* d_scale, void* d_offset, double, const void* saved_mean,
         const void* saved_inverse) {
        if (mode != CUDNN_BATCHNORM_SPATIAL) return CUDNN_STATUS_BAD_PARAM;
        return Backward(Real(xd), x, dy, dx, scale, d_scale, d_offset, saved_mean, saved_inverse);
      };
  lib.cudnnBatchNormalizationBackwardEx =
      [](cudnnHandle_t, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t, const void*, const void*,
         const void*, const void*, cudnnTensorDescriptor_t xd, const void* x,
         cudnnTensorDescriptor_t, const void*, cudnnTensorDescriptor_t, const void* dy,
         cudnnTensorDescriptor_t, void*, cudnnTensorDescriptor_t, void* dx, cudnnTensorDescriptor_t,
         const void* scale, const void*, void* d_scale, void* d_offset, double,
         const void* saved_mean, const void* saved_inverse, cudnnActivationDescriptor_t,
         void* workspace, std::size_t workspace_bytes, void* kept, std::size_t kept_bytes) {
        const std::string left(static_cast<const char*>(kept), kept_bytes);
        if (mode != CUDNN_BATCHNORM_SPATIAL_PERSISTENT || workspace_bytes != kBackwardBytes ||
            left != std::string(kept_bytes, 'k')) {
          return CUDNN_STATUS_BAD_PARAM;
        }
        std::memset(workspace, 1, workspace_bytes);
        ++seen.persistent;
        return Backward(Real(xd), x, dy, dx, scale, d_scale, d_offset, saved_mean, saved_inverse);
      };
  return lib;
}

StatusOr<const CudnnLibrary*> FakeSource() {
  static const auto* const lib = new CudnnLibrary(HostCudnn());
  return lib;
}

// Numbers between -1 and 1.
Tensor Random(DataType type, const Shape& shape, uint32_t seed) {
  Tensor t(type, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float v = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1;
    if (type == kHalf) {
      t.data<Half>()[i] = Half(v);
    } else if (type == kBfloat16) {
      t.data<BFloat16>()[i] = BFloat16(v);
    } else {
      t.data<float>()[i] = v;
    }
  }
  return t;
}
double Number(const Tensor& t, int64_t i) {
  if (t.dtype() == kHalf) return static_cast<float>(t.data<Half>()[i]);
  if (t.dtype() == kBfloat16) return static_cast<float>(t.data<BFloat16>()[i]);
  return t.data<float>()[i];
}
void ExpectNear(const Tensor& a, const Tensor& b, double tolerance, const char* what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = Number(a, i), y = Number(b, i);
    ASSERT_NEAR(x, y, tolerance * (1 + std::fabs(y))) << what << " " << i;
  }
}

struct Variant {
  const char* version;  // "", "V2" or "V3"
  DataType type = kFloat;
  const char* format = "NHWC";
  Shape images = {2, 3, 5, 4};
  float factor = 1;
  bool training = true;
};

class BatchNormLibraryTest : public testing::LibraryTest {
 protected:
  void SetUp() override { seen = Seen(); }

  struct Node {
    std::unique_ptr<LibraryBody> library;
    std::unique_ptr<gpu::Body> loops;
  };
  Node Make(const std::string& op, const Variant& v) {
    AttrMap attrs;
    attrs.Set("T", AttrValue(v.type));
    attrs.Set("U", AttrValue(kFloat));
    attrs.Set("epsilon", AttrValue(0.01f));
    attrs.Set("exponential_avg_factor", AttrValue(v.factor));
    attrs.Set("data_format", AttrValue(std::string(v.format)));
    attrs.Set("is_training", AttrValue(v.training));
    const OpInfo* const info = BuiltinOps().Find(op + v.version);
    EXPECT_NE(info, nullptr);
    const std::vector<DataType> in(6, kFloat), out(6, kFloat);
    KernelConstruction c(nullptr, info, "node", &attrs, in, out);
    Node node{MakeBatchNormLibraryBody(c, &FakeSource), gpu::FindBody(c)->make(c)};
    EXPECT_TRUE(c.status().ok()) << c.status();
    return node;
  }
  static int64_t Channels(const Variant& v) {
    return v.format[1] == 'C' ? v.images.dim(1) : v.images.dim(v.images.rank() - 1);
  }
  Shape KeptShape(const Node& node, const StreamCall& call) {
    return node.library->OutputShape(call, &machine_, 5).value_or(Shape());
  }
  static void RunLoops(const Node& node, StreamCall call) {
    std::vector<float> scratch(
        static_cast<std::size_t>(node.loops->ScratchBytes(call, gpu::HostLoops()) / 4 + 1));
    call.scratch =
        Tensor(kFloat, Shape({static_cast<int64_t>(scratch.size())}), nullptr, scratch.data());
    ASSERT_TRUE(node.loops->Run(call, gpu::HostLoops(), {}).ok());
  }

  // The step forwards through the library; `*by_library` says whether it did it. All outputs are
  // those of our loops.
  StreamCall Forward(const Variant& v, bool* by_library) {
    const Node node = Make("FusedBatchNorm", v);
    const Shape vector{Channels(v)};
    StreamCall call;
    call.machine = &machine_;
    call.inputs = {Random(v.type, v.images, 1), Random(kFloat, vector, 2),
                   Random(kFloat, vector, 3), Random(kFloat, vector, 4), Random(kFloat, vector, 5)};
    // Variances.
    for (float& variance : call.inputs[4].flat<float>()) variance = std::fabs(variance) + 0.1f;
    StreamCall want = call;
    for (StreamCall* each : {&call, &want}) {
      each->outputs = {Tensor(v.type, v.images)};
      for (int i = 0; i < 4; ++i) {
        // Memory that was not written yet is full of what is no number.
        each->outputs.push_back(Tensor(kFloat, vector));
        for (int64_t c = 0; c < vector.dim(0); ++c) {
          each->outputs.back().data<float>()[c] = std::numeric_limits<float>::quiet_NaN();
        }
      }
    }
    if (std::string(v.version) == "V3") {
      call.outputs.push_back(Tensor(kFloat, KeptShape(node, call)));
      want.outputs.push_back(Tensor(kFloat, Shape()));
    }
    const auto done = node.library->Run(call, &machine_, gpu::HostLoops());
    EXPECT_TRUE(done.ok()) << done.status();
    *by_library = done.ok() && *done;
    if (!*by_library) RunLoops(node, call);
    RunLoops(node, want);
    static constexpr const char* kNames[] = {"y", "mean", "variance", "batch mean",
                                             "batch variance"};
    for (int i = 0; i < 5; ++i) {
      ExpectNear(call.outputs[i], want.outputs[i], v.type == kFloat || i > 0 ? 2e-6 : 1e-2,
                 kNames[i]);
    }
    return call;
  }

  // The gradient of a step, likewise.
  void Backward(const Variant& v, const StreamCall& forward, bool* by_library) {
    const Node node = Make("FusedBatchNormGrad", v);
    const Shape vector{Channels(v)};
    StreamCall call;
    call.machine = &machine_;
    call.inputs = {Random(v.type, v.images, 6), forward.inputs[0], forward.inputs[1],
                   forward.outputs[3], forward.outputs[4]};
    if (forward.outputs.size() > 5) call.inputs.push_back(forward.outputs[5]);
    StreamCall want = call;
    for (StreamCall* each : {&call, &want}) {
      each->outputs = {Tensor(v.type, v.images), Tensor(kFloat, vector), Tensor(kFloat, vector)};
    }
    const auto done = node.library->Run(call, &machine_, gpu::HostLoops());
    ASSERT_TRUE(done.ok()) << done.status();
    *by_library = *done;
    if (!*done) return;
    RunLoops(node, want);
    static constexpr const char* kNames[] = {"dx", "d_scale", "d_offset"};
    for (int i = 0; i < 3; ++i) {
      ExpectNear(call.outputs[i], want.outputs[i], v.type == kFloat || i > 0 ? 2e-5 : 1e-2,
                 kNames[i]);
    }
  }

  void Check(const Variant& v, bool expect_library) {
    SCOPED_TRACE(std::string(v.version) + " " + v.format + " " + v.images.DebugString());
    bool forward = false, backward = false;
    const StreamCall call = Forward(v, &forward);
    EXPECT_EQ(forward, expect_library);
    Backward(v, call, &backward);
    EXPECT_EQ(backward, expect_library);
  }
};

TEST_F(BatchNormLibraryTest, TrainsInAllLayoutsAndVersions) {
  for (const float factor : {1.0f, 0.25f}) {
    for (const DataType type : {kFloat, kHalf, kBfloat16}) {
      Check({"V3", type, "NHWC", {2, 3, 5, 4}, factor}, true);
      Check({"V3", type, "NCHW", {2, 4, 3, 5}, factor}, true);
      Check({"V3", type, "NDHWC", {2, 2, 3, 2, 3}, factor}, true);
      Check({"V3", type, "NCDHW", {2, 3, 2, 2, 3}, factor}, true);
    }
    // The second version takes the third's types, and keeps as little as the first.
    for (const DataType type : {kFloat, kHalf, kBfloat16}) {
      Check({"V2", type, "NHWC", {2, 3, 5, 4}, factor}, true);
      Check({"V2", type, "NCHW", {2, 4, 3, 5}, factor}, true);
    }
    Check({"", kFloat, "NHWC", {2, 3, 5, 4}, factor}, true);
    Check({"", kFloat, "NCHW", {2, 4, 3, 5}, factor}, true);
  }
  EXPECT_EQ(seen.forward, seen.backward);
  EXPECT_EQ(seen.forward, 2 * (3 * 4 + 3 * 2 + 2));
}

TEST_F(BatchNormLibraryTest, IsPersistentWithChannelsLastWhereSomethingMayBeKept) {
  Check({"V3"}, true);
  EXPECT_EQ(seen.persistent, 2);
  Check({"V3", kFloat, "NCHW"}, true);
  Check({"V2"}, true);
  Check({""}, true);
  EXPECT_EQ(seen.persistent, 2);
}

TEST_F(BatchNormLibraryTest, AsksOncePerGeometryWhatIsKept) {
  Check({"V3"}, true);
  Check({"V3"}, true);
  EXPECT_EQ(seen.asked, 3);
  const Node node = Make("FusedBatchNorm", {"V3"});
  StreamCall call;
  call.machine = &machine_;
  call.inputs = {Tensor(kFloat, Shape({2, 3, 5, 4}))};
  EXPECT_EQ(KeptShape(node, call), Shape({kKept / 4}));
  EXPECT_FALSE(node.library->OutputShape(call, &machine_, 4).has_value());
}

TEST_F(BatchNormLibraryTest, NeedsNoRoomForALibraryThatKeepsNothing) {
  seen.keeps_nothing = true;
  bool done = false;
  const StreamCall call = Forward({"V3"}, &done);
  EXPECT_TRUE(done);
  EXPECT_EQ(call.outputs[5].shape(), Shape());
  EXPECT_EQ(call.outputs[5].data<float>()[0], 0);
  Backward({"V3"}, call, &done);
  EXPECT_TRUE(done);
}

// A gradient of which another device made the step forwards.
TEST_F(BatchNormLibraryTest, LeavesToOurLoopsAGradientForWhichNothingWasKept) {
  bool done = false;
  StreamCall call = Forward({"V3"}, &done);
  ASSERT_TRUE(done);
  call.outputs[5] = Tensor(kFloat, Shape());
  Backward({"V3"}, call, &done);
  EXPECT_FALSE(done);
  EXPECT_EQ(seen.backward, 0);
}

TEST_F(BatchNormLibraryTest, LeavesToOurLoopsWhatTheLibraryDoesNotKnow) {
  seen.refuses_sizes = true;
  Check({"V3"}, false);
  EXPECT_EQ(seen.forward + seen.backward, 0);
}

TEST_F(BatchNormLibraryTest, DoesNotTryAgainWhatWasRefused) {
  seen.refuses_calls = true;
  bool done = true;
  const StreamCall call = Forward({"V3"}, &done);
  EXPECT_FALSE(done);
  // Now it would do, but has kept nothing.
  seen.refuses_calls = false;
  Backward({"V3"}, call, &done);
  EXPECT_FALSE(done);
  EXPECT_EQ(seen.backward, 0);
}

TEST_F(BatchNormLibraryTest, LeavesToOurLoopsGivenStatisticsAndSingleElements) {
  Check({"V3", kFloat, "NHWC", {2, 3, 5, 4}, 1, /*training=*/false}, false);
  Check({"V2", kFloat, "NHWC", {2, 3, 5, 4}, 1, /*training=*/false}, false);
  Check({"V3", kFloat, "NHWC", {1, 1, 1, 4}}, false);
  EXPECT_EQ(seen.forward + seen.backward, 0);
}

TEST_F(BatchNormLibraryTest, SaysWhichOperandsDoNotFit) {
  const Node node = Make("FusedBatchNorm", {"V3"});
  StreamCall call;
  call.machine = &machine_;
  call.inputs = {Tensor(kFloat, Shape({2, 3, 5, 4})), Tensor(kFloat, Shape({3})),
                 Tensor(kFloat, Shape({4})), Tensor(kFloat, Shape({4})),
                 Tensor(kFloat, Shape({4}))};
  call.outputs = {Tensor(kFloat, Shape({2, 3, 5, 4}))};
  for (int i = 0; i < 5; ++i) call.outputs.push_back(Tensor(kFloat, Shape({4})));
  const auto done = node.library->Run(call, &machine_, gpu::HostLoops());
  EXPECT_TRUE(errors::IsInvalidArgument(done.status())) << done.status();
}

}  // namespace
}  // namespace millrace
