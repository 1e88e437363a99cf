// SPDX-License-Identifier: Apache-2.0
#include "kernels/lists/variant_forms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/variant_codec.h"
#include "kernels/lists/optional.h"
#include "kernels/lists/tensor_list.h"
#include "kernels/lists/tensor_list_util.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr char kTensor[] = "tensorflow::Tensor";
constexpr char kList[] = "tensorflow::TensorList";
constexpr char kOptional[] = "tensorflow::data::Optional";

struct Scalar {
  std::string_view type_name;
  DataType dtype;
};
constexpr std::array kScalars = {Scalar{"int", kInt32}, Scalar{"float", kFloat},
                                 Scalar{"bool", kBool}, Scalar{"double", kDouble}};

Status Damaged(const pb::VariantTensorDataProto& proto) {
  return errors::InvalidArgument("a variant of type ", proto.type_name(), " is damaged");
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

bool ConsumeVarint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// Its bytes are the metadata.
StatusOr<Variant> DecodeScalar(const pb::VariantTensorDataProto& proto, ObjectDecoding&) {
  for (const Scalar& scalar : kScalars) {
    if (proto.type_name() != scalar.type_name) continue;
    const std::string& bytes = proto.metadata();
    if (bytes.size() != DataTypeSize(scalar.dtype)) return Damaged(proto);
    Tensor value(scalar.dtype, Shape());
    if (scalar.dtype == kBool) {
      value.data<bool>()[0] = bytes[0] != 0;
    } else {
      std::memcpy(value.raw_data(), bytes.data(), bytes.size());
    }
    return Variant(MakeRef<PlainValue>(proto.type_name(), std::move(value)));
  }
  return Damaged(proto);
}

StatusOr<Variant> DecodeTensor(const pb::VariantTensorDataProto& proto, ObjectDecoding& decoding) {
  if (proto.tensors_size() != 1) return Damaged(proto);
  MR_ASSIGN_OR_RETURN(Tensor value, decoding.TensorWithin(proto.tensors(0)));
  return Variant(MakeRef<PlainValue>(proto.type_name(), std::move(value)));
}

// Metadata: how many elements are not set, and which, in order; the type of the elements, how many
// there may be, all as varints; the shape of the elements as a message.
StatusOr<Variant> DecodeList(const pb::VariantTensorDataProto& proto, ObjectDecoding& decoding) {
  std::string_view rest = proto.metadata();
  uint64_t missing = 0, number = 0;
  // Each takes a byte at least.
  if (!ConsumeVarint(&rest, &missing) || missing > rest.size()) return Damaged(proto);
  const int64_t count = proto.tensors_size() + static_cast<int64_t>(missing);
  MR_RETURN_IF_ERROR(CheckListSize(count));
  auto list = MakeRef<TensorList>();
  list->elements.resize(count);
  int64_t at = 0;
  int next = 0;
  for (uint64_t i = 0; i <= missing; ++i) {
    number = static_cast<uint64_t>(count);
    if (i < missing && !ConsumeVarint(&rest, &number)) return Damaged(proto);
    // Up to the next that is missing, or to the end.
    if (number < static_cast<uint64_t>(at) || number > static_cast<uint64_t>(count) ||
        static_cast<int64_t>(number) - at > proto.tensors_size() - next) {
      return Damaged(proto);
    }
    for (; at < static_cast<int64_t>(number); ++at) {
      MR_ASSIGN_OR_RETURN(Tensor element, decoding.TensorWithin(proto.tensors(next++)));
      list->elements.Set(at, std::move(element));
    }
    ++at;
  }
  uint64_t dtype = 0, limit = 0;
  pb::TensorShapeProto shape;
  if (!ConsumeVarint(&rest, &dtype) || !ConsumeVarint(&rest, &limit) ||
      dtype > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()) ||
      !shape.ParseFromArray(rest.data(), static_cast<int>(rest.size()))) {
    return Damaged(proto);
  }
  list->dtype = static_cast<DataType>(dtype);
  list->max_num_elements = static_cast<int32_t>(limit);
  list->element_shape = ShapeFromProto(shape);
  Status fits = list->elements.ForEachSet(
      [&](int64_t, const Tensor& element) { return CheckListElement(*list, element); });
  if (!fits.ok()) return Damaged(proto);
  return Variant(std::move(list));
}

