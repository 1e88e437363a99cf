// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries on a GPU beside our own loops there, which goldens check: what they make of
// every geometry, layout and type. tests/gpu/run_all runs it; it fails where there is no GPU.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/strings.h"
#include "device/cuda/machine/cuda_handles.h"
#include "frontend/graph_builder.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library_body.h"
#include "kernels/cuda/library_cases.h"
#include "kernels/gpu/body.h"
#include "millrace/gpu.h"
#include "tests/gpu/tensors.h"

namespace millrace::testing {
namespace {

constexpr std::chrono::milliseconds kLimit(60'000);

// How far a sum of `depth` products of numbers up to 1 may be from another way's: each is rounded
// to its type, products to what they are computed in, and sums take another order.
struct Tolerance {
  double relative = 0, absolute = 0;
};
Tolerance ToleranceOf(DataType type, bool tf32, int64_t depth) {
  const double root = std::sqrt(static_cast<double>(depth));
  if (type == kHalf) return {0x1p-9, 2e-3 * root};
  if (type == kBfloat16) return {0x1p-6, 4e-3 * root};
  if (type == kDouble) return {1e-6, 1e-12 * root};  // is compared as floats
  return tf32 ? Tolerance{2e-3, 2e-3 * root} : Tolerance{1e-5, 5e-6 * root};
}

void ExpectClose(const Tensor& got, const Tensor& want, const Tolerance& t) {
  ASSERT_TRUE(got.shape() == want.shape() && got.dtype() == want.dtype());
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double g = Element(got.dtype(), got.raw_data(), i);
    const double w = Element(want.dtype(), want.raw_data(), i);
    if (std::abs(g - w) <= t.absolute + t.relative * std::abs(w)) continue;
    FAIL() << "element " << i << " is " << g << ", not " << w;
  }
}

// A node's two ways.
struct Ways {
  std::unique_ptr<LibraryBody> library;
  std::unique_ptr<gpu::Body> loops;
};

// What a node makes.
struct Made {
  DataType type = kFloat;
  Shape shape;
};

class LibrariesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto gpus = FindGpus();
    ASSERT_TRUE(gpus.ok()) << "no GPU: " << gpus.status();
    const auto table = gpu::LoadedCudaLoops();
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = *table;
  }
  void TearDown() override {
    if (machine_ != nullptr) {
      EXPECT_TRUE(machine_->Synchronize(kLimit).ok());
    }
  }

  // From here on: another machine of GPU 0.
  void Start(bool tf32, bool deterministic) {
    machine_ = nullptr;
    CudaMachineOptions options;
    options.name = "/device:GPU:0";
    const auto driver = LoadedCudaDriver();
    ASSERT_TRUE(driver.ok()) << driver.status();
    options.driver = *driver;
    options.handles = LoadedCudaHandles();
    options.memory_limit = int64_t{4} << 30;
    options.allow_growth = true;
    options.math.tf32 = tf32;
    options.math.deterministic = deterministic;
    auto machine = CudaMachineImpl::Start(std::move(options));
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
  }

