// Any text either is refused or has a canonical form that reads back as the same name.
#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "device/device_name.h"

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
