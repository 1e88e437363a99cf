// SPDX-License-Identifier: Apache-2.0
#include "summary/plot/panel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/strings.h"
#include "summary/plot/axis.h"

namespace millrace::plot {
namespace {

constexpr double kTitleSize = 13, kTextSize = 10.5, kLabelSpacing = 13;
constexpr double kMargin = 12, kLineWidth = 1.8, kLegendLine = 22;
constexpr std::size_t kLongestName = 24;

// Beside colours, for print and for eyes that see few of them.
std::span<const double> DashesOf(std::size_t series) {
  static constexpr double kDashed[] = {7, 5}, kDotted[] = {1, 4}, kMixed[] = {9, 4, 1, 4};
  switch (series % 4) {
    case 1:
      return kDashed;
    case 2:
      return kMixed;
    case 3:
      return kDotted;
    default:
      return {};
  }
}

// At most `most` bytes, and whole characters.
std::string Shortened(const std::string& name, std::size_t most = kLongestName) {
  if (name.size() <= most) return name;
  std::size_t end = most - std::min<std::size_t>(most, 3);
  while (end > 0 && (name[end] & 0xc0) == 0x80) --end;
  return name.substr(0, end) + "...";
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void Add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return !(low <= high); }
};

// The rectangle between the axes.
struct Frame {
  double left, top, right, bottom;
  Axis x, y;
  Point At(Point value) const {
    return {left + x.At(value.x) * (right - left), bottom - y.At(value.y) * (bottom - top)};
  }
};

class Panel {
 public:
  Panel(const PlotPanel& panel, const Palette& palette, Canvas* canvas)
      : panel_(panel), palette_(palette), canvas_(*canvas) {}

  void Draw(Point corner, double width, double height);

 private:
  struct EndLabel {
    double y;  // where it is to be
    std::string text;
    Color color;
  };

  Color ColorOf(std::size_t series) const {
    return palette_.series[series % std::size(palette_.series)];
  }
  double XOf(const PlotSeries& s, std::size_t i) const {
    return s.x.empty() ? static_cast<double>(i + 1) : s.x[i];
  }
  bool Shown(double x, double y) const {
    return std::isfinite(x) && std::isfinite(y) && (y > 0 || !panel_.log_y);
  }
  // The last value that is shown; false if none is.
  bool LastOf(const PlotSeries& s, Point* last) const;
  void Measure();
  double DrawLegend(Point at, double right);  // its height
  std::vector<std::string> EndTexts() const;
  Frame Layout(Point corner, double width, double height, double top);
  void DrawAxes(const Frame& frame);
  void DrawCurve(const Frame& frame, std::size_t series);
  void DrawRun(const std::vector<Point>& run, std::size_t series);
  void DrawEndLabels(const Frame& frame);

  const PlotPanel& panel_;
  const Palette& palette_;
  Canvas& canvas_;
  Range x_, y_;
  bool whole_x_ = true;
};

bool Panel::LastOf(const PlotSeries& s, Point* last) const {
  for (std::size_t i = s.y.size(); i-- > 0;) {
    if (!Shown(XOf(s, i), s.y[i])) continue;
    *last = {XOf(s, i), s.y[i]};
    return true;
  }
  return false;
}

void Panel::Measure() {
  for (const PlotSeries& s : panel_.series) {
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      const double x = XOf(s, i);
      if (!Shown(x, s.y[i])) continue;
      x_.Add(x);
      y_.Add(s.y[i]);
      whole_x_ = whole_x_ && x == std::floor(x);
    }
  }
}

double Panel::DrawLegend(Point at, double right) {
  const double left = at.x, top = at.y;
  for (std::size_t i = 0; i < panel_.series.size(); ++i) {
    const std::string name = Shortened(panel_.series[i].name);
    const double width = kLegendLine + 6 + canvas_.TextWidth(name, kTextSize) + 14;
    if (at.x > left && at.x + width > right) at = {left, at.y + kLabelSpacing + 2};
    const Point line[] = {{at.x, at.y - 3.5}, {at.x + kLegendLine, at.y - 3.5}};
    canvas_.Line(line, {.color = ColorOf(i), .width = kLineWidth, .dashes = DashesOf(i)});
    canvas_.Text({at.x + kLegendLine + 6, at.y}, name, {.color = palette_.ink, .size = kTextSize});
    at.x += width;
  }
  return panel_.series.empty() ? 0 : at.y - top + kLabelSpacing + 4;
}

