// SPDX-License-Identifier: Apache-2.0
// Reading protobuf wire format straight from the pieces of memory it arrived in: for messages
// that carry tensors, whose bytes must go once, into the destination buffer.
#ifndef TRANSPORT_WIRE_READER_H_
#define TRANSPORT_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// One stretch of a message's bytes.
struct WirePiece : std::span<const uint8_t> {
  WirePiece() = default;
  WirePiece(const uint8_t* data, std::size_t size, Buffer* buffer = nullptr)
      : std::span<const uint8_t>(data, size), owner(buffer) {}
  // If set, all of this buffer's content, which tensors may share instead of copying it.
  Buffer* owner = nullptr;
};

// A position in a sequence of pieces and a limit behind it. A plain value: a copy remembers the
// place. Every function returns false, and leaves the reader unusable, if the bytes run out or
// are not well formed. Nothing is allocated beyond what remains to be read.
class WireReader {
 public:
  WireReader() = default;
  // The pieces, and the memory they point to, must outlive the reader and its copies.
  explicit WireReader(std::span<const WirePiece> pieces);

  std::size_t remaining() const { return remaining_; }
  bool AtEnd() const { return remaining_ == 0; }

  bool ReadVarint(uint64_t* value);
  // Field number and wire type (0 varint, 1 fixed64, 2 bytes, 5 fixed32; groups are refused).
  bool ReadTag(uint32_t* field, uint32_t* wire_type);
  bool ReadBytes(void* out, std::size_t size);
  bool ReadString(std::string* out, std::size_t size);
  bool Skip(std::size_t size);
  // The next bytes that lie together, at most `most` (> 0), and goes behind them; none at the end.
  std::span<const uint8_t> NextBytes(std::size_t most);
  bool SkipValue(uint32_t wire_type);
  // The owner of the piece that is all that remains, null if there is none.
  Buffer* SoleOwner();
  // Reads a length and makes `body` a reader of that many bytes; this reader goes behind them.
  bool ReadBody(WireReader* body);

 private:
  void NextPiece();
  std::span<const WirePiece> rest_;  // pieces behind the current one
  const uint8_t* pos_ = nullptr;
  const uint8_t* end_ = nullptr;  // of the current piece
  Buffer* owner_ = nullptr;       // of the current piece
  std::size_t remaining_ = 0;     // bytes up to the limit
};

// The tensor of a serialized TensorProto. Plain types with tensor_content share the piece's
// buffer if the content is all of it; otherwise they are copied once, into a buffer of the host
// allocator that is taken only after all sizes were checked. Every other form goes through the
// message. InvalidArgument "Cannot parse tensor from proto" otherwise.
StatusOr<Tensor> ReadTensor(WireReader body);
// The same of a NamedTensorProto.
Status ReadNamedTensor(WireReader body, std::string* name, Tensor* tensor);

// Reads a message in which field `tensor_field` holds tensors: `on_tensor` gets the body of each
// one in order, everything else is parsed into `rest`. InvalidArgument if the bytes are not a
// message; an error of `on_tensor` ends it.
Status ReadMessageWithTensors(WireReader message, uint32_t tensor_field,
                              absl::FunctionRef<Status(WireReader)> on_tensor,
                              google::protobuf::MessageLite* rest);

}  // namespace millrace

#endif  // TRANSPORT_WIRE_READER_H_
