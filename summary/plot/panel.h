// SPDX-License-Identifier: Apache-2.0
// One panel of a plot.
#ifndef SUMMARY_PLOT_PANEL_H_
#define SUMMARY_PLOT_PANEL_H_

#include "millrace/plot.h"
#include "summary/plot/canvas.h"

namespace millrace::plot {

struct Palette {
  Color background, ink, faint, grid;
  Color series[8];  // told apart by people who do not see all colours as well
};
const Palette& PaletteOf(bool dark);

// Draws into the rectangle whose upper left corner is `corner`.
void DrawPanel(const PlotPanel& panel, Point corner, double width, double height,
               const Palette& palette, Canvas* canvas);

}  // namespace millrace::plot

#endif  // SUMMARY_PLOT_PANEL_H_
