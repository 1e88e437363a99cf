// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/failed_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/calls/request_text.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"

namespace millrace {

namespace {

// In one line, and with nothing that a terminal takes for a command: a client may be quoted.
std::string Printable(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  return line;
}

}  // namespace

void FailedSteps::Log(std::string_view method, std::string_view of, int64_t request_id,
                      const Status& why, std::string_view by) {
  if (why.ok() || errors::IsOutOfRange(why) || errors::IsCancelled(why)) return;
  int64_t left_out = 0;
  {
    MutexLock lock(&mu_);
    const auto now = std::chrono::steady_clock::now();
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (++lines_ > kMostLines) {
      ++left_out_;
      return;
    }
    left_out = std::exchange(left_out_, 0);
  }
  const LogRequest named(request_id);
  MR_LOG(kInfo, method, " of ", Printable(of, 200), " failed", RequestText(request_id), ": ",
         Printable(Message(why), 1000), by.empty() ? "" : "; called by ", Printable(by, 400),
         left_out == 0 ? "" : StrCat(" (", left_out, " before it were not logged)"));
}

}  // namespace millrace
