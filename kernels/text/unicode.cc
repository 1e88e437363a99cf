// SPDX-License-Identifier: Apache-2.0
// Texts as characters, and from one encoding to another.
#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/text/unicode_codec.h"

namespace millrace {
namespace {

// What to do about characters that are none, and control characters.
class ErrorPolicy {
 public:
  explicit ErrorPolicy(KernelConstruction& c)
      : control_too_(c.attrs().GetOr<bool>("replace_control_characters", false)) {
    const std::string policy = c.attrs().GetOr<std::string>("errors", "replace");
    strict_ = policy == "strict";
    ignores_ = policy == "ignore";
    const int64_t code = c.attrs().GetOr<int64_t>("replacement_char", 0xfffd);
    if (code < 0 || code > 0x10ffff) {
      c.SetError(errors::InvalidArgument("replacement_char out of unicode codepoint range"));
    }
    replacement_ = static_cast<int32_t>(code);
  }

  bool strict() const { return strict_; }
  bool ignores() const { return ignores_; }
  int32_t replacement() const { return replacement_; }
  bool Concerns(const Character& c) const {
    return c.malformed || (control_too_ && c.code <= 0x1f);
  }

 private:
  const bool control_too_;
  bool strict_ = false, ignores_ = false;
  int32_t replacement_ = 0;
};

Status BadFormat() { return errors::InvalidArgument("Invalid formatting on input string"); }

TextEncoding InputEncoding(KernelConstruction& c) {
  const StatusOr<TextEncoding> encoding = ParseTextEncoding(c.attr<std::string>("input_encoding"));
  if (encoding.ok()) return *encoding;
  c.SetError(encoding.status());
  return TextForm::kUtf8;
}

TextForm OutputForm(KernelConstruction& c) {
  const std::string name = c.attr<std::string>("output_encoding");
  return name == "UTF-16-BE"   ? TextForm::kUtf16Be
         : name == "UTF-32-BE" ? TextForm::kUtf32Be
                               : TextForm::kUtf8;
}

class TranscodeKernel : public Kernel {
 public:
  explicit TranscodeKernel(KernelConstruction& c)
      : Kernel(c), policy_(c), from_(InputEncoding(c)), to_(OutputForm(c)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor in = ctx.locked_input(0);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      TextReader reader(in.data<std::string>()[i], from_);
      std::string text;
      for (Character c; reader.Next(&c);) {
        if (policy_.Concerns(c)) {
          if (policy_.strict()) return BadFormat();
          if (policy_.ignores()) continue;
          c.code = policy_.replacement();
        }
        AppendCharacter(c.code, to_, &text);
      }
      out->data<std::string>()[i] = std::move(text);
    }
    return OkStatus();
  }

 private:
  const ErrorPolicy policy_;
  const TextEncoding from_;
  const TextForm to_;
};

// Where each text's characters begin, the characters, and where each begins in its text.
class DecodeKernel : public Kernel {
 public:
  explicit DecodeKernel(KernelConstruction& c)
      : Kernel(c),
        policy_(c),
        from_(InputEncoding(c)),
        split_type_(c.attrs().GetOr<DataType>("Tsplits", kInt64)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor in = ctx.locked_input(0);
    std::vector<int64_t> splits{0}, offsets;
    std::vector<int32_t> codes;
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      TextReader reader(in.data<std::string>()[i], from_);
      int64_t at = 0;
      for (Character c; reader.Next(&c);) {
        const int64_t begin = at;
        at += c.bytes;
        if (policy_.strict() && c.malformed) return BadFormat();
        if (policy_.Concerns(c)) {
          if (policy_.ignores()) continue;
          c.code = policy_.replacement();
        }
        codes.push_back(c.code);
        offsets.push_back(begin);
      }
      splits.push_back(static_cast<int64_t>(codes.size()));
    }
    MR_RETURN_IF_ERROR(CheckFits(split_type_, splits));
    ctx.SetOutput(0, IndexTensor(split_type_, splits));
    const Shape shape({static_cast<int64_t>(codes.size())});
    MR_ASSIGN_OR_RETURN(Tensor characters, Tensor::TryFromValues<int32_t>(codes, shape));
    ctx.SetOutput(1, std::move(characters));
    if (num_outputs() < 3) return OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor begins, Tensor::TryFromValues<int64_t>(offsets, shape));
    ctx.SetOutput(2, std::move(begins));
    return OkStatus();
  }

 private:
  const ErrorPolicy policy_;
  const TextEncoding from_;
  const DataType split_type_;
};

class EncodeKernel : public Kernel {
 public:
  explicit EncodeKernel(KernelConstruction& c) : Kernel(c), policy_(c), to_(OutputForm(c)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &codes = ctx.input(0), &splits = ctx.input(1);
    if (codes.rank() != 1 || splits.rank() != 1) {
      return errors::InvalidArgument(
          "Both the input_tensor and input_splits should be of rank 1. ");
    }
    if (splits.num_elements() == 0) {
      return errors::InvalidArgument(
          "Input_splits should contain elements, but given input_values has 0 elements");
    }
    Status status;
    DispatchType(IndexTypes(), splits.dtype(), [&]<typename T>() {
      status = Encode(ctx, codes.flat<int32_t>(), splits.flat<T>());
    });
    return status;
  }

 private:
  template <typename T>
  Status Encode(KernelContext& ctx, std::span<const int32_t> codes, std::span<const T> splits) {
    const auto size = static_cast<int64_t>(codes.size());
    if (splits.front() != 0) {
      return errors::InvalidArgument("First value in input_splits must be zero.");
    }
    if (splits.back() != size) {
      return errors::InvalidArgument(
          "Last value in input_splits must be equal to length of input_tensor.");
    }
    const auto rows = static_cast<int64_t>(splits.size()) - 1;
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape({rows})));
    for (std::size_t i = 1; i < splits.size(); ++i) {
      if (splits[i - 1] > splits[i]) {
        return errors::InvalidArgument(
            "Values in input_splits must be equal or in ascending order.");
      }
      if (splits[i] > size) {
        return errors::InvalidArgument(
            "Values in input_splits must be less than or equal to input_tensor length.");
      }
      std::string text;
      for (auto k = static_cast<std::size_t>(splits[i - 1]);
           k < static_cast<std::size_t>(splits[i]); ++k) {
        const int32_t code = codes[k];
        const bool scalar = code >= 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
        if (!scalar && policy_.strict()) {
          return errors::InvalidArgument(
              "Code point is out of range for Unicode, or is a surrogate.");
        }
        if (!scalar && policy_.ignores()) continue;
        AppendCharacter(scalar ? code : policy_.replacement(), to_, &text);
      }
      out->data<std::string>()[i - 1] = std::move(text);
    }
    return OkStatus();
  }

  const ErrorPolicy policy_;
  const TextForm to_;
};

}  // namespace

void RegisterUnicodeKernels(KernelRegistry& r) {
  RegisterCpu<TranscodeKernel>(r, "UnicodeTranscode");
  RegisterCpu<DecodeKernel>(r, "UnicodeDecode");
  RegisterCpu<DecodeKernel>(r, "UnicodeDecodeWithOffsets");
  RegisterCpu<EncodeKernel>(r, "UnicodeEncode");
}

}  // namespace millrace
