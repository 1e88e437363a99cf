// SPDX-License-Identifier: Apache-2.0
#include "millrace/attr_value.h"

#include <algorithm>
#include <type_traits>

#include "base/strings.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxListItems = 10;
constexpr std::size_t kMaxText = 200;

template <typename T>
bool Same(const T& a, const T& b) {
  return a == b;
}
bool Same(const std::shared_ptr<const Tensor>& a, const std::shared_ptr<const Tensor>& b) {
  return a == b || (a != nullptr && b != nullptr && TensorsEqual(*a, *b));
}
bool Same(const std::shared_ptr<const FunctionName>& a,
          const std::shared_ptr<const FunctionName>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}
bool Same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), TensorsEqual);
}

std::string Text(const std::string& v) {
  if (v.size() <= kMaxText) return StrCat("\"", CEscape(v), "\"");
  return StrCat("\"", CEscape(std::string_view(v).substr(0, kMaxText)), "\"... (", v.size(),
                " bytes)");
}
std::string Text(std::monostate) { return "<none>"; }
std::string Text(int64_t v) { return StrCat(v); }
std::string Text(float v) { return StrCat(v); }
std::string Text(bool v) { return StrCat(v); }
std::string Text(DataType v) { return DataTypeName(v); }
std::string Text(const PartialShape& v) { return v.DebugString(); }
std::string Text(const Tensor& v) { return v.DebugString(); }
std::string Text(const FunctionName& v) {
  if (v.attrs.empty()) return v.name;
  std::string out = StrCat(v.name, "[");
  std::string_view separator;
  for (const auto& [name, value] : v.attrs) {
    StrAppend(&out, separator, name, "=", value.DebugString());
    separator = ", ";
  }
  return out + "]";
}
std::string Text(const std::shared_ptr<const Tensor>& v) { return v ? Text(*v) : "<none>"; }
std::string Text(const std::shared_ptr<const FunctionName>& v) { return v ? Text(*v) : "<none>"; }
std::string Text(const AttrPlaceholder& v) { return StrCat("$", v.name); }
std::string Text(AttrValue::EmptyList) { return "[]"; }
template <typename T>
std::string Text(const std::vector<T>& v) {
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(v.size(), kMaxListItems); ++i) {
    if (i > 0) out += ", ";
    const T item = v[i];  // std::vector<bool> has no references to give
    out += Text(item);
  }
  if (v.size() > kMaxListItems) StrAppend(&out, ", ... (", v.size(), " items)");
  return out + "]";
}

}  // namespace

bool operator==(const FunctionName& a, const FunctionName& b) {
  return a.name == b.name && a.attrs == b.attrs;
}

bool operator==(const AttrValue& a, const AttrValue& b) {
  if (a.value().index() != b.value().index()) return false;
  return std::visit(
      [&b](const auto& value) {
        return Same(value, std::get<std::decay_t<decltype(value)>>(b.value()));
      },
      a.value());
}

std::string AttrValue::DebugString() const {
  return std::visit([](const auto& value) { return Text(value); }, value_);
}

}  // namespace millrace
