// SPDX-License-Identifier: Apache-2.0
// Files of numbers that TensorFlow and Keras computed, and how far ours may be from them.
//
// They lie in tests/goldens/training, or in the folder that the environment variable
// MILLRACE_GOLDENS names: one folder per family, of the format that tests/goldens/BUILD describes.
#ifndef TESTS_TRAINING_GOLDENS_GOLDEN_H_
#define TESTS_TRAINING_GOLDENS_GOLDEN_H_

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "millrace/core.h"

namespace millrace::testing {

using Json = nlohmann::json;

// The file, such as "schedules/schedules.json"; ends the test program if it cannot be read.
Json LoadGolden(const std::string& path);

// Numbers, of which NaN and the infinities are texts. Booleans count as 0 and 1.
std::vector<double> Numbers(const Json& list);
// A tensor written as {dtype, shape, data}.
Tensor TensorOf(const Json& tensor);
Tensor FloatTensor(const Json& list, const Shape& shape);
Shape ShapeOf(const Json& list);
// The elements, whatever their type.
std::vector<double> ValuesOf(const Tensor& tensor);

struct GoldenTolerance {
  double rtol = 1e-5;
  double atol = 1e-6;
};
// Empty if the tensor has these elements, else the first that differs.
std::string Difference(const Tensor& got, const Json& want, const GoldenTolerance& tolerance);

// Arguments of a class of Keras: what is not given has the default of ours.
class Arguments {
 public:
  explicit Arguments(const Json& json) : json_(json) {}
  bool Has(const std::string& name) const { return json_.contains(name) && !json_[name].is_null(); }
  template <typename T>
  void Get(const std::string& name, T* value) const {
    if (Has(name)) *value = json_[name].get<T>();
  }
  template <typename T>
  void Get(const std::string& name, std::optional<T>* value) const {
    if (!json_.contains(name)) return;
    *value = json_[name].is_null() ? std::nullopt : std::optional<T>(json_[name].get<T>());
  }
  const Json& json() const { return json_; }

 private:
  const Json& json_;
};

// Counts cases; prints "<family>: 12 of 12 pass (3 left out)" at the end, and each failure.
class Tally {
 public:
  explicit Tally(std::string family) : family_(std::move(family)) {}
  ~Tally();
  // Empty: it passed.
  void Add(const std::string& name, const std::string& why);
  void LeaveOut() { ++left_out_; }

 private:
  const std::string family_;
  int passed_ = 0, cases_ = 0, left_out_ = 0;
};

}  // namespace millrace::testing

#endif  // TESTS_TRAINING_GOLDENS_GOLDEN_H_
