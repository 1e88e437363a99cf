// SPDX-License-Identifier: Apache-2.0
#include "base/calls/line_budget.h"

#include <algorithm>
#include <utility>

namespace millrace {

bool LineBudget::Take(int64_t* left_out) {
  MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  if (const int64_t periods = (now - since_) / period_; periods > 0) {
    // More than fill it would overflow.
    lines_ = std::min<int64_t>(most_, lines_ + std::min<int64_t>(periods, most_) * back_);
    since_ = lines_ == most_ ? now : since_ + periods * period_;
  }
  if (lines_ == 0) {
    ++left_out_;
    return false;
  }
  --lines_;
  *left_out = std::exchange(left_out_, 0);
  return true;
}

std::string InOneLine(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  return line;
}

}  // namespace millrace
