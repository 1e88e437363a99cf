// SPDX-License-Identifier: Apache-2.0
#include "transport/wire_writer.h"

#include <limits>
#include <vector>

#include "base/errors.h"
#include "proto/tensor.pb.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

void PutVarint(std::string* out, uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

std::size_t VarintSize(uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

void PutBytesTag(std::string* out, uint32_t field) { PutVarint(out, field << 3 | 2); }

}  // namespace

void WireWriter::AppendMessage(const google::protobuf::MessageLite& message) {
  if (message.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
    oversized_ = true;
    return;
  }
  message.AppendPartialToString(&text_);
}

void WireWriter::AppendVarintField(uint32_t field, uint64_t value) {
  PutVarint(&text_, field << 3);
  PutVarint(&text_, value);
}

void WireWriter::AppendBytesField(uint32_t field, std::string_view bytes) {
  PutBytesTag(&text_, field);
  PutVarint(&text_, bytes.size());
  text_.append(bytes);
}

Status WireWriter::AppendTensorField(uint32_t field, const Tensor& tensor) {
  return AppendTensorBody(tensor, field, {}, false);
}

Status WireWriter::AppendNamedTensorField(uint32_t field, std::string_view name,
                                          const Tensor& tensor) {
  return AppendTensorBody(tensor, field, name, true);
}

Status WireWriter::AppendTensorBody(const Tensor& tensor, uint32_t outer_field,
                                    std::string_view name, bool named) {
  if (tensor.dtype() == DataType::kInvalid) {
    return errors::Internal("a tensor without a type cannot be sent", named ? ": " : "", name);
  }
  std::string head;
  std::size_t content = 0;
  if (IsMemcpyable(tensor.dtype())) {
    AppendTensorProtoPrefix(tensor, &head);
    content = tensor.num_bytes();
  } else {
    pb::TensorProto proto;
    TensorToProto(tensor, &proto);
    if (proto.ByteSizeLong() > static_cast<std::size_t>(std::numeric_limits<int32_t>::max())) {
      return errors::ResourceExhausted("a tensor of ", DataTypeName(tensor.dtype()),
                                       " is larger than 2 GiB when written as a message");
    }
    proto.AppendPartialToString(&head);
  }
  const std::size_t tensor_size = head.size() + content;
  PutBytesTag(&text_, outer_field);
  if (named) {
    const std::size_t named_size =
        1 + VarintSize(name.size()) + name.size() + 1 + VarintSize(tensor_size) + tensor_size;
    PutVarint(&text_, named_size);
    AppendBytesField(1, name);
    PutBytesTag(&text_, 2);
  }
  PutVarint(&text_, tensor_size);
  text_.append(head);
  if (content > 0) AppendContent(tensor);
  return OkStatus();
}

void WireWriter::AppendContent(const Tensor& tensor) {
  const std::size_t content = tensor.num_bytes();
  if (content >= kShareBytes) {
    segments_.push_back({text_.size(), tensor});
    shared_bytes_ += content;
  } else if (content > 0) {
    text_.append(static_cast<const char*>(tensor.raw_data()), content);
  }
}

void WireWriter::AppendNestedBytes(std::span<const uint32_t> path, std::string_view first,
                                   const Tensor& tensor) {
  // What each field holds, from the innermost one out.
  std::vector<std::size_t> sizes(path.size());
  std::size_t size = tensor.num_bytes();
  for (std::size_t i = path.size(); i-- > 0;) {
    if (i == 0) size += first.size();
    sizes[i] = size;
    size += VarintSize(path[i] << 3) + VarintSize(size);
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    PutBytesTag(&text_, path[i]);
    PutVarint(&text_, sizes[i]);
    if (i == 0) text_.append(first);
  }
  AppendContent(tensor);
}

std::string WireWriter::Flatten() const {
  std::string out;
  out.reserve(size());
  std::size_t begin = 0;
  for (const Segment& segment : segments_) {
    out.append(text_, begin, segment.text_end - begin);
    out.append(static_cast<const char*>(segment.tensor.raw_data()), segment.tensor.num_bytes());
    begin = segment.text_end;
  }
  out.append(text_, begin);
  return out;
}

}  // namespace millrace
