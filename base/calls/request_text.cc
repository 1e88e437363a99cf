// SPDX-License-Identifier: Apache-2.0
#include "base/calls/request_text.h"

#include <atomic>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"

namespace millrace {

int64_t NewRequestId() {
  static const uint64_t start = RandomId();
  static std::atomic<uint64_t> count{0};
  // Mixes the bits (the finalizer of MurmurHash3): ids that follow each other look nothing alike.
  uint64_t id = start + 0x9e3779b97f4a7c15 * count.fetch_add(1, std::memory_order_relaxed);
  id = (id ^ (id >> 33)) * 0xff51afd7ed558ccd;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53;
  id ^= id >> 33;
  return id == 0 ? 1 : static_cast<int64_t>(id);
}

std::string RequestText(int64_t request_id) {
  if (request_id == 0) return "";
  return StrCat(" [request ", Hex16(static_cast<uint64_t>(request_id)), "]");
}

Status OfRequest(Status status, int64_t request_id) {
  if (status.ok() || request_id == 0 || errors::IsOutOfRange(status)) return status;
  const std::string text = RequestText(request_id);
  return Message(status).find(text) == std::string_view::npos ? Annotate(status, text) : status;
}

}  // namespace millrace
