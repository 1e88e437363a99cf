// SPDX-License-Identifier: Apache-2.0
// Writing protobuf wire format around tensors: the text in between is owned, the tensors' bytes
// are shared.
#ifndef TRANSPORT_WIRE_WRITER_H_
#define TRANSPORT_WIRE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Fields are appended in any order, as protobuf allows. Not synchronised.
class WireWriter {
 public:
  // Tensors from this many bytes on are shared instead of copied: below it one stretch of
  // memory is cheaper to send than three.
  static constexpr std::size_t kShareBytes = 2048;

  // The fields that are set in `message`. One of 2 GiB or more, which protobuf cannot write, leaves
  // only a mark.
  void AppendMessage(const google::protobuf::MessageLite& message);
  void AppendVarintField(uint32_t field, uint64_t value);
  void AppendBytesField(uint32_t field, std::string_view bytes);
  // A TensorProto as field `field`: tensor_content for plain types and strings. The tensor's
  // buffer must not change until the bytes have been sent.
  Status AppendTensorField(uint32_t field, const Tensor& tensor);
  // A NamedTensorProto as field `field`.
  Status AppendNamedTensorField(uint32_t field, std::string_view name, const Tensor& tensor);

  // Field path[0] holding `first` and then field path[1], which holds field path[2], and so on:
  // the last one holds the bytes of `tensor`, of a plain type.
  void AppendNestedBytes(std::span<const uint32_t> path, std::string_view first,
                         const Tensor& tensor);

  // The message is text()[0, segments[0].text_end), the bytes of segments[0].tensor,
  // text()[segments[0].text_end, segments[1].text_end), ... and the rest of text().
  struct Segment {
    std::size_t text_end = 0;
    Tensor tensor;
  };
  const std::string& text() const { return text_; }
  const std::vector<Segment>& segments() const { return segments_; }
  // For who sends the message and needs the writer no more.
  std::vector<Segment> TakeSegments() { return std::move(segments_); }
  std::size_t size() const { return text_.size() + shared_bytes_; }
  // A message was too large: nothing of it may be sent.
  bool is_oversized() const { return oversized_; }
  // All bytes in one string.
  std::string Flatten() const;

 private:
  void AppendContent(const Tensor& tensor);
  Status AppendTensorBody(const Tensor& tensor, uint32_t outer_field, std::string_view name,
                          bool named);
  std::string text_;
  std::vector<Segment> segments_;
  std::size_t shared_bytes_ = 0;
  bool oversized_ = false;
};

}  // namespace millrace

#endif  // TRANSPORT_WIRE_WRITER_H_
