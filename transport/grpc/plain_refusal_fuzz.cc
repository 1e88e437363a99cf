// SPDX-License-Identifier: Apache-2.0
// What a caller without TLS sends to a server that asks for it: any bytes, in pieces of any size,
// are answered alike and with no more than a frame each.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "transport/grpc/plain_refusal.h"

namespace millrace {
namespace {

constexpr std::string_view kText = "use TLS";
// The frame of an answer, its longest.
constexpr std::size_t kMostPerFrame = 100;

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string preface(kHttp2Preface);
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9), call("\0\0\1\1\5\0\0\0\1\x88", 10);
  return {"\x20" + preface, "\x01" + preface + settings, "\x05" + preface + settings + call + call};
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT: the entry's name is fixed, its scope is this function
  if (size == 0) return 0;
  const std::size_t piece = 1 + std::size_t{data[0]};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string whole, pieces;
  const bool taken = PlainRefusal(kText).Take(bytes, &whole);
  PlainRefusal refusal(kText);
  bool taken_in_pieces = true;
  for (std::size_t at = 0; at < bytes.size() && taken_in_pieces; at += piece) {
    taken_in_pieces = refusal.Take(bytes.substr(at, piece), &pieces);
  }
  MR_CHECK(taken == taken_in_pieces);
  if (taken) MR_CHECK(whole == pieces);
  MR_CHECK(whole.size() <= kMostPerFrame * (1 + bytes.size() / 9));
  return 0;
}
