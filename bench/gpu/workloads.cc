// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/workloads.h"

#include <cmath>
#include <utility>

#include "base/strings.h"
#include "millrace/ops.h"
#include "millrace/training.h"

namespace millrace::bench {
namespace {

std::unique_ptr<Workload> New(std::string name) {
  auto made = std::make_unique<Workload>();
  made->name = std::move(name);
  made->graph.SetSeed(7);
  return made;
}

// Data that lies on the device. No zeros: products of zeros are quicker than others.
Variable Data(const Scope& s, const std::string& name, const Shape& shape, DataType type,
              float stddev = 1) {
  Output value = RandomNormal(s, shape, {.stddev = stddev});
  if (type != kFloat) value = ops::Cast(s, value, type);
  return MakeVariable(s, name, value, {.trainable = false, .use_resource = true});
}

Variable Weights(const Scope& s, const std::string& name, const Shape& shape, float stddev) {
  return MakeVariable(s, name, TruncatedNormal(s, shape, {.stddev = stddev}),
                      {.use_resource = true});
}

Variable Filled(const Scope& s, const std::string& name, int64_t size, float value,
                bool trainable = true) {
  Tensor initial(kFloat, {size});
  for (float& v : initial.flat<float>()) v = value;
  return MakeVariable(s, name, Constant(s, initial),
                      {.trainable = trainable, .use_resource = true});
}

// int64: int32 values would lie in host memory.
Output Labels(const Scope& s, int64_t batch, int64_t classes) {
  Tensor labels(kInt64, {batch});
  for (int64_t i = 0; i < batch; ++i) labels.data<int64_t>()[i] = i * 7 % classes;
  return Constant(s, labels);
}

Output MeanLoss(const Scope& s, const Output& logits, int64_t batch, int64_t classes) {
  return ReduceMean(s, SparseSoftmaxCrossEntropy(s, logits, Labels(s, batch, classes)));
}

void Train(const Scope& s, const Output& loss, std::unique_ptr<Optimizer> optimizer, Workload* w,
           std::vector<Operation> beside = {}) {
  const auto train = optimizer->Minimize(s, loss, nullptr);
  if (!train.ok()) s.RecordError(train.status(), std::source_location::current());
  if (train.ok()) beside.push_back(*train);
  w->step = std::move(beside);
  w->results = {loss};
  w->init = {InitializeVariables(s)};
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Variable weights =
      Weights(s, name + "_w", {in, out}, 1 / std::sqrt(static_cast<float>(in)));
  const Variable bias = Filled(s, name + "_b", out, 0.1f);
  return ops::BiasAdd(s, ops::MatMul(s, x, weights.read), bias.read);
}

Output ConvBlock(const Scope& s, const std::string& name, const Output& x, int64_t in,
                 int64_t out) {
  const Variable weights = Weights(s, name + "_w", {5, 5, in, out}, 0.05f);
  const Variable bias = Filled(s, name + "_b", out, 0.1f);
  const Output y = ops::Conv2D(s, x, weights.read, {1, 1, 1, 1}, "SAME");
  return ops::MaxPool(s, ops::Relu(s, ops::BiasAdd(s, y, bias.read)), {1, 2, 2, 1}, {1, 2, 2, 1},
                      "SAME");
}

class ResNet {
 public:
  ResNet(const Scope& scope, DataType type) : s_(scope), type_(type) {}

  Output Logits(const Output& images, std::span<const int> depths, int64_t width, int64_t classes) {
    Output x = ops::Relu(s_, Normalized(Conv(images, 3, width, 7, 2), width));
    x = ops::MaxPool(s_, x, {1, 3, 3, 1}, {1, 2, 2, 1}, "SAME");
    int64_t channels = width;
    for (std::size_t stage = 0; stage < depths.size(); ++stage) {
      const int64_t inner = width << stage;
      for (int block = 0; block < depths[stage]; ++block) {
        x = Block(x, channels, inner, stage > 0 && block == 0 ? 2 : 1);
        channels = 4 * inner;
      }
    }
    const Output pooled = ops::Mean(s_, x, Constant(s_, Tensor::FromValues<int32_t>({1, 2})));
    const Output features = type_ == kFloat ? pooled : ops::Cast(s_, pooled, kFloat);
    return Dense(s_, "head", features, channels, classes);
  }
  // Keep the running statistics.
  std::vector<Operation> updates;

