// SPDX-License-Identifier: Apache-2.0
// Tensors as JSON: nested lists of numbers, truth values and texts; bytes as {"b64": "..."}.
#ifndef SERVING_JSON_TENSORS_H_
#define SERVING_JSON_TENSORS_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "millrace/dtype.h"
#include "millrace/saved_model.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// A tensor of this type in the shape of the lists. InvalidArgument for lists of different lengths,
// for values that the type has not (numbers beyond its range among them), and for types without a
// form here.
StatusOr<Tensor> TensorFromJson(const nlohmann::json& value, DataType dtype);

// `as_bytes`: texts are written in base64; otherwise bytes that are no UTF-8 are replaced when the
// JSON is written. Numbers that are not finite are null. Unimplemented for types without a form
// here.
StatusOr<nlohmann::json> TensorToJson(const Tensor& tensor, bool as_bytes = false);
// All by their names; those that end with "_bytes" in base64.
StatusOr<nlohmann::json> TensorsToJson(const std::map<std::string, Tensor>& tensors);

// Text as JSON; InvalidArgument says where it is none.
StatusOr<nlohmann::json> ParseJson(const std::string& text);
std::string JsonText(const nlohmann::json& value, int indent = -1);

}  // namespace millrace

#endif  // SERVING_JSON_TENSORS_H_
