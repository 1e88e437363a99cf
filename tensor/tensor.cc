// SPDX-License-Identifier: Apache-2.0
#include "millrace/tensor.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tensor/allocator.h"

namespace millrace {

// Of allocator.cc. Elements of variants are shared objects; kernels/common/variant.h knows more.
RefPtr<Buffer> AllocateVariantBuffer(Allocator* allocator, std::size_t count);

namespace {

using SharedObject = RefPtr<RefCounted>;

const SharedObject* Objects(const Tensor& variants) {
  return static_cast<const SharedObject*>(variants.raw_data());
}

Status InvalidShape(const Shape& shape) {
  Status status = MakeShape(shape.dims()).status();
  return Annotate(status, ": no tensor can have it");
}

// Memory for the elements; null with OK when there are none.
StatusOr<RefPtr<Buffer>> AllocateElements(Allocator* allocator, DataType dtype,
                                          const Shape& shape) {
  const std::size_t element = IsRefType(dtype) ? 0 : DataTypeSize(dtype);
  if (element == 0) {
    return errors::InvalidArgument("a tensor cannot have the type ", DataTypeName(dtype));
  }
  if (!shape.is_valid()) return InvalidShape(shape);
  const auto count = static_cast<std::size_t>(shape.num_elements());
  if (count == 0) return RefPtr<Buffer>();
  int64_t bytes = 0;  // signed: allocators may round it up
  RefPtr<Buffer> buffer;
  if (!__builtin_mul_overflow(count, element, &bytes)) {
    if (dtype == kString) {
      buffer = AllocateStringBuffer(allocator, count);
    } else if (dtype == kResource) {
      buffer = AllocateHandleBuffer(allocator, count);
    } else if (dtype == kVariant) {
      buffer = AllocateVariantBuffer(allocator, count);
    } else {
      buffer = allocator->Allocate(bytes);
    }
  }
  if (!buffer) {
    // The executor adds the device.
    return errors::ResourceExhausted("OOM when allocating tensor with shape", shape.DebugString(),
                                     " and type ", DataTypeName(dtype), " by allocator ",
                                     allocator->name());
  }
  return buffer;
}

template <typename T>
void AppendValues(const Tensor& tensor, int64_t count, std::string* out) {
  const T* values = static_cast<const T*>(tensor.raw_data());
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      StrAppend(out, " \"", CEscape(values[i]), "\"");
    } else if constexpr (std::is_same_v<T, ResourceHandle>) {
      StrAppend(out, " ", values[i].DebugString());
    } else if constexpr (std::is_same_v<T, SharedObject>) {
      out->append(values[i] ? " <object>" : " <empty>");
    } else if constexpr (std::is_class_v<T> && std::is_constructible_v<float, T>) {
      StrAppend(out, " ", float(values[i]));
    } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                         std::is_same_v<T, std::complex<double>>) {
      StrAppend(out, " (", values[i].real(), ",", values[i].imag(), ")");
    } else {
      StrAppend(out, " ", values[i]);
    }
  }
}

// int4, 29, and uint4, 30: the lower half of a byte.
void AppendHalfBytes(const Tensor& tensor, int64_t count, std::string* out) {
  const auto* const bytes = static_cast<const uint8_t*>(tensor.raw_data());
  const int sign = static_cast<int>(tensor.dtype()) == 29 ? 8 : 0;
  for (int64_t i = 0; i < count; ++i) StrAppend(out, " ", ((bytes[i] & 0xf) ^ sign) - sign);
}

