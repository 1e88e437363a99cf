// SPDX-License-Identifier: Apache-2.0
// Any bytes either are refused or are an array whose sizes and values agree.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "data/idx.h"

namespace millrace {
std::vector<std::string> FuzzSeeds() {
  using namespace std::string_literals;  // NOLINT
  return {
      "\0\0\x08\x01\0\0\0\x03"
      "abc"s,
      "\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02"
      "abcd"s,
      "\0\0\x08\x03\0\0\0\0\0\0\0\x1c\0\0\0\x1c"s};
}
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const int rank : {1, 3}) {
    const auto array = millrace::ParseIdx(bytes, rank, "input");
    if (!array.ok()) continue;
    MR_CHECK(static_cast<int>(array->dims.size()) == rank);
    uint64_t count = 1;
    for (const int64_t dim : array->dims) count *= static_cast<uint64_t>(dim);
    MR_CHECK(count == array->values.size());
  }
  return 0;
}
