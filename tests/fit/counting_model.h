// SPDX-License-Identifier: Apache-2.0
// A model with one weight, which a step of training changes by the learning rate: one that counts
// steps.
#ifndef TESTS_FIT_COUNTING_MODEL_H_
#define TESTS_FIT_COUNTING_MODEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/math.h"
#include "millrace/model.h"

namespace millrace::testing {

// [n, 1] to the weight, n times.
class Counter : public Layer {
 public:
  Counter() : Layer("counter") {}
  std::string kind() const override { return "Counter"; }

 protected:
  Output Call(Pass& pass, std::span<const Output> inputs, std::source_location where) override {
    const Variable count =
        Weight(pass, "count", Shape({1}), {.initializer = initializers::Zeros()}, where);
    return Expr(pass.scope(), ops::ZerosLike(pass.scope(), inputs[0])) + count.read;
  }
};

// Minus the predictions.
inline losses::Loss Counted() {
  return {"counted", [](const Scope& scope, const Output&, const Output& y_pred) {
            return losses::LossValues{-Expr(scope, y_pred).Squeeze(-1)};
          }};
}

// The labels, whatever is predicted: a loss that follows a script.
inline losses::Loss Scripted() {
  return {"scripted", [](const Scope& scope, const Output& y_true, const Output& y_pred) {
            return losses::LossValues{Expr(scope, y_true).Squeeze(-1) +
                                      Expr(scope, y_pred).Squeeze(-1) * 0.0f};
          }};
}

inline Tensor Column(const std::vector<float>& values) {
  return Tensor::FromValues<float>(std::span(values),
                                   Shape({static_cast<int64_t>(values.size()), 1}));
}
inline Tensor Ones(int64_t rows) { return Column(std::vector<float>(rows, 1.0f)); }

inline std::unique_ptr<Model> CountingModel(double learning_rate, const losses::Loss& loss,
                                            std::vector<MetricSpec> metrics = {}) {
  auto model = std::make_unique<Model>(std::make_shared<Counter>());
  const Status status =
      model->Compile({.optimizer = optimizers::Sgd({.learning_rate = learning_rate}),
                      .loss = loss,
                      .metrics = std::move(metrics)});
  return status.ok() ? std::move(model) : nullptr;
}

}  // namespace millrace::testing

#endif  // TESTS_FIT_COUNTING_MODEL_H_
