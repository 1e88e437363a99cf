// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

// A typed list may stand for a tensor far larger than itself ("fill with the last value").
// More than this only an attacker would ask for: as content it would not fit in a message.
constexpr std::size_t kMaxFilledBytes = std::size_t{2} << 30;

// Field headers of TensorProto and TensorShapeProto: number << 3 | wire type.
constexpr char kDtypeTag = 0x08;
constexpr char kShapeTag = 0x12;
constexpr char kContentTag = 0x22;
constexpr char kDimTag = 0x12;
constexpr char kSizeTag = 0x08;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

std::size_t VarintLength(uint64_t value) {
  std::size_t length = 1;
  for (; value >= 0x80; value >>= 7) ++length;
  return length;
}

bool ConsumeVarint(std::string_view* bytes, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    if (shift == 63 && byte > 1) return false;
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return false;
}

template <typename... Args>
Status CannotParse(const Args&... args) {
  return errors::InvalidArgument("Cannot parse tensor from proto: ", args...);
}

// The pieces of `bytes`: one varint length for each of `count` elements, then their bytes,
// which must use up the rest exactly. Calls `take(i, piece)` for each.
template <typename Take>
Status ForEachFramed(std::string_view bytes, int64_t count, Take take) {
  if (static_cast<uint64_t>(count) > bytes.size()) {
    return errors::InvalidArgument(bytes.size(), " bytes cannot hold ", count, " lengths");
  }
  std::string_view lengths = bytes;
  std::string_view rest = bytes;
  uint64_t length = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!ConsumeVarint(&rest, &length)) {
      return errors::InvalidArgument("the length of element ", i, " is damaged");
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    ConsumeVarint(&lengths, &length);
    if (length > rest.size()) {
      return errors::InvalidArgument("element ", i, " is ", length, " bytes long, but only ",
                                     rest.size(), " are left");
    }
    MR_RETURN_IF_ERROR(take(i, rest.substr(0, length)));
    rest.remove_prefix(length);
  }
  if (!rest.empty()) {
    return errors::InvalidArgument(rest.size(), " bytes are left over after ", count, " elements");
  }
  return OkStatus();
}

ResourceHandle HandleFromProto(const pb::ResourceHandleProto& proto) {
  ResourceHandle handle;
  handle.device = proto.device();
  handle.container = proto.container();
  handle.name = proto.name();
  handle.hash_code = proto.hash_code();
  handle.type_name = proto.maybe_type_name();
  for (const auto& item : proto.dtypes_and_shapes()) {
    handle.dtypes_and_shapes.emplace_back(static_cast<DataType>(item.dtype()),
                                          ShapeFromProto(item.shape()));
  }
  return handle;
}

void HandleToProto(const ResourceHandle& handle, pb::ResourceHandleProto* proto) {
  proto->set_device(handle.device);
  proto->set_container(handle.container);
  proto->set_name(handle.name);
  proto->set_hash_code(handle.hash_code);
  proto->set_maybe_type_name(handle.type_name);
  for (const auto& [dtype, shape] : handle.dtypes_and_shapes) {
    auto* item = proto->add_dtypes_and_shapes();
    item->set_dtype(static_cast<pb::DataType>(dtype));
    ShapeToProto(shape, item->mutable_shape());
  }
}

// TensorFlow writes handles as messages, but takes them framed like strings as well.
Status DecodeHandles(std::string_view bytes, Tensor* tensor) {
  ResourceHandle* out = tensor->data<ResourceHandle>();
  return ForEachFramed(bytes, tensor->num_elements(), [out](int64_t i, std::string_view piece) {
    pb::ResourceHandleProto proto;
    if (piece.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
        !proto.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) {
      return errors::InvalidArgument("handle ", i, " is damaged");
    }
    out[i] = HandleFromProto(proto);
    return OkStatus();
  });
}

using Object = RefPtr<RefCounted>;

// What stands in messages for an object that has no form in them.
constexpr char kStaysInProcess[] = "millrace::StaysInProcess";

// An element of a variant that came from elsewhere, as it came: kernels, which know the types, make
// their own objects of it (kernels/common/variant_codec.h), and such of their own for the way out.
class EncodedObject final : public RefCounted {
 public:
  explicit EncodedObject(pb::VariantTensorDataProto proto) : proto_(std::move(proto)) {}
  const pb::VariantTensorDataProto& proto() const { return proto_; }

