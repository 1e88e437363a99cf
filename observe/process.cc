// SPDX-License-Identifier: Apache-2.0
#include "observe/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "base/strings.h"

namespace millrace {
namespace {

// "VmRSS:    1234 kB", in bytes.
bool TakeKilobytes(const std::string& line, const char* name, int64_t* bytes) {
  if (!line.starts_with(name)) return false;
  *bytes = std::strtoll(line.c_str() + std::strlen(name), nullptr, 10) * 1024;
  return true;
}

int64_t CountEntries(const char* folder) {
  DIR* const open = opendir(folder);
  if (open == nullptr) return 0;
  int64_t count = -3;  // itself, the one above, and the folder that is open
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

// When the machine was started.
double BootSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::strtod(line.c_str() + 6, nullptr);
  }
  return 0;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (TakeKilobytes(line, "VmRSS:", &stats.resident_bytes) ||
        TakeKilobytes(line, "VmHWM:", &stats.peak_resident_bytes) ||
        TakeKilobytes(line, "VmSize:", &stats.virtual_bytes)) {
      continue;
    }
    if (line.starts_with("Threads:")) stats.threads = std::strtoll(line.c_str() + 8, nullptr, 10);
  }
  stats.open_files = CountEntries("/proc/self/fd");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.most_open_files = static_cast<int64_t>(limit.rlim_cur);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      stats.cpu_seconds +=
          static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
  }
  // The 22nd word, and the 20th after the name in parentheses: clock ticks after the boot.
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  std::istringstream words(text.substr(text.rfind(')') + 1));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  double ticks = 0;
  if (ParseDouble(word, &ticks)) {
    stats.start_seconds = BootSeconds() + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return stats;
}

}  // namespace millrace
