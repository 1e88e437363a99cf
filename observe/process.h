// SPDX-License-Identifier: Apache-2.0
// This process as the system sees it.
#ifndef OBSERVE_PROCESS_H_
#define OBSERVE_PROCESS_H_

#include <cstdint>

namespace millrace {

struct ProcessStats {
  int64_t resident_bytes = 0, peak_resident_bytes = 0, virtual_bytes = 0;
  int64_t threads = 0, open_files = 0, most_open_files = 0;
  double cpu_seconds = 0, start_seconds = 0;  // the latter of the Unix epoch
};
// Reads /proc; what is not there is 0. Thread-safe.
ProcessStats ReadProcessStats();

}  // namespace millrace

#endif  // OBSERVE_PROCESS_H_
