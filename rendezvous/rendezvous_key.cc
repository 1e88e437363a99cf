// SPDX-License-Identifier: Apache-2.0
// The text of rendezvous keys, as TensorFlow's processes write and read it.
#include "base/errors.h"
#include "base/strings.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

// Frame ids and iterations are decimal; ParseInt64 does not reach the upper half.
bool ParseUint64(std::string_view text, uint64_t* value) {
  if (text.empty() || text.size() > 20) return false;
  uint64_t result = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    if (__builtin_mul_overflow(result, uint64_t{10}, &result) ||
        __builtin_add_overflow(result, static_cast<uint64_t>(c - '0'), &result)) {
      return false;
    }
  }
  *value = result;
  return true;
}

}  // namespace

std::string RendezvousKey::ToString() const {
  return StrCat(src_device, ";", Hex16(src_incarnation), ";", dst_device, ";", edge_name, ";",
                frame_id, ":", iteration);
}

StatusOr<RendezvousKey> RendezvousKey::Parse(std::string_view text) {
  RendezvousKey key;
  const auto parts = StrSplit(text, ';');
  bool ok = parts.size() == 5 && !parts[0].empty() && parts[1].size() == 16 && !parts[2].empty() &&
            !parts[3].empty() && ParseUint64Hex(parts[1], &key.src_incarnation);
  if (ok) {
    const std::size_t colon = parts[4].find(':');
    ok = colon != std::string_view::npos && ParseUint64(parts[4].substr(0, colon), &key.frame_id) &&
         ParseInt64(parts[4].substr(colon + 1), &key.iteration);
  }
  if (!ok) {
    return errors::InvalidArgument(
        "Invalid  rendezvous key: ", text,
        " (expected <src device>;<16 hex digits>;<dst device>;<edge>;<frame>:<iteration>)");
  }
  key.src_device = parts[0];
  key.dst_device = parts[2];
  key.edge_name = parts[3];
  return key;
}

}  // namespace millrace