  // Outputs on the host; nothing if the library has no way. Memory begins as what is no number.
  std::vector<Tensor> Run(const Ways& ways, bool by_library, const std::vector<Tensor>& inputs,
                          const std::vector<Made>& outputs) {
    StreamCall call;
    call.machine = machine_.get();
    Stream* const stream = machine_->stream(StreamKind::kCompute);
    const auto work = MakeRef<DeviceWork>();
    const auto there = [&](const Tensor& here) {
      Tensor t(machine_->allocator(), here.dtype(), here.shape());
      if (here.num_bytes() > 0) {
        stream->EnqueueCopy(work, "operand", t.raw_data(), here.raw_data(), here.num_bytes());
      }
      return t;
    };
    std::vector<Tensor> results;
    for (const Tensor& input : inputs) call.inputs.push_back(there(input));
    for (const Made& output : outputs) {
      results.emplace_back(output.type, output.shape);
      std::memset(results.back().raw_data(), 0xff, results.back().num_bytes());
      call.outputs.push_back(there(results.back()));
    }
    EXPECT_TRUE(machine_->MakeCurrent().ok());
    if (const int64_t bytes = ways.loops->ScratchBytes(call, *table_); bytes > 0) {
      call.scratch = Tensor(machine_->allocator(), kFloat, Shape({(bytes + 3) / 4}));
    }
    Status issued;
    bool done = true;
    stream->Enqueue({work, "node", [&] {
                       if (by_library) {
                         const auto ran = ways.library->Run(call, machine_.get(), *table_);
                         issued = ran.status();
                         done = ran.ok() && *ran;
                       } else {
                         issued = ways.loops->Run(call, *table_, {machine_->compute_stream()});
                       }
                       return issued;
                     }});
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].num_bytes() == 0) continue;
      stream->EnqueueCopy(work, "result", results[i].raw_data(), call.outputs[i].raw_data(),
                          results[i].num_bytes());
    }
    const Status ran = machine_->Synchronize(kLimit);
    EXPECT_TRUE(ran.ok()) << ran;
    EXPECT_TRUE(issued.ok()) << issued;
    return done && issued.ok() ? results : std::vector<Tensor>();
  }

  // True if the library has a way; then it is held against our loops, and in deterministic mode
  // against itself.
  bool Compare(const Ways& ways, const std::vector<Tensor>& inputs, const Made& output,
               const Tolerance& tolerance) {
    const auto got = Run(ways, true, inputs, {output});
    if (got.empty() || HasFailure()) return false;
    const auto want = Run(ways, false, inputs, {output});
    if (want.empty()) return false;
    ExpectClose(got[0], want[0], tolerance);
    if (machine_->math().deterministic) {
      const auto again = Run(ways, true, inputs, {output});
      EXPECT_TRUE(!again.empty() && SameBits(got[0], again[0])) << "other bits the second time";
    }
    return true;
  }

  const gpu::Loops* table_ = nullptr;
  std::shared_ptr<CudaMachineImpl> machine_;
};

int64_t DepthOf(const std::string& op, const ConvCase& g, const Shape& output) {
  if (op == "Conv2DBackpropInput") return g.rows * g.columns * g.outputs / g.groups;
  if (op == "Conv2DBackpropFilter") return g.batch * g.height * g.width;
  return g.rows * g.columns * g.channels / g.groups;
}

std::vector<ConvCase> AllConvCases() {
  std::vector<ConvCase> all(std::begin(kConvCases), std::end(kConvCases));
  ConvCase large{28, 28, 3, 3, 1, 1, 1, "SAME"};  // as in networks, for tensor cores
  large.batch = 8;
  large.channels = 64;
  large.outputs = 128;
  all.push_back(large);
  large.rows = large.columns = 1;
  all.push_back(large);
  large.rows = large.columns = 7;
  large.stride = 2;
  large.channels = 3;
  all.push_back(large);
  return all;
}

TEST_F(LibrariesTest, ConvolutionsAreThoseOfOurLoops) {
  int done = 0, left = 0;
  for (const bool tf32 : {false, true}) {
    for (const bool deterministic : {false, true}) {
      Start(tf32, deterministic);
      ASSERT_FALSE(HasFatalFailure());
      for (const DataType type : {kFloat, kHalf, kBfloat16}) {
        for (const ConvCase& g : AllConvCases()) {
          std::vector<ConvNode> nodes;
          for (const bool first : {false, true}) {
            for (const char* op : {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}) {
              nodes.push_back({op, type, first, ""});
            }
          }
          for (const char* activation : {"", "Relu", "Tanh"}) {
            nodes.push_back({"_FusedConv2D", type, false, activation});
          }
          for (const ConvNode& node : nodes) {
            const std::string name = StrCat(
                DataTypeName(type), node.channels_first ? " NCHW " : " NHWC ", node.op, " ",
                node.activation, " ", g.height, "x", g.width, " by ", g.rows, "x", g.columns, " ",
                g.padding, tf32 ? ", tf32" : "", deterministic ? ", deterministic" : "");
            SCOPED_TRACE(name);
            WithConvNode(
                BuiltinOps(), node, g,
                [&](KernelConstruction& c, const std::vector<Shape>& shapes, const Shape& output) {
                  const Ways ways{MakeConvLibraryBody(c), gpu::FindBody(c)->make(c)};
                  const bool known =
                      Compare(ways,
                              {Random(type, shapes[0], 1), Random(type, shapes[1], 2),
                               Random(type, shapes[2], 3)},
                              {type, output}, ToleranceOf(type, tf32, DepthOf(node.op, g, output)));
                  ++(known ? done : left);
                  if (!known) std::printf("left to our loops: %s\n", name.c_str());
                  // What networks are made of.
                  if (g.groups == 1 && g.dilation == 1) {
                    EXPECT_TRUE(known);
                  }
                });
            if (HasFailure()) return;  // one is enough to look at
          }
        }
      }
    }
  }
  std::printf("%d convolutions by cuDNN, %d left to our loops\n", done, left);
  EXPECT_GT(done, left);
}

