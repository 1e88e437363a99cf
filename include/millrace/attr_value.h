// SPDX-License-Identifier: Apache-2.0
// Attribute values of nodes, as users and kernels see them (no protobuf).
#ifndef MILLRACE_ATTR_VALUE_H_
#define MILLRACE_ATTR_VALUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/shape.h"
#include "millrace/tensor.h"

namespace millrace {

class AttrValue;

// A function by name, with the attributes to instantiate it with.
struct FunctionName {
  std::string name;                        // in the library of its graph
  std::map<std::string, AttrValue> attrs;  // values of its type parameters and such
  friend bool operator==(const FunctionName& a, const FunctionName& b);
};

// The name of a type parameter inside a function body; resolved at instantiation.
struct AttrPlaceholder {
  std::string name;  // of the attribute that the function is instantiated with
  friend bool operator==(const AttrPlaceholder&, const AttrPlaceholder&) = default;
};

// One attribute. An empty list has kind `EmptyList`, whatever its element type: TensorFlow
// writes all empty lists alike.
class AttrValue {
 public:
  // A list without elements.
  struct EmptyList {
    friend bool operator==(const EmptyList&, const EmptyList&) = default;
  };
  // All kinds that there are; std::monostate: none.
  using Value =
      std::variant<std::monostate, std::string, int64_t, float, bool, DataType, PartialShape,
                   std::shared_ptr<const Tensor>, std::shared_ptr<const FunctionName>,
                   AttrPlaceholder, EmptyList, std::vector<std::string>, std::vector<int64_t>,
                   std::vector<float>, std::vector<bool>, std::vector<DataType>,
                   std::vector<PartialShape>, std::vector<Tensor>, std::vector<FunctionName>>;

  AttrValue() = default;
  AttrValue(std::string v) : value_(std::move(v)) {}         // NOLINT
  AttrValue(std::string_view v) : value_(std::string(v)) {}  // NOLINT
  AttrValue(const char* v) : value_(std::string(v)) {}       // NOLINT
  AttrValue(int64_t v) : value_(v) {}                        // NOLINT
  AttrValue(int v) : value_(static_cast<int64_t>(v)) {}      // NOLINT
  AttrValue(float v) : value_(v) {}                          // NOLINT
  AttrValue(bool v) : value_(v) {}                           // NOLINT
  AttrValue(DataType v) : value_(v) {}                       // NOLINT
  AttrValue(PartialShape v) : value_(std::move(v)) {}        // NOLINT
  AttrValue(const Shape& v) : value_(PartialShape(v)) {}     // NOLINT
  // A constant.
  AttrValue(Tensor v)  // NOLINT
      : value_(std::make_shared<const Tensor>(std::move(v))) {}
  // A function with its attributes.
  AttrValue(FunctionName v)  // NOLINT
      : value_(std::make_shared<const FunctionName>(std::move(v))) {}
  AttrValue(AttrPlaceholder v) : value_(std::move(v)) {}  // NOLINT
  AttrValue(EmptyList v) : value_(v) {}                   // NOLINT
  template <typename T>
  AttrValue(std::vector<T> v) {  // NOLINT
    if (v.empty()) {
      value_ = EmptyList{};
    } else {
      value_ = std::move(v);
    }
  }

  // Whether there is one.
  bool has_value() const { return !std::holds_alternative<std::monostate>(value_); }
  // The value, of any kind.
  const Value& value() const { return value_; }

  // Pointer to the value if it is of this kind, else null.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }
  // The tensor if it is one, else null; lives as long as this value.
  const Tensor* tensor() const {
    auto* p = std::get_if<std::shared_ptr<const Tensor>>(&value_);
    return p == nullptr ? nullptr : p->get();
  }
  // The function if it is one, else null; lives as long as this value.
  const FunctionName* function() const {
    auto* p = std::get_if<std::shared_ptr<const FunctionName>>(&value_);
    return p == nullptr ? nullptr : p->get();
  }

  // Deep equality (tensors by value).
  friend bool operator==(const AttrValue& a, const AttrValue& b);
  // Short text for people: long tensors and lists are cut.
  std::string DebugString() const;

 private:
  Value value_;
};

}  // namespace millrace

#endif  // MILLRACE_ATTR_VALUE_H_
