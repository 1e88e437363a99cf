// SPDX-License-Identifier: Apache-2.0
// When a device that computes one task at a time has nothing to do.
#ifndef PLACER_FREE_TIME_H_
#define PLACER_FREE_TIME_H_

#include <cstdint>
#include <vector>

namespace millrace {

// The gaps between tasks, and the time after the last of them. A treap by begin that knows the
// longest gap below each of its nodes, so finding the first gap that is long enough costs
// O(log n), expected. Deterministic. Not synchronised. Times are seconds from 0 on.
class FreeTime {
 public:
  FreeTime();
  // The earliest begin, not before `ready`, of `seconds` in which nothing was taken.
  double Find(double ready, double seconds) const;
  // Takes the time from `begin`, as Find told, for `seconds`.
  void Take(double begin, double seconds);

 private:
  struct Gap {
    double begin, end;
    double longest;  // of this gap and all below it
    uint32_t weight;
    int left = -1, right = -1;
  };

  int FirstFrom(int top, double ready, double seconds) const;
  int Insert(int top, int added);
  void Sum(int gap);
  uint32_t NextWeight();

  std::vector<Gap> gaps_;
  std::vector<int> way_;  // from the root to a gap; kept for its memory
  int root_ = 0;
  uint32_t random_ = 1;
};

}  // namespace millrace

#endif  // PLACER_FREE_TIME_H_