 private:
  const pb::VariantTensorDataProto proto_;
};

// Null for an empty message.
StatusOr<Object> ObjectFromProto(pb::VariantTensorDataProto proto) {
  if (proto.type_name() == kStaysInProcess) {
    return errors::InvalidArgument("values of type variant of some kinds, as this one, stay in ",
                                   "the process that made them");
  }
  if (!proto.type_name().empty()) return Object(MakeRef<EncodedObject>(std::move(proto)));
  if (proto.metadata().empty() && proto.tensors().empty()) return Object();
  return errors::InvalidArgument("a value of type variant has no name of its type");
}

// TensorFlow writes objects framed like strings, but takes them as messages as well.
Status DecodeObjects(std::string_view bytes, Tensor* tensor) {
  auto* const out = static_cast<Object*>(tensor->raw_data());
  return ForEachFramed(
      bytes, tensor->num_elements(), [out](int64_t i, std::string_view piece) -> Status {
        pb::VariantTensorDataProto proto;
        if (piece.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
            !proto.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) {
          return errors::InvalidArgument("object ", i, " is damaged");
        }
        MR_ASSIGN_OR_RETURN(out[i], ObjectFromProto(std::move(proto)));
        return OkStatus();
      });
}

// Elements beyond the list are empty: an object is not repeated.
Status FillFromObjects(const pb::TensorProto& proto, Tensor* tensor) {
  auto* const out = static_cast<Object*>(tensor->raw_data());
  const auto given = std::min<int64_t>(tensor->num_elements(), proto.variant_val_size());
  for (int64_t i = 0; i < given; ++i) {
    StatusOr<Object> object = ObjectFromProto(proto.variant_val(static_cast<int>(i)));
    if (!object.ok()) return CannotParse(Message(object.status()));
    out[i] = *std::move(object);
  }
  return OkStatus();
}

// Element i of the list, the last element for any i beyond it, T() if the list is empty.
template <typename T, typename List, typename Convert>
void FillFromList(const List& list, Convert convert, Tensor* tensor) {
  T* out = static_cast<T*>(tensor->raw_data());
  const int64_t count = tensor->num_elements();
  const auto given = std::min<int64_t>(count, list.size());
  for (int64_t i = 0; i < given; ++i) out[i] = convert(list.Get(static_cast<int>(i)));
  std::fill(out + given, out + count, given > 0 ? out[given - 1] : T());
}

template <typename T, typename List>
void FillFromNumbers(const List& list, Tensor* tensor) {
  FillFromList<T>(list, [](auto value) { return static_cast<T>(value); }, tensor);
}

// Two numbers of the list, real and imaginary, make an element.
template <typename T, typename List>
void FillFromPairs(const List& list, Tensor* tensor) {
  T* out = static_cast<T*>(tensor->raw_data());
  const int64_t count = tensor->num_elements();
  const auto given = std::min<int64_t>(count, list.size() / 2);
  for (int64_t i = 0; i < given; ++i) {
    const auto at = static_cast<int>(2 * i);
    out[i] = T(list.Get(at), list.Get(at + 1));
  }
  std::fill(out + given, out + count, given > 0 ? out[given - 1] : T());
}

// A byte is an element.
void FillFromBytes(const std::string& list, Tensor* tensor) {
  auto* const out = static_cast<uint8_t*>(tensor->raw_data());
  const int64_t count = tensor->num_elements();
  const auto given = std::min<int64_t>(count, static_cast<int64_t>(list.size()));
  std::copy_n(list.data(), given, reinterpret_cast<char*>(out));
  std::fill(out + given, out + count, given > 0 ? out[given - 1] : uint8_t{0});
}

// Integers of four bits, the lower ones of a byte.
constexpr int kInt4 = 29, kUint4 = 30;
bool IsInt4(DataType dtype) {
  return static_cast<int>(dtype) == kInt4 || static_cast<int>(dtype) == kUint4;
}

