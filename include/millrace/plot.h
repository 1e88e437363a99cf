// SPDX-License-Identifier: Apache-2.0
// Pictures of curves, as SVG or PNG, without another program: losses and metrics over epochs.
//
//   StatusOr<History> history = model.Fit(...);
//   Status status = WritePlot("run.png", HistoryPanels(*history));
//
// All functions may be called from any thread.
#ifndef MILLRACE_PLOT_H_
#define MILLRACE_PLOT_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/history.h"
#include "millrace/status.h"

namespace millrace {

// One curve. Where x or y is NaN or infinite the curve has a gap; a point between two gaps is a
// dot.
struct PlotSeries {
  std::string name;         // in the legend and at the curve's end, with its last value
  std::vector<double> y{};  // as many as x
  std::vector<double> x{};  // empty: 1, 2, 3, ...
};

// Curves over one pair of axes.
struct PlotPanel {
  std::string title;                 // above the axes
  std::vector<PlotSeries> series{};  // one for each curve
  std::string x_label{};             // below the x axis
  bool log_y = false;                // values that are not positive are gaps
};

// How a picture of panels looks.
struct PlotOptions {
  std::string title{};  // above all panels
  int columns = 2;      // panels side by side
  // Of a panel, in points. At least 160 x 120.
  int panel_width = 460;
  int panel_height = 290;  // in points, without the title above all panels
  // Light on dark. A picture has a background of its own and looks the same on every page.
  bool dark = false;
  // Pixels of a PNG for each point, from 0.5 to 8.
  double png_scale = 2;
};

// InvalidArgument, naming panel and series, without panels, for options beyond their limits, for x
// and y of different lengths, and for a picture of more than 100 million pixels.
StatusOr<std::string> PlotSvg(std::span<const PlotPanel> panels, const PlotOptions& options = {});
// The bytes of a PNG; errors as PlotSvg's.
StatusOr<std::string> PlotPng(std::span<const PlotPanel> panels, const PlotOptions& options = {});

// Into a file, which is replaced; its name ends with .svg or .png. Errors of the above and of the
// file system.
Status WritePlot(const std::string& path, std::span<const PlotPanel> panels,
                 const PlotOptions& options = {});

// The panels of a training: metrics over epochs, counted from 1, in the order in which they were
// logged; a metric and "val_" with its name share a panel.
std::vector<PlotPanel> HistoryPanels(const History& history);
// The same of values for each epoch by name. Where there are fewer validations than epochs, they
// lie evenly over them.
std::vector<PlotPanel> HistoryPanels(
    const std::vector<std::pair<std::string, std::vector<double>>>& history);

}  // namespace millrace

#endif  // MILLRACE_PLOT_H_
