// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/model.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "millrace/ops.h"

namespace millrace::mnist {
namespace {

// What makes a variable's initial value lies under the variable's name.
Scope InitializerScope(const Scope& s, const char* name) {
  return s.Named(std::string(name) + "/Initializer");
}

Variable Weights(const Scope& s, const char* name, const Shape& shape, float stddev) {
  return MakeVariable(s, name,
                      TruncatedNormal(InitializerScope(s, name), shape, {.stddev = stddev}));
}
Variable Bias(const Scope& s, const char* name, int64_t size, float value = 0.0f) {
  Tensor initial(kFloat, {size});
  for (float& v : initial.flat<float>()) v = value;
  return MakeVariable(s, name, Constant(InitializerScope(s, name), initial));
}

Output Dense(const Scope& s, const Output& x, const Variable& w, const Variable& b) {
  return ops::BiasAdd(s, ops::MatMul(s, x, w.read), b.read);
}

Model Inputs(const Scope& s) {
  Model m;
  m.images = Placeholder(s.WithOpName("x"), kFloat, {-1, kDigitPixels});
  m.labels = Placeholder(s.WithOpName("y_"), kFloat, {-1, kDigitClasses});
  return m;
}

void AddHead(const Scope& s, const Output& logits, Model& m) {
  // As TensorFlow's script has it, also for the figures printed: a probability below 1e-10
  // counts as 1e-10 and gives no gradient, so that one hopeless image cannot outweigh the rest.
  const Output clipped = ops::ClipByValue(s, ops::Softmax(s, logits), 1e-10f, 1.0f);
  const Output log_likelihood = ops::Mul(s, m.labels, ops::Log(s, clipped));
  m.cross_entropy = ops::Neg(s.WithOpName("cross_entropy"), ReduceSum(s, log_likelihood));
  const Output hit = ops::Equal(s, ops::ArgMax(s, logits, 1), ops::ArgMax(s, m.labels, 1));
  m.correct = ReduceSum(s.WithOpName("correct"), ops::Cast(s, hit, kInt64));
}

Output ConvBlock(const Scope& s, const Output& x, const Variable& w, const Variable& b) {
  const Output y =
      ops::Relu(s, ops::BiasAdd(s, ops::Conv2D(s, x, w.read, {1, 1, 1, 1}, "SAME"), b.read));
  return ops::MaxPool(s, y, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

}  // namespace

Model BuildMlp(const Scope& s, int hidden_units) {
  const int64_t hidden = hidden_units;
  const Variable hid_w = Weights(s, "hid_w", {kDigitPixels, hidden}, 1.0f / 28.0f);
  const Variable hid_b = Bias(s, "hid_b", hidden);
  const Variable sm_w =
      Weights(s, "sm_w", {hidden, kDigitClasses}, 1.0f / std::sqrt(static_cast<float>(hidden)));
  const Variable sm_b = Bias(s, "sm_b", kDigitClasses);
  Model m = Inputs(s);
  const Output hid = ops::Relu(s.WithOpName("hid"), Dense(s, m.images, hid_w, hid_b));
  AddHead(s, Dense(s, hid, sm_w, sm_b), m);
  return m;
}

Model BuildCnn(const Scope& s) {
  const Variable w1 = Weights(s, "conv1_w", {5, 5, 1, 32}, 0.1f);
  const Variable b1 = Bias(s, "conv1_b", 32, 0.1f);
  const Variable w2 = Weights(s, "conv2_w", {5, 5, 32, 64}, 0.05f);
  const Variable b2 = Bias(s, "conv2_b", 64, 0.1f);
  const Variable w3 = Weights(s, "fc_w", {7 * 7 * 64, 512}, 0.03f);
  const Variable b3 = Bias(s, "fc_b", 512, 0.1f);
  const Variable w4 = Weights(s, "sm_w", {512, kDigitClasses}, 0.05f);
  const Variable b4 = Bias(s, "sm_b", kDigitClasses);
  Model m = Inputs(s);
  const Output image = ops::Reshape(s, m.images, {-1, 28, 28, 1});
  const Output pooled = ConvBlock(s, ConvBlock(s, image, w1, b1), w2, b2);
  const Output flat = ops::Reshape(s, pooled, {-1, 7 * 7 * 64});
  AddHead(s, Dense(s, ops::Relu(s, Dense(s, flat, w3, b3)), w4, b4), m);
  return m;
}

StatusOr<Score> ScoreOf(const Model& model, const Examples& examples, const StepFunction& run) {
  constexpr int64_t kSlice = 500;
  const Output fetches[] = {model.cross_entropy, model.correct};
  Score score;
  for (int64_t begin = 0; begin < examples.size(); begin += kSlice) {
    const int64_t end = std::min(begin + kSlice, examples.size());
    const Feed feeds[] = {{model.images, examples.images.Slice(begin, end)},
                          {model.labels, examples.one_hot.Slice(begin, end)}};
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> out, run(feeds, fetches));
    score.cross_entropy += out[0].scalar<float>();
    score.correct += out[1].scalar<int64_t>();
  }
  return score;
}

}  // namespace millrace::mnist