std::vector<std::string> Panel::EndTexts() const {
  std::vector<std::string> texts;
  Point last;
  for (const PlotSeries& s : panel_.series) {
    texts.push_back(LastOf(s, &last) ? StrCat(Shortened(s.name), " ", ShortText(last.y, 4)) : "");
  }
  return texts;
}

Frame Panel::Layout(Point corner, double width, double height, double top) {
  const double bottom = corner.y + height - (panel_.x_label.empty() ? 26 : 40);
  const int rows = static_cast<int>(std::clamp((bottom - top) / 36, 1.0, 8.0));
  Axis y = panel_.log_y ? Axis::Logarithmic(y_.low, y_.high, rows, 0.06)
                        : Axis::Linear(y_.low, y_.high, rows, false, 0.06);
  double label = 0, end = 0;
  for (const Tick& tick : y.ticks()) {
    label = std::max(label, canvas_.TextWidth(tick.label, kTextSize));
  }
  for (const std::string& text : EndTexts()) {
    end = std::max(end, canvas_.TextWidth(text, kTextSize));
  }
  const double left = corner.x + kMargin + label + 8;
  const double right = corner.x + width - kMargin - std::min(end + 6, width * 0.45);
  const int columns = static_cast<int>(std::clamp((right - left) / 50, 1.0, 12.0));
  return {left,        top, right, bottom, Axis::Linear(x_.low, x_.high, columns, whole_x_, 0.02),
          std::move(y)};
}

void Panel::DrawAxes(const Frame& frame) {
  for (const Tick& tick : frame.y.ticks()) {
    const double y = frame.bottom - tick.at * (frame.bottom - frame.top);
    const Point line[] = {{frame.left, y}, {frame.right, y}};
    canvas_.Line(line, {.color = palette_.grid, .width = 1});
    canvas_.Text({frame.left - 8, y + 4}, tick.label,
                 {.color = palette_.faint, .size = kTextSize, .anchor = Anchor::kEnd});
  }
  for (const Tick& tick : frame.x.ticks()) {
    const double x = frame.left + tick.at * (frame.right - frame.left);
    const Point line[] = {{x, frame.bottom}, {x, frame.bottom + 4}};
    canvas_.Line(line, {.color = palette_.faint, .width = 1});
    canvas_.Text({x, frame.bottom + 16}, tick.label,
                 {.color = palette_.faint, .size = kTextSize, .anchor = Anchor::kMiddle});
  }
  const Point corner[] = {
      {frame.left, frame.top}, {frame.left, frame.bottom}, {frame.right, frame.bottom}};
  canvas_.Line(corner, {.color = palette_.faint, .width = 1});
  if (!panel_.x_label.empty()) {
    canvas_.Text({(frame.left + frame.right) / 2, frame.bottom + 32}, panel_.x_label,
                 {.color = palette_.faint, .size = kTextSize, .anchor = Anchor::kMiddle});
  }
}

void Panel::DrawRun(const std::vector<Point>& run, std::size_t series) {
  if (run.empty()) return;
  if (run.size() == 1) {
    canvas_.Dot(run[0], 2.5, ColorOf(series));
    return;
  }
  // Of many points in a column of the picture, the first, the last and the extremes are seen.
  std::vector<Point> kept;
  for (std::size_t begin = 0; begin < run.size();) {
    std::size_t end = begin + 1, low = begin, high = begin;
    for (; end < run.size() && std::abs(run[end].x - run[begin].x) < 0.5; ++end) {
      if (run[end].y < run[low].y) low = end;
      if (run[end].y > run[high].y) high = end;
    }
    std::size_t picks[] = {begin, std::min(low, high), std::max(low, high), end - 1};
    for (std::size_t i = 0; i < 4; ++i) {
      if (i == 0 || picks[i] != picks[i - 1]) kept.push_back(run[picks[i]]);
    }
    begin = end;
  }
  canvas_.Line(kept, {.color = ColorOf(series), .width = kLineWidth, .dashes = DashesOf(series)});
}

