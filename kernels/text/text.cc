// SPDX-License-Identifier: Apache-2.0
// Text: splitting, cutting, matching, joining and hashing strings.
#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/text/fingerprint.h"
#include "kernels/text/unicode_case.h"

namespace millrace {
namespace {

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
// A byte that does not begin a character of UTF-8.
bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

StatusOr<std::string> ScalarText(const Tensor& t, std::string_view what) {
  if (t.rank() == 0 && t.dtype() == kString) return t.scalar<std::string>();
  return errors::InvalidArgument(what, " must be a scalar, got shape ", t.shape().DebugString());
}

// --- One string to one value ------------------------------------------------------------------

// Out = F(string) for every element.
template <typename Out, Out (*kFunction)(const std::string&)>
class MapTextKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      out->data<Out>()[i] = kFunction(in.data<std::string>()[i]);
    }
    return OkStatus();
  }
};

std::string Strip(const std::string& text) {
  std::size_t begin = 0, end = text.size();
  while (begin < end && IsSpace(text[begin])) ++begin;
  while (end > begin && IsSpace(text[end - 1])) --end;
  return text.substr(begin, end - begin);
}

// As for TensorFlow's encoding ''.
std::string Lower(const std::string& text) {
  std::string out = text;
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}
std::string Upper(const std::string& text) {
  std::string out = text;
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

// StringLower and StringUpper: of the letters of ASCII, or of all letters of UTF-8.
template <bool kLower>
std::unique_ptr<Kernel> MakeCase(KernelConstruction& c) {
  const std::string encoding = c.attrs().GetOr<std::string>("encoding", "");
  if (encoding == "utf-8") {
    return std::make_unique<MapTextKernel<std::string, kLower ? &LowerUtf8 : &UpperUtf8>>(c);
  }
  if (!encoding.empty()) {
    c.SetError(errors::InvalidArgument("only utf-8 or '' (no encoding) is supported, received ",
                                       encoding));
  }
  return std::make_unique<MapTextKernel<std::string, kLower ? &Lower : &Upper>>(c);
}

class StringLengthKernel : public Kernel {
 public:
  explicit StringLengthKernel(KernelConstruction& c)
      : Kernel(c), characters_(c.attr<std::string>("unit") == "UTF8_CHAR") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      const std::string& text = in.data<std::string>()[i];
      const auto n = characters_
                         ? text.size() - std::count_if(text.begin(), text.end(), IsContinuation)
                         : text.size();
      out->data<int32_t>()[i] = static_cast<int32_t>(n);
    }
    return OkStatus();
  }

 private:
  const bool characters_;
};

// --- Hashes -----------------------------------------------------------------------------------

class HashBucketKernel : public Kernel {
 public:
  explicit HashBucketKernel(KernelConstruction& c)
      : Kernel(c),
        op_(c.def().name()),
        buckets_(static_cast<uint64_t>(c.attr<int64_t>("num_buckets"))) {
    if (op_ == "StringToHashBucketStrong") {
      key_ = c.attr<std::vector<int64_t>>("key");
      if (key_.size() != 2) c.SetError(errors::InvalidArgument("Key must have 2 elements"));
    }
    if (buckets_ == 0) c.SetError(errors::InvalidArgument("num_buckets must be positive"));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      out->data<int64_t>()[i] = static_cast<int64_t>(Hash(in.data<std::string>()[i]) % buckets_);
    }
    return OkStatus();
  }

 private:
  uint64_t Hash(const std::string& text) const {
    if (!key_.empty()) return SipHash(key_[0], key_[1], text);
    return op_ == "StringToHashBucketFast" ? Fingerprint64(text) : Hash64(text);
  }

  const std::string op_;
  const uint64_t buckets_;
  std::vector<int64_t> key_;
};

// --- Splitting --------------------------------------------------------------------------------

