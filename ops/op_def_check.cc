// SPDX-License-Identifier: Apache-2.0
#include "ops/op_def_check.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "ops/attr_kind.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// [A-Z][a-zA-Z0-9>_]*; ops of the runtime itself start with one underscore.
bool IsOpName(std::string_view name) {
  if (!name.empty() && name[0] == '_') name.remove_prefix(1);
  if (name.empty() || !IsUpper(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return IsLower(c) || IsUpper(c) || IsDigit(c) || c == '>' || c == '_';
  });
}

// [a-z][a-z0-9_]*
bool IsArgName(std::string_view name) {
  if (name.empty() || !IsLower(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLower(c) || IsDigit(c) || c == '_'; });
}

// A letter, then letters, digits and underscores (type parameters are upper case).
bool IsAttrName(std::string_view name) {
  if (name.empty() || !(IsLower(name[0]) || IsUpper(name[0]))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLower(c) || IsUpper(c) || IsDigit(c) || c == '_'; });
}

bool IsAttrType(std::string_view type) {
  constexpr std::string_view kList = "list(";
  if (type.starts_with(kList) && type.ends_with(")")) {
    type = type.substr(kList.size(), type.size() - kList.size() - 1);
  }
  constexpr std::array<std::string_view, 8> kKinds = {"string", "int",   "float",  "bool",
                                                      "type",   "shape", "tensor", "func"};
  return std::find(kKinds.begin(), kKinds.end(), type) != kKinds.end();
}

Status CheckArg(const pb::OpDef& def, const pb::OpDef::ArgDef& arg) {
  const auto has = [&](const std::string& name, std::string_view type) {
    const pb::OpDef::AttrDef* attr = FindAttrDef(def, name);
    return attr != nullptr && attr->type() == type;
  };
  if (!IsArgName(arg.name())) {
    return errors::InvalidArgument("op '", def.name(), "': bad argument name '", arg.name(), "'");
  }
  const bool well_typed =
      !arg.type_list_attr().empty()
          ? has(arg.type_list_attr(), "list(type)") && arg.type_attr().empty() && arg.type() == 0 &&
                arg.number_attr().empty()
          : (arg.type_attr().empty() ? arg.type() != 0
                                     : arg.type() == 0 && has(arg.type_attr(), "type"));
  if (!well_typed) {
    return errors::InvalidArgument("op '", def.name(), "': argument '", arg.name(),
                                   "' needs exactly one of a type, a type attr and a type list");
  }
  if (!arg.number_attr().empty() && !has(arg.number_attr(), "int")) {
    return errors::InvalidArgument("op '", def.name(), "': the length of argument '", arg.name(),
                                   "' is no int attr: '", arg.number_attr(), "'");
  }
  return OkStatus();
}

Status CheckAttr(const pb::OpDef& def, const pb::OpDef::AttrDef& attr) {
  if (!IsAttrName(attr.name())) {
    return errors::InvalidArgument("op '", def.name(), "': bad attr name '", attr.name(), "'");
  }
  if (!IsAttrType(attr.type())) {
    return errors::InvalidArgument("op '", def.name(), "': attr '", attr.name(),
                                   "' has unknown type '", attr.type(), "'");
  }
  if (attr.has_default_value()) {
    MR_ASSIGN_OR_RETURN(AttrValue value, AttrFromProto(attr.default_value()));
    Status status = CheckAttrValue(attr, value);
    if (!status.ok()) {
      return WithMessage(status, StrCat("op '", def.name(), "': bad default: ", Message(status)));
    }
  }
  return OkStatus();
}

// Empty lists fit any list.
bool KindFits(std::string_view declared, const AttrValue& value) {
  const std::string_view kind = AttrKind(value);
  return kind == declared || (kind == "list()" && declared.starts_with("list("));
}

struct LengthOf {
  template <typename T>
  std::size_t operator()(const std::vector<T>& list) const {
    return list.size();
  }
  template <typename T>
  std::size_t operator()(const T&) const {
    return 0;
  }
};

std::size_t ListLength(const AttrValue& value) { return std::visit(LengthOf(), value.value()); }

Status CheckType(std::string_view attr, DataType type) {
  if (type == DataType::kInvalid || !pb::DataType_IsValid(static_cast<int>(type))) {
    return errors::InvalidArgument("attr '", attr,
                                   "' has invalid DataType enum: ", static_cast<int>(type));
  }
  if (IsRefType(type)) {
    return errors::InvalidArgument("AttrValue must not have reference type value of ",
                                   DataTypeName(type), " for attr '", attr, "'");
  }
  return OkStatus();
}

template <typename T, typename Allowed>
Status CheckAllowed(const pb::OpDef::AttrDef& attr, const T& value, const Allowed& allowed,
                    std::string (*text)(const T&)) {
  std::vector<std::string> names;
  for (const auto& entry : allowed) {
    if (static_cast<T>(entry) == value) return OkStatus();
    names.push_back(text(static_cast<T>(entry)));
  }
  return errors::InvalidArgument("Value for attr '", attr.name(), "' of ", text(value),
                                 " is not in the list of allowed values: ", StrJoin(names, ", "));
}