void FillFromLists(const pb::TensorProto& proto, Tensor* tensor) {
  if (IsInt4(tensor->dtype())) {
    return FillFromList<uint8_t>(
        proto.int_val(), [](int value) { return static_cast<uint8_t>(value & 0xf); }, tensor);
  }
  switch (tensor->dtype()) {
    case DataType::kFloat:
      return FillFromNumbers<float>(proto.float_val(), tensor);
    case DataType::kDouble:
      return FillFromNumbers<double>(proto.double_val(), tensor);
    case DataType::kInt32:
    case DataType::kQint32:
      return FillFromNumbers<int32_t>(proto.int_val(), tensor);
    case DataType::kInt16:
    case DataType::kQint16:
      return FillFromNumbers<int16_t>(proto.int_val(), tensor);
    case DataType::kUint16:
    case DataType::kQuint16:
      return FillFromNumbers<uint16_t>(proto.int_val(), tensor);
    case DataType::kInt8:
    case DataType::kQint8:
      return FillFromNumbers<int8_t>(proto.int_val(), tensor);
    case DataType::kUint8:
    case DataType::kQuint8:
      return FillFromNumbers<uint8_t>(proto.int_val(), tensor);
    case DataType::kString:
      return FillFromList<std::string>(
          proto.string_val(), [](const std::string& v) { return v; }, tensor);
    case DataType::kComplex64:
      return FillFromPairs<std::complex<float>>(proto.scomplex_val(), tensor);
    case DataType::kComplex128:
      return FillFromPairs<std::complex<double>>(proto.dcomplex_val(), tensor);
    case DataType::kInt64:
      return FillFromNumbers<int64_t>(proto.int64_val(), tensor);
    case DataType::kBool:
      return FillFromNumbers<bool>(proto.bool_val(), tensor);
    case DataType::kHalf:
    case DataType::kBfloat16:  // bit patterns
      return FillFromNumbers<uint16_t>(proto.half_val(), tensor);
    case DataType::kFloat8E5m2:
    case DataType::kFloat8E4m3fn:
    case DataType::kFloat8E4m3fnuz:
    case DataType::kFloat8E4m3b11fnuz:
    case DataType::kFloat8E5m2fnuz:
      return FillFromBytes(proto.float8_val(), tensor);
    case DataType::kUint32:
      return FillFromNumbers<uint32_t>(proto.uint32_val(), tensor);
    case DataType::kUint64:
      return FillFromNumbers<uint64_t>(proto.uint64_val(), tensor);
    case DataType::kResource:
      return FillFromList<ResourceHandle>(proto.resource_handle_val(), HandleFromProto, tensor);
    case DataType::kVariant:
    case DataType::kInvalid:
      break;
  }
}

StatusOr<Shape> KnownShapeFromProto(const pb::TensorShapeProto& proto) {
  if (proto.unknown_rank()) return CannotParse("its shape has an unknown rank");
  Dims dims;
  for (const auto& dim : proto.dim()) dims.push_back(dim.size());
  StatusOr<Shape> shape = MakeShape(std::span<const int64_t>(dims.data(), dims.size()));
  if (!shape.ok()) return CannotParse(Message(shape.status()));
  return shape;
}

// That the proto can fill such a tensor: before memory is taken.
Status CheckSizes(const pb::TensorProto& proto, DataType dtype, const Shape& shape) {
  const std::size_t content = proto.tensor_content().size();
  const auto count = static_cast<std::size_t>(shape.num_elements());
  const std::size_t element = DataTypeSize(dtype);
  std::size_t bytes = 0;
  const bool too_large = __builtin_mul_overflow(count, element, &bytes);
  if (content == 0) {
    if (too_large || bytes > kMaxFilledBytes) {
      return CannotParse("a tensor of type ", DataTypeName(dtype), " and shape ",
                         shape.DebugString(), " is too large to be filled from a list");
    }
    return OkStatus();
  }
  // Every framed element has a length of at least one byte.
  const bool fits = IsMemcpyable(dtype) ? !too_large && content == bytes : count <= content;
  if (!fits) {
    return CannotParse("its content has ", content, " bytes, which do not make a tensor of type ",
                       DataTypeName(dtype), " and shape ", shape.DebugString());
  }
  return OkStatus();
}

void SetTypeAndShape(const Tensor& tensor, pb::TensorProto* proto) {
  proto->Clear();
  proto->set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  ShapeToProto(tensor.shape(), proto->mutable_tensor_shape());
}

template <typename T, typename List>
void AddNumbers(const Tensor& tensor, List* list) {
  const T* values = static_cast<const T*>(tensor.raw_data());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) list->Add(values[i]);
}

template <typename T, typename List>
void AddPairs(const Tensor& tensor, List* list) {
  const T* values = static_cast<const T*>(tensor.raw_data());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    list->Add(values[i].real());
    list->Add(values[i].imag());
  }
}

