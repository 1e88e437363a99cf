// SPDX-License-Identifier: Apache-2.0
#include "transport/wire_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/tensor.pb.h"
#include "tensor/allocator.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

// Numbers of TensorProto's fields.
constexpr uint32_t kDtype = 1, kTensorShape = 2, kVersionNumber = 3, kTensorContent = 4;

Status BadTensor(std::string_view why) {
  return errors::InvalidArgument("Cannot parse tensor from proto: ", why);
}

// A dimension message: its size; the name does not matter here.
bool ReadDim(WireReader body, int64_t* size) {
  *size = 0;
  while (!body.AtEnd()) {
    uint32_t field, type;
    if (!body.ReadTag(&field, &type)) return false;
    if (field == 1 && type == kVarint) {
      uint64_t value;
      if (!body.ReadVarint(&value)) return false;
      *size = static_cast<int64_t>(value);
    } else if (!body.SkipValue(type)) {
      return false;
    }
  }
  return true;
}

bool ReadShape(WireReader body, Dims* dims, bool* unknown_rank) {
  while (!body.AtEnd()) {
    uint32_t field, type;
    if (!body.ReadTag(&field, &type)) return false;
    if (field == 2 && type == kBytes) {
      WireReader dim;
      int64_t size;
      if (!body.ReadBody(&dim) || !ReadDim(dim, &size)) return false;
      dims->push_back(size);
    } else if (field == 3 && type == kVarint) {
      uint64_t value;
      if (!body.ReadVarint(&value)) return false;
      *unknown_rank = value != 0;
    } else if (!body.SkipValue(type)) {
      return false;
    }
  }
  return true;
}

StatusOr<Tensor> ReadTensorThroughMessage(WireReader body) {
  if (body.remaining() > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
    return BadTensor("more than 2 GiB in a form that is not plain tensor_content");
  }
  std::string bytes;
  pb::TensorProto proto;
  if (!body.ReadString(&bytes, body.remaining()) || !proto.ParseFromString(bytes)) {
    return BadTensor("the bytes are not a message");
  }
  return TensorFromProto(proto);
}

// A bool of any other byte than 0 and 1 would be undefined in C++.
void NormalizeBools(Tensor* tensor) {
  if (tensor->dtype() != DataType::kBool) return;
  auto* bytes = static_cast<uint8_t*>(tensor->raw_data());
  for (std::size_t i = 0; i < tensor->num_bytes(); ++i) bytes[i] = bytes[i] != 0;
}

// What the fast path found. Content that comes before the type and shape, fields that come
// twice and values in typed lists are left to the message.
struct PlainTensor {
  DataType dtype = DataType::kInvalid;
  Dims dims;
  bool have_shape = false;
  bool have_content = false;
  WireReader content;
};

// False if the message must decide (also what is wrong with it).
bool ReadPlainTensor(WireReader body, PlainTensor* out) {
  bool unknown_rank = false;
  while (!body.AtEnd()) {
    uint32_t field, type;
    if (!body.ReadTag(&field, &type)) return false;
    if (field == kDtype && type == kVarint) {
      uint64_t value;
      if (out->dtype != DataType::kInvalid || !body.ReadVarint(&value) || value > kRefOffset) {
        return false;
      }
      out->dtype = static_cast<DataType>(value);
    } else if (field == kTensorShape && type == kBytes) {
      WireReader shape;
      if (out->have_shape || !body.ReadBody(&shape) ||
          !ReadShape(shape, &out->dims, &unknown_rank)) {
        return false;
      }
      out->have_shape = true;
    } else if (field == kTensorContent && type == kBytes) {
      if (out->have_content || !body.ReadBody(&out->content)) return false;
      out->have_content = true;
    } else if (field == kVersionNumber) {
      if (!body.SkipValue(type)) return false;
    } else {
      return false;
    }
  }
  return out->have_content && !unknown_rank && IsMemcpyable(out->dtype);
}

}  // namespace

WireReader::WireReader(std::span<const WirePiece> pieces) : rest_(pieces) {
  for (const WirePiece& piece : pieces) remaining_ += piece.size();
}

void WireReader::NextPiece() {
  while (pos_ == end_ && !rest_.empty()) {
    pos_ = rest_.front().data();
    end_ = pos_ + rest_.front().size();
    owner_ = rest_.front().owner;
    rest_ = rest_.subspan(1);
  }
}

bool WireReader::ReadVarint(uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (remaining_ == 0) return false;
    if (pos_ == end_) NextPiece();
    const uint8_t byte = *pos_++;
    --remaining_;
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) {
      *value = result;
      return true;
    }
  }
  return false;
}

bool WireReader::ReadTag(uint32_t* field, uint32_t* wire_type) {
  uint64_t tag;
  if (!ReadVarint(&tag) || tag > std::numeric_limits<uint32_t>::max()) return false;
  *field = static_cast<uint32_t>(tag >> 3);
  *wire_type = static_cast<uint32_t>(tag & 7);
  return *field != 0;
}

bool WireReader::ReadBytes(void* out, std::size_t size) {
  if (size > remaining_) return false;
  remaining_ -= size;
  auto* to = static_cast<uint8_t*>(out);
  while (size > 0) {
    if (pos_ == end_) NextPiece();
    const std::size_t n = std::min<std::size_t>(size, end_ - pos_);
    std::memcpy(to, pos_, n);
    pos_ += n;
    to += n;
    size -= n;
  }
  return true;
}

