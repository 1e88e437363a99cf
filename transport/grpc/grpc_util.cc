// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/grpc_util.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "base/log.h"
#include "transport/grpc/refusal_log.h"
#include "transport/status_payloads.h"

namespace millrace {
namespace {

// grpc-message is percent-encoded: a byte may become three.
constexpr std::size_t kMaxEncodedMessage = 5 * 1024;
constexpr std::size_t kMaxDetails = 1536;

std::string CutMessage(std::string_view text) {
  std::size_t encoded = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    encoded += byte < 0x20 || byte > 0x7e || byte == '%' ? 3 : 1;
    if (encoded > kMaxEncodedMessage) {
      while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) --i;  // whole UTF-8
      return StrCat(text.substr(0, i), "... [cut]");
    }
  }
  return std::string(text);
}

}  // namespace

void InitGrpc() {
  static const bool initialized = [] {
    // What matters of it comes back as a status, but for connections that nobody here has made.
    gpr_set_log_function([](gpr_log_func_args* args) {
      NoteHandshake(args->message);
      if (LogEnabled(LogLevel::kDebug)) {
        LogLine(LogLevel::kDebug, std::source_location::current(), StrCat("grpc: ", args->message));
      }
    });
    grpc_init();
    return true;
  }();
  (void)initialized;
}

grpc::ByteBuffer ToByteBuffer(const WireWriter& writer) {
  if (writer.segments().empty()) {
    const grpc::Slice slice(writer.text().data(), writer.text().size());
    return grpc::ByteBuffer(&slice, 1);
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * writer.segments().size() + 1);
  const char* text = writer.text().data();
  std::size_t begin = 0;
  for (const WireWriter::Segment& segment : writer.segments()) {
    slices.emplace_back(text + begin, segment.text_end - begin);
    begin = segment.text_end;
    Buffer* buffer = segment.tensor.buffer();
    buffer->Ref();
    slices.emplace_back(
        segment.tensor.raw_data(), segment.tensor.num_bytes(),
        [](void* arg) { static_cast<Buffer*>(arg)->Unref(); }, buffer);
  }
  if (begin < writer.text().size()) slices.emplace_back(text + begin, writer.text().size() - begin);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const std::size_t size = message.ByteSizeLong();
  // Protobuf would write beyond the slice. RpcChannel refuses what is not valid.
  if (size > INT32_MAX) return grpc::ByteBuffer();
  grpc::Slice slice(size);
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

ReceivedBytes::ReceivedBytes(const grpc::ByteBuffer& bytes) {
  if (!bytes.Valid() || !bytes.Dump(&slices_).ok()) slices_.clear();
  pieces_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) pieces_.emplace_back(slice.begin(), slice.size());
}

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string details = EncodeStatusPayloads(status);
  if (details.size() > kMaxDetails) details.clear();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), CutMessage(Message(status)),
                      details);
}

Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  auto code = static_cast<StatusCode>(status.error_code());
  if (code == StatusCode::kUnknown && status.error_message() == "Stream removed") {
    code = StatusCode::kUnavailable;
  }
  Status result = MakeStatus(code, status.error_message());
  DecodeStatusPayloads(status.error_details(), &result);
  return result;
}

std::chrono::system_clock::time_point ToSystemTime(Deadline deadline) {
  if (deadline == kNoDeadline) return std::chrono::system_clock::time_point::max();
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline -
                                                                         SteadyClock::now());
}

Deadline FromSystemTime(std::chrono::system_clock::time_point time) {
  const auto now = std::chrono::system_clock::now();
  if (time > now + std::chrono::hours(24 * 365)) return kNoDeadline;
  return SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(time - now);
}

}  // namespace millrace
