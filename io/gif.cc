// SPDX-License-Identifier: Apache-2.0
#include "io/gif.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

constexpr int kMostCodes = 4096;  // of 12 bits

Status Damaged(std::string_view why) { return errors::InvalidArgument("Invalid GIF data: ", why); }

struct Frame {
  int left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  int transparent = -1;
  std::string_view colours;  // three bytes each
  int code_bits = 0;
  std::size_t data = 0;  // where its blocks begin
};

// A position in the file; `ok` is false once more was asked for than there is.
struct Cursor {
  std::string_view file;
  std::size_t at = 0;
  bool ok = true;

  std::string_view Take(std::size_t n) {
    if (n > file.size() - at) {
      ok = false;
      at = file.size();
      return {};
    }
    at += n;
    return file.substr(at - n, n);
  }
  int Byte() {
    const std::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  int Short() {
    const int low = Byte();
    return low | Byte() << 8;
  }
  std::string_view Colours(int flags) {
    return (flags & 0x80) != 0 ? Take(std::size_t{3} << ((flags & 7) + 1)) : std::string_view();
  }
  void SkipBlocks() {
    while (ok) {
      const int n = Byte();
      if (n == 0) return;
      Take(static_cast<std::size_t>(n));
    }
  }
};

StatusOr<std::vector<Frame>> ReadFrames(std::string_view file, bool first_only) {
  Cursor in{file};
  if (!in.Take(6).starts_with("GIF8")) return Damaged("it does not begin with GIF8");
  in.Take(4);  // the screen, which does not count
  const int flags = in.Byte();
  in.Take(2);
  const std::string_view colours = in.Colours(flags);
  std::vector<Frame> frames;
  int transparent = -1;
  while (in.ok) {
    const int kind = in.Byte();
    if (!in.ok) break;
    if (kind == 0x3b) return frames;
    if (kind == 0x21) {
      const int label = in.Byte();
      if (label == 0xf9 && in.at + 5 <= file.size() && file[in.at] == 4) {
        const bool has = (file[in.at + 1] & 1) != 0;
        transparent = has ? static_cast<uint8_t>(file[in.at + 4]) : -1;
      }
      in.SkipBlocks();
      continue;
    }
    if (kind != 0x2c) return Damaged("a block is of an unknown kind");
    Frame frame;
    frame.left = in.Short();
    frame.top = in.Short();
    frame.width = in.Short();
    frame.height = in.Short();
    const int local = in.Byte();
    frame.interlaced = (local & 0x40) != 0;
    frame.colours = in.Colours(local);
    if (frame.colours.empty()) frame.colours = colours;
    frame.transparent = transparent;
    transparent = -1;
    frame.code_bits = in.Byte();
    frame.data = in.at;
    in.SkipBlocks();
    if (!in.ok) break;
    if (frame.colours.empty()) return Damaged("a frame has no colours");
    if (frame.width == 0 || frame.height == 0) return Damaged("a frame is empty");
    if (frame.code_bits < 1 || frame.code_bits > 8) return Damaged("codes are of an odd length");
    frames.push_back(frame);
    if (first_only) return frames;
  }
  return Damaged("the file ends too early");
}

// The codes of one frame, which lie in blocks of up to 255 bytes.
class Codes {
 public:
  Codes(std::string_view file, std::size_t at) : in_{file, at} {}
  // -1 at the end.
  int Next(int bits) {
    while (have_ < bits) {
      if (left_ == 0) left_ = in_.Byte();
      if (left_ == 0 || !in_.ok) return -1;
      --left_;
      held_ |= static_cast<uint32_t>(in_.Byte()) << have_;
      have_ += 8;
    }
    const int code = static_cast<int>(held_ & ((1u << bits) - 1));
    held_ >>= bits;
    have_ -= bits;
    return code;
  }

