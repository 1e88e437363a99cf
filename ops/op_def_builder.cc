// SPDX-License-Identifier: Apache-2.0
#include "ops/op_def_builder.h"

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/op_def_check.h"

namespace millrace {
namespace {

// Sets of types that many definitions allow; the order is part of the definition.
constexpr std::string_view kNumbers =
    "float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
    "qint16, quint16, uint16, complex128, half, uint32, uint64";
constexpr std::string_view kReals =
    "float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64";
constexpr std::string_view kFloats = "half, bfloat16, float, double";

// Splits at `separator` outside of quotes and brackets; pieces are stripped; none for "".
std::vector<std::string_view> SplitOutside(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  int depth = 0;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\'') quoted = !quoted;
    if (quoted) continue;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == separator && depth == 0) {
      pieces.push_back(StripWhitespace(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  const std::string_view last = StripWhitespace(text.substr(begin));
  if (!last.empty()) pieces.push_back(last);
  return pieces;
}

// Takes `prefix` and `suffix` off; false if they are not there.
bool Unwrap(std::string_view* text, std::string_view prefix, std::string_view suffix) {
  if (text->size() < prefix.size() + suffix.size()) return false;
  if (!text->starts_with(prefix) || !text->ends_with(suffix)) return false;
  *text =
      StripWhitespace(text->substr(prefix.size(), text->size() - prefix.size() - suffix.size()));
  return true;
}

// "a: b" into a and b.
bool SplitPair(std::string_view text, std::string_view* left, std::string_view* right) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  *left = StripWhitespace(text.substr(0, colon));
  *right = StripWhitespace(text.substr(colon + 1));
  return true;
}

bool ParseType(std::string_view text, pb::DataType* type) {
  DataType parsed;
  if (!DataTypeFromName(text, &parsed)) return false;
  *type = static_cast<pb::DataType>(parsed);
  return true;
}

Status Bad(std::string_view what, std::string_view text) {
  return errors::InvalidArgument("cannot read ", what, " from \"", text, "\"");
}

std::string Text(std::string_view text) { return std::string(text); }

// "uint8[255, 0]": a vector of small integers.
Status ParseVector(std::string_view text, pb::TensorProto* tensor) {
  const std::size_t bracket = text.find('[');
  if (bracket == std::string_view::npos) return Bad("tensor", text);
  pb::DataType type;
  std::string_view numbers = text.substr(bracket);
  if (!ParseType(text.substr(0, bracket), &type) || !Unwrap(&numbers, "[", "]")) {
    return Bad("tensor", text);
  }
  tensor->set_dtype(type);
  for (std::string_view item : SplitOutside(numbers, ',')) {
    int64_t number;
    if (!ParseInt64(StripWhitespace(item), &number)) return Bad("tensor", text);
    tensor->add_int_val(static_cast<int32_t>(number));
  }
  tensor->mutable_tensor_shape()->add_dim()->set_size(tensor->int_val_size());
  return OkStatus();
}

// One value of a scalar kind.
Status ParseScalar(std::string_view kind, std::string_view text, pb::AttrValue* value) {
  int64_t integer;
  double number;
  pb::DataType type;
  const bool quoted = text.size() >= 2 && text.starts_with('\'') && text.ends_with('\'');
  if (kind == "string" && quoted) {
    value->set_s(text.data() + 1, text.size() - 2);  // a lone newline is a value too
  } else if (kind == "int" && ParseInt64(text, &integer)) {
    value->set_i(integer);
  } else if (kind == "float" && ParseDouble(text, &number)) {
    value->set_f(static_cast<float>(number));
  } else if (kind == "bool" && (text == "true" || text == "false")) {
    value->set_b(text == "true");
  } else if (kind == "type" && ParseType(text, &type)) {
    value->set_type(type);
  } else if (kind == "shape" && text == "?") {
    value->mutable_shape()->set_unknown_rank(true);
  } else if (kind == "shape" && text == "[]") {
    value->mutable_shape();
  } else if (kind == "tensor") {
    return ParseVector(text, value->mutable_tensor());
  } else {
    return Bad(kind, text);
  }
  return OkStatus();
}

void AppendScalar(const pb::AttrValue& value, pb::AttrValue::ListValue* list) {
  switch (value.value_case()) {
    case pb::AttrValue::kS:
      list->add_s(value.s());
      break;
    case pb::AttrValue::kI:
      list->add_i(value.i());
      break;
    case pb::AttrValue::kF:
      list->add_f(value.f());
      break;
    case pb::AttrValue::kB:
      list->add_b(value.b());
      break;
    case pb::AttrValue::kType:
      list->add_type(value.type());
      break;
    default:
      *list->add_shape() = value.shape();
  }
}

Status ParseList(std::string_view kind, std::string_view text, pb::AttrValue* value) {
  pb::AttrValue::ListValue* list = value->mutable_list();
  for (std::string_view item : SplitOutside(text, ',')) {
    pb::AttrValue scalar;
    MR_RETURN_IF_ERROR(ParseScalar(kind, item, &scalar));
    AppendScalar(scalar, list);
  }
  return OkStatus();
}

// The kind part of an attribute: "int", "{float, int32}", "list({'a', 'b'})", "reals".
Status ParseKind(std::string_view kind, pb::OpDef::AttrDef* attr) {
  const bool is_list = Unwrap(&kind, "list(", ")");
  std::string_view allowed;
  if (kind == "numbers") allowed = kNumbers;
  if (kind == "reals") allowed = kReals;
  if (kind == "floats") allowed = kFloats;
  if (Unwrap(&kind, "{", "}")) allowed = kind;
  std::string base(kind);
  if (!allowed.empty()) {
    base = allowed.starts_with('\'') ? "string" : "type";
    MR_RETURN_IF_ERROR(ParseList(base, allowed, attr->mutable_allowed_values()));
  }
  attr->set_type(is_list ? StrCat("list(", base, ")") : base);
  return OkStatus();
}

Status ParseAttr(std::string_view text, pb::OpDef::AttrDef* attr) {
  std::string_view name, rest;
  if (!SplitPair(text, &name, &rest)) return Bad("attribute", text);
  attr->set_name(Text(name));
  std::string_view kind = rest, standard;
  // A '=' of the default stands alone; the one of ">=" does not.
  const std::size_t equals = rest.find(" = ");
  if (equals != std::string_view::npos) {
    kind = StripWhitespace(rest.substr(0, equals));
    standard = StripWhitespace(rest.substr(equals + 3));
  }
  const std::size_t least = kind.find(">=");
  if (least != std::string_view::npos) {
    int64_t minimum;
    if (!ParseInt64(StripWhitespace(kind.substr(least + 2)), &minimum)) return Bad("minimum", kind);
    attr->set_has_minimum(true);
    attr->set_minimum(minimum);
    kind = StripWhitespace(kind.substr(0, least));
  }
  MR_RETURN_IF_ERROR(ParseKind(kind, attr));
  if (standard.empty()) return OkStatus();
  std::string_view element = attr->type();
  if (!Unwrap(&element, "list(", ")")) {
    return ParseScalar(element, standard, attr->mutable_default_value());
  }
  if (!Unwrap(&standard, "[", "]")) return Bad("list", standard);
  return ParseList(element, standard, attr->mutable_default_value());
}

void SetVariable(std::string_view name, pb::FullTypeDef* type) {
  type->set_type_id(pb::TFT_VAR);
  type->set_s(Text(name));
}

// TENSOR[name], or TENSOR[STRING].
void SetTensorOf(std::string_view name, pb::FullTypeDef* type) {
  type->set_type_id(pb::TFT_TENSOR);
  if (name == "string") {
    type->add_args()->set_type_id(pb::TFT_STRING);
  } else {
    SetVariable(name, type->add_args());
  }
}

// FOR_EACH[PRODUCT, TENSOR[name], name]: one tensor for each type of the list.
void SetForEach(std::string_view name, pb::FullTypeDef* type) {
  type->set_type_id(pb::TFT_FOR_EACH);
  type->add_args()->set_type_id(pb::TFT_PRODUCT);
  SetTensorOf(name, type->add_args());
  SetVariable(name, type->add_args());
}

// The types that say more than an element type. A shape tensor's element type is still to be
// read from *type: false. The others are variants, and then all is said: true.
bool ParseFullType(std::string_view* type, pb::OpDef::ArgDef* arg) {
  if (Unwrap(type, "shape_tensor(", ")")) {
    arg->mutable_experimental_full_type()->set_type_id(pb::TFT_SHAPE_TENSOR);
    SetVariable(*type, arg->mutable_experimental_full_type()->add_args());
    return false;
  }
  pb::FullTypeId id;
  bool for_each = false;
  if (Unwrap(type, "array(", ")")) {
    id = pb::TFT_ARRAY;
  } else if (Unwrap(type, "dataset_of(", ")")) {
    id = pb::TFT_DATASET;
  } else if (*type == "dataset") {
    arg->set_type(pb::DT_VARIANT);
    arg->mutable_experimental_full_type()->set_type_id(pb::TFT_DATASET);
    arg->mutable_experimental_full_type()->add_args()->set_type_id(pb::TFT_ANY);
    return true;
  } else if (*type == "mutex_lock") {
    arg->set_type(pb::DT_VARIANT);
    arg->mutable_experimental_full_type()->set_type_id(pb::TFT_MUTEX_LOCK);
    return true;
  } else if (Unwrap(type, "ragged(", ")")) {
    arg->set_type(pb::DT_VARIANT);
    arg->mutable_experimental_full_type()->set_type_id(pb::TFT_RAGGED);
    SetVariable(*type, arg->mutable_experimental_full_type()->add_args());
    return true;
  } else if (Unwrap(type, "dataset(", ")")) {
    id = pb::TFT_DATASET;
    for_each = true;
  } else if (Unwrap(type, "optional(", ")")) {
    id = pb::TFT_OPTIONAL;
    for_each = true;
  } else {
    return false;
  }
  arg->set_type(pb::DT_VARIANT);
  arg->mutable_experimental_full_type()->set_type_id(id);
  pb::FullTypeDef* element = arg->mutable_experimental_full_type()->add_args();
  for_each ? SetForEach(*type, element) : SetTensorOf(*type, element);
  return true;
}

// Attributes are read before: they tell whether a name is a type or a list of types.
Status ParseArg(const pb::OpDef& def, std::string_view text, pb::OpDef::ArgDef* arg) {
  std::string_view name, type;
  if (!SplitPair(text, &name, &type)) return Bad("argument", text);
  arg->set_name(Text(name));
  arg->set_is_ref(Unwrap(&type, "Ref(", ")"));
  const std::size_t star = type.find('*');
  if (star != std::string_view::npos) {
    arg->set_number_attr(Text(StripWhitespace(type.substr(0, star))));
    type = StripWhitespace(type.substr(star + 1));
  }
  if (ParseFullType(&type, arg)) return OkStatus();
  const pb::OpDef::AttrDef* attr = FindAttrDef(def, type);
  pb::DataType plain;
  if (attr != nullptr && attr->type() == "list(type)") {
    arg->set_type_list_attr(Text(type));
  } else if (attr != nullptr) {
    arg->set_type_attr(Text(type));
  } else if (ParseType(type, &plain)) {
    arg->set_type(plain);
  } else {
    return Bad("the type of an argument", text);
  }
  return OkStatus();
}

void SetReplaced(std::string_view name, pb::OpDeprecation* deprecation) {
  deprecation->set_version(26);  // of graphs
  deprecation->set_explanation(name.ends_with("V2")
                                   ? StrCat("Use ", name.substr(0, name.size() - 1), "3")
                                   : StrCat("Use ", name, "V2"));
}

Status ParseDeprecation(std::string_view text, pb::OpDeprecation* deprecation) {
  std::string_view version, why;
  int64_t number;
  if (!SplitPair(text, &version, &why) || !ParseInt64(version, &number)) {
    return Bad("deprecation", text);
  }
  deprecation->set_version(static_cast<int32_t>(number));
  deprecation->set_explanation(Text(why));
  return OkStatus();
}

Status Parse(const OpSpec& spec, pb::OpDef* def) {
  def->set_name(spec.name);
  for (std::string_view text : SplitOutside(spec.attrs, ';')) {
    MR_RETURN_IF_ERROR(ParseAttr(text, def->add_attr()));
  }
  for (std::string_view text : SplitOutside(spec.inputs, ',')) {
    MR_RETURN_IF_ERROR(ParseArg(*def, text, def->add_input_arg()));
  }
  for (std::string_view text : SplitOutside(spec.outputs, ',')) {
    MR_RETURN_IF_ERROR(ParseArg(*def, text, def->add_output_arg()));
  }
  def->set_is_stateful((spec.flags & kStateful) != 0);
  def->set_is_commutative((spec.flags & kCommutative) != 0);
  def->set_is_aggregate((spec.flags & kAggregate) != 0);
  def->set_allows_uninitialized_input((spec.flags & kUninitializedInput) != 0);
  def->set_is_distributed_communication((spec.flags & kDistributed) != 0);
  if ((spec.flags & kReplaced) != 0) SetReplaced(spec.name, def->mutable_deprecation());
  if (spec.deprecation != nullptr) {
    MR_RETURN_IF_ERROR(ParseDeprecation(spec.deprecation, def->mutable_deprecation()));
  }
  return OkStatus();
}

}  // namespace

StatusOr<pb::OpDef> ParseOpSpec(const OpSpec& spec) {
  pb::OpDef def;
  Status status = Parse(spec, &def);
  if (!status.ok()) return WithMessage(status, StrCat("op '", spec.name, "': ", Message(status)));
  return def;
}

Status RegisterOps(OpRegistry& registry, std::span<const OpSpec> specs) {
  for (const OpSpec& spec : specs) {
    MR_ASSIGN_OR_RETURN(pb::OpDef def, ParseOpSpec(spec));
    MR_RETURN_IF_ERROR(registry.Register({std::move(def), spec.shape_fn}));
  }
  return OkStatus();
}

}  // namespace millrace
