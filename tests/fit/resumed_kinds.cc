// SPDX-License-Identifier: Apache-2.0
#include "tests/fit/resumed_kinds.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/strings.h"
#include "millrace/keras_optimizers.h"

namespace millrace::testing {
namespace {

Tensor Inputs(std::vector<int64_t> sample) {
  sample.insert(sample.begin(), kRows);
  Tensor x(kFloat, Shape(sample));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

layers::LayerPtr Classes(int64_t seed) {
  return layers::Dense(
      kClasses, {.activation = "softmax", .kernel_initializer = initializers::GlorotUniform(seed)});
}

// All that there is at the end: weights, slots, counts, seeds, sums of metrics.
std::map<std::string, Tensor> VariablesOf(Model& model) {
  std::map<std::string, Tensor> values;
  for (const char* collection : {kVariables, kLocalVariables}) {
    for (const Variable& v : Variables(model.graph(), collection)) {
      const auto value = model.session()->Eval(v.read);
      EXPECT_TRUE(value.ok()) << v.name() << ": " << value.status();
      if (value.ok()) values.emplace(v.name(), *value);
    }
  }
  return values;
}

void ExpectSameVariables(const std::map<std::string, Tensor>& got,
                         const std::map<std::string, Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << name;
    const Tensor& other = found->second;
    ASSERT_EQ(other.shape(), value.shape()) << name;
    ASSERT_EQ(other.dtype(), value.dtype()) << name;
    const std::size_t bytes =
        static_cast<std::size_t>(value.num_elements()) * DataTypeSize(value.dtype());
    EXPECT_EQ(std::memcmp(other.raw_data(), value.raw_data(), bytes), 0)
        << name << ": " << other.DebugString(4) << ", not " << value.DebugString(4);
  }
}

}  // namespace

Tensor ResumedLabels() {
  Tensor y(kInt64, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) y.data<int64_t>()[i] = (i * 5) % kClasses;
  return y;
}

std::vector<ResumedKind> ResumedKinds() {
  std::vector<ResumedKind> kinds;
  kinds.push_back(
      {"Mlp", Inputs({6}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(layers::Dense(
             8, {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(seed)}));
         l.push_back(layers::Dropout(0.3, {.seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] { return OptimizerSpec("adam"); }});
  kinds.push_back(
      {"Cnn", Inputs({6, 6, 1}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(
             layers::Conv2D(4, 3, {.kernel_initializer = initializers::GlorotUniform(seed)}));
         l.push_back(layers::BatchNormalization());
         l.push_back(layers::Activation("relu"));
         l.push_back(layers::MaxPooling2D());
         l.push_back(layers::Flatten());
         l.push_back(layers::Dropout(0.4, {.seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] { return OptimizerSpec(optimizers::Sgd({.learning_rate = 0.05, .momentum = 0.9})); }});
  kinds.push_back(
      {"Lstm", Inputs({5, 3}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(
             layers::Lstm(6, {.kernel_initializer = initializers::GlorotUniform(seed),
                              .recurrent_initializer = initializers::Orthogonal({.seed = seed + 3}),
                              .dropout = 0.2,
                              .seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] {
         return OptimizerSpec(std::make_unique<optimizers::LossScale>(
             optimizers::Adam({.learning_rate = 0.01}),
             optimizers::LossScaleOptions{.initial_scale = 16, .dynamic_growth_steps = 7}));
       },
       false});
  return kinds;
}

Dataset ResumedBatches(const ResumedKind& kind, const std::string& how) {
  const Dataset rows = Dataset::FromTensorSlices({kind.x, ResumedLabels()});
  if (how == "seeded") return rows.Shuffle(20, {.seed = 5}).Batch(kBatch).Prefetch(2);
  return rows.Shuffle(kRows, {.seed = 3}).Cache().Shuffle(7, {.seed = 9}).Batch(kBatch);
}

void KeepResult(Model& model, const History& history, ResumedResult* result) {
  result->variables = VariablesOf(model);
  for (const History::Epoch& epoch : history.epochs()) {
    result->epochs.push_back({static_cast<double>(epoch.epoch)});
    for (const auto& [name, value] : epoch.logs) result->epochs.back().push_back(value);
  }
}

void ExpectEndOf(const ResumedResult& want, const ResumedResult& got) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  ExpectSameVariables(got.variables, want.variables);
  EXPECT_EQ(got.best, want.best);
  ASSERT_LE(got.epochs.size(), want.epochs.size());
  // A history has the epochs that its run has ended.
  for (std::size_t i = 0; i < got.epochs.size(); ++i) {
    EXPECT_EQ(got.epochs[i], want.epochs[want.epochs.size() - got.epochs.size() + i]);
  }
}

}  // namespace millrace::testing
