// SPDX-License-Identifier: Apache-2.0
#include "device/memory_report.h"

#include <map>
#include <utility>

#include "base/mutex.h"

namespace millrace {
namespace {

struct Reports {
  Mutex mu;
  std::map<const Allocator*, std::function<std::string()>> by_allocator ABSL_GUARDED_BY(mu);
};

Reports& AllReports() {
  static auto* const reports = new Reports;
  return *reports;
}

}  // namespace

std::string MemoryReport(const Allocator* allocator) {
  Reports& reports = AllReports();
  MutexLock lock(&reports.mu);  // so that it is not taken back meanwhile
  const auto found = reports.by_allocator.find(allocator);
  return found == reports.by_allocator.end() ? "" : found->second();
}

void SetMemoryReport(const Allocator* allocator, std::function<std::string()> report) {
  Reports& reports = AllReports();
  MutexLock lock(&reports.mu);
  reports.by_allocator[allocator] = std::move(report);
}

void ClearMemoryReport(const Allocator* allocator) {
  Reports& reports = AllReports();
  MutexLock lock(&reports.mu);
  reports.by_allocator.erase(allocator);
}

}  // namespace millrace