// The outputs of both splits: indices [n,2], values [n], shape [2].
Status SetRagged(KernelContext& ctx, const std::vector<std::vector<std::string_view>>& rows) {
  int64_t count = 0, widest = 0;
  for (const auto& row : rows) {
    count += static_cast<int64_t>(row.size());
    widest = std::max(widest, static_cast<int64_t>(row.size()));
  }
  MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({count, 2})));
  MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({count})));
  int64_t at = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t k = 0; k < rows[r].size(); ++k, ++at) {
      indices->data<int64_t>()[2 * at] = static_cast<int64_t>(r);
      indices->data<int64_t>()[2 * at + 1] = static_cast<int64_t>(k);
      values->data<std::string>()[at].assign(rows[r][k]);
    }
  }
  ctx.SetOutput(2, Tensor::FromValues<int64_t>({static_cast<int64_t>(rows.size()), widest}));
  return OkStatus();
}

// At every character that is one of `delimiters`; into bytes if there are none.
std::vector<std::string_view> SplitAtAny(std::string_view text, std::string_view delimiters,
                                         bool skip_empty) {
  std::vector<std::string_view> parts;
  if (delimiters.empty()) {
    for (std::size_t i = 0; i < text.size(); ++i) parts.push_back(text.substr(i, 1));
    return parts;
  }
  if (text.empty()) return parts;
  for (;;) {
    const std::size_t end = text.find_first_of(delimiters);
    const std::string_view part = text.substr(0, end);
    if (!part.empty() || !skip_empty) parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// As Python's str.split: at `separator`, or at runs of white space if that is empty.
std::vector<std::string_view> SplitAs(std::string_view text, std::string_view separator,
                                      int64_t most) {
  std::vector<std::string_view> parts;
  if (separator.empty()) {
    std::size_t at = 0;
    for (;;) {
      while (at < text.size() && IsSpace(text[at])) ++at;
      if (at == text.size()) return parts;
      std::size_t end = at;
      if (most >= 0 && static_cast<int64_t>(parts.size()) >= most) {
        end = text.size();
      } else {
        while (end < text.size() && !IsSpace(text[end])) ++end;
      }
      parts.push_back(text.substr(at, end - at));
      at = end;
    }
  }
  for (;;) {
    const bool enough = most >= 0 && static_cast<int64_t>(parts.size()) >= most;
    const std::size_t end = enough ? std::string_view::npos : text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

// StringSplit and StringSplitV2.
class StringSplitKernel : public Kernel {
 public:
  explicit StringSplitKernel(KernelConstruction& c)
      : Kernel(c),
        v2_(c.def().name() == "StringSplitV2"),
        skip_empty_(c.attrs().GetOr<bool>("skip_empty", true)),
        most_(c.attrs().GetOr<int64_t>("maxsplit", -1)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 1) {
      return errors::InvalidArgument("input must be a vector, got shape: ",
                                     in.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const std::string separator,
                        ScalarText(ctx.input(1), v2_ ? "sep" : "delimiter"));
    std::vector<std::vector<std::string_view>> rows;
    for (const std::string& text : in.flat<std::string>()) {
      rows.push_back(v2_ ? SplitAs(text, separator, most_)
                         : SplitAtAny(text, separator, skip_empty_));
    }
    return SetRagged(ctx, rows);
  }

 private:
  const bool v2_, skip_empty_;
  const int64_t most_;
};

// --- Cutting ----------------------------------------------------------------------------------

class SubstrKernel : public Kernel {
 public:
  explicit SubstrKernel(KernelConstruction& c)
      : Kernel(c), characters_(c.attr<std::string>("unit") == "UTF8_CHAR") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &pos = ctx.input(1), &len = ctx.input(2);
    if (!(pos.shape() == len.shape())) {
      return errors::InvalidArgument("pos and len should have the same shape, got: ",
                                     pos.shape().DebugString(), " vs. ", len.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const BroadcastPlan plan, MakeBroadcastPlan(in.shape(), pos.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    const int64_t in_stride = plan.dims.back().a_stride, cut_stride = plan.dims.back().b_stride;
    Status status;
    plan.ForEachRun(0, out->num_elements(), [&](int64_t text, int64_t cut, int64_t to, int64_t n) {
      for (const int64_t end = to + n; to < end && status.ok(); ++to) {
        status = Cut(in.data<std::string>()[text], Number(pos, cut), Number(len, cut), to,
                     &out->data<std::string>()[to]);
        text += in_stride;
        cut += cut_stride;
      }
      return status.ok();
    });
    return status;
  }

 private:
  static int64_t Number(const Tensor& t, int64_t i) {
    return t.dtype() == kInt32 ? t.data<int32_t>()[i] : t.data<int64_t>()[i];
  }

  Status Cut(const std::string& text, int64_t pos, int64_t len, int64_t index,
             std::string* out) const {
    std::vector<std::size_t> starts;  // of characters
    auto size = static_cast<int64_t>(text.size());
    if (characters_) {
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (!IsContinuation(text[i])) starts.push_back(i);
      }
      size = static_cast<int64_t>(starts.size());
      starts.push_back(text.size());
    }
    // As in TensorFlow: bytes to the end, and of characters none, or an error from behind.
    if (len < 0 && !characters_) len = size;
    if (pos > size || pos < -size || (pos < 0 && len < 0)) {
      return errors::InvalidArgument("pos ", pos, " out of range for string b'", CEscape(text),
                                     "' at index ", index);
    }
    if (pos < 0) pos += size;
    const int64_t end = pos + std::clamp<int64_t>(len, 0, size - pos);
    const std::size_t from = characters_ ? starts[pos] : pos, to = characters_ ? starts[end] : end;
    out->assign(text, from, to - from);
    return OkStatus();
  }

  const bool characters_;
};

// --- Patterns ---------------------------------------------------------------------------------

Status CheckPattern(const RE2& pattern) {
  if (pattern.ok()) return OkStatus();
  return errors::InvalidArgument("Invalid pattern: ", pattern.pattern(),
                                 ", error: ", pattern.error());
}

Status Replace(KernelContext& ctx, const RE2& pattern, const std::string& rewrite, bool global) {
  MR_RETURN_IF_ERROR(CheckPattern(pattern));
  std::string error;
  if (!pattern.CheckRewriteString(rewrite, &error)) {
    return errors::InvalidArgument("Invalid rewrite pattern: ", rewrite, ", error: ", error);
  }
  const Tensor& in = ctx.input(0);
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
  for (int64_t i = 0; i < in.num_elements(); ++i) {
    std::string& text = out->data<std::string>()[i];
    text = in.data<std::string>()[i];
    if (global) {
      RE2::GlobalReplace(&text, pattern, rewrite);
    } else {
      RE2::Replace(&text, pattern, rewrite);
    }
  }
  return OkStatus();
}

class RegexReplaceKernel : public Kernel {
 public:
  explicit RegexReplaceKernel(KernelConstruction& c)
      : Kernel(c), global_(c.attr<bool>("replace_global")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string pattern, ScalarText(ctx.input(1), "Pattern"));
    MR_ASSIGN_OR_RETURN(const std::string rewrite, ScalarText(ctx.input(2), "Rewrite"));
    return Replace(ctx, RE2(pattern, RE2::Quiet), rewrite, global_);
  }

 private:
  const bool global_;
};

class StaticRegexReplaceKernel : public Kernel {
 public:
  explicit StaticRegexReplaceKernel(KernelConstruction& c)
      : Kernel(c),
        pattern_(c.attr<std::string>("pattern"), RE2::Quiet),
        rewrite_(c.attr<std::string>("rewrite")),
        global_(c.attr<bool>("replace_global")) {
    if (Status s = CheckPattern(pattern_); !s.ok()) c.SetError(std::move(s));
  }
  Status Compute(KernelContext& ctx) override { return Replace(ctx, pattern_, rewrite_, global_); }

 private:
  const RE2 pattern_;
  const std::string rewrite_;
  const bool global_;
};

class RegexFullMatchKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string text, ScalarText(ctx.input(1), "Pattern"));
    const RE2 pattern(text, RE2::Quiet);
    MR_RETURN_IF_ERROR(CheckPattern(pattern));
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      out->data<bool>()[i] = RE2::FullMatch(in.data<std::string>()[i], pattern);
    }
    return OkStatus();
  }
};

