// SPDX-License-Identifier: Apache-2.0
#include "serving/json_tensors.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr char kBase64[] = "b64", kBytesSuffix[] = "_bytes";
constexpr int kMostAxes = 254;

bool IsBytes(const Json& value) {
  return value.is_object() && value.size() == 1 && value.contains(kBase64) &&
         value[kBase64].is_string();
}

Status NoValue(const Json& value, DataType dtype) {
  constexpr std::size_t kMostText = 60;
  // A list or an object may be as deep as the request is long.
  const std::string text = value.is_structured() ? StrCat("a JSON ", value.type_name())
                                                 : JsonText(value).substr(0, kMostText);
  return errors::InvalidArgument(text, " is no value of type ", DataTypeName(dtype));
}

// False if it is no value of the type.
template <typename T>
bool Put(const Json& value, T* out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) return false;
    *out = value.get<bool>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (IsBytes(value)) {
      return absl::Base64Unescape(value[kBase64].get_ref<const std::string&>(), out);
    }
    if (!value.is_string()) return false;
    *out = value.get<std::string>();
  } else if constexpr (std::is_integral_v<T>) {
    if (!value.is_number_integer()) return false;
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                                 : std::in_range<T>(value.get<int64_t>());
    if (!fits) return false;
    *out = value.get<T>();
  } else {
    if (!value.is_number()) return false;
    *out = static_cast<T>(value.get<double>());
    if (!std::isfinite(*out)) return false;  // JSON has finite numbers alone: it was too large
  }
  return true;
}

template <typename T>
Status PutAll(const Json& value, int axis, const Shape& shape, T** next) {
  if (axis == shape.rank()) {
    return Put(value, (*next)++) ? OkStatus() : NoValue(value, DataTypeOf<T>());
  }
  if (!value.is_array() || static_cast<int64_t>(value.size()) != shape.dim(axis)) {
    return errors::InvalidArgument("lists differ in length: ", shape.dim(axis),
                                   " elements at axis ", axis, " first, and then ",
                                   value.is_array() ? StrCat(value.size()) : "no list");
  }
  for (const Json& element : value) {
    MR_RETURN_IF_ERROR(PutAll(element, axis + 1, shape, next));
  }
  return OkStatus();
}

template <typename T>
StatusOr<Tensor> Fill(const Json& value, const Shape& shape) {
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DataTypeOf<T>(), shape));
  T* next = tensor.data<T>();
  MR_RETURN_IF_ERROR(PutAll(value, 0, shape, &next));
  return tensor;
}

template <typename T>
Json ToJson(const Tensor& tensor, bool as_bytes) {
  std::vector<Json> values;
  for (const T& element : tensor.flat<T>()) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (as_bytes) {
        values.push_back({{kBase64, absl::Base64Escape(element)}});
        continue;
      }
    }
    values.emplace_back(element);
  }
  for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
    std::vector<Json> lists;
    const auto length = static_cast<std::size_t>(tensor.dim(axis));
    int64_t count = 1;
    for (int i = 0; i < axis; ++i) count *= tensor.dim(i);
    for (int64_t i = 0; i < count; ++i) {
      const auto first = values.begin() + static_cast<int64_t>(length) * i;
      lists.push_back(Json(std::vector<Json>(first, first + static_cast<int64_t>(length))));
    }
    values = std::move(lists);
  }
  return values.at(0);
}

// Calls `function` with a pointer to the C++ type; false for types without a form.
template <typename Function>
bool WithType(DataType dtype, const Function& function) {
  switch (dtype) {
    case kFloat:
      return function(static_cast<float*>(nullptr)), true;
    case kDouble:
      return function(static_cast<double*>(nullptr)), true;
    case kInt8:
      return function(static_cast<int8_t*>(nullptr)), true;
    case kInt16:
      return function(static_cast<int16_t*>(nullptr)), true;
    case kInt32:
      return function(static_cast<int32_t*>(nullptr)), true;
    case kInt64:
      return function(static_cast<int64_t*>(nullptr)), true;
    case kUint8:
      return function(static_cast<uint8_t*>(nullptr)), true;
    case kUint16:
      return function(static_cast<uint16_t*>(nullptr)), true;
    case kUint32:
      return function(static_cast<uint32_t*>(nullptr)), true;
    case kUint64:
      return function(static_cast<uint64_t*>(nullptr)), true;
    case kBool:
      return function(static_cast<bool*>(nullptr)), true;
    case kString:
      return function(static_cast<std::string*>(nullptr)), true;
    default:
      return false;
  }
}

}  // namespace

StatusOr<Tensor> TensorFromJson(const Json& value, DataType dtype) {
  Shape shape;
  for (const Json* at = &value; at->is_array(); at = &(*at)[0]) {
    if (shape.rank() == kMostAxes) {
      return errors::InvalidArgument("lists are more than ", kMostAxes, " deep");
    }
    shape.AddDim(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
  }
  StatusOr<Tensor> tensor =
      errors::Unimplemented("tensors of type ", DataTypeName(dtype), " have no form in JSON");
  WithType(dtype,
           [&](auto* type) { tensor = Fill<std::remove_pointer_t<decltype(type)>>(value, shape); });
  return tensor;
}

StatusOr<Json> TensorToJson(const Tensor& tensor, bool as_bytes) {
  Json value;
  const bool has_form = WithType(tensor.dtype(), [&](auto* type) {
    value = ToJson<std::remove_pointer_t<decltype(type)>>(tensor, as_bytes);
  });
  if (has_form) return value;
  return errors::Unimplemented("tensors of type ", DataTypeName(tensor.dtype()),
                               " have no form in JSON");
}

StatusOr<Json> TensorsToJson(const std::map<std::string, Tensor>& tensors) {
  Json all = Json::object();
  for (const auto& [name, tensor] : tensors) {
    MR_ASSIGN_OR_RETURN(all[name], TensorToJson(tensor, name.ends_with(kBytesSuffix)));
  }
  return all;
}

StatusOr<Json> ParseJson(const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return errors::InvalidArgument("this is no JSON: ", error.what());
  }
}

std::string JsonText(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace millrace