void Panel::DrawCurve(const Frame& frame, std::size_t series) {
  const PlotSeries& s = panel_.series[series];
  std::vector<Point> run;
  for (std::size_t i = 0; i < s.y.size(); ++i) {
    const double x = XOf(s, i);
    if (Shown(x, s.y[i])) {
      run.push_back(frame.At({x, s.y[i]}));
    } else {
      DrawRun(run, series);
      run.clear();
    }
  }
  DrawRun(run, series);
}

void Panel::DrawEndLabels(const Frame& frame) {
  std::vector<EndLabel> labels;
  const std::vector<std::string> texts = EndTexts();
  Point last;
  for (std::size_t i = 0; i < panel_.series.size(); ++i) {
    if (!LastOf(panel_.series[i], &last)) continue;
    const Point end = frame.At(last);
    canvas_.Dot(end, 2.5, ColorOf(i));
    labels.push_back({end.y, texts[i], ColorOf(i)});
  }
  // More than there is room for: the legend has the names.
  if (static_cast<double>(labels.size()) * kLabelSpacing > frame.bottom - frame.top) return;
  std::stable_sort(labels.begin(), labels.end(),
                   [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
  // Down until none covers another, then up again from the bottom.
  for (std::size_t i = 1; i < labels.size(); ++i) {
    labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLabelSpacing);
  }
  double limit = frame.bottom;
  for (std::size_t i = labels.size(); i-- > 0; limit -= kLabelSpacing) {
    labels[i].y = std::min(labels[i].y, limit);
    limit = labels[i].y;
  }
  for (const EndLabel& label : labels) {
    canvas_.Text({frame.right + 6, label.y + 4}, label.text,
                 {.color = label.color, .size = kTextSize});
  }
}

void Panel::Draw(Point corner, double width, double height) {
  std::string title = panel_.title;
  while (title.size() > 3 && canvas_.TextWidth(title, kTitleSize) > width - 2 * kMargin) {
    title = Shortened(panel_.title, title.size() - 1);
  }
  canvas_.Text({corner.x + kMargin, corner.y + 22}, title,
               {.color = palette_.ink, .size = kTitleSize});
  Measure();
  const double legend = DrawLegend({corner.x + kMargin, corner.y + 42}, corner.x + width - kMargin);
  if (x_.empty()) {
    canvas_.Text({corner.x + width / 2, corner.y + height / 2}, "no values",
                 {.color = palette_.faint, .size = kTextSize, .anchor = Anchor::kMiddle});
    return;
  }
  // Legends that would leave nothing for the curves lie under them.
  const double top = corner.y + 34 + std::min(legend, height / 2 - 34);
  const Frame frame = Layout(corner, width, height, top);
  DrawAxes(frame);
  for (std::size_t i = panel_.series.size(); i-- > 0;) DrawCurve(frame, i);
  DrawEndLabels(frame);
}

}  // namespace

const Palette& PaletteOf(bool dark) {
  static constexpr Palette kLight = {
      .background = 0xffffff,
      .ink = 0x1b1f24,
      .faint = 0x5b636e,
      .grid = 0xe4e7eb,
      .series = {0x1f6fb4, 0xc4570a, 0x17805a, 0x8a4bbf, 0xb8304a, 0x0f8390, 0x7a5c1e, 0x5f6672}};
  static constexpr Palette kDark = {
      .background = 0x14171c,
      .ink = 0xe8eaed,
      .faint = 0xa4acb8,
      .grid = 0x2c323b,
      .series = {0x6cb2f2, 0xf59a4c, 0x54c79a, 0xc39bf0, 0xf2818f, 0x4fc6d3, 0xd8b65c, 0xa9b1bd}};
  return dark ? kDark : kLight;
}

void DrawPanel(const PlotPanel& panel, Point corner, double width, double height,
               const Palette& palette, Canvas* canvas) {
  Panel(panel, palette, canvas).Draw(corner, width, height);
}

}  // namespace millrace::plot
