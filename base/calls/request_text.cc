// SPDX-License-Identifier: Apache-2.0
#include "base/calls/request_text.h"

#include "base/strings.h"

namespace millrace {

std::string RequestText(int64_t request_id) {
  if (request_id == 0) return "";
  return StrCat(" [request ", Hex16(static_cast<uint64_t>(request_id)), "]");
}

}  // namespace millrace
