// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "io/png.h"
#include "summary/plot/canvas.h"
#include "summary/plot/stroke_font.h"

namespace millrace::plot {
namespace {

constexpr double kPen = 0.085;  // width of the strokes of letters, of the size of the font

double DistanceToSegment(Point p, Point a, Point b) {
  const double dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
  const double t =
      length2 > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0, 1.0) : 0.0;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// The pieces of a line that its dashes leave.
std::vector<std::vector<Point>> Dashed(std::span<const Point> points,
                                       std::span<const double> dashes) {
  std::vector<std::vector<Point>> pieces;
  std::size_t dash = 0;
  double left = dashes[0];
  std::vector<Point> piece = {points.front()};
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    Point from = points[i];
    const Point to = points[i + 1];
    for (double length = std::hypot(to.x - from.x, to.y - from.y); length > 0;) {
      const double step = std::min(left, length);
      from = {from.x + (to.x - from.x) * step / length, from.y + (to.y - from.y) * step / length};
      length -= step;
      left -= step;
      const bool drawn = dash % 2 == 0;
      if (drawn) piece.push_back(from);
      if (left > 0) continue;
      if (drawn) pieces.push_back(std::move(piece));
      dash = (dash + 1) % dashes.size();
      left = dashes[dash];
      piece = {from};
    }
  }
  if (dash % 2 == 0 && piece.size() > 1) pieces.push_back(std::move(piece));
  return pieces;
}

// Draws with soft edges: a pixel takes as much of a colour as the shape covers of it.
class PngCanvas : public Canvas {
 public:
  PngCanvas(double width, double height, double scale)
      : scale_(scale),
        width_(static_cast<int>(std::ceil(width * scale))),
        height_(static_cast<int>(std::ceil(height * scale))),
        pixels_(std::size_t{3} * width_ * height_, 0xff),
        cover_(std::size_t{1} * width_ * height_) {}

  void Fill(Point corner, double width, double height, Color color) override {
    const Box box = BoxOf(corner.x * scale_, corner.y * scale_, (corner.x + width) * scale_,
                          (corner.y + height) * scale_);
    for (int y = box.top; y < box.bottom; ++y) {
      for (int x = box.left; x < box.right; ++x) Blend(x, y, color, 1);
    }
  }
  void Line(std::span<const Point> points, const Stroke& stroke) override {
    if (points.empty()) return;
    const double radius = stroke.width * scale_ / 2;
    if (stroke.dashes.empty()) {
      Draw(points, radius, stroke.color);
      return;
    }
    for (const std::vector<Point>& piece : Dashed(points, stroke.dashes)) {
      Draw(piece, radius, stroke.color);
    }
  }
  void Dot(Point center, double radius, Color color) override {
    Draw({&center, 1}, radius * scale_, color);
  }
  void Text(Point at, std::string_view text, const TextStyle& style) override {
    const double width = TextWidth(text, style.size);
    if (style.anchor == Anchor::kMiddle) at.x -= width / 2;
    if (style.anchor == Anchor::kEnd) at.x -= width;
    for (const std::vector<Point>& line : StrokesOf(text, at, style.size)) {
      Draw(line, style.size * kPen * scale_ / 2, style.color);
    }
  }
  double TextWidth(std::string_view text, double size) const override {
    return StrokeTextWidth(text, size);
  }
  StatusOr<std::string> Encode() override { return EncodePng(pixels_, height_, width_, 3); }

 private:
  struct Box {
    int left, top, right, bottom;  // pixels; the last two are beyond
  };
  Box BoxOf(double left, double top, double right, double bottom) const {
    const auto within = [](double v, int most) {
      return static_cast<int>(std::clamp(v, 0.0, static_cast<double>(most)));
    };
    return {within(std::floor(left), width_), within(std::floor(top), height_),
            within(std::ceil(right), width_), within(std::ceil(bottom), height_)};
  }

  // All segments of a line first, so that where they meet nothing is drawn twice.
  void Draw(std::span<const Point> points, double radius, Color color) {
    const std::size_t segments = std::max<std::size_t>(points.size() - 1, 1);
    for (std::size_t i = 0; i < segments; ++i) {
      ForEachPixel(points, i, radius, [this](std::size_t at, double cover) {
        cover_[at] = std::max(cover_[at], static_cast<float>(cover));
      });
    }
    for (std::size_t i = 0; i < segments; ++i) {
      ForEachPixel(points, i, radius, [this, color](std::size_t at, double) {
        Blend(static_cast<int>(at % width_), static_cast<int>(at / width_), color, cover_[at]);
        cover_[at] = 0;
      });
    }
  }

  // Calls on_pixel(index, cover) where segment `i` of the line covers any of a pixel.
  template <typename Fn>
  void ForEachPixel(std::span<const Point> points, std::size_t i, double radius, Fn on_pixel) {
    const Point from = points[i], to = points[std::min(i + 1, points.size() - 1)];
    const Point a = {from.x * scale_, from.y * scale_}, b = {to.x * scale_, to.y * scale_};
    const double reach = radius + 1;
    const Box box = BoxOf(std::min(a.x, b.x) - reach, std::min(a.y, b.y) - reach,
                          std::max(a.x, b.x) + reach, std::max(a.y, b.y) + reach);
    for (int y = box.top; y < box.bottom; ++y) {
      for (int x = box.left; x < box.right; ++x) {
        const double distance = DistanceToSegment({x + 0.5, y + 0.5}, a, b);
        const double cover = std::min({radius + 0.5 - distance, 1.0, 2 * radius});
        if (cover > 0) on_pixel(static_cast<std::size_t>(y) * width_ + x, cover);
      }
    }
  }

  void Blend(int x, int y, Color color, double cover) {
    uint8_t* const pixel = &pixels_[(static_cast<std::size_t>(y) * width_ + x) * 3];
    for (int c = 0; c < 3; ++c) {
      const double target = color >> (16 - 8 * c) & 0xff;
      pixel[c] = static_cast<uint8_t>(std::lround(pixel[c] + (target - pixel[c]) * cover));
    }
  }

  const double scale_;
  const int width_, height_;
  std::vector<uint8_t> pixels_;
  std::vector<float> cover_;  // of the line that is being drawn; 0 between
};

}  // namespace

std::unique_ptr<Canvas> NewPngCanvas(double width, double height, double scale) {
  return std::make_unique<PngCanvas>(width, height, scale);
}

}  // namespace millrace::plot