void AddObjects(const Tensor& tensor, pb::TensorProto* proto) {
  const auto* const objects = static_cast<const Object*>(tensor.raw_data());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    pb::VariantTensorDataProto* const object = proto->add_variant_val();
    if (objects[i] == nullptr) continue;
    const auto* const encoded = dynamic_cast<const EncodedObject*>(objects[i].get());
    if (encoded != nullptr) {
      *object = encoded->proto();
    } else {
      object->set_type_name(kStaysInProcess);
    }
  }
}

void AddInt4s(const Tensor& tensor, pb::TensorProto* proto) {
  const auto* const bytes = static_cast<const uint8_t*>(tensor.raw_data());
  const int sign = static_cast<int>(tensor.dtype()) == kInt4 ? 8 : 0;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    proto->add_int_val(((bytes[i] & 0xf) ^ sign) - sign);
  }
}

void AddStrings(const Tensor& tensor, pb::TensorProto* proto) {
  for (const std::string& value : tensor.flat<std::string>()) proto->add_string_val(value);
}

void AddHandles(const Tensor& tensor, pb::TensorProto* proto) {
  for (const ResourceHandle& handle : tensor.flat<ResourceHandle>()) {
    HandleToProto(handle, proto->add_resource_handle_val());
  }
}

}  // namespace

StatusOr<Tensor> TensorFromProto(const pb::TensorProto& proto) {
  const auto dtype = static_cast<DataType>(proto.dtype());
  if (IsRefType(dtype) || DataTypeSize(dtype) == 0) {
    return CannotParse("its type ", DataTypeName(dtype), " (", static_cast<int>(dtype),
                       ") is not one that a tensor can have here");
  }
  MR_ASSIGN_OR_RETURN(const Shape shape, KnownShapeFromProto(proto.tensor_shape()));
  MR_RETURN_IF_ERROR(CheckSizes(proto, dtype, shape));
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(HostAllocator(), dtype, shape));
  const std::string& content = proto.tensor_content();
  if (content.empty()) {
    if (dtype == kVariant) MR_RETURN_IF_ERROR(FillFromObjects(proto, &tensor));
    FillFromLists(proto, &tensor);
    return tensor;
  }
  Status status;
  if (dtype == kString) {
    status = DecodeStrings(content, &tensor);
  } else if (dtype == kResource) {
    status = DecodeHandles(content, &tensor);
  } else if (dtype == kVariant) {
    status = DecodeObjects(content, &tensor);
  } else if (dtype == kBool) {
    // Any byte but 0 and 1 in a bool is undefined behaviour; peers may send them.
    auto* out = static_cast<unsigned char*>(tensor.raw_data());
    for (std::size_t i = 0; i < content.size(); ++i) out[i] = content[i] != 0;
  } else {
    std::memcpy(tensor.raw_data(), content.data(), content.size());
  }
  if (!status.ok()) return CannotParse(Message(status));
  return tensor;
}

void TensorToProto(const Tensor& tensor, pb::TensorProto* proto) {
  SetTypeAndShape(tensor, proto);
  if (tensor.num_elements() == 0) return;
  if (tensor.dtype() == kString) {
    EncodeStrings(tensor, proto->mutable_tensor_content());
  } else if (tensor.dtype() == kResource) {
    AddHandles(tensor, proto);
  } else if (tensor.dtype() == kVariant) {
    AddObjects(tensor, proto);
  } else if (IsMemcpyable(tensor.dtype())) {
    proto->mutable_tensor_content()->assign(static_cast<const char*>(tensor.raw_data()),
                                            tensor.num_bytes());
  }
}