// --- Joining ----------------------------------------------------------------------------------

class ReduceJoinKernel : public Kernel {
 public:
  explicit ReduceJoinKernel(KernelConstruction& c)
      : Kernel(c), keep_(c.attr<bool>("keep_dims")), separator_(c.attr<std::string>("separator")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    const Tensor& given = ctx.input(1);  // of any rank
    MR_ASSIGN_OR_RETURN(const Tensor flat, given.Reshaped(Shape({given.num_elements()})));
    MR_ASSIGN_OR_RETURN(const Dims axes, IntVector(flat, "reduction_indices"));
    std::vector<int> reduced;
    for (const int64_t axis : axes) {
      if (axis < -in.rank() || axis >= in.rank()) {
        return errors::OutOfRange("Invalid reduction dimension ", axis, " for input with ",
                                  in.rank(), " dimension(s)");
      }
      const int at = static_cast<int>(axis < 0 ? axis + in.rank() : axis);
      if (std::find(reduced.begin(), reduced.end(), at) != reduced.end()) {
        return errors::InvalidArgument("Duplicate reduction dimension ", at);
      }
      reduced.push_back(at);
    }
    const Dims strides = RowMajorStrides(in.shape().dims());
    Dims out_dims, kept_sizes, kept_strides;
    for (int i = 0; i < in.rank(); ++i) {
      const bool gone = std::find(reduced.begin(), reduced.end(), i) != reduced.end();
      if (!gone) {
        kept_sizes.push_back(in.dim(i));
        kept_strides.push_back(strides[i]);
      }
      if (!gone || keep_) out_dims.push_back(gone ? 1 : in.dim(i));
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape(out_dims)));
    int64_t joined = 1;
    for (const int axis : reduced) joined *= in.dim(axis);
    for (int64_t i = 0; i < out->num_elements(); ++i) {
      int64_t base = 0, rest = i;
      for (int k = static_cast<int>(kept_sizes.size()) - 1; k >= 0; --k) {
        base += rest % kept_sizes[k] * kept_strides[k];
        rest /= kept_sizes[k];
      }
      std::string& text = out->data<std::string>()[i];
      for (int64_t j = 0; j < joined; ++j) {
        int64_t at = base, turn = j;
        for (const int axis : reduced) {  // the first one listed varies fastest
          at += turn % in.dim(axis) * strides[axis];
          turn /= in.dim(axis);
        }
        if (j > 0) text += separator_;
        text += in.data<std::string>()[at];
      }
    }
    return OkStatus();
  }

 private:
  const bool keep_;
  const std::string separator_;
};

