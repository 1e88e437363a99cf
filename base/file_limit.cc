// SPDX-License-Identifier: Apache-2.0
#include "base/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace millrace {
namespace {

// Some systems have no limit; tables are made for what it says.
constexpr rlim_t kMostFiles = 1 << 20;

}  // namespace

int64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t wanted = std::min(limit.rlim_max, kMostFiles);
  if (limit.rlim_cur < wanted) {
    rlimit raised = limit;
    raised.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMostFiles));
}

}  // namespace millrace