 private:
  Output Conv(const Output& x, int64_t in, int64_t out, int64_t size, int64_t stride) {
    const float stddev = std::sqrt(2.0f / static_cast<float>(size * size * out));
    const Variable weights =
        Weights(s_, StrCat("conv", ++convs_, "_w"), {size, size, in, out}, stddev);
    const Output filter = type_ == kFloat ? weights.read : ops::Cast(s_, weights.read, type_);
    return ops::Conv2D(s_, x, filter, {1, stride, stride, 1}, "SAME");
  }

  Output Normalized(const Output& x, int64_t channels, float scale = 1) {
    const std::string name = StrCat("norm", ++norms_);
    const Variable gamma = Filled(s_, name + "_gamma", channels, scale);
    const Variable beta = Filled(s_, name + "_beta", channels, 0);
    const Variable mean = Filled(s_, name + "_mean", channels, 0, false);
    const Variable variance = Filled(s_, name + "_variance", channels, 1, false);
    const Output none = Constant(s_, Tensor(kFloat, {0}));
    const auto norm =
        ops::FusedBatchNormV3(s_, x, gamma.read, beta.read, none, none, {.epsilon = 1e-5f});
    Keep(mean, norm.batch_mean);
    Keep(variance, norm.batch_variance);
    return norm.y;
  }

  void Keep(const Variable& running, const Output& value) {
    const Output change = ops::Mul(s_, ops::Sub(s_, value, running.read), 0.1f);
    updates.push_back(AssignAdd(s_, running, change));
  }

  Output Block(const Output& x, int64_t in, int64_t inner, int64_t stride) {
    Output shortcut = x;
    if (in != 4 * inner || stride != 1) {
      shortcut = Normalized(Conv(x, in, 4 * inner, 1, stride), 4 * inner);
    }
    Output y = ops::Relu(s_, Normalized(Conv(x, in, inner, 1, 1), inner));
    y = ops::Relu(s_, Normalized(Conv(y, inner, inner, 3, stride), inner));
    // The last one of a block begins as nothing, so that the block begins as its shortcut.
    y = Normalized(Conv(y, inner, 4 * inner, 1, 1), 4 * inner, 0);
    return ops::Relu(s_, ops::AddV2(s_, y, shortcut));
  }

