// SPDX-License-Identifier: Apache-2.0
#include "base/text/log_format.h"

#include <cstdio>

namespace millrace {

void WriteBesideLog(LogLevel level, std::string_view text, std::source_location where) {
  if (!LogIsJson()) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    return;
  }
  while (text.ends_with('\n')) text.remove_suffix(1);
  LogLine(level, where, text);
}

}  // namespace millrace
