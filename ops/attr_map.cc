// SPDX-License-Identifier: Apache-2.0
#include "ops/attr_map.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/errors.h"
#include "ops/attr_kind.h"

namespace millrace {
namespace {

template <typename Entries>
auto LowerBound(Entries& entries, std::string_view name) {
  return std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const AttrMap::Entry& entry, std::string_view key) { return entry.first < key; });
}

Status WrongKind(std::string_view name, const AttrValue& value, std::string_view wanted) {
  return errors::InvalidArgument("attr '", name, "' has value with type '", AttrKind(value),
                                 "' when '", wanted, "' expected");
}

template <typename T>
constexpr std::string_view KindOf() {
  if constexpr (std::is_same_v<T, std::string>) return "string";
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, int32_t>) return "int";
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, DataType>) return "type";
  if constexpr (std::is_same_v<T, PartialShape>) return "shape";
  if constexpr (std::is_same_v<T, Tensor>) return "tensor";
  if constexpr (std::is_same_v<T, FunctionName>) return "func";
  return "list";
}

StatusOr<int32_t> Narrow(std::string_view name, int64_t value) {
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    return errors::InvalidArgument("attr '", name, "' has value ", value,
                                   " out of range for an int32");
  }
  return static_cast<int32_t>(value);
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
StatusOr<T> Convert(std::string_view name, const AttrValue& value) {
  if constexpr (std::is_same_v<T, Tensor>) {
    if (const Tensor* tensor = value.tensor()) return *tensor;
  } else if constexpr (std::is_same_v<T, FunctionName>) {
    if (const FunctionName* function = value.function()) return *function;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (const int64_t* number = value.get_if<int64_t>()) return Narrow(name, *number);
  } else if constexpr (IsVector<T>::value) {
    if (value.get_if<AttrValue::EmptyList>() != nullptr) return T();
    if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
      if (const auto* numbers = value.get_if<std::vector<int64_t>>()) {
        T out;
        out.reserve(numbers->size());
        for (int64_t number : *numbers) {
          StatusOr<int32_t> narrow = Narrow(name, number);
          if (!narrow.ok()) return narrow.status();
          out.push_back(*narrow);
        }
        return out;
      }
    } else {
      if (const T* list = value.get_if<T>()) return *list;
    }
  } else {
    if (const T* plain = value.get_if<T>()) return *plain;
  }
  return WrongKind(name, value, KindOf<T>());
}

}  // namespace

std::string_view AttrKind(const AttrValue& value) {
  struct Namer {
    std::string_view operator()(const std::monostate&) const { return "nothing"; }
    std::string_view operator()(const std::string&) const { return "string"; }
    std::string_view operator()(int64_t) const { return "int"; }
    std::string_view operator()(float) const { return "float"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(DataType) const { return "type"; }
    std::string_view operator()(const PartialShape&) const { return "shape"; }
    std::string_view operator()(const std::shared_ptr<const Tensor>&) const { return "tensor"; }
    std::string_view operator()(const std::shared_ptr<const FunctionName>&) const { return "func"; }
    std::string_view operator()(const AttrPlaceholder&) const { return "placeholder"; }
    std::string_view operator()(const AttrValue::EmptyList&) const { return "list()"; }
    std::string_view operator()(const std::vector<std::string>&) const { return "list(string)"; }
    std::string_view operator()(const std::vector<int64_t>&) const { return "list(int)"; }
    std::string_view operator()(const std::vector<float>&) const { return "list(float)"; }
    std::string_view operator()(const std::vector<bool>&) const { return "list(bool)"; }
    std::string_view operator()(const std::vector<DataType>&) const { return "list(type)"; }
    std::string_view operator()(const std::vector<PartialShape>&) const { return "list(shape)"; }
    std::string_view operator()(const std::vector<Tensor>&) const { return "list(tensor)"; }
    std::string_view operator()(const std::vector<FunctionName>&) const { return "list(func)"; }
  };
  return std::visit(Namer(), value.value());
}

void AttrMap::Set(std::string_view name, AttrValue value) {
  auto it = LowerBound(entries_, name);
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::string(name), std::move(value));
  }
}

bool AttrMap::Erase(std::string_view name) {
  auto it = LowerBound(entries_, name);
  if (it == entries_.end() || it->first != name) return false;
  entries_.erase(it);
  return true;
}

const AttrValue* AttrMap::Find(std::string_view name) const {
  auto it = LowerBound(entries_, name);
  return it == entries_.end() || it->first != name ? nullptr : &it->second;
}

template <typename T>
StatusOr<T> AttrMap::Get(std::string_view name) const {
  const AttrValue* value = Find(name);
  if (value == nullptr) return errors::InvalidArgument("no attr named '", name, "'");
  return Convert<T>(name, *value);
}

#define MR_INSTANTIATE_GET(T)                                   \
  template StatusOr<T> AttrMap::Get<T>(std::string_view) const; \
  template StatusOr<std::vector<T>> AttrMap::Get<std::vector<T>>(std::string_view) const
MR_INSTANTIATE_GET(std::string);
MR_INSTANTIATE_GET(int64_t);
MR_INSTANTIATE_GET(int32_t);
MR_INSTANTIATE_GET(float);
MR_INSTANTIATE_GET(bool);
MR_INSTANTIATE_GET(DataType);
MR_INSTANTIATE_GET(PartialShape);
MR_INSTANTIATE_GET(Tensor);
MR_INSTANTIATE_GET(FunctionName);
#undef MR_INSTANTIATE_GET

}  // namespace millrace
