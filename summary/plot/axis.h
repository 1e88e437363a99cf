// SPDX-License-Identifier: Apache-2.0
// Where values lie on an axis, and which of them are written beside it.
#ifndef SUMMARY_PLOT_AXIS_H_
#define SUMMARY_PLOT_AXIS_H_

#include <string>
#include <vector>

namespace millrace::plot {

struct Tick {
  double at;  // from 0 (lowest value of the axis) to 1
  std::string label;
};

class Axis {
 public:
  // An axis for values from `low` to `high`, both finite, with about `wanted` round numbers.
  // `whole`: whole numbers only. It is a little longer at both ends by `margin` of its length.
  static Axis Linear(double low, double high, int wanted, bool whole, double margin);
  // By powers; `low` is positive.
  static Axis Logarithmic(double low, double high, int wanted, double margin);

  // From 0 to 1 on the axis.
  double At(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double low_ = 0, high_ = 1;  // logarithms if log_
  bool log_ = false;
  std::vector<Tick> ticks_;
};

// A number with so few digits that steps of `step` can be told apart.
std::string NumberText(double value, double step);
// With at most `digits` digits: 0.0123, 1.5e-07.
std::string ShortText(double value, int digits);

}  // namespace millrace::plot

#endif  // SUMMARY_PLOT_AXIS_H_
