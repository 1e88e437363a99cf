#include "tests/fault/soak/usage.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/strings.h"

namespace millrace::testing {

Usage UsageOf(pid_t pid) {
  Usage usage;
  std::ifstream status(StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, colon);
    if (name == "VmRSS") usage.memory_kib = std::stoll(line.substr(colon + 1));
    if (name == "Threads") usage.threads = std::stoll(line.substr(colon + 1));
  }
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(StrCat("/proc/", pid, "/fd"), ignored)) {
    (void)entry;
    ++usage.descriptors;
  }
  return usage;
}

Usage SettledUsage(pid_t pid, const Usage& most) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  Usage usage = UsageOf(pid);
  while ((usage.threads > most.threads || usage.descriptors > most.descriptors) &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    usage = UsageOf(pid);
  }
  return usage;
}

}  // namespace millrace::testing
