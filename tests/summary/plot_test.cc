// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/plot.h"
#include "summary/plot/axis.h"
#include "summary/plot/canvas.h"
#include "summary/plot/stroke_font.h"

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int CountOf(std::string_view text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::string SvgOf(const std::vector<PlotPanel>& panels, const PlotOptions& options = {}) {
  StatusOr<std::string> svg = PlotSvg(panels, options);
  EXPECT_TRUE(svg.ok()) << svg.status();
  return svg.ok() ? *svg : "";
}

std::vector<std::string> LabelsOf(const plot::Axis& axis) {
  std::vector<std::string> labels;
  for (const plot::Tick& tick : axis.ticks()) labels.push_back(tick.label);
  return labels;
}

using Texts = std::vector<std::string>;

TEST(Axis, HasRoundNumbers) {
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(0.03, 0.97, 5, false, 0)),
            (Texts{"0.2", "0.4", "0.6", "0.8"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(1, 20, 5, true, 0)), (Texts{"5", "10", "15", "20"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(1, 3, 8, true, 0)), (Texts{"1", "2", "3"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(-1, 1, 4, false, 0)),
            (Texts{"-1.0", "-0.5", "0", "0.5", "1.0"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(0, 3e-7, 3, false, 0)),
            (Texts{"0", "1e-7", "2e-7", "3e-7"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(0, 2e6, 4, false, 0)),
            (Texts{"0", "500000", "1e6", "1.5e6", "2e6"}));
}

TEST(Axis, HasRoomForOneValue) {
  EXPECT_EQ(LabelsOf(plot::Axis::Linear(3, 3, 5, true, 0)), (Texts{"3"}));
  EXPECT_EQ(plot::Axis::Linear(42, 42, 5, false, 0).At(42), 0.5);
  EXPECT_EQ(plot::Axis::Linear(0, 0, 5, false, 0).At(0), 0.5);
}

TEST(Axis, HoldsTheWidestRange) {
  constexpr double kMost = std::numeric_limits<double>::max();
  const plot::Axis axis = plot::Axis::Linear(-kMost, kMost, 5, false, 0.06);
  EXPECT_EQ(axis.At(0), 0.5);
  EXPECT_FALSE(axis.ticks().empty());
}

TEST(Axis, GoesByPowersOfTen) {
  EXPECT_EQ(LabelsOf(plot::Axis::Logarithmic(1e-4, 1, 6, 0)),
            (Texts{"0.0001", "0.001", "0.01", "0.1", "1"}));
  EXPECT_EQ(LabelsOf(plot::Axis::Logarithmic(0.1, 1, 6, 0)), (Texts{"0.1", "0.2", "0.5", "1"}));
  EXPECT_LE(plot::Axis::Logarithmic(1e-300, 1e300, 6, 0).ticks().size(), 10u);
}

TEST(StrokeFont, HasEveryCharacterOfAscii) {
  for (char c = '!'; c <= '~'; ++c) {
    const std::string text(1, c);
    const auto strokes = plot::StrokesOf(text, {0, 0}, 100);
    EXPECT_FALSE(strokes.empty()) << text;
    const double width = plot::StrokeTextWidth(text, 100);
    for (const auto& stroke : strokes) {
      for (const plot::Point& p : stroke) {
        EXPECT_GE(p.x, 0) << text;
        EXPECT_LE(p.x, width) << text;
        EXPECT_GE(p.y, -80) << text;
        EXPECT_LE(p.y, 30) << text;
      }
    }
  }
  // A character of two bytes is one box.
  EXPECT_EQ(plot::StrokesOf("\xc3\xa9", {0, 0}, 10).size(), 1u);
}

TEST(HistoryPanels, PutsAMetricAndItsValidationTogether) {
  const std::vector<std::pair<std::string, std::vector<double>>> history = {
      {"accuracy", {0.5, 0.6, 0.7, 0.8}},
      {"loss", {4, 3, 2, 1}},
      {"val_accuracy", {0.4, 0.5, 0.6, 0.7}},
      {"val_loss", {5, 4}},  // every second epoch
      {"val_only", {1}}};
  const std::vector<PlotPanel> panels = HistoryPanels(history);
  ASSERT_EQ(panels.size(), 3u);
  EXPECT_EQ(panels[0].title, "accuracy");
  ASSERT_EQ(panels[0].series.size(), 2u);
  EXPECT_EQ(panels[0].series[1].name, "validation");
  EXPECT_EQ(panels[0].series[1].x, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(panels[1].series[1].x, (std::vector<double>{2, 4}));
  EXPECT_EQ(panels[2].title, "val_only");
  EXPECT_EQ(panels[2].series[0].name, "validation");
}

TEST(HistoryPanels, PutsValidationsAtTheirEpochs) {
  History history;
  history.Add(4, Logs({{"loss", 3}}));  // a training that went on
  history.Add(5, Logs({{"loss", 2}, {"val_loss", 2.5}, {"learning_rate", 0.1}}));
  const std::vector<PlotPanel> panels = HistoryPanels(history);
  ASSERT_EQ(panels.size(), 2u);
  ASSERT_EQ(panels[0].series.size(), 2u);
  EXPECT_EQ(panels[0].series[0].x, (std::vector<double>{5, 6}));
  EXPECT_EQ(panels[0].series[1].x, (std::vector<double>{6}));
  EXPECT_EQ(panels[0].series[1].y, (std::vector<double>{2.5}));
  EXPECT_EQ(panels[1].title, "learning_rate");
}

TEST(PlotSvg, HasCurvesLegendAndLabels) {
  const std::string svg = SvgOf(
      {{.title = "loss",
        .series = {{.name = "train", .y = {3, 2, 1}}, {.name = "validation", .y = {3.5, 2.5, 1.5}}},
        .x_label = "epoch"}},
      {.title = "a <run> & more"});
  EXPECT_EQ(CountOf(svg, "<svg "), 1);
  EXPECT_EQ(CountOf(svg, "</svg>"), 1);
  EXPECT_EQ(CountOf(svg, ">train<"), 1);    // in the legend
  EXPECT_EQ(CountOf(svg, ">train 1<"), 1);  // at the curve's end
  EXPECT_EQ(CountOf(svg, ">validation 1.5<"), 1);
  EXPECT_EQ(CountOf(svg, ">epoch<"), 1);
  EXPECT_EQ(CountOf(svg, "a &lt;run&gt; &amp; more"), 1);
  EXPECT_EQ(CountOf(svg, "nan"), 0);
}

TEST(PlotSvg, LeavesGapsWhereThereIsNoNumber) {
  const std::vector<PlotPanel> whole = {
      {.title = "x", .series = {{.name = "s", .y = {1, 2, 3, 4}}}}};
  const std::vector<PlotPanel> split = {
      {.title = "x", .series = {{.name = "s", .y = {1, 2, kNan, 3, 4, kNan, 5}}}}};
  EXPECT_EQ(CountOf(SvgOf(split), "stroke-width=\"1.8\""),
            CountOf(SvgOf(whole), "stroke-width=\"1.8\"") + 1);
  // The last value stands alone: a dot, and the one at every curve's end.
  EXPECT_EQ(CountOf(SvgOf(split), "<circle"), 2);
  EXPECT_EQ(CountOf(SvgOf(split), "nan"), 0);
  // On an axis of powers, so is what is not positive.
  std::vector<PlotPanel> powers = {
      {.title = "x", .series = {{.name = "s", .y = {1, 2, 0, 3, -4}}}, .log_y = true}};
  EXPECT_EQ(CountOf(SvgOf(powers), "nan") + CountOf(SvgOf(powers), "inf"), 0);
  EXPECT_EQ(CountOf(SvgOf({{.title = "x", .series = {{.name = "s", .y = {kNan}}}}}), "no values"),
            1);
}

TEST(PlotSvg, StaysSmallForManyValues) {
  PlotSeries series{.name = "s"};
  for (int i = 0; i < 500000; ++i) series.y.push_back(std::sin(i * 0.01) + (i == 250000 ? 10 : 0));
  const std::string svg = SvgOf({{.title = "x", .series = {series}}});
  EXPECT_LT(svg.size(), 100000u);
}

TEST(PlotSvg, LeavesOutLabelsThatFindNoRoom) {
  PlotPanel panel{.title = "x"};
  for (int i = 0; i < 40; ++i) panel.series.push_back({.name = StrCat("s", i, "!"), .y = {1, 2}});
  const std::string svg = SvgOf({panel});
  EXPECT_EQ(CountOf(svg, ">s7!<"), 1);
  EXPECT_EQ(CountOf(svg, ">s7! 2<"), 0);
}

TEST(PlotPng, HasTheSizeAskedFor) {
  const std::vector<PlotPanel> panels(3, {.title = "x", .series = {{.name = "s", .y = {1, 2}}}});
  const auto png = PlotPng(panels, {.columns = 2, .panel_width = 200, .panel_height = 150});
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(png->substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto number = [&png](int at) {
    return static_cast<unsigned char>((*png)[at]) << 8 | static_cast<unsigned char>((*png)[at + 1]);
  };
  EXPECT_EQ(number(18), 800);  // two columns of 200 points, two pixels each
  EXPECT_EQ(number(22), 600);
  const auto dark = PlotPng(panels, {.dark = true});
  ASSERT_TRUE(dark.ok());
  EXPECT_NE(*dark, *png);
}

TEST(WritePlot, ChoosesTheFormatByTheName) {
  const std::vector<PlotPanel> panels = {{.title = "x", .series = {{.name = "s", .y = {1, 2}}}}};
  const std::string path = StrCat(::testing::TempDir(), "/plot");
  ASSERT_TRUE(WritePlot(path + ".svg", panels).ok());
  ASSERT_TRUE(WritePlot(path + ".png", panels).ok());
  EXPECT_TRUE(PosixFileSystem()->ReadFile(path + ".svg")->starts_with("<svg"));
  EXPECT_TRUE(PosixFileSystem()->ReadFile(path + ".png")->starts_with("\x89PNG"));
  EXPECT_TRUE(errors::IsInvalidArgument(WritePlot(path + ".jpg", panels)));
}

TEST(Plot, SaysWhatCannotBeDrawn) {
  const auto refused = [](const std::vector<PlotPanel>& panels, const PlotOptions& options,
                          std::string_view text) {
    const Status status = PlotPng(panels, options).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_NE(Message(status).find(text), std::string_view::npos) << status;
  };
  const std::vector<PlotPanel> good = {{.title = "x"}};
  refused({}, {}, "no panels");
  refused({{.title = "p", .series = {{.name = "s", .y = {1, 2}, .x = {1}}}}}, {},
          "'s' of the panel 'p' has 1 x and 2 y");
  refused(good, {.columns = 0}, "columns");
  refused(good, {.panel_width = 10}, "160 x 120");
  refused(good, {.png_scale = 100}, "png_scale");
  refused(std::vector<PlotPanel>(10000), {}, "pixels");
}

}  // namespace
}  // namespace millrace
