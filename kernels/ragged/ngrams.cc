// SPDX-License-Identifier: Apache-2.0
// Neighbouring words of each row, joined.
#include <algorithm>
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/ragged/ragged_kernels.h"
#include "kernels/ragged/splits.h"

namespace millrace {
namespace {

constexpr int64_t kMostWords = std::numeric_limits<int32_t>::max();
// Of all texts of one call: widths and paddings are attributes, and could ask for any number.
constexpr int64_t kMostBytes = int64_t{1} << 34;

class StringNGramsKernel : public Kernel {
 public:
  explicit StringNGramsKernel(KernelConstruction& c)
      : Kernel(c),
        separator_(c.attr<std::string>("separator")),
        left_(c.attr<std::string>("left_pad")),
        right_(c.attr<std::string>("right_pad")),
        widths_(c.attr<std::vector<int64_t>>("ngram_widths")),
        pad_width_(c.attr<int64_t>("pad_width")),
        keeps_short_(c.attr<bool>("preserve_short_sequences")),
        split_type_(c.attrs().GetOr<DataType>("Tsplits", kInt64)) {}

  Status Compute(KernelContext& ctx) override {
    for (const int64_t width : widths_) {
      if (width <= 0) {
        return errors::InvalidArgument("ngram_widths must contain positive values");
      }
    }
    const Tensor& words = ctx.input(0);
    const Splits splits = ReadSplits(ctx.input(1));
    const int64_t count = words.num_elements();
    MR_RETURN_IF_ERROR(CheckSplits(splits, count));
    if (count == 0 || splits.empty()) {
      MR_RETURN_IF_ERROR(ctx.AllocateOutput(0, words.shape()).status());
      return SetSplits(ctx, 1, split_type_, Splits(splits.size(), 0));
    }
    Splits begins{0};
    int64_t bytes = 0;
    for (std::size_t i = 1; i < splits.size(); ++i) {
      MR_ASSIGN_OR_RETURN(const int64_t n, Count(words, splits[i - 1], splits[i], &bytes));
      begins.push_back(begins.back() + n);
    }
    MR_RETURN_IF_ERROR(SetSplits(ctx, 1, split_type_, begins));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape({begins.back()})));
    std::string* to = out->data<std::string>();
    for (std::size_t i = 1; i < splits.size(); ++i) {
      const std::string* const row = words.data<std::string>() + splits[i - 1];
      const int64_t length = splits[i] - splits[i - 1];
      std::string* const first = to;
      for (const int64_t width : widths_) {
        const int64_t n = Grams(length, width);
        Write(row, n, width, to);
        to += n;
      }
      if (to == first && keeps_short_ && length > 0) {
        Write(row, 1, length + 2 * pad_width_, to++);
      }
    }
    return OkStatus();
  }

 private:
  static Status CheckSplits(const Splits& splits, int64_t count) {
    if (splits.empty()) return OkStatus();
    if (splits[0] != 0) {
      return errors::InvalidArgument("First split value must be 0, got ", splits[0]);
    }
    for (std::size_t i = 1; i < splits.size(); ++i) {
      if (splits[i] >= splits[i - 1] && splits[i] <= count) continue;
      return errors::InvalidArgument("Invalid split value ", splits[i], ", must be in [",
                                     splits[i - 1], ", ", count, "]");
    }
    if (splits.back() == count) return OkStatus();
    return errors::InvalidArgument("Last split value must be data size. Expected ", count, ", got ",
                                   splits.back());
  }

  // A pad is never as wide as the words that are joined.
  int64_t PadOf(int64_t width) const {
    return std::min(pad_width_ < 0 ? width - 1 : pad_width_, width - 1);
  }

  int64_t Grams(int64_t length, int64_t width) const {
    return std::max<int64_t>(0, length + 2 * PadOf(width) - width + 1);
  }

  // Of a row; the room they take is added to *bytes.
  StatusOr<int64_t> Count(const Tensor& words, int64_t begin, int64_t end, int64_t* bytes) const {
    const int64_t length = end - begin;
    int64_t total = 0;
    std::size_t longest = std::max({left_.size(), right_.size(), std::size_t{1}});
    for (int64_t i = begin; i < end; ++i) {
      longest = std::max(longest, words.data<std::string>()[i].size());
    }
    const auto each = static_cast<int64_t>(longest + separator_.size());
    const auto take = [&](int64_t n, int64_t width) {
      int64_t room;
      if (__builtin_mul_overflow(width, each, &room) || __builtin_mul_overflow(room, n, &room) ||
          __builtin_add_overflow(*bytes, room, bytes) || *bytes > kMostBytes) {
        return errors::ResourceExhausted("n-grams of ", width, " words of ", each,
                                         " bytes are too large");
      }
      return OkStatus();
    };
    for (const int64_t width : widths_) {
      const int64_t pad = PadOf(width);
      if (width > kMostWords || pad > kMostWords / 2 - length) {
        return errors::InvalidArgument("Pad width could lead to integer overflow, got pad_width = ",
                                       pad);
      }
      const int64_t n = Grams(length, width);
      MR_RETURN_IF_ERROR(take(n, width));
      total += n;
    }
    if (total > 0 || !keeps_short_ || length == 0) return total;
    if (pad_width_ < 0) {
      return errors::InvalidArgument(
          "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not "
          "provided, got ",
          pad_width_);
    }
    if (pad_width_ > kMostWords / 2 - length) {
      return errors::InvalidArgument("Pad width could lead to integer overflow, got pad_width = ",
                                     pad_width_);
    }
    MR_RETURN_IF_ERROR(take(1, length + 2 * pad_width_));
    return 1;
  }

  void Write(const std::string* words, int64_t count, int64_t width, std::string* to) const {
    const int64_t pad = PadOf(width);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t before = std::max<int64_t>(0, pad - i);
      const int64_t after = std::max<int64_t>(0, pad - (count - (i + 1)));
      const int64_t first = before > 0 ? 0 : i - pad, inner = width - before - after;
      std::string& gram = to[i];
      auto add = [&, started = false](const std::string& text) mutable {
        if (started) gram += separator_;
        started = true;
        gram += text;
      };
      for (int64_t n = 0; n < before; ++n) add(left_);
      for (int64_t n = 0; n < inner; ++n) add(words[first + n]);
      for (int64_t n = 0; n < after; ++n) add(right_);
      // Without words between them, the pads end in one on the right even if there is none to be.
      if (inner <= 0 && after == 0) add(right_);
    }
  }

  const std::string separator_, left_, right_;
  const std::vector<int64_t> widths_;
  const int64_t pad_width_;
  const bool keeps_short_;
  const DataType split_type_;
};

}  // namespace

void RegisterNGramKernels(KernelRegistry& r) {
  r.Register(KernelDef("StringNGrams"), &MakeKernel<StringNGramsKernel>);
}

}  // namespace millrace
