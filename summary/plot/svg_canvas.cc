// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "base/strings.h"
#include "base/text/markup.h"
#include "summary/plot/canvas.h"

namespace millrace::plot {
namespace {

// Hundredths are finer than any screen.
std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  std::string number(text);
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number == "-0" ? "0" : number;
}

std::string Hex(Color color) {
  char text[8];
  std::snprintf(text, sizeof(text), "#%06x", color & 0xffffff);
  return text;
}

class SvgCanvas : public Canvas {
 public:
  SvgCanvas(double width, double height) {
    StrAppend(&text_, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Number(width),
              "\" height=\"", Number(height), "\" viewBox=\"0 0 ", Number(width), " ",
              Number(height),
              "\" font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" "
              "fill=\"none\" stroke-linecap=\"round\" stroke-linejoin=\"round\">\n");
  }

  void Fill(Point corner, double width, double height, Color color) override {
    StrAppend(&text_, "<rect x=\"", Number(corner.x), "\" y=\"", Number(corner.y), "\" width=\"",
              Number(width), "\" height=\"", Number(height), "\" fill=\"", Hex(color), "\"/>\n");
  }
  void Line(std::span<const Point> points, const Stroke& stroke) override {
    StrAppend(&text_, "<polyline points=\"");
    for (std::size_t i = 0; i < points.size(); ++i) {
      StrAppend(&text_, i > 0 ? " " : "", Number(points[i].x), ",", Number(points[i].y));
    }
    StrAppend(&text_, "\" stroke=\"", Hex(stroke.color), "\" stroke-width=\"", Number(stroke.width),
              "\"");
    for (std::size_t i = 0; i < stroke.dashes.size(); ++i) {
      StrAppend(&text_, i > 0 ? " " : " stroke-dasharray=\"", Number(stroke.dashes[i]));
    }
    StrAppend(&text_, stroke.dashes.empty() ? "" : "\"", "/>\n");
  }
  void Dot(Point center, double radius, Color color) override {
    StrAppend(&text_, "<circle cx=\"", Number(center.x), "\" cy=\"", Number(center.y), "\" r=\"",
              Number(radius), "\" fill=\"", Hex(color), "\"/>\n");
  }
  void Text(Point at, std::string_view text, const TextStyle& style) override {
    static constexpr const char* kAnchors[] = {"start", "middle", "end"};
    StrAppend(&text_, "<text x=\"", Number(at.x), "\" y=\"", Number(at.y), "\" font-size=\"",
              Number(style.size), "\" fill=\"", Hex(style.color), "\" text-anchor=\"",
              kAnchors[static_cast<int>(style.anchor)], "\">", MarkupText(text), "</text>\n");
  }
  double TextWidth(std::string_view text, double size) const override {
    int characters = 0;
    for (const char c : text) characters += (c & 0xc0) != 0x80;  // of UTF-8
    return 0.6 * size * characters;
  }
  StatusOr<std::string> Encode() override { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

}  // namespace

std::unique_ptr<Canvas> NewSvgCanvas(double width, double height) {
  return std::make_unique<SvgCanvas>(width, height);
}

}  // namespace millrace::plot
