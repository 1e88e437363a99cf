// SPDX-License-Identifier: Apache-2.0
#include "summary/plot/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace millrace::plot {
namespace {

std::string Format(const char* format, int digits, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, digits, value);
  return text;
}

// 1.50e-07 as 1.5e-7.
std::string Shorter(std::string text) {
  const std::size_t e = text.find('e');
  if (e == std::string::npos) return text;
  std::string mantissa = text.substr(0, e), exponent = text.substr(e + 1);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  const bool negative = exponent.front() == '-';
  exponent.erase(0, std::min(exponent.find_first_not_of("+-0"), exponent.size() - 1));
  return mantissa + "e" + (negative ? "-" : "") + exponent;
}

// The least of 1, 2 and 5 times a power of ten that is not below `step`.
double RoundStep(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string NumberText(double value, double step) {
  const double size = std::abs(value);
  const int places = static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  if (size < step / 2) return "0";
  if (size >= 1e6 || places > 5) {
    const int digits = static_cast<int>(std::floor(std::log10(size) + 1e-9)) + places;
    return Shorter(Format("%.*e", std::clamp(digits, 0, 15), value));
  }
  return Format("%.*f", std::max(places, 0), value);
}

std::string ShortText(double value, int digits) { return Shorter(Format("%.*g", digits, value)); }

Axis Axis::Linear(double low, double high, int wanted, bool whole, double margin) {
  if (!(high > low)) {
    const double room = whole ? 0.5 : low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  // Halves, lest the range of the widest axes is infinite.
  double step = RoundStep((high / 2 - low / 2) / std::max(wanted, 1) * 2);
  if (whole) step = std::max(1.0, step);
  Axis axis;
  const double room = (high / 2 - low / 2) * 2 * margin;
  axis.low_ = std::max(low - room, -1e308);
  axis.high_ = std::min(high + room, 1e308);
  const double first = std::ceil(axis.low_ / step - 1e-9);
  for (double i = first; i * step <= axis.high_ + step * 1e-9 && i < first + 100; ++i) {
    axis.ticks_.push_back({axis.At(i * step), NumberText(i * step, step)});
  }
  return axis;
}

Axis Axis::Logarithmic(double low, double high, int wanted, double margin) {
  Axis axis;
  axis.log_ = true;
  axis.low_ = std::log10(low);
  axis.high_ = std::log10(std::max(high, low));
  const double room = axis.high_ > axis.low_ ? (axis.high_ - axis.low_) * margin : 0.5;
  axis.low_ -= room;
  axis.high_ += room;
  const double decades = axis.high_ - axis.low_;
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / (wanted + 2))));
  const bool finer = decades < 2.5;
  for (int power = static_cast<int>(std::floor(axis.low_)); power <= axis.high_; power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      if (at < axis.low_ || at > axis.high_ || (factor > 1 && !finer)) continue;
      axis.ticks_.push_back(
          {(at - axis.low_) / decades, ShortText(factor * std::pow(10.0, power), 3)});
    }
  }
  return axis;
}

double Axis::At(double value) const {
  const double v = log_ ? std::log10(value) : value;
  return (v / 2 - low_ / 2) / (high_ / 2 - low_ / 2);
}

}  // namespace millrace::plot
