// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/failed_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/calls/request_text.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"

namespace millrace {

void FailedSteps::Log(std::string_view method, std::string_view session_handle, int64_t request_id,
                      const Status& why) {
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
  constexpr std::size_t kMostText = 1000;
  std::string text(Message(why).substr(0, kMostText));
  // One line for one step, and nothing that a terminal takes for a command: a client's graph may be
  // quoted.
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  MR_LOG(kInfo, method, " of session ", session_handle, " failed", RequestText(request_id), ": ",
         text, left_out == 0 ? "" : StrCat(" (", left_out, " before it were not logged)"));
}

}  // namespace millrace
