// SPDX-License-Identifier: Apache-2.0
#include "summary/plot/stroke_font.h"

#include <iterator>
#include <utility>

#include "base/strings.h"

namespace millrace::plot {
namespace {

// From ' ' to '~': width, then strokes. A stroke is pairs of hexadecimal digits x and y, y from the
// top: 0 that of capitals, 3 that of small letters, 9 where letters stand, c the end of what hangs
// below. The corners of one with a '~' are round.
constexpr const char* kGlyphs[] = {
    "3",                                          // space
    "0 0006 0809",                                // !
    "2 0002 2022",                                // "
    "5 2019 4039 0353 0656",                      // #
    "4 ~423111020314344547381807 2029",           // $
    "7 6019 ~0020230300 ~5676795956",             // %
    "6 ~691211203041420608193965",                // &
    "0 0002",                                     // '
    "2 ~2003072a",                                // (
    "2 ~0023270a",                                // )
    "4 2125 0244 0442",                           // *
    "4 2327 0545",                                // +
    "1 180b",                                     // ,
    "3 0535",                                     // -
    "0 0809",                                     // .
    "4 400a",                                     // /
    "5 ~104052574919070210",                      // 0
    "5 123039",                                   // 1
    "5 ~0210405153540959 0959",                   // 2
    "5 ~01104051534424 ~24445558491908",          // 3
    "5 49400656",                                 // 4
    "5 501004 ~0413435557491908",                 // 5
    "5 ~514010020719495756441406",                // 6
    "5 005019",                                   // 7
    "5 ~104051534414030110 ~144455584919080514",  // 8
    "5 ~081949575240100203154553",                // 9
    "0 0405 0809",                                // :
    "1 1415 180b",                                // ;
    "4 430547",                                   // <
    "4 0444 0646",                                // =
    "4 034507",                                   // >
    "4 ~01103041432526 2829",                     // ?
    "7 ~692907032151737657 ~3454573734",          // @
    "6 093069 1656",                              // A
    "5 0009 ~004051534404 ~044455584909",         // B
    "5 ~5140100207194958",                        // C
    "5 0009 ~003052573909",                       // D
    "4 40000949 0434",                            // E
    "4 400009 0434",                              // F
    "5 ~5140100207194957 575535",                 // G
    "5 0009 5059 0454",                           // H
    "0 0009",                                     // I
    "3 ~3037291907",                              // J
    "5 0009 5005 2359",                           // K
    "4 000949",                                   // L
    "6 0900356069",                               // M
    "5 09005950",                                 // N
    "6 ~204062674929070220",                      // O
    "5 0009 ~004051544505",                       // P
    "6 ~204062674929070220 476a",                 // Q
    "5 0009 ~004051544505 2559",                  // R
    "5 ~514010010314445558491908",                // S
    "6 0060 3039",                                // T
    "5 ~000719495750",                            // U
    "6 003960",                                   // V
    "8 0029426980",                               // W
    "5 0059 5009",                                // X
    "6 003460 3439",                              // Y
    "5 00500959",                                 // Z
    "2 20000a2a",                                 // [
    "4 004a",                                     // backslash
    "2 00202a0a",                                 // ]
    "4 032043",                                   // ^
    "5 0a5a",                                     // _
    "2 0021",                                     // `
    "4 ~0413334549 ~45150708193947",              // a
    "4 0009 ~0513334547391907",                   // b
    "4 ~4433130507193948",                        // c
    "4 4049 ~4533130507193947",                   // d
    "4 0646 ~464533130507193948",                 // e
    "3 ~30201219 0333",                           // f
    "4 ~4533130507193947 ~434a3c1c0b",            // g
    "4 0009 ~0513334549",                         // h
    "0 0309 0001",                                // i
    "1 ~131a0c 1011",                             // j
    "4 0009 4307 1649",                           // k
    "1 ~000819",                                  // l
    "6 0309 ~0513233539 ~3543536569",             // m
    "4 0309 ~0513334549",                         // n
    "4 ~133345473919070513",                      // o
    "4 030c ~0513334547391907",                   // p
    "4 434c ~4533130507193947",                   // q
    "3 0309 ~051333",                             // r
    "4 ~443313040516364748391908",                // s
    "3 ~11182939 0333",                           // t
    "4 ~0307193947 4349",                         // u
    "4 032943",                                   // v
    "6 0329344963",                               // w
    "4 0349 4309",                                // x
    "4 0329 431c",                                // y
    "4 03430949",                                 // z
    "3 ~3020111405 ~0516192a3a",                  // {
    "0 000b",                                     // |
    "3 ~0010212435 ~3526291a0a",                  // }
    "5 ~061525364655",                            // ~
};
constexpr const char* kBox = "5 0050590900";

constexpr double kUnit = 0.08;  // of the size of the font
constexpr double kBase = 9, kGap = 2;

std::string_view GlyphOf(char c) {
  const int index = c - ' ';
  return index >= 0 && index < static_cast<int>(std::size(kGlyphs)) ? kGlyphs[index] : kBox;
}

double DigitOf(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// Cuts each corner off at a quarter of its sides, twice (Chaikin's curves).
std::vector<Point> Rounded(std::vector<Point> line) {
  const bool closed = line.front().x == line.back().x && line.front().y == line.back().y;
  for (int round = 0; round < 2; ++round) {
    std::vector<Point> next;
    if (!closed) next.push_back(line.front());
    for (std::size_t i = 0; i + 1 < line.size(); ++i) {
      const Point a = line[i], b = line[i + 1];
      next.push_back({a.x + (b.x - a.x) / 4, a.y + (b.y - a.y) / 4});
      next.push_back({b.x - (b.x - a.x) / 4, b.y - (b.y - a.y) / 4});
    }
    next.push_back(closed ? next.front() : line.back());
    line = std::move(next);
  }
  return line;
}

std::vector<Point> StrokeOf(std::string_view digits) {
  const bool round = digits.front() == '~';
  if (round) digits.remove_prefix(1);
  std::vector<Point> line;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    line.push_back({DigitOf(digits[i]), DigitOf(digits[i + 1])});
  }
  return round ? Rounded(std::move(line)) : line;
}

// Calls on_character(glyph) for each character of UTF-8.
template <typename Fn>
void ForEachGlyph(std::string_view text, Fn on_character) {
  for (const char c : text) {
    if ((c & 0xc0) != 0x80) on_character(GlyphOf(c));
  }
}

}  // namespace

std::vector<std::vector<Point>> StrokesOf(std::string_view text, Point at, double size) {
  const double unit = size * kUnit;
  std::vector<std::vector<Point>> strokes;
  double x = at.x;
  ForEachGlyph(text, [&](std::string_view glyph) {
    const std::vector<std::string_view> parts = StrSplit(glyph, ' ');
    for (std::size_t i = 1; i < parts.size(); ++i) {
      std::vector<Point> line = StrokeOf(parts[i]);
      for (Point& p : line) p = {x + (p.x + kGap / 2) * unit, at.y + (p.y - kBase) * unit};
      strokes.push_back(std::move(line));
    }
    x += (DigitOf(glyph.front()) + kGap) * unit;
  });
  return strokes;
}

double StrokeTextWidth(std::string_view text, double size) {
  double width = 0;
  ForEachGlyph(text, [&](std::string_view glyph) { width += DigitOf(glyph.front()) + kGap; });
  return width * size * kUnit;
}

}  // namespace millrace::plot
