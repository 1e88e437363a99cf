// SPDX-License-Identifier: Apache-2.0
// What whoever has a connection may ask gRPC's health service: any bytes name a service of bounded
// length, or are refused, whatever pieces they come in. Of several names the last one counts.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/grpc/health_service.h"

namespace millrace {

std::vector<std::string> FuzzSeeds() {
  return {std::string("\x08\x0a\x18tensorflow.MasterService", 27), std::string("\x01\x0a\x00", 3),
          std::string("\x02\x10\x05\x0a\x01x\x0a\x01y\x1d....", 15),
          std::string("\x05\x0a\xff\xff\xff\xff\x0f", 7),
          "\x40\x0a\x90\x10" + std::string(2064, 'x')};
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT: the entry's name is fixed, its scope is this function
  if (size == 0) return 0;
  const std::size_t piece = 1 + std::size_t{data[0]};
  std::vector<uint8_t> bytes(data + 1, data + size);
  const auto in_pieces = [&bytes](std::size_t most) {
    std::vector<WirePiece> pieces;
    for (std::size_t at = 0; at < bytes.size(); at += most) {
      pieces.emplace_back(bytes.data() + at, std::min(most, bytes.size() - at));
    }
    return pieces;
  };
  std::string whole = "before", cut;
  const bool taken = ReadHealthRequest(in_pieces(bytes.size() + 1), &whole);
  MR_CHECK(taken == ReadHealthRequest(in_pieces(piece), &cut));
  if (!taken) return 0;
  MR_CHECK(whole == cut);
  MR_CHECK(whole.size() <= 1025);
  for (const char byte : {'\n', '\1', 'z'}) bytes.push_back(static_cast<uint8_t>(byte));
  MR_CHECK(ReadHealthRequest(in_pieces(piece), &cut));
  MR_CHECK(cut == "z");
  return 0;
}