void AppendValuesOfAnyType(const Tensor& tensor, int64_t count, std::string* out) {
  if (IsMemcpyable(tensor.dtype()) && static_cast<int>(tensor.dtype()) >= 29) {
    return AppendHalfBytes(tensor, count, out);
  }
  switch (tensor.dtype()) {
    case DataType::kFloat:
      return AppendValues<float>(tensor, count, out);
    case DataType::kDouble:
      return AppendValues<double>(tensor, count, out);
    case DataType::kInt32:
    case DataType::kQint32:
      return AppendValues<int32_t>(tensor, count, out);
    case DataType::kUint8:
    case DataType::kQuint8:
      return AppendValues<uint8_t>(tensor, count, out);
    case DataType::kInt16:
    case DataType::kQint16:
      return AppendValues<int16_t>(tensor, count, out);
    case DataType::kInt8:
    case DataType::kQint8:
      return AppendValues<int8_t>(tensor, count, out);
    case DataType::kString:
      return AppendValues<std::string>(tensor, count, out);
    case DataType::kComplex64:
      return AppendValues<std::complex<float>>(tensor, count, out);
    case DataType::kInt64:
      return AppendValues<int64_t>(tensor, count, out);
    case DataType::kBool:
      return AppendValues<bool>(tensor, count, out);
    case DataType::kBfloat16:
      return AppendValues<BFloat16>(tensor, count, out);
    case DataType::kUint16:
    case DataType::kQuint16:
      return AppendValues<uint16_t>(tensor, count, out);
    case DataType::kComplex128:
      return AppendValues<std::complex<double>>(tensor, count, out);
    case DataType::kHalf:
      return AppendValues<Half>(tensor, count, out);
    case DataType::kFloat8E5m2:
      return AppendValues<Float8E5m2>(tensor, count, out);
    case DataType::kFloat8E4m3fn:
      return AppendValues<Float8E4m3fn>(tensor, count, out);
    case DataType::kFloat8E4m3fnuz:
      return AppendValues<Float8E4m3fnuz>(tensor, count, out);
    case DataType::kFloat8E4m3b11fnuz:
      return AppendValues<Float8E4m3b11fnuz>(tensor, count, out);
    case DataType::kFloat8E5m2fnuz:
      return AppendValues<Float8E5m2fnuz>(tensor, count, out);
    case DataType::kResource:
      return AppendValues<ResourceHandle>(tensor, count, out);
    case DataType::kUint32:
      return AppendValues<uint32_t>(tensor, count, out);
    case DataType::kUint64:
      return AppendValues<uint64_t>(tensor, count, out);
    case DataType::kVariant:
      return AppendValues<SharedObject>(tensor, count, out);
    case DataType::kInvalid:
      break;
  }
}

bool HandlesEqual(const ResourceHandle& a, const ResourceHandle& b) {
  return a.device == b.device && a.container == b.container && a.name == b.name &&
         a.hash_code == b.hash_code && a.type_name == b.type_name &&
         a.dtypes_and_shapes == b.dtypes_and_shapes;
}

// "float [2,3]".
std::string TypeAndShape(DataType dtype, const Shape& shape) {
  return StrCat(DataTypeName(dtype), " ", shape.DebugString());
}

// " (at train.cc:42)", as the errors of graphs end.
std::string At(CallSite where) {
  std::string_view file = where.file;
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  return StrCat(" (at ", file, ":", where.line, ")");
}

[[noreturn]] void Throw(CallSite where, std::string_view call, std::string_view text) {
  throw BadTensorAccess(StrCat(call, ": ", text, At(where)));
}

}  // namespace

std::string ResourceHandle::DebugString() const {
  return StrCat(type_name, "(", container, "/", name, " on ", device, ")");
}

Tensor::Tensor(DataType dtype, const Shape& shape, CallSite where)
    : Tensor(HostAllocator(), dtype, shape, where) {}

Tensor::Tensor(Allocator* allocator, DataType dtype, const Shape& shape, CallSite where)
    : shape_(shape), dtype_(dtype) {
  StatusOr<RefPtr<Buffer>> buffer = AllocateElements(allocator, dtype, shape);
  if (!buffer.ok()) throw OutOfMemory(Annotate(buffer.status(), At(where)));
  buffer_ = *std::move(buffer);
  data_ = buffer_ ? buffer_->data() : nullptr;
}

StatusOr<Tensor> Tensor::Allocate(DataType dtype, const Shape& shape) {
  return Allocate(HostAllocator(), dtype, shape);
}

StatusOr<Tensor> Tensor::Allocate(Allocator* allocator, DataType dtype, const Shape& shape) {
  MR_ASSIGN_OR_RETURN(RefPtr<Buffer> buffer, AllocateElements(allocator, dtype, shape));
  void* data = buffer ? buffer->data() : nullptr;
  return Tensor(dtype, shape, std::move(buffer), data);
}

Tensor Tensor::String(std::string_view value) { return Scalar(std::string(value)); }

StatusOr<Tensor> Tensor::Reshaped(const Shape& shape) const {
  if (!shape.is_valid()) return InvalidShape(shape);
  if (shape.num_elements() != num_elements()) {
    return errors::InvalidArgument("cannot reshape a tensor of shape ", shape_.DebugString(),
                                   " to ", shape.DebugString(), ": ", num_elements(),
                                   " elements are not ", shape.num_elements());
  }
  return Tensor(dtype_, shape, buffer_, data_);
}

Status Tensor::CheckType(DataType asked) const {
  if (asked == dtype_) return OkStatus();
  if (dtype_ == DataType::kInvalid) {
    return errors::InvalidArgument("the tensor has no value yet, expected ", DataTypeName(asked));
  }
  return errors::InvalidArgument("the elements are ", DataTypeName(dtype_), ", not ",
                                 DataTypeName(asked), " (tensor of ", TypeAndShape(dtype_, shape_),
                                 ")");
}