StatusOr<Variant> DecodeOptional(const pb::VariantTensorDataProto& proto,
                                 ObjectDecoding& decoding) {
  if (proto.metadata().size() != 1) return Damaged(proto);
  if (proto.metadata()[0] == 0) return Variant(MakeRef<Optional>());
  std::vector<Tensor> components;
  for (const pb::TensorProto& tensor : proto.tensors()) {
    MR_ASSIGN_OR_RETURN(Tensor component, decoding.TensorWithin(tensor));
    components.push_back(std::move(component));
  }
  MR_ASSIGN_OR_RETURN(const Tensor optional, OptionalOf(std::move(components)));
  return optional.scalar<Variant>();
}

bool EncodePlain(const PlainValue& plain, ObjectEncoding& encoding,
                 pb::VariantTensorDataProto* proto) {
  proto->set_type_name(plain.type_name);
  for (const Scalar& scalar : kScalars) {
    if (plain.type_name != scalar.type_name) continue;
    proto->set_metadata(plain.value.raw_data(), plain.value.num_bytes());
    return true;
  }
  return encoding.AddTensor(plain.value, proto->add_tensors());
}

bool EncodeList(const TensorList& list, ObjectEncoding& encoding,
                pb::VariantTensorDataProto* proto) {
  proto->set_type_name(kList);
  std::string missing;
  uint64_t count = 0;
  for (int64_t i = 0; i < list.elements.size(); ++i) {
    if (!list.elements[i].IsInitialized()) {
      ++count;
      AppendVarint(static_cast<uint64_t>(i), &missing);
    } else if (!encoding.AddTensor(list.elements[i], proto->add_tensors())) {
      return false;
    }
  }
  std::string* const metadata = proto->mutable_metadata();
  AppendVarint(count, metadata);
  metadata->append(missing);
  AppendVarint(static_cast<uint64_t>(list.dtype), metadata);
  AppendVarint(static_cast<uint64_t>(list.max_num_elements), metadata);
  pb::TensorShapeProto shape;
  ShapeToProto(list.element_shape, &shape);
  shape.AppendToString(metadata);
  return true;
}

bool EncodeOptional(const Optional& optional, ObjectEncoding& encoding,
                    pb::VariantTensorDataProto* proto) {
  proto->set_type_name(kOptional);
  proto->set_metadata(std::string(1, optional.has_value ? '\1' : '\0'));
  for (const Tensor& component : optional.components) {
    if (!encoding.AddTensor(component, proto->add_tensors())) return false;
  }
  return true;
}

bool EncodeObject(const RefCounted& object, ObjectEncoding& encoding,
                  pb::VariantTensorDataProto* proto) {
  if (const auto* list = dynamic_cast<const TensorList*>(&object)) {
    return EncodeList(*list, encoding, proto);
  }
  if (const auto* optional = dynamic_cast<const Optional*>(&object)) {
    return EncodeOptional(*optional, encoding, proto);
  }
  const auto* const plain = dynamic_cast<const PlainValue*>(&object);
  return plain != nullptr && EncodePlain(*plain, encoding, proto);
}

}  // namespace

void AddVariantForms() {
  SetObjectEncoder(EncodeObject);
  for (const Scalar& scalar : kScalars) AddObjectDecoder(scalar.type_name, DecodeScalar);
  AddObjectDecoder(kTensor, DecodeTensor);
  AddObjectDecoder(kIteratorPositionType, DecodeTensor);
  AddObjectDecoder(kList, DecodeList);
  AddObjectDecoder(kOptional, DecodeOptional);
}

}  // namespace millrace
