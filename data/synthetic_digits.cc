// SPDX-License-Identifier: Apache-2.0
// Synthetic digits: each class is a polyline in the unit square, drawn with a round pen
// under a random affine map. Deterministic: its own generator, no standard distributions
// (their bits differ between libraries).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "millrace/digits.h"

namespace millrace {
namespace {

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;

std::vector<Point> Arc(float cx, float cy, float rx, float ry, float from, float to) {
  std::vector<Point> points;
  constexpr int kSteps = 10;
  for (int i = 0; i <= kSteps; ++i) {
    const float a = (from + (to - from) * static_cast<float>(i) / kSteps) * 3.14159265f / 180.0f;
    points.push_back({cx + rx * std::cos(a), cy + ry * std::sin(a)});
  }
  return points;
}

// y grows downwards; the box is [0,1] x [0,1].
const std::array<std::vector<Stroke>, 10>& Templates() {
  static const auto* const templates = new std::array<std::vector<Stroke>, 10>{{
      {Arc(.5f, .5f, .30f, .45f, 0, 360)},
      {{{.35f, .22f}, {.55f, .05f}, {.55f, .95f}}},
      {Arc(.5f, .30f, .28f, .25f, 180, 400), {{.71f, .46f}, {.22f, .95f}, {.80f, .95f}}},
      {Arc(.45f, .28f, .28f, .23f, 200, 450), Arc(.45f, .72f, .30f, .23f, 270, 520)},
      {{{.62f, .95f}, {.62f, .05f}, {.18f, .65f}, {.85f, .65f}}},
      {{{.75f, .05f}, {.28f, .05f}, {.25f, .45f}}, Arc(.46f, .67f, .29f, .27f, 225, 500)},
      {{{.66f, .04f}, {.34f, .40f}, {.22f, .68f}}, Arc(.50f, .70f, .28f, .25f, 0, 360)},
      {{{.18f, .06f}, {.80f, .06f}, {.42f, .95f}}},
      {Arc(.5f, .27f, .24f, .22f, 0, 360), Arc(.5f, .73f, .29f, .23f, 0, 360)},
      {Arc(.5f, .30f, .27f, .25f, 0, 360), {{.77f, .30f}, {.70f, .70f}, {.52f, .96f}}},
  }};
  return *templates;
}

class Uniform {
 public:
  Uniform(uint64_t seed, uint64_t stream) : philox_(seed, stream) {}
  // In [low, high).
  float operator()(float low, float high) {
    if (used_ == 4) {
      block_ = philox_();
      used_ = 0;
    }
    return low + (high - low) * static_cast<float>(block_[used_++] >> 8) * 0x1p-24f;
  }

 private:
  Philox philox_;
  Philox::Result block_{};
  int used_ = 4;
};

float DistanceSquared(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float length = dx * dx + dy * dy;
  const float t =
      length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0f, 1.0f) : 0.0f;
  const float ex = p.x - (a.x + t * dx), ey = p.y - (a.y + t * dy);
  return ex * ex + ey * ey;
}

// Inks the pixels near one segment; coordinates in pixels.
void DrawSegment(Point a, Point b, float radius, float* image) {
  const float reach = radius + 1.0f;
  const int x0 = std::max(0, static_cast<int>(std::min(a.x, b.x) - reach));
  const int x1 = std::min(27, static_cast<int>(std::max(a.x, b.x) + reach));
  const int y0 = std::max(0, static_cast<int>(std::min(a.y, b.y) - reach));
  const int y1 = std::min(27, static_cast<int>(std::max(a.y, b.y) + reach));
  for (int y = y0; y <= y1; ++y) {
    for (int x = x0; x <= x1; ++x) {
      const Point p{static_cast<float>(x), static_cast<float>(y)};
      const float ink = std::clamp(reach - std::sqrt(DistanceSquared(p, a, b)), 0.0f, 1.0f);
      image[y * 28 + x] = std::max(image[y * 28 + x], ink);
    }
  }
}

void DrawDigit(int digit, Uniform& random, float* image) {
  std::memset(image, 0, kDigitPixels * sizeof(float));
  const float angle = random(-0.26f, 0.26f), shear = random(-0.25f, 0.25f);
  const float sx = random(13.0f, 19.0f), sy = random(16.0f, 21.0f);
  const float tx = 13.5f + random(-2.0f, 2.0f), ty = 13.5f + random(-2.0f, 2.0f);
  const float radius = random(0.4f, 1.5f);
  const float c = std::cos(angle), s = std::sin(angle);
  const auto map = [&](Point p, Point wobble) {
    const float y = (p.y - 0.5f + wobble.y) * sy;
    const float x = (p.x - 0.5f + wobble.x) * sx + shear * y;
    return Point{tx + c * x - s * y, ty + s * x + c * y};
  };
  for (const Stroke& stroke : Templates()[static_cast<std::size_t>(digit)]) {
    Point wobble{random(-0.05f, 0.05f), random(-0.05f, 0.05f)};
    Point last = map(stroke[0], wobble);
    for (std::size_t i = 1; i < stroke.size(); ++i) {
      wobble.x += random(-0.02f, 0.02f);
      wobble.y += random(-0.02f, 0.02f);
      const Point next = map(stroke[i], wobble);
      DrawSegment(last, next, radius, image);
      last = next;
    }
  }
  for (int i = 0; i < 24; ++i) {  // specks
    const int at = static_cast<int>(random(0.0f, 784.0f));
    image[at] = std::clamp(image[at] + random(-0.4f, 0.4f), 0.0f, 1.0f);
  }
}

Examples Draw(int64_t n, uint64_t seed, uint64_t stream) {
  Examples e{Tensor(kFloat, {n, kDigitPixels}), Tensor(kInt64, {n}),
             Tensor(kFloat, {n, kDigitClasses})};
  std::memset(e.one_hot.raw_data(), 0, e.one_hot.num_bytes());
  Uniform random(seed, stream);
  for (int64_t i = 0; i < n; ++i) {
    const int digit = std::min(9, static_cast<int>(random(0.0f, 10.0f)));
    DrawDigit(digit, random, e.images.data<float>() + i * kDigitPixels);
    e.labels.data<int64_t>()[i] = digit;
    e.one_hot.data<float>()[i * kDigitClasses + digit] = 1.0f;
  }
  return e;
}

}  // namespace

Digits SyntheticDigits(const SyntheticDigitsOptions& options) {
  return {Draw(options.train, options.seed, 1), Draw(options.validation, options.seed, 2),
          Draw(options.test, options.seed, 3)};
}

}  // namespace millrace