Status Tensor::CheckOneElement() const {
  if (num_elements() == 1) return OkStatus();
  return errors::InvalidArgument("a tensor of ", TypeAndShape(dtype_, shape_), " has ",
                                 num_elements(), " elements, not one");
}

Status Tensor::CheckCount(std::size_t count, DataType dtype, const Shape& shape) {
  if (static_cast<int64_t>(count) == shape.num_elements()) return OkStatus();
  return errors::InvalidArgument(count, " values for a tensor of ", TypeAndShape(dtype, shape),
                                 ", which has ", shape.num_elements(), " elements");
}

void Tensor::WrongType(DataType asked, CallSite where) const {
  Throw(where, StrCat("data<", DataTypeName(asked), ">()"), Message(CheckType(asked)));
}

void Tensor::NotOneElement(CallSite where) const {
  Throw(where, "scalar()", Message(CheckOneElement()));
}

void Tensor::WrongCount(std::size_t count, DataType dtype, const Shape& shape, CallSite where) {
  Throw(where, "FromValues()", Message(CheckCount(count, dtype, shape)));
}

Tensor Tensor::Slice(int64_t begin, int64_t end, CallSite where) const {
  StatusOr<Tensor> slice = TrySlice(begin, end);
  if (!slice.ok()) [[unlikely]]
    Throw(where, "Slice()", Message(slice.status()));
  return *std::move(slice);
}

StatusOr<Tensor> Tensor::TrySlice(int64_t begin, int64_t end) const {
  if (rank() < 1 || begin < 0 || begin > end || end > dim(0)) [[unlikely]] {
    return errors::InvalidArgument(
        "rows ", begin, " to ", end, " of a tensor of ", TypeAndShape(dtype_, shape_), ": ",
        rank() < 1 ? "a scalar has no rows" : "not within its first axis");
  }
  const int64_t row_bytes = dim(0) == 0 ? 0 : static_cast<int64_t>(num_bytes()) / dim(0);
  Shape shape = shape_;
  shape.SetDim(0, end - begin);
  void* data = data_ == nullptr ? nullptr : static_cast<char*>(data_) + begin * row_bytes;
  return Tensor(dtype_, shape, buffer_, data);
}

Tensor Tensor::BitcastTo(DataType dtype, CallSite where) const {
  if (!IsMemcpyable(dtype_) || !IsMemcpyable(dtype) || DataTypeSize(dtype_) != DataTypeSize(dtype))
      [[unlikely]] {
    Throw(where, "BitcastTo()",
          StrCat("the elements of a tensor of ", TypeAndShape(dtype_, shape_), " are no bytes of ",
                 DataTypeName(dtype)));
  }
  return Tensor(dtype, shape_, buffer_, data_);
}

Tensor Tensor::Clone() const {
  if (dtype_ == DataType::kInvalid) return *this;
  Tensor copy(dtype_, shape_);
  if (num_elements() == 0) return copy;
  if (dtype_ == kString) {
    std::copy_n(data<std::string>(), num_elements(), copy.data<std::string>());
  } else if (dtype_ == kResource) {
    std::copy_n(data<ResourceHandle>(), num_elements(), copy.data<ResourceHandle>());
  } else if (dtype_ == kVariant) {
    std::copy_n(Objects(*this), num_elements(), static_cast<SharedObject*>(copy.data_));
  } else {
    std::memcpy(copy.data_, data_, num_bytes());
  }
  return copy;
}

std::string Tensor::DebugString(int max_entries) const {
  if (!IsInitialized()) return "Tensor<not initialized>";
  std::string out = StrCat("Tensor<", DataTypeName(dtype_), " ", shape_.DebugString(), ":");
  if (buffer_ && buffer_->space() == MemorySpace::kDevice) {
    out += " in device memory";
  } else {
    const int64_t count = std::min<int64_t>(num_elements(), max_entries);
    AppendValuesOfAnyType(*this, count, &out);
    if (count < num_elements()) out += " ...";
  }
  out += '>';
  return out;
}

bool TensorsEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.num_elements() == 0 || a.raw_data() == b.raw_data()) return true;
  if (!a.IsInitialized() || !b.IsInitialized()) return false;
  if (a.dtype() == kString) {
    return std::equal(a.data<std::string>(), a.data<std::string>() + a.num_elements(),
                      b.data<std::string>());
  }
  if (a.dtype() == kResource) {
    return std::equal(a.data<ResourceHandle>(), a.data<ResourceHandle>() + a.num_elements(),
                      b.data<ResourceHandle>(), HandlesEqual);
  }
  if (a.dtype() == kVariant) {  // the same objects
    return std::equal(Objects(a), Objects(a) + a.num_elements(), Objects(b));
  }
  return std::memcmp(a.raw_data(), b.raw_data(), a.num_bytes()) == 0;
}

}  // namespace millrace
