// SPDX-License-Identifier: Apache-2.0
#include "transport/server_call.h"

#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"

namespace millrace {
namespace {

// Lets protobuf parse pieces where they lie.
class PieceStream : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit PieceStream(WireReader in) : rest_(in), before_(in) {}

  bool Next(const void** data, int* size) override {
    before_ = rest_;
    const std::span<const uint8_t> next = rest_.NextBytes(1 << 30);
    if (next.empty()) return false;
    *data = next.data();
    *size = static_cast<int>(next.size());
    count_ += *size;
    last_ = *size;
    return true;
  }
  void BackUp(int count) override {
    rest_ = before_;
    (void)rest_.Skip(static_cast<std::size_t>(last_ - count));
    last_ -= count;
    count_ -= count;
  }
  bool Skip(int count) override {
    const void* data;
    int size;
    while (count > 0) {
      if (!Next(&data, &size)) return false;
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return true;
  }
  int64_t ByteCount() const override { return count_; }

 private:
  WireReader rest_, before_;  // before_: ahead of the bytes that were handed out last
  int last_ = 0;              // how many they were
  int64_t count_ = 0;
};

}  // namespace

Status ParseMessage(std::span<const WirePiece> pieces, google::protobuf::MessageLite* message) {
  return ParseMessage(WireReader(pieces), message);
}

Status ParseMessage(WireReader in, google::protobuf::MessageLite* message) {
  PieceStream stream(in);
  if (!message->ParsePartialFromZeroCopyStream(&stream)) {
    return errors::InvalidArgument("the bytes are not a well-formed ", message->GetTypeName());
  }
  return OkStatus();
}

int64_t SizeOf(std::span<const WirePiece> pieces) {
  int64_t bytes = 0;
  for (const WirePiece& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

int64_t NanosSince(Deadline time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - time).count();
}

void Serve(const std::function<void(ServerCall*)>& handler, ServerCall* call) {
  try {
    handler(call);
  } catch (...) {
    call->Finish(CaughtStatus());
  }
}

Status ServerCall::Parse(google::protobuf::MessageLite* message) {
  return ParseMessage(request(), message);
}

void ServerCall::Finish(const google::protobuf::MessageLite& response) {
  WireWriter writer;
  writer.AppendMessage(response);
  if (writer.is_oversized()) {
    return Finish(errors::ResourceExhausted("the answer, a ", response.GetTypeName(),
                                            ", would have 2 GiB or more, which no message may "
                                            "have"));
  }
  Finish(std::move(writer));
}

}  // namespace millrace
