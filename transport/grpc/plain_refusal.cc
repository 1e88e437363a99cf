// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/plain_refusal.h"

#include <algorithm>

namespace millrace {
namespace {

// RFC 9113, 4.1 and 6.
constexpr std::size_t kFrameHeader = 9;
constexpr uint8_t kHeaders = 0x1, kSettings = 0x4;
constexpr uint8_t kAck = 0x1, kEndStream = 0x1, kEndHeaders = 0x4;

void AppendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view content,
                 std::string* out) {
  const auto size = static_cast<uint32_t>(content.size());
  for (const uint32_t byte : {size >> 16, size >> 8, size, uint32_t{type}, uint32_t{flags},
                              stream >> 24, stream >> 16, stream >> 8, stream}) {
    out->push_back(static_cast<char>(byte & 0xff));
  }
  out->append(content);
}

// A string of HPACK (RFC 7541, 5.2), not compressed.
void AppendText(std::string_view text, std::string* out) {
  std::size_t size = text.size();
  if (size < 127) {
    out->push_back(static_cast<char>(size));
  } else {
    out->push_back(127);
    for (size -= 127; size >= 128; size >>= 7) out->push_back(static_cast<char>(size % 128 + 128));
    out->push_back(static_cast<char>(size));
  }
  out->append(text);
}

void AppendField(std::string_view name, std::string_view value, std::string* out) {
  out->push_back(0);  // literal, of a new name, in no table
  AppendText(name, out);
  AppendText(value, out);
}

}  // namespace

PlainRefusal::PlainRefusal(std::string_view text) {
  headers_.push_back(static_cast<char>(0x88));  // :status 200, which HPACK knows by number
  AppendField("content-type", "application/grpc", &headers_);
  AppendField("grpc-status", "16", &headers_);  // Unauthenticated
  AppendField("grpc-message", text, &headers_);
}

bool PlainRefusal::Take(std::string_view bytes, std::string* answer) {
  if (!TakePreface(&bytes, answer)) return false;
  while (!bytes.empty()) {
    if (skipped_ > 0) {
      const std::size_t n = std::min(skipped_, bytes.size());
      skipped_ -= n;
      bytes.remove_prefix(n);
      continue;
    }
    const std::size_t n = std::min(kFrameHeader - frame_.size(), bytes.size());
    frame_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    if (frame_.size() < kFrameHeader) break;
    const auto byte = [this](std::size_t i) { return uint32_t{static_cast<uint8_t>(frame_[i])}; };
    skipped_ = byte(0) << 16 | byte(1) << 8 | byte(2);
    const uint32_t type = byte(3), flags = byte(4);
    const uint32_t stream = (byte(5) & 0x7f) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    frame_.clear();
    if (type == kSettings && (flags & kAck) == 0) AppendFrame(kSettings, kAck, 0, "", answer);
    if (type == kHeaders) {
      AppendFrame(kHeaders, kEndStream | kEndHeaders, stream, headers_, answer);
    }
  }
  return true;
}

bool PlainRefusal::TakePreface(std::string_view* bytes, std::string* answer) {
  if (greeted_ == kHttp2Preface.size()) return true;
  const std::size_t n = std::min(kHttp2Preface.size() - greeted_, bytes->size());
  if (bytes->substr(0, n) != kHttp2Preface.substr(greeted_, n)) return false;
  bytes->remove_prefix(n);
  greeted_ += n;
  if (greeted_ == kHttp2Preface.size()) AppendFrame(kSettings, 0, 0, "", answer);
  return true;
}

}  // namespace millrace
