// SPDX-License-Identifier: Apache-2.0
// What plots are drawn on: points from the upper left corner, drawn over what is there.
#ifndef SUMMARY_PLOT_CANVAS_H_
#define SUMMARY_PLOT_CANVAS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace::plot {

struct Point {
  double x, y;
};

using Color = uint32_t;  // 0xrrggbb

enum class Anchor { kStart, kMiddle, kEnd };

struct Stroke {
  Color color;
  double width = 1;
  std::span<const double> dashes = {};  // lengths of line and gap in turn; empty: one line
};

struct TextStyle {
  Color color;
  double size = 11;
  Anchor anchor = Anchor::kStart;
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void Fill(Point corner, double width, double height, Color color) = 0;
  virtual void Line(std::span<const Point> points, const Stroke& stroke) = 0;
  virtual void Dot(Point center, double radius, Color color) = 0;
  // `at` is on the line on which letters stand.
  virtual void Text(Point at, std::string_view text, const TextStyle& style) = 0;
  // About how wide a text is.
  virtual double TextWidth(std::string_view text, double size) const = 0;
  // The file.
  virtual StatusOr<std::string> Encode() = 0;
};

std::unique_ptr<Canvas> NewSvgCanvas(double width, double height);
// `scale` pixels for each point.
std::unique_ptr<Canvas> NewPngCanvas(double width, double height, double scale);

}  // namespace millrace::plot

#endif  // SUMMARY_PLOT_CANVAS_H_
