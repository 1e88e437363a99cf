// SPDX-License-Identifier: Apache-2.0
// The model that killed_evaluator_test trains and evaluator_program evaluates.
#ifndef TESTS_FIT_EVALUATED_MODEL_H_
#define TESTS_FIT_EVALUATED_MODEL_H_

#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "millrace/layers.h"
#include "millrace/model.h"

namespace millrace::testing {

constexpr int64_t kEvaluatedRows = 38, kEvaluatedBatch = 4;  // ten batches, the last is smaller

inline Tensor EvaluatedSamples() {
  Tensor x(kFloat, Shape({kEvaluatedRows, 6}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

inline Tensor EvaluatedLabels() {
  Tensor y(kInt64, Shape({kEvaluatedRows}));
  for (int64_t i = 0; i < kEvaluatedRows; ++i) y.data<int64_t>()[i] = (i * 5) % 3;
  return y;
}

// With weights of its own, until it has loaded some.
inline StatusOr<std::unique_ptr<Model>> EvaluatedModel(int64_t seed) {
  auto model = std::make_unique<Model>(
      layers::Sequential({layers::Dense(8, {.activation = "relu"}), layers::BatchNormalization(),
                          layers::Dense(3, {.activation = "softmax"})}),
      ModelOptions{.seed = seed});
  MR_RETURN_IF_ERROR(model->Compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}}));
  MR_RETURN_IF_ERROR(model->Build({{PartialShape({-1, 6}), kFloat}}));
  return model;
}

}  // namespace millrace::testing

#endif  // TESTS_FIT_EVALUATED_MODEL_H_
