// SPDX-License-Identifier: Apache-2.0
// Models, data and comparisons of the tests of ModelOptions::precision.
#ifndef TESTS_FIT_MIXED_MODELS_H_
#define TESTS_FIT_MIXED_MODELS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/keras_optimizers.h"
#include "millrace/strategy.h"
#include "tests/fit/small_models.h"

namespace millrace::testing {

inline constexpr int64_t kFeatures = 6, kClasses = 3, kRows = 24;
inline constexpr const char* kBoth[] = {"mixed_bfloat16", "mixed_float16"};

inline DataType TypeOf(std::string_view precision) {
  return precision == "mixed_bfloat16" ? kBfloat16 : precision == "mixed_float16" ? kHalf : kFloat;
}

inline Tensor X() { return Numbers(kRows, kFeatures); }
inline Tensor Y() { return Labels(kRows, kClasses); }

inline FitOptions TwoEpochs() {
  return {.batch_size = 8, .epochs = 2, .shuffle = false, .verbose = Verbose::kSilent};
}

inline optimizers::LossScale* ScalerOf(Model& model) {
  return dynamic_cast<optimizers::LossScale*>(model.optimizer());
}

inline double ScaleOf(Model& model) {
  const auto value = model.session()->Eval(ScalerOf(model)->scale().read);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? static_cast<double>(value->TryScalar<float>().value_or(-1)) : -1;
}

inline void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(TensorsEqual(a[i], b[i])) << i;
}

inline void ExpectNear(const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                       float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape(), b[i].shape());
    for (int64_t j = 0; j < a[i].num_elements(); ++j) {
      EXPECT_NEAR(a[i].data<float>()[j], b[i].data<float>()[j], tolerance) << i << " " << j;
    }
  }
}

// Without batch statistics, which are those of each replica.
inline std::unique_ptr<Model> Plain(const std::string& precision,
                                    std::shared_ptr<Strategy> strategy) {
  auto model = std::make_unique<Model>(
      layers::Sequential(
          {layers::Dense(
               8, {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(3)}),
           layers::Dense(kClasses, {.kernel_initializer = initializers::GlorotUniform(4)})}),
      ModelOptions{.strategy = std::move(strategy), .precision = precision});
  const Status status =
      model->Compile({.optimizer = optimizers::Sgd({.learning_rate = 0.1}),
                      .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  EXPECT_TRUE(status.ok()) << status;
  return model;
}

// Sums over half of the rows are rounded to the type once more.
inline float ToleranceOf(const std::string& precision) {
  return precision == "mixed_bfloat16" ? 1e-2f : 2e-3f;
}

}  // namespace millrace::testing

#endif  // TESTS_FIT_MIXED_MODELS_H_