bool WireReader::ReadString(std::string* out, std::size_t size) {
  if (size > remaining_) return false;
  out->resize(size);
  return ReadBytes(out->data(), size);
}

bool WireReader::Skip(std::size_t size) {
  if (size > remaining_) return false;
  remaining_ -= size;
  while (size > 0) {
    if (pos_ == end_) NextPiece();
    const std::size_t n = std::min<std::size_t>(size, end_ - pos_);
    pos_ += n;
    size -= n;
  }
  return true;
}

std::span<const uint8_t> WireReader::NextBytes(std::size_t most) {
  if (remaining_ == 0) return {};
  if (pos_ == end_) NextPiece();
  const std::size_t n = std::min({most, remaining_, static_cast<std::size_t>(end_ - pos_)});
  const std::span<const uint8_t> bytes(pos_, n);
  pos_ += n;
  remaining_ -= n;
  return bytes;
}

bool WireReader::SkipValue(uint32_t wire_type) {
  uint64_t value;
  switch (wire_type) {
    case kVarint:
      return ReadVarint(&value);
    case kFixed64:
      return Skip(8);
    case kBytes:
      return ReadVarint(&value) && value <= remaining_ && Skip(value);
    case kFixed32:
      return Skip(4);
    default:
      return false;
  }
}

Buffer* WireReader::SoleOwner() {
  if (pos_ == end_) NextPiece();
  const bool whole = owner_ != nullptr && pos_ == owner_->data() &&
                     remaining_ == static_cast<std::size_t>(end_ - pos_);
  return whole ? owner_ : nullptr;
}

bool WireReader::ReadBody(WireReader* body) {
  uint64_t size;
  if (!ReadVarint(&size) || size > remaining_) return false;
  *body = *this;
  body->remaining_ = size;
  return Skip(size);
}

StatusOr<Tensor> ReadTensor(WireReader body) {
  PlainTensor plain;
  if (!ReadPlainTensor(body, &plain)) return ReadTensorThroughMessage(body);
  const StatusOr<Shape> shape = MakeShape({plain.dims.data(), plain.dims.size()});
  if (!shape.ok()) return BadTensor(Message(shape.status()));
  const std::size_t size = plain.content.remaining();
  // Compared this way round because the product may not fit.
  const std::size_t element = DataTypeSize(plain.dtype);
  if (size % element != 0 || size / element != static_cast<std::size_t>(shape->num_elements())) {
    // Empty content may stand beside typed values that the message would know of.
    return ReadTensorThroughMessage(body);
  }
  if (Buffer* received = plain.content.SoleOwner(); received != nullptr && size > 0) {
    Tensor tensor(plain.dtype, *shape, RefPtr<Buffer>::Share(received), received->data());
    NormalizeBools(&tensor);
    return tensor;
  }
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(HostAllocator(), plain.dtype, *shape));
  if (size > 0 && !plain.content.ReadBytes(tensor.raw_data(), size)) {
    return BadTensor("the content ends early");
  }
  NormalizeBools(&tensor);
  return tensor;
}

Status ReadNamedTensor(WireReader body, std::string* name, Tensor* tensor) {
  name->clear();
  WireReader tensor_body;
  while (!body.AtEnd()) {
    uint32_t field, type;
    bool good = body.ReadTag(&field, &type);
    if (good && field == 1 && type == kBytes) {
      WireReader text;
      good = body.ReadBody(&text) && text.ReadString(name, text.remaining());
    } else if (good && field == 2 && type == kBytes) {
      good = body.ReadBody(&tensor_body);
    } else if (good) {
      good = body.SkipValue(type);
    }
    if (!good) return BadTensor("the bytes are not a NamedTensorProto");
  }
  StatusOr<Tensor> read = ReadTensor(tensor_body);
  if (!read.ok()) return Annotate(read.status(), StrCat(" (tensor '", *name, "')"));
  *tensor = *std::move(read);
  return OkStatus();
}

Status ReadMessageWithTensors(WireReader message, uint32_t tensor_field,
                              absl::FunctionRef<Status(WireReader)> on_tensor,
                              google::protobuf::MessageLite* rest) {
  std::string other;  // the fields that are not tensors
  WireReader run;     // start of the current run of them
  std::size_t run_size = 0;
  const auto malformed = [&] {
    return errors::InvalidArgument("the request is not a well-formed ", rest->GetTypeName());
  };
  const auto flush = [&] {
    const std::size_t old = other.size();
    other.resize(old + run_size);
    const bool good = run.ReadBytes(other.data() + old, run_size);
    run_size = 0;
    return good;
  };
  while (!message.AtEnd()) {
    const WireReader start = message;
    uint32_t field, type;
    if (!message.ReadTag(&field, &type)) return malformed();
    if (field == tensor_field && type == kBytes) {
      WireReader body;
      if (!flush() || !message.ReadBody(&body)) return malformed();
      MR_RETURN_IF_ERROR(on_tensor(body));
      continue;
    }
    if (!message.SkipValue(type)) return malformed();
    if (run_size == 0) run = start;
    run_size += start.remaining() - message.remaining();
  }
  if (!flush() || !rest->ParsePartialFromString(other)) return malformed();
  return OkStatus();
}

}  // namespace millrace