// --- Writing tensors --------------------------------------------------------------------------

class StringFormatKernel : public Kernel {
 public:
  explicit StringFormatKernel(KernelConstruction& c)
      : Kernel(c), summarize_(c.attr<int64_t>("summarize")) {
    const std::string text = c.attr<std::string>("template");
    const std::string mark = c.attr<std::string>("placeholder");
    std::size_t at = 0;
    while (!mark.empty()) {
      const std::size_t next = text.find(mark, at);
      if (next == std::string::npos) break;
      pieces_.push_back(text.substr(at, next - at));
      at = next + mark.size();
    }
    pieces_.push_back(text.substr(at));
    if (pieces_.size() != c.input_types().size() + 1) {
      c.SetError(errors::InvalidArgument("num placeholders in template and num inputs must match: ",
                                         pieces_.size() - 1, " vs. ", c.input_types().size()));
    }
  }
  Status Compute(KernelContext& ctx) override {
    std::string text = pieces_[0];
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Tensor& t = ctx.input(i);
      int64_t at = 0;
      Write(t, 0, &at, &text);
      text += pieces_[i + 1];
    }
    if (text.size() > kMostText) {
      return errors::ResourceExhausted("the text of the inputs is longer than ", kMostText,
                                       " bytes: set summarize to write fewer of their elements");
    }
    ctx.SetOutput(0, Tensor::String(text));
    return OkStatus();
  }

 private:
  // Also rows that hold nothing are written, and there may be any number of them.
  static constexpr std::size_t kMostText = std::size_t{1} << 28;

  static void WriteOne(const Tensor& t, int64_t at, std::string* out) {
    if (t.dtype() == kString) {
      // Characters of UTF-8 stay what they are.
      const std::string_view text = t.data<std::string>()[at];
      *out += '"';
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (static_cast<uint8_t>(text[i]) >= 0x80) {
          *out += text[i];
        } else {
          *out += CEscape(text.substr(i, 1));
        }
      }
      *out += '"';
      return;
    }
    const bool known =
        DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), t.dtype(), [&]<typename T>() {
          const T value = t.data<T>()[at];
          if constexpr (kIsComplex<T>) {
            StrAppend(out, "(", value.real(), ",", value.imag(), ")");
          } else if constexpr (kIsSmallFloat<T>) {
            StrAppend(out, static_cast<float>(value));
          } else if constexpr (std::is_same_v<T, bool>) {
            StrAppend(out, value ? 1 : 0);
          } else {
            StrAppend(out, value);
          }
        });
    if (!known) *out += "?";
  }

  // The part below the first `axis` axes that begins at element *at.
  void Write(const Tensor& t, int axis, int64_t* at, std::string* out) const {
    if (axis == t.rank()) return WriteOne(t, (*at)++, out);
    int64_t below = 1;
    for (int i = axis + 1; i < t.rank(); ++i) below *= t.dim(i);
    const int64_t n = t.dim(axis);
    const int64_t head = summarize_ < 0 ? n : std::min(summarize_, n);
    const int64_t tail = summarize_ < 0 ? n : std::max(n - summarize_, head);
    const auto space = [&] {
      if (axis == t.rank() - 1) {
        *out += ' ';
      } else {
        out->append(t.rank() - axis - 1, '\n');
        out->append(axis + 1, ' ');
      }
    };
    *out += '[';
    for (int64_t i = 0; i < head && out->size() <= kMostText; ++i) {
      if (i > 0) space();
      Write(t, axis + 1, at, out);
    }
    if (tail > head) {
      space();
      *out += "...";
      *at += (tail - head) * below;
    }
    for (int64_t i = tail; i < n && out->size() <= kMostText; ++i) {
      space();
      Write(t, axis + 1, at, out);
    }
    *out += ']';
  }

  const int64_t summarize_;
  std::vector<std::string> pieces_;
};

}  // namespace

void RegisterTextKernels(KernelRegistry& r) {
  RegisterCpu<MapTextKernel<std::string, Strip>>(r, "StringStrip");
  r.Register(KernelDef("StringLower"), &MakeCase<true>);
  r.Register(KernelDef("StringUpper"), &MakeCase<false>);
  RegisterCpu<StringLengthKernel>(r, "StringLength");
  for (const char* op :
       {"StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"}) {
    RegisterCpu<HashBucketKernel>(r, op);
  }
  RegisterCpu<StringSplitKernel>(r, "StringSplit");
  RegisterCpu<StringSplitKernel>(r, "StringSplitV2");
  RegisterCpu<SubstrKernel>(r, "Substr");
  RegisterCpu<RegexReplaceKernel>(r, "RegexReplace");
  RegisterCpu<StaticRegexReplaceKernel>(r, "StaticRegexReplace");
  RegisterCpu<RegexFullMatchKernel>(r, "RegexFullMatch");
  RegisterCpu<ReduceJoinKernel>(r, "ReduceJoin");
  RegisterCpu<StringFormatKernel>(r, "StringFormat");
}

}  // namespace millrace