std::string TypeText(const DataType& type) { return DataTypeName(type); }
std::string StringText(const std::string& text) { return StrCat("\"", CEscape(text), "\""); }

}  // namespace

const pb::OpDef::AttrDef* FindAttrDef(const pb::OpDef& def, std::string_view name) {
  for (const pb::OpDef::AttrDef& attr : def.attr()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

Status CheckOpDef(const pb::OpDef& def) {
  if (!IsOpName(def.name())) return errors::InvalidArgument("bad op name '", def.name(), "'");
  StringSet attrs, inputs, outputs;
  for (const auto& attr : def.attr()) {
    if (!attrs.insert(attr.name()).second) {
      return errors::InvalidArgument("op '", def.name(), "' has two attrs '", attr.name(), "'");
    }
    MR_RETURN_IF_ERROR(CheckAttr(def, attr));
  }
  for (const auto& arg : def.input_arg()) {
    if (!inputs.insert(arg.name()).second) {
      return errors::InvalidArgument("op '", def.name(), "' has two inputs '", arg.name(), "'");
    }
    MR_RETURN_IF_ERROR(CheckArg(def, arg));
  }
  for (const auto& arg : def.output_arg()) {
    if (!outputs.insert(arg.name()).second) {
      return errors::InvalidArgument("op '", def.name(), "' has two outputs '", arg.name(), "'");
    }
    MR_RETURN_IF_ERROR(CheckArg(def, arg));
  }
  return OkStatus();
}

Status CheckAttrValue(const pb::OpDef::AttrDef& attr, const AttrValue& value) {
  if (!KindFits(attr.type(), value)) {
    return errors::InvalidArgument("AttrValue had value with type '", AttrKind(value), "' when '",
                                   attr.type(), "' expected for attr '", attr.name(), "'");
  }
  const bool is_list = attr.type().starts_with("list(");
  if (attr.has_minimum()) {
    if (attr.type() == "int" && *value.get_if<int64_t>() < attr.minimum()) {
      return errors::InvalidArgument("Value for attr '", attr.name(), "' of ",
                                     *value.get_if<int64_t>(), " must be at least minimum ",
                                     static_cast<int64_t>(attr.minimum()));
    }
    if (is_list && static_cast<int64_t>(ListLength(value)) < attr.minimum()) {
      return errors::InvalidArgument("Length for attr '", attr.name(), "' of ", ListLength(value),
                                     " must be at least minimum ",
                                     static_cast<int64_t>(attr.minimum()));
    }
  }
  if (const auto* type = value.get_if<DataType>()) {
    MR_RETURN_IF_ERROR(CheckType(attr.name(), *type));
  }
  if (const auto* types = value.get_if<std::vector<DataType>>()) {
    for (DataType type : *types) MR_RETURN_IF_ERROR(CheckType(attr.name(), type));
  }
  if (!attr.has_allowed_values()) return OkStatus();
  const auto& allowed = attr.allowed_values().list();
  if (const auto* type = value.get_if<DataType>()) {
    return CheckAllowed<DataType>(attr, *type, allowed.type(), TypeText);
  }
  if (const auto* types = value.get_if<std::vector<DataType>>()) {
    for (DataType type : *types) {
      MR_RETURN_IF_ERROR(CheckAllowed<DataType>(attr, type, allowed.type(), TypeText));
    }
  }
  if (const auto* text = value.get_if<std::string>()) {
    return CheckAllowed<std::string>(attr, *text, allowed.s(), StringText);
  }
  if (const auto* texts = value.get_if<std::vector<std::string>>()) {
    for (const std::string& text : *texts) {
      MR_RETURN_IF_ERROR(CheckAllowed<std::string>(attr, text, allowed.s(), StringText));
    }
  }
  return OkStatus();
}

std::string Signature(const pb::OpDef& def) {
  const auto arg_text = [](const pb::OpDef::ArgDef& arg) {
    std::string type = !arg.type_list_attr().empty() ? arg.type_list_attr()
                       : !arg.type_attr().empty()    ? arg.type_attr()
                                                  : DataTypeName(static_cast<DataType>(arg.type()));
    if (!arg.number_attr().empty()) type = StrCat(arg.number_attr(), "*", type);
    if (arg.is_ref()) type = StrCat("Ref(", type, ")");
    return StrCat(arg.name(), ":", type);
  };
  std::vector<std::string> inputs, outputs;
  for (const auto& arg : def.input_arg()) inputs.push_back(arg_text(arg));
  for (const auto& arg : def.output_arg()) outputs.push_back(arg_text(arg));
  return StrCat(def.name(), "(", StrJoin(inputs, ", "), ") -> (", StrJoin(outputs, ", "), ")");
}

}  // namespace millrace
