// SPDX-License-Identifier: Apache-2.0
// Letters as a pen draws them, for pictures of pixels.
#ifndef SUMMARY_PLOT_STROKE_FONT_H_
#define SUMMARY_PLOT_STROKE_FONT_H_

#include <string_view>
#include <vector>

#include "summary/plot/canvas.h"

namespace millrace::plot {

// Lines of `text` with its lower left corner at `at`; `size` as that of any font. Characters beyond
// ASCII are boxes.
std::vector<std::vector<Point>> StrokesOf(std::string_view text, Point at, double size);
double StrokeTextWidth(std::string_view text, double size);

}  // namespace millrace::plot

#endif  // SUMMARY_PLOT_STROKE_FONT_H_
