// SPDX-License-Identifier: Apache-2.0
// Any text either is refused or has a canonical form that reads back as the same name.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "device/device_name.h"

namespace millrace {
std::vector<std::string> FuzzSeeds() {
  return {"/job:ps/replica:0/task:1/device:CPU:0", "/job:worker/task:10/gpu:3", "/cpu:*",
          "/job:*/replica:*/task:*/device:*:*", "/device:XPU_2:0/job:a-b_c.d"};
}
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using millrace::DeviceName;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto name = DeviceName::Parse(text);
  if (!name.ok()) return 0;
  const auto again = DeviceName::Parse(name->ToString());
  MR_CHECK(again.ok());
  MR_CHECK(*again == *name);
  DeviceName merged = *name;
  MR_CHECK(merged.MergeFrom(*again, /*soft=*/false).ok());
  MR_CHECK(merged == *name);
  return 0;
}
