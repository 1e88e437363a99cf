// SPDX-License-Identifier: Apache-2.0
#include "placer/free_time.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// Ends are rounded: which gap is long enough is told by its own ends, not by its length.
constexpr double kSlack = 1e-9;

}  // namespace

FreeTime::FreeTime() {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  gaps_.push_back({0, kForever, kForever, NextWeight()});
}

uint32_t FreeTime::NextWeight() {
  random_ ^= random_ << 13;  // xorshift (Marsaglia, 2003)
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_;
}

double FreeTime::Find(double ready, double seconds) const {
  int open = -1;  // the last gap that begins by then, if one does
  for (int at = root_; at >= 0;) {
    const bool begun = gaps_[at].begin <= ready;
    if (begun) open = at;
    at = begun ? gaps_[at].right : gaps_[at].left;
  }
  if (open >= 0 && std::max(ready, gaps_[open].begin) + seconds <= gaps_[open].end) return ready;
  const int later = FirstFrom(root_, ready, seconds);
  return gaps_[later].begin;  // the last gap has no end
}

// The first gap that begins after `ready` and is long enough; -1 if there is none below `top`.
int FreeTime::FirstFrom(int top, double ready, double seconds) const {
  if (top < 0) return -1;
  const Gap& gap = gaps_[top];
  if (gap.longest < seconds * (1 - kSlack)) return -1;
  if (gap.begin <= ready) return FirstFrom(gap.right, ready, seconds);
  if (const int before = FirstFrom(gap.left, ready, seconds); before >= 0) return before;
  if (gap.begin + seconds <= gap.end) return top;
  return FirstFrom(gap.right, ready, seconds);
}

void FreeTime::Take(double begin, double seconds) {
  // The way to the last gap that begins by then.
  std::size_t length = 0;
  way_.clear();
  for (int at = root_; at >= 0;) {
    way_.push_back(at);
    const bool begun = gaps_[at].begin <= begin;
    if (begun) length = way_.size();
    at = begun ? gaps_[at].right : gaps_[at].left;
  }
  if (length == 0) return;  // nothing is free then
  way_.resize(length);
  Gap& gap = gaps_[way_.back()];
  const double end = begin + seconds, gap_end = gap.end;
  // What is left of the gap keeps its place in the order; a second rest is a new gap.
  const bool rest_before = gap.begin < begin;
  (rest_before ? gap.end : gap.begin) = rest_before ? begin : std::min(end, gap_end);
  for (auto at = way_.rbegin(); at != way_.rend(); ++at) Sum(*at);
  if (rest_before && end < gap_end) {
    gaps_.push_back({end, gap_end, 0, NextWeight()});
    root_ = Insert(root_, static_cast<int>(gaps_.size()) - 1);
  }
}

int FreeTime::Insert(int top, int added) {
  if (top < 0) {
    Sum(added);
    return added;
  }
  const bool left = gaps_[added].begin < gaps_[top].begin;
  const int below = Insert(left ? gaps_[top].left : gaps_[top].right, added);
  (left ? gaps_[top].left : gaps_[top].right) = below;
  if (gaps_[below].weight <= gaps_[top].weight) {
    Sum(top);
    return top;
  }
  // The heavier one comes up.
  if (left) {
    gaps_[top].left = gaps_[below].right;
    gaps_[below].right = top;
  } else {
    gaps_[top].right = gaps_[below].left;
    gaps_[below].left = top;
  }
  Sum(top);
  Sum(below);
  return below;
}

void FreeTime::Sum(int gap) {
  Gap& sum = gaps_[gap];
  sum.longest = sum.end - sum.begin;
  if (sum.left >= 0) sum.longest = std::max(sum.longest, gaps_[sum.left].longest);
  if (sum.right >= 0) sum.longest = std::max(sum.longest, gaps_[sum.right].longest);
}

}  // namespace millrace
