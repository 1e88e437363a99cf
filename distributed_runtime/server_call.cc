#include "distributed_runtime/server_call.h"

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
  explicit PieceStream(std::span<const WirePiece> pieces) : pieces_(pieces) {}

  bool Next(const void** data, int* size) override {
    while (next_ < pieces_.size() && offset_ == pieces_[next_].size()) {
      ++next_;
      offset_ = 0;
    }
    if (next_ == pieces_.size()) return false;
    const std::size_t n = std::min<std::size_t>(pieces_[next_].size() - offset_, 1 << 30);
    *data = pieces_[next_].data() + offset_;
    *size = static_cast<int>(n);
    offset_ += n;
    count_ += n;
    return true;
  }
  void BackUp(int count) override {
    offset_ -= count;
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
  std::span<const WirePiece> pieces_;
  std::size_t next_ = 0, offset_ = 0;
  int64_t count_ = 0;
};

}  // namespace

Status ParseMessage(std::span<const WirePiece> pieces, google::protobuf::MessageLite* message) {
  PieceStream stream(pieces);
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
  Finish(std::move(writer));
}

}  // namespace millrace