void TensorToReadableProto(const Tensor& tensor, pb::TensorProto* proto) {
  SetTypeAndShape(tensor, proto);
  if (tensor.num_elements() == 0) return;
  if (IsInt4(tensor.dtype())) return AddInt4s(tensor, proto);
  switch (tensor.dtype()) {
    case DataType::kFloat:
      return AddNumbers<float>(tensor, proto->mutable_float_val());
    case DataType::kDouble:
      return AddNumbers<double>(tensor, proto->mutable_double_val());
    case DataType::kInt32:
    case DataType::kQint32:
      return AddNumbers<int32_t>(tensor, proto->mutable_int_val());
    case DataType::kInt16:
    case DataType::kQint16:
      return AddNumbers<int16_t>(tensor, proto->mutable_int_val());
    case DataType::kUint16:
    case DataType::kQuint16:
      return AddNumbers<uint16_t>(tensor, proto->mutable_int_val());
    case DataType::kInt8:
    case DataType::kQint8:
      return AddNumbers<int8_t>(tensor, proto->mutable_int_val());
    case DataType::kUint8:
    case DataType::kQuint8:
      return AddNumbers<uint8_t>(tensor, proto->mutable_int_val());
    case DataType::kString:
      return AddStrings(tensor, proto);
    case DataType::kComplex64:
      return AddPairs<std::complex<float>>(tensor, proto->mutable_scomplex_val());
    case DataType::kComplex128:
      return AddPairs<std::complex<double>>(tensor, proto->mutable_dcomplex_val());
    case DataType::kInt64:
      return AddNumbers<int64_t>(tensor, proto->mutable_int64_val());
    case DataType::kBool:
      return AddNumbers<bool>(tensor, proto->mutable_bool_val());
    case DataType::kHalf:
    case DataType::kBfloat16:
      return AddNumbers<uint16_t>(tensor, proto->mutable_half_val());
    case DataType::kFloat8E5m2:
    case DataType::kFloat8E4m3fn:
    case DataType::kFloat8E4m3fnuz:
    case DataType::kFloat8E4m3b11fnuz:
    case DataType::kFloat8E5m2fnuz:
      proto->set_float8_val(tensor.raw_data(), static_cast<std::size_t>(tensor.num_elements()));
      return;
    case DataType::kUint32:
      return AddNumbers<uint32_t>(tensor, proto->mutable_uint32_val());
    case DataType::kUint64:
      return AddNumbers<uint64_t>(tensor, proto->mutable_uint64_val());
    case DataType::kResource:
      return AddHandles(tensor, proto);
    case DataType::kVariant:
      return AddObjects(tensor, proto);
    case DataType::kInvalid:
      break;
  }
}

PartialShape ShapeFromProto(const pb::TensorShapeProto& proto) {
  if (proto.unknown_rank()) return PartialShape();
  PartialShape shape({});
  for (const auto& dim : proto.dim()) shape.AddDim(std::max<int64_t>(dim.size(), -1));
  return shape;
}

void ShapeToProto(const PartialShape& shape, pb::TensorShapeProto* proto) {
  proto->Clear();
  if (!shape.has_rank()) {
    proto->set_unknown_rank(true);
    return;
  }
  for (const int64_t dim : shape.dims()) proto->add_dim()->set_size(dim);
}

void AppendTensorProtoPrefix(const Tensor& tensor, std::string* prefix) {
  assert(IsMemcpyable(tensor.dtype()));
  prefix->push_back(kDtypeTag);
  AppendVarint(static_cast<uint64_t>(tensor.dtype()), prefix);
  if (tensor.rank() > 0) {
    std::size_t shape_bytes = 0;
    for (const int64_t dim : tensor.shape().dims()) {
      const std::size_t dim_bytes = 1 + VarintLength(static_cast<uint64_t>(dim));
      shape_bytes += 1 + VarintLength(dim_bytes) + dim_bytes;
    }
    prefix->push_back(kShapeTag);
    AppendVarint(shape_bytes, prefix);
    for (const int64_t dim : tensor.shape().dims()) {
      prefix->push_back(kDimTag);
      AppendVarint(1 + VarintLength(static_cast<uint64_t>(dim)), prefix);
      prefix->push_back(kSizeTag);  // written even for size 0, as TensorFlow does
      AppendVarint(static_cast<uint64_t>(dim), prefix);
    }
  }
  prefix->push_back(kContentTag);
  AppendVarint(tensor.num_bytes(), prefix);
}

void EncodeStrings(const Tensor& tensor, std::string* out) {
  const std::span<const std::string> values = tensor.flat<std::string>();
  std::size_t size = 0;
  for (const std::string& value : values) size += VarintLength(value.size()) + value.size();
  out->reserve(out->size() + size);
  for (const std::string& value : values) AppendVarint(value.size(), out);
  for (const std::string& value : values) out->append(value);
}

Status DecodeStrings(std::string_view bytes, Tensor* tensor) {
  std::string* out = tensor->data<std::string>();
  return ForEachFramed(bytes, tensor->num_elements(), [out](int64_t i, std::string_view piece) {
    out[i].assign(piece);
    return OkStatus();
  });
}

}  // namespace millrace