  const Scope& s_;
  const DataType type_;
  int convs_ = 0, norms_ = 0;
};

}  // namespace

std::unique_ptr<Workload> TinyChain(const WorkloadOptions& options) {
  auto w = New("tiny_chain");
  const Scope s = w->graph.root().WithDevice(options.device);
  const Variable x = Data(s, "x", {1024}, kFloat);
  const Variable little = Data(s, "little", {1024}, kFloat, 1e-3f);
  Output y = x.read;
  w->parts = options.small ? 10 : 1000;
  for (int i = 0; i < w->parts; ++i) y = ops::AddV2(s, y, little.read);
  w->step = {y};
  w->results = {y};
  w->init = {InitializeVariables(s)};
  w->fuses = false;
  return w;
}

std::unique_ptr<Workload> Mlp(const WorkloadOptions& options) {
  auto w = New("mlp");
  const Scope s = w->graph.root().WithDevice(options.device);
  const int64_t batch = options.small ? 4 : 128, hidden = options.small ? 16 : 512;
  const Output x = Data(s, "x", {batch, 784}, kFloat).read;
  const Output h1 = ops::Relu(s, Dense(s, "one", x, 784, hidden));
  const Output h2 = ops::Relu(s, Dense(s, "two", h1, hidden, hidden));
  Train(s, MeanLoss(s, Dense(s, "three", h2, hidden, 10), batch, 10), GradientDescent({}), w.get());
  return w;
}

std::unique_ptr<Workload> Cnn(const WorkloadOptions& options) {
  auto w = New("cnn");
  const Scope s = w->graph.root().WithDevice(options.device);
  const int64_t batch = options.small ? 2 : 64;
  const int64_t c1 = options.small ? 4 : 32, c2 = options.small ? 8 : 64;
  const int64_t hidden = options.small ? 16 : 1024;
  const Output x = Data(s, "x", {batch, 28, 28, 1}, kFloat).read;
  const Output pooled = ConvBlock(s, "two", ConvBlock(s, "one", x, 1, c1), c1, c2);
  const Output flat = ops::Reshape(s, pooled, {-1, static_cast<int32_t>(49 * c2)});
  const Output h = ops::Relu(s, Dense(s, "three", flat, 49 * c2, hidden));
  Train(s, MeanLoss(s, Dense(s, "four", h, hidden, 10), batch, 10), GradientDescent({}), w.get());
  return w;
}

std::unique_ptr<Workload> Gemm(const WorkloadOptions& options, const std::string& kind) {
  auto w = New("gemm_" + kind);
  const Scope s = w->graph.root().WithDevice(options.device);
  const bool batched = kind == "batched";
  const DataType type = kind == "bf16" || batched ? kBfloat16 : kFloat;
  const int64_t n = options.small ? 8 : batched ? 256 : 8192, count = batched ? 64 : 1;
  const Shape shape = batched ? Shape({count, n, n}) : Shape({n, n});
  const Output a = Data(s, "a", shape, type).read, b = Data(s, "b", shape, type).read;
  w->parts = 10;
  w->flops = 2.0 * static_cast<double>(n * n * n * count);
  w->tf32 = kind == "tf32";
  Output product;
  for (int i = 0; i < w->parts; ++i) {
    product = batched ? ops::BatchMatMulV2(s, a, b) : ops::MatMul(s, a, b);
    w->step.push_back(product);
  }
  w->results = {ReduceMean(s, ops::Cast(s, product, kFloat))};
  w->init = {InitializeVariables(s)};
  return w;
}

std::unique_ptr<Workload> Elementwise(const WorkloadOptions& options) {
  auto w = New("elementwise");
  const Scope s = w->graph.root().WithDevice(options.device);
  const int64_t n = options.small ? 1000 : int64_t{256} << 20;
  const Output x = Data(s, "x", {n}, kFloat).read;
  const Output scaled = ops::AddV2(s, ops::Mul(s, x, 1.5f), 0.25f);
  const Output y = ops::Relu(s, ops::Sub(s, ops::Mul(s, scaled, x), 0.125f));
  w->bytes = 8.0 * static_cast<double>(n);
  w->step = {y};
  w->results = {ReduceMean(s, y)};
  w->init = {InitializeVariables(s)};
  return w;
}

std::unique_ptr<Workload> ResNet50(const WorkloadOptions& options, DataType dtype) {
  auto w = New("resnet50");
  const Scope s = w->graph.root().WithDevice(options.device);
  const int64_t batch = options.small ? 2 : 256, side = options.small ? 32 : 224;
  const int64_t classes = options.small ? 10 : 1000, width = options.small ? 4 : 64;
  const std::vector<int> depths =
      options.small ? std::vector<int>{1, 1} : std::vector<int>{3, 4, 6, 3};
  const Output images = Data(s, "images", {batch, side, side, 3}, dtype).read;
  ResNet net(s, dtype);
  const Output logits = net.Logits(images, depths, width, classes);
  Train(s, MeanLoss(s, logits, batch, classes), Momentum({.learning_rate = 0.1f, .momentum = 0.9f}),
        w.get(), std::move(net.updates));
  w->parts = static_cast<int>(batch);  // images
  return w;
}

std::unique_ptr<Workload> MakeWorkload(const std::string& name, const WorkloadOptions& options) {
  if (name == "tiny_chain") return TinyChain(options);
  if (name == "mlp") return Mlp(options);
  if (name == "cnn") return Cnn(options);
  if (name == "elementwise") return Elementwise(options);
  if (name == "resnet50") return ResNet50(options, kBfloat16);
  for (const char* kind : {"bf16", "tf32", "f32", "batched"}) {
    if (name == StrCat("gemm_", kind)) return Gemm(options, kind);
  }
  return nullptr;
}

std::vector<std::string> WorkloadNames() {
  return {"tiny_chain", "mlp",          "cnn",         "gemm_bf16", "gemm_tf32",
          "gemm_f32",   "gemm_batched", "elementwise", "resnet50"};
}

}  // namespace millrace::bench
