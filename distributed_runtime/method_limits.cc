// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/method_limits.h"

#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace millrace {
namespace {

// More than a cluster has in flight, and less than what fills a machine. Of what tasks ask each
// other as many may wait as there are tensors on their way, whatever the number of tasks. What
// looks at everything, or asks everybody, is for people.
MethodLimits Default() {
  return {{"", 65536},    {"WorkerService", 0}, {"Page", 256},
          {"Trace", 256}, {"WhyWaiting", 256},  {"Ledger", 256}};
}

struct ProcessLimits {
  Mutex mu;
  MethodLimits limits ABSL_GUARDED_BY(mu) = Default();
};

ProcessLimits& TheLimits() {
  static auto* const limits = new ProcessLimits;
  return *limits;
}

}  // namespace

Status SetMethodLimits(const std::vector<std::string>& texts) {
  MethodLimits limits = Default();
  // What is said of all methods first: it is not to undo what is said of one.
  for (const bool of_all : {true, false}) {
    for (const std::string_view text : texts) {
      const std::size_t sign = text.find('=');
      if ((sign == std::string_view::npos) != of_all) continue;
      const std::string name(of_all ? std::string_view() : text.substr(0, sign));
      int64_t most = 0;
      if ((name.empty() && !of_all) || !ParseInt64(text.substr(of_all ? 0 : sign + 1), &most) ||
          most < 0) {
        return errors::InvalidArgument("--max_method_calls: '", text,
                                       "' is neither a number of calls, such as 100, nor a method "
                                       "or service with one, such as RunStep=100; 0: no bound");
      }
      if (of_all) limits.clear();
      limits[name] = most;
    }
  }
  ProcessLimits& process = TheLimits();
  MutexLock lock(&process.mu);
  process.limits = std::move(limits);
  return OkStatus();
}

MethodLimits CurrentMethodLimits() {
  ProcessLimits& process = TheLimits();
  MutexLock lock(&process.mu);
  return process.limits;
}

std::string ToText(const MethodLimits& limits) {
  std::vector<std::string> texts;
  for (const auto& [name, most] : limits) {
    texts.push_back(name.empty() ? StrCat(most) : StrCat(name, "=", most));
  }
  return StrJoin(texts, ",");
}

}  // namespace millrace