 private:
  Cursor in_;
  int left_ = 0, have_ = 0;
  uint32_t held_ = 0;
};

// Lempel, Ziv and Welch: `out` is filled with indices of colours.
class Unpacker {
 public:
  Status Unpack(std::string_view file, const Frame& frame, std::vector<uint8_t>* out) {
    Codes codes(file, frame.data);
    const int clear = 1 << frame.code_bits, end = clear + 1;
    int bits = frame.code_bits + 1, next = clear + 2, last = -1;
    std::size_t filled = 0;
    while (filled < out->size()) {
      const int code = codes.Next(bits);
      if (code < 0 || code == end) return Damaged("a frame ends too early");
      if (code == clear) {
        bits = frame.code_bits + 1;
        next = clear + 2;
        last = -1;
        continue;
      }
      if (code > next || (code >= clear && last < 0) || (code == next && last < 0)) {
        return Damaged("a code is used before it is known");
      }
      // From its end: each code is one more index behind another code.
      int n = 0;
      int walk = code == next ? last : code;
      if (code == next) stack_[n++] = 0;
      while (walk > end) {
        stack_[n++] = tail_[walk];
        walk = prefix_[walk];
      }
      stack_[n++] = static_cast<uint8_t>(walk);
      if (code == next) stack_[0] = static_cast<uint8_t>(walk);
      if (last >= 0 && next < kMostCodes) {
        prefix_[next] = static_cast<uint16_t>(last);
        tail_[next] = static_cast<uint8_t>(walk);
        ++next;
        if (next == 1 << bits && bits < 12) ++bits;
      }
      last = code;
      while (n > 0 && filled < out->size()) (*out)[filled++] = stack_[--n];
    }
    return OkStatus();
  }

 private:
  uint16_t prefix_[kMostCodes];
  uint8_t tail_[kMostCodes];
  uint8_t stack_[kMostCodes + 1];
};

// Where the lines of an interlaced frame go, in their order.
std::vector<int> LinesOf(const Frame& frame) {
  std::vector<int> lines;
  if (!frame.interlaced) {
    for (int y = 0; y < frame.height; ++y) lines.push_back(y);
    return lines;
  }
  constexpr int kFirst[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < 4; ++pass) {
    for (int y = kFirst[pass]; y < frame.height; y += kStep[pass]) lines.push_back(y);
  }
  return lines;
}

Status Draw(const Frame& frame, const std::vector<uint8_t>& indices, const ImageSize& size,
            uint8_t* to) {
  const auto colours = static_cast<int>(frame.colours.size() / 3);
  const std::vector<int> lines = LinesOf(frame);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const int64_t y = int64_t{frame.top} + lines[i];
    if (y >= size.height) continue;
    for (int x = 0; x < frame.width && frame.left + x < size.width; ++x) {
      const int index = indices[i * frame.width + x];
      if (index == frame.transparent) continue;
      if (index >= colours) return Damaged("a colour is not in its table");
      std::memcpy(to + (y * size.width + frame.left + x) * 3, frame.colours.data() + 3 * index, 3);
    }
  }
  return OkStatus();
}

}  // namespace

Status DecodeGif(std::string_view file, bool first_only, const PixelRoom& room) {
  MR_ASSIGN_OR_RETURN(const std::vector<Frame> frames, ReadFrames(file, first_only));
  if (frames.empty()) return Damaged("it has no frame");
  ImageSize size{0, 0, 3, static_cast<int64_t>(frames.size())};
  for (const Frame& frame : frames) {
    size.height = std::max<int64_t>(size.height, frame.height);
    size.width = std::max<int64_t>(size.width, frame.width);
  }
  const int64_t bytes = size.height * size.width * 3;  // below 2^34
  if (size.frames > static_cast<int64_t>(kMostImageBytes) / bytes) {
    return errors::InvalidArgument("Invalid GIF data: ", size.frames, " frames of ", size.height,
                                   "x", size.width, " are too large");
  }
  // A code of at least 2 bits stands for less than 4096 pixels.
  const int64_t most = static_cast<int64_t>(file.size()) * 4 * kMostCodes;
  for (const Frame& frame : frames) {
    if (int64_t{frame.width} * frame.height > most) return Damaged("a frame ends too early");
  }
  MR_ASSIGN_OR_RETURN(uint8_t* to, room(size));
  std::memset(to, 0, static_cast<std::size_t>(bytes));
  Unpacker unpacker;
  std::vector<uint8_t> indices;
  for (std::size_t i = 0; i < frames.size(); ++i, to += bytes) {
    if (i > 0) std::memcpy(to, to - bytes, static_cast<std::size_t>(bytes));
    indices.resize(static_cast<std::size_t>(frames[i].width) * frames[i].height);
    MR_RETURN_IF_ERROR(unpacker.Unpack(file, frames[i], &indices));
    MR_RETURN_IF_ERROR(Draw(frames[i], indices, size, to));
  }
  return OkStatus();
}

}  // namespace millrace
