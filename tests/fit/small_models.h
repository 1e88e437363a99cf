// SPDX-License-Identifier: Apache-2.0
// Models and data that are just large enough for a test.
#ifndef TESTS_FIT_SMALL_MODELS_H_
#define TESTS_FIT_SMALL_MODELS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "tests/fit/counting_model.h"

namespace millrace::testing {

inline FitOptions Quietly(FitOptions options = {}) {
  options.verbose = Verbose::kSilent;
  return options;
}

inline std::unique_ptr<Model> Classifier(int64_t classes, uint64_t seed = 7) {
  auto model = std::make_unique<Model>(layers::Sequential(
      {layers::Dense(
           8, {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(seed)}),
       layers::Dense(classes, {.activation = "softmax",
                               .kernel_initializer = initializers::GlorotUniform(seed + 1)})}));
  EXPECT_TRUE(model
                  ->Compile({.optimizer = "adam",
                             .loss = "sparse_categorical_crossentropy",
                             .metrics = {"accuracy"}})
                  .ok());
  return model;
}

inline Tensor Numbers(int64_t rows, int64_t columns) {
  Tensor x(kFloat, Shape({rows, columns}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

inline Tensor Labels(int64_t rows, int64_t classes) {
  Tensor y(kInt64, Shape({rows}));
  for (int64_t i = 0; i < rows; ++i) y.data<int64_t>()[i] = i % classes;
  return y;
}

inline void ExpectError(const Status& status, StatusCode code,
                        const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(Message(status).find(part), std::string_view::npos)
        << "no '" << part << "' in: " << status;
  }
}

}  // namespace millrace::testing

#endif  // TESTS_FIT_SMALL_MODELS_H_
