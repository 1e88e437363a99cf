// SPDX-License-Identifier: Apache-2.0
// What a node's attributes make of its op's signature: defaults, checks, types.
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/op_def_check.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

Status AppendArgTypes(const pb::OpDef::ArgDef& arg, const AttrMap& attrs,
                      std::vector<DataType>* types) {
  const std::size_t first = types->size();
  if (!arg.type_list_attr().empty()) {
    MR_ASSIGN_OR_RETURN(auto listed, attrs.Get<std::vector<DataType>>(arg.type_list_attr()));
    types->insert(types->end(), listed.begin(), listed.end());
  } else {
    int64_t count = 1;
    if (!arg.number_attr().empty()) {
      MR_ASSIGN_OR_RETURN(count, attrs.Get<int64_t>(arg.number_attr()));
      if (count < 0) {
        return errors::InvalidArgument("Value for number_attr() ", count, " < 0 of attr '",
                                       arg.number_attr(), "'");
      }
      // More tensors than this are no honest node, and would exhaust memory.
      constexpr int64_t kMostTensors = 1 << 24;
      if (count > kMostTensors) {
        return errors::InvalidArgument("attr '", arg.number_attr(), "' of ", count,
                                       " is too large for a number of tensors");
      }
    }
    DataType type = static_cast<DataType>(arg.type());
    if (!arg.type_attr().empty()) {
      MR_ASSIGN_OR_RETURN(type, attrs.Get<DataType>(arg.type_attr()));
    }
    types->insert(types->end(), static_cast<std::size_t>(count), type);
  }
  for (std::size_t i = first; i < types->size(); ++i) {
    DataType& type = (*types)[i];
    if (type == DataType::kInvalid) {
      return errors::InvalidArgument("argument '", arg.name(), "' has no valid type");
    }
    if (arg.is_ref()) {
      if (IsRefType(type)) {
        return errors::InvalidArgument("Requested reference to a reference type: ",
                                       DataTypeName(type), " for argument '", arg.name(), "'");
      }
      type = MakeRefType(type);
    }
  }
  return OkStatus();
}

}  // namespace

Status ExpandTypes(const pb::OpDef& def, const AttrMap& attrs, std::vector<DataType>* inputs,
                   std::vector<DataType>* outputs) {
  inputs->clear();
  outputs->clear();
  for (const auto& arg : def.input_arg()) MR_RETURN_IF_ERROR(AppendArgTypes(arg, attrs, inputs));
  for (const auto& arg : def.output_arg()) MR_RETURN_IF_ERROR(AppendArgTypes(arg, attrs, outputs));
  return OkStatus();
}

Status ArgRange(const pb::OpDef& def, const AttrMap& attrs, std::string_view name, bool is_input,
                int* begin, int* end) {
  std::vector<DataType> types;
  for (const auto& arg : is_input ? def.input_arg() : def.output_arg()) {
    *begin = static_cast<int>(types.size());
    MR_RETURN_IF_ERROR(AppendArgTypes(arg, attrs, &types));
    *end = static_cast<int>(types.size());
    if (arg.name() == name) return OkStatus();
  }
  return errors::InvalidArgument("op '", def.name(), "' has no ", is_input ? "input" : "output",
                                 " '", name, "'");
}

void AddDefaultAttrs(const pb::OpDef& def, AttrMap* attrs) {
  for (const auto& attr : def.attr()) {
    if (!attr.has_default_value() || attrs->Has(attr.name())) continue;
    StatusOr<AttrValue> value = AttrFromProto(attr.default_value());
    if (value.ok()) attrs->Set(attr.name(), *std::move(value));  // checked by Register
  }
}

void StripDefaultAttrs(const pb::OpDef& def, AttrMap* attrs) {
  for (const auto& attr : def.attr()) {
    const AttrValue* value = attrs->Find(attr.name());
    if (value == nullptr || !attr.has_default_value()) continue;
    StatusOr<AttrValue> standard = AttrFromProto(attr.default_value());
    if (standard.ok() && *value == *standard) attrs->Erase(attr.name());
  }
}

Status ValidateAttrs(const pb::OpDef& def, const AttrMap& attrs) {
  std::vector<std::string> missing;
  for (const auto& attr : def.attr()) {
    const AttrValue* value = attrs.Find(attr.name());
    if (value == nullptr) {
      missing.push_back(StrCat("'", attr.name(), "'"));
      continue;
    }
    MR_RETURN_IF_ERROR(CheckAttrValue(attr, *value));
  }
  if (missing.empty()) return OkStatus();
  return errors::InvalidArgument("NodeDef missing attr", missing.size() > 1 ? "s " : " ",
                                 StrJoin(missing, ", "), " from Op<", Signature(def), ">");
}

}  // namespace millrace
