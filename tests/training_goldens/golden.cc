// SPDX-License-Identifier: Apache-2.0
#include "tests/training_goldens/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/strings.h"

namespace millrace::testing {

Json LoadGolden(const std::string& path) {
  const char* const folder = std::getenv("MILLRACE_GOLDENS");
  const std::string full = StrCat(folder != nullptr ? folder : "tests/goldens/training", "/", path);
  std::ifstream file(full);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    std::fprintf(stderr, "%s: not there, or not JSON\n", full.c_str());
    std::abort();
  }
  return json;
}

namespace {

double NumberOf(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return value.get<double>();
  const std::string& text = value.get_ref<const std::string&>();
  const double infinity = std::numeric_limits<double>::infinity();
  return text == "Infinity" ? infinity : text == "-Infinity" ? -infinity : std::nan("");
}

template <typename T>
Tensor Make(const std::vector<double>& numbers, const Shape& shape) {
  std::vector<T> values;
  for (const double number : numbers) values.push_back(static_cast<T>(number));
  if constexpr (std::is_same_v<T, bool>) {
    Tensor tensor(kBool, shape);
    for (std::size_t i = 0; i < numbers.size(); ++i) tensor.data<bool>()[i] = numbers[i] != 0;
    return tensor;
  } else {
    return Tensor::FromValues<T>(std::span<const T>(values), shape);
  }
}

template <typename T>
std::vector<double> Doubles(const Tensor& tensor) {
  const T* data = tensor.data<T>();
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    values.push_back(static_cast<double>(data[i]));
  return values;
}

// Of 16 bits.
template <typename T>
std::vector<double> Floats(const Tensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    values.push_back(static_cast<double>(static_cast<float>(tensor.data<T>()[i])));
  }
  return values;
}

}  // namespace

std::vector<double> Numbers(const Json& list) {
  std::vector<double> numbers;
  if (!list.is_array()) return {NumberOf(list)};
  for (const Json& value : list) {
    if (value.is_array()) {
      for (const double number : Numbers(value)) numbers.push_back(number);
    } else {
      numbers.push_back(NumberOf(value));
    }
  }
  return numbers;
}

Shape ShapeOf(const Json& list) { return Shape(list.get<std::vector<int64_t>>()); }

Tensor FloatTensor(const Json& list, const Shape& shape) {
  return Make<float>(Numbers(list), shape);
}

Tensor TensorOf(const Json& tensor) {
  const std::string dtype = tensor["dtype"];
  const Shape shape = ShapeOf(tensor["shape"]);
  const std::vector<double> numbers = Numbers(tensor["data"]);
  if (dtype == "int64") return Make<int64_t>(numbers, shape);
  if (dtype == "int32") return Make<int32_t>(numbers, shape);
  if (dtype == "bool") return Make<bool>(numbers, shape);
  return Make<float>(numbers, shape);
}

std::vector<double> ValuesOf(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case kFloat:
      return Doubles<float>(tensor);
    case kDouble:
      return Doubles<double>(tensor);
    case kInt64:
      return Doubles<int64_t>(tensor);
    case kInt32:
      return Doubles<int32_t>(tensor);
    case kBool:
      return Doubles<bool>(tensor);
    case kHalf:
      return Floats<Half>(tensor);
    case kBfloat16:
      return Floats<BFloat16>(tensor);
    default:
      return {};
  }
}

std::string Difference(const Tensor& got, const Json& want, const GoldenTolerance& tolerance) {
  const std::vector<double> a = ValuesOf(got), b = Numbers(want);
  if (a.size() != b.size()) return StrCat(a.size(), " elements, not ", b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(b[i]) ? std::isnan(a[i]) : a[i] == b[i]) continue;
    if (std::abs(a[i] - b[i]) <= tolerance.atol + tolerance.rtol * std::abs(b[i])) continue;
    char text[120];
    std::snprintf(text, sizeof(text), "element %zu is %.9g, not %.9g", i, a[i], b[i]);
    return text;
  }
  return "";
}

void Tally::Add(const std::string& name, const std::string& why) {
  ++cases_;
  passed_ += why.empty();
  EXPECT_EQ(why, "") << family_ << " " << name;
}

Tally::~Tally() {
  std::printf("%s: %d of %d pass (%d left out)\n", family_.c_str(), passed_, cases_, left_out_);
  EXPECT_GT(cases_, 0);
}

}  // namespace millrace::testing
