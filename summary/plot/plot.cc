// SPDX-License-Identifier: Apache-2.0
#include "millrace/plot.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "summary/plot/canvas.h"
#include "summary/plot/panel.h"

namespace millrace {
namespace {

constexpr double kTitleHeight = 34, kTitleSize = 16, kTitleLeft = 12;
constexpr double kMostPixels = 1e8;

struct Size {
  int columns, rows;
  double width, height, title;
};

Size SizeOf(std::size_t panels, const PlotOptions& options) {
  const int columns = std::min(options.columns, static_cast<int>(panels));
  const int rows = static_cast<int>((panels + columns - 1) / columns);
  const double title = options.title.empty() ? 0 : kTitleHeight;
  return {columns, rows, 1.0 * columns * options.panel_width,
          1.0 * rows * options.panel_height + title, title};
}

Status CheckOptions(const PlotOptions& options) {
  if (options.columns < 1) {
    return errors::InvalidArgument("PlotOptions.columns is ", options.columns,
                                   ": at least 1 is needed");
  }
  if (options.panel_width < 160 || options.panel_height < 120) {
    return errors::InvalidArgument("panels of ", options.panel_width, " x ", options.panel_height,
                                   " points are too small: at least 160 x 120 are needed");
  }
  if (!(options.png_scale >= 0.5 && options.png_scale <= 8)) {
    return errors::InvalidArgument("PlotOptions.png_scale is ", options.png_scale,
                                   ": 0.5 to 8 was expected");
  }
  return OkStatus();
}

Status CheckPanels(std::span<const PlotPanel> panels) {
  if (panels.empty()) {
    return errors::InvalidArgument("a plot has no panels: give at least one");
  }
  for (const PlotPanel& panel : panels) {
    for (const PlotSeries& series : panel.series) {
      if (!series.x.empty() && series.x.size() != series.y.size()) {
        return errors::InvalidArgument("the series '", series.name, "' of the panel '", panel.title,
                                       "' has ", series.x.size(), " x and ", series.y.size(),
                                       " y: as many of both were expected");
      }
    }
  }
  return OkStatus();
}

StatusOr<std::string> Draw(std::span<const PlotPanel> panels, const PlotOptions& options,
                           bool png) {
  MR_RETURN_IF_ERROR(CheckPanels(panels));
  MR_RETURN_IF_ERROR(CheckOptions(options));
  const Size size = SizeOf(panels.size(), options);
  const double scale = png ? options.png_scale : 1;
  if (size.width * size.height * scale * scale > kMostPixels) {
    return errors::InvalidArgument("a plot of ", panels.size(), " panels would have ",
                                   size.width * scale, " x ", size.height * scale,
                                   " pixels: make the panels fewer or smaller");
  }
  const plot::Palette& palette = plot::PaletteOf(options.dark);
  const std::unique_ptr<plot::Canvas> canvas =
      png ? plot::NewPngCanvas(size.width, size.height, scale)
          : plot::NewSvgCanvas(size.width, size.height);
  canvas->Fill({0, 0}, size.width, size.height, palette.background);
  if (!options.title.empty()) {
    canvas->Text({kTitleLeft, kTitleHeight - 10}, options.title,
                 {.color = palette.ink, .size = kTitleSize});
  }
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const int row = static_cast<int>(i) / size.columns, column = static_cast<int>(i) % size.columns;
    const plot::Point corner = {1.0 * column * options.panel_width,
                                size.title + 1.0 * row * options.panel_height};
    plot::DrawPanel(panels[i], corner, options.panel_width, options.panel_height, palette,
                    canvas.get());
  }
  return canvas->Encode();
}

}  // namespace

StatusOr<std::string> PlotSvg(std::span<const PlotPanel> panels, const PlotOptions& options) {
  return Draw(panels, options, /*png=*/false);
}

StatusOr<std::string> PlotPng(std::span<const PlotPanel> panels, const PlotOptions& options) {
  return Draw(panels, options, /*png=*/true);
}

Status WritePlot(const std::string& path, std::span<const PlotPanel> panels,
                 const PlotOptions& options) {
  const bool png = path.ends_with(".png");
  if (!png && !path.ends_with(".svg")) {
    return errors::InvalidArgument("a plot's file is '", path,
                                   "': a name that ends with .svg or .png was expected");
  }
  MR_ASSIGN_OR_RETURN(const std::string content, Draw(panels, options, png));
  return PosixFileSystem()->WriteFileAtomically(path, content);
}

}  // namespace millrace