TEST_F(LibrariesTest, ProductsAreThoseOfOurLoops) {
  const std::vector<std::array<int64_t, 3>> sizes = {
      {1, 1, 1}, {33, 65, 17}, {256, 512, 128}, {16, 20'000, 24}, {127, 63, 255}};
  for (const bool tf32 : {false, true}) {
    for (const bool deterministic : {false, true}) {
      Start(tf32, deterministic);
      ASSERT_FALSE(HasFatalFailure());
      for (const DataType type : {kFloat, kHalf, kBfloat16, kDouble}) {
        for (const auto& [m, k, n] : sizes) {
          for (int turned = 0; turned < 4; ++turned) {
            for (const char* activation : {"none", "", "Relu", "Tanh"}) {
              const bool fused = std::string(activation) != "none";
              SCOPED_TRACE(StrCat(DataTypeName(type), " ", m, " x ", k, " x ", n, ", turned ",
                                  turned, ", ", activation, tf32 ? ", tf32" : ""));
              AttrMap attrs;
              attrs.Set("T", AttrValue(type));
              attrs.Set("transpose_a", AttrValue((turned & 1) != 0));
              attrs.Set("transpose_b", AttrValue((turned & 2) != 0));
              if (fused) attrs.Set("activation", AttrValue(std::string(activation)));
              const std::vector<DataType> in(fused ? 3 : 2, type), out = {type};
              KernelConstruction c(nullptr, BuiltinOps().Find(fused ? "_FusedMatMul" : "MatMul"),
                                   "node", &attrs, in, out);
              const Ways ways{MakeMatMulLibraryBody(c), gpu::FindBody(c)->make(c)};
              std::vector<Tensor> inputs = {
                  Random(type, (turned & 1) != 0 ? Shape({k, m}) : Shape({m, k}), 1),
                  Random(type, (turned & 2) != 0 ? Shape({n, k}) : Shape({k, n}), 2)};
              if (fused) inputs.push_back(Random(type, {n}, 3));
              EXPECT_TRUE(Compare(ways, inputs, {type, {m, n}}, ToleranceOf(type, tf32, k)));
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_F(LibrariesTest, BatchesOfProductsAreThoseOfOurLoops) {
  Start(false, false);
  ASSERT_FALSE(HasFatalFailure());
  const std::vector<std::array<Shape, 3>> cases = {
      {Shape({6, 5, 7}), Shape({6, 7, 3}), Shape({6, 5, 3})},
      {Shape({3, 1, 32, 64}), Shape({4, 64, 16}), Shape({3, 4, 32, 16})},
      {Shape({8, 33, 17}), Shape({17, 65}), Shape({8, 33, 65})}};
  for (const DataType type : {kFloat, kHalf, kBfloat16, kDouble}) {
    for (const auto& [a, b, made] : cases) {
      SCOPED_TRACE(StrCat(DataTypeName(type), " ", a.DebugString()));
      AttrMap attrs;
      attrs.Set("T", AttrValue(type));
      attrs.Set("adj_x", AttrValue(false));
      attrs.Set("adj_y", AttrValue(false));
      const std::vector<DataType> in(2, type), out = {type};
      KernelConstruction c(nullptr, BuiltinOps().Find("BatchMatMulV2"), "node", &attrs, in, out);
      const Ways ways{MakeMatMulLibraryBody(c), gpu::FindBody(c)->make(c)};
      EXPECT_TRUE(Compare(ways, {Random(type, a, 1), Random(type, b, 2)}, {type, made},
                          ToleranceOf(type, false, a.dim(a.rank() - 1))));
    }
  }
}

// Means, variances and gradients of a few hundred numbers.
TEST_F(LibrariesTest, BatchNormalizationIsThatOfOurLoops) {
  Start(false, false);
  ASSERT_FALSE(HasFatalFailure());
  for (const DataType type : {kFloat, kHalf, kBfloat16}) {
    for (const char* format : {"NHWC", "NCHW"}) {
      SCOPED_TRACE(StrCat(DataTypeName(type), " ", format));
      const Shape images = format[1] == 'C' ? Shape({8, 32, 7, 6}) : Shape({8, 7, 6, 32});
      const Shape vector{32};
      AttrMap attrs;
      attrs.Set("T", AttrValue(type));
      attrs.Set("U", AttrValue(kFloat));
      attrs.Set("epsilon", AttrValue(0.01f));
      attrs.Set("exponential_avg_factor", AttrValue(1.0f));
      attrs.Set("data_format", AttrValue(std::string(format)));
      attrs.Set("is_training", AttrValue(true));
      const std::vector<DataType> in(6, kFloat), out(6, kFloat);
      const auto ways = [&](const char* op) {
        KernelConstruction c(nullptr, BuiltinOps().Find(op), "node", &attrs, in, out);
        return Ways{MakeBatchNormLibraryBody(c), gpu::FindBody(c)->make(c)};
      };
      const Ways forward = ways("FusedBatchNormV3"), backward = ways("FusedBatchNormGradV3");
      const Tensor x = Random(type, images, 1), scale = Random(kFloat, vector, 2);
      const Tensor none(kFloat, Shape({0}));
      const std::vector<Tensor> inputs = {x, scale, Random(kFloat, vector, 3), none, none};
      StreamCall asked;
      asked.machine = machine_.get();
      asked.inputs = inputs;
      const Shape kept =
          forward.library->OutputShape(asked, machine_.get(), 5).value_or(Shape({0}));
      std::vector<Made> outputs = {{type, images},   {kFloat, vector}, {kFloat, vector},
                                   {kFloat, vector}, {kFloat, vector}, {kFloat, kept}};
      const auto got = Run(forward, true, inputs, outputs);
      outputs[5].shape = Shape({0});
      const auto want = Run(forward, false, inputs, outputs);
      ASSERT_TRUE(got.size() == 6 && want.size() == 6);
      const Tolerance vectors{1e-4, 1e-4};
      const Tolerance pixels = type == kFloat ? vectors : ToleranceOf(type, false, 4);
      for (int i = 0; i < 5; ++i) {
        SCOPED_TRACE(StrCat("output ", i));
        ExpectClose(got[i], want[i], i == 0 ? pixels : vectors);
      }
      const Tensor gradient = Random(type, images, 4);
      const std::vector<Made> made = {{type, images}, {kFloat, vector}, {kFloat, vector}};
      const auto got_back = Run(backward, true, {gradient, x, scale, got[3], got[4], got[5]}, made);
      const auto want_back =
          Run(backward, false, {gradient, x, scale, want[3], want[4], none}, made);
      ASSERT_TRUE(got_back.size() == 3 && want_back.size() == 3);
      for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(StrCat("gradient ", i));
        ExpectClose(got_back[i], want_back[i], i == 0 ? pixels : Tolerance{1e-3, 1e-3});
      }
    }
  }
}

}  // namespace
}  // namespace millrace::testing
