// SPDX-License-Identifier: Apache-2.0
// Attribute values between memory and the wire.
#include <memory>

#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/op_registry.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

StatusOr<FunctionName> FunctionFromProto(const pb::NameAttrList& proto) {
  FunctionName function;
  function.name = proto.name();
  for (const auto& [name, value] : proto.attr()) {
    MR_ASSIGN_OR_RETURN(function.attrs[name], AttrFromProto(value));
  }
  return function;
}

void FunctionToProto(const FunctionName& function, pb::NameAttrList* proto) {
  proto->set_name(function.name);
  for (const auto& [name, value] : function.attrs)
    AttrToProto(value, &(*proto->mutable_attr())[name]);
}

// The element kind of a list is that of its only field that is not empty.
StatusOr<AttrValue> ListFromProto(const pb::AttrValue::ListValue& list) {
  const int kinds = (list.s_size() > 0) + (list.i_size() > 0) + (list.f_size() > 0) +
                    (list.b_size() > 0) + (list.type_size() > 0) + (list.shape_size() > 0) +
                    (list.tensor_size() > 0) + (list.func_size() > 0);
  if (kinds == 0) return AttrValue(AttrValue::EmptyList());
  if (kinds > 1) return errors::InvalidArgument("AttrValue has a list of more than one type");
  if (list.s_size() > 0) {
    return AttrValue(std::vector<std::string>(list.s().begin(), list.s().end()));
  }
  if (list.i_size() > 0) return AttrValue(std::vector<int64_t>(list.i().begin(), list.i().end()));
  if (list.f_size() > 0) return AttrValue(std::vector<float>(list.f().begin(), list.f().end()));
  if (list.b_size() > 0) return AttrValue(std::vector<bool>(list.b().begin(), list.b().end()));
  if (list.type_size() > 0) {
    std::vector<DataType> types;
    for (int type : list.type()) types.push_back(static_cast<DataType>(type));
    return AttrValue(std::move(types));
  }
  if (list.shape_size() > 0) {
    std::vector<PartialShape> shapes;
    for (const auto& shape : list.shape()) shapes.push_back(ShapeFromProto(shape));
    return AttrValue(std::move(shapes));
  }
  if (list.tensor_size() > 0) {
    std::vector<Tensor> tensors;
    for (const auto& tensor : list.tensor()) {
      MR_ASSIGN_OR_RETURN(Tensor value, TensorFromProto(tensor));
      tensors.push_back(std::move(value));
    }
    return AttrValue(std::move(tensors));
  }
  std::vector<FunctionName> functions;
  for (const auto& function : list.func()) {
    MR_ASSIGN_OR_RETURN(FunctionName value, FunctionFromProto(function));
    functions.push_back(std::move(value));
  }
  return AttrValue(std::move(functions));
}

struct ProtoWriter {
  pb::AttrValue* proto;

  void operator()(const std::monostate&) const { proto->Clear(); }
  void operator()(const std::string& v) const { proto->set_s(v); }
  void operator()(int64_t v) const { proto->set_i(v); }
  void operator()(float v) const { proto->set_f(v); }
  void operator()(bool v) const { proto->set_b(v); }
  void operator()(DataType v) const { proto->set_type(static_cast<pb::DataType>(v)); }
  void operator()(const PartialShape& v) const { ShapeToProto(v, proto->mutable_shape()); }
  void operator()(const std::shared_ptr<const Tensor>& v) const {
    TensorToProto(*v, proto->mutable_tensor());
  }
  void operator()(const std::shared_ptr<const FunctionName>& v) const {
    FunctionToProto(*v, proto->mutable_func());
  }
  void operator()(const AttrPlaceholder& v) const { proto->set_placeholder(v.name); }
  void operator()(const AttrValue::EmptyList&) const { proto->mutable_list(); }
  void operator()(const std::vector<std::string>& v) const {
    for (const std::string& item : v) proto->mutable_list()->add_s(item);
  }
  void operator()(const std::vector<int64_t>& v) const {
    for (int64_t item : v) proto->mutable_list()->add_i(item);
  }
  void operator()(const std::vector<float>& v) const {
    for (float item : v) proto->mutable_list()->add_f(item);
  }
  void operator()(const std::vector<bool>& v) const {
    for (bool item : v) proto->mutable_list()->add_b(item);
  }
  void operator()(const std::vector<DataType>& v) const {
    for (DataType item : v) proto->mutable_list()->add_type(static_cast<pb::DataType>(item));
  }
  void operator()(const std::vector<PartialShape>& v) const {
    for (const PartialShape& item : v) ShapeToProto(item, proto->mutable_list()->add_shape());
  }
  void operator()(const std::vector<Tensor>& v) const {
    for (const Tensor& item : v) TensorToProto(item, proto->mutable_list()->add_tensor());
  }
  void operator()(const std::vector<FunctionName>& v) const {
    for (const FunctionName& item : v) FunctionToProto(item, proto->mutable_list()->add_func());
  }
};

}  // namespace

StatusOr<AttrValue> AttrFromProto(const pb::AttrValue& proto) {
  switch (proto.value_case()) {
    case pb::AttrValue::kS:
      return AttrValue(proto.s());
    case pb::AttrValue::kI:
      return AttrValue(static_cast<int64_t>(proto.i()));
    case pb::AttrValue::kF:
      return AttrValue(proto.f());
    case pb::AttrValue::kB:
      return AttrValue(proto.b());
    case pb::AttrValue::kType:
      return AttrValue(static_cast<DataType>(proto.type()));
    case pb::AttrValue::kShape:
      return AttrValue(ShapeFromProto(proto.shape()));
    case pb::AttrValue::kTensor: {
      MR_ASSIGN_OR_RETURN(Tensor tensor, TensorFromProto(proto.tensor()));
      return AttrValue(std::move(tensor));
    }
    case pb::AttrValue::kFunc: {
      MR_ASSIGN_OR_RETURN(FunctionName function, FunctionFromProto(proto.func()));
      return AttrValue(std::move(function));
    }
    case pb::AttrValue::kPlaceholder:
      return AttrValue(AttrPlaceholder{proto.placeholder()});
    case pb::AttrValue::kList:
      return ListFromProto(proto.list());
    case pb::AttrValue::VALUE_NOT_SET:
      return AttrValue();
  }
  return errors::InvalidArgument("AttrValue of an unknown kind");
}

void AttrToProto(const AttrValue& value, pb::AttrValue* proto) {
  std::visit(ProtoWriter{proto}, value.value());
}

}  // namespace millrace
