// SPDX-License-Identifier: Apache-2.0
// Text: joining strings and writing numbers.
#include <re2/re2.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// Scalars join every element of the others.
class StringJoinKernel : public Kernel {
 public:
  explicit StringJoinKernel(KernelConstruction& c)
      : Kernel(c), separator_(c.attrs().GetOr<std::string>("separator", "")) {}
  Status Compute(KernelContext& ctx) override {
    Shape shape;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Shape& s = ctx.input(i).shape();
      if (s.rank() == 0) continue;
      if (shape.rank() != 0 && !(shape == s)) {
        return errors::InvalidArgument("Input shapes do not match: ", shape.DebugString(), " vs. ",
                                       s.DebugString());
      }
      shape = s;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      std::string& text = out->data<std::string>()[i];
      for (int k = 0; k < ctx.num_inputs(); ++k) {
        if (k > 0) text += separator_;
        text += ctx.input(k).data<std::string>()[ctx.input(k).rank() == 0 ? 0 : i];
      }
    }
    return OkStatus();
  }

 private:
  const std::string separator_;
};

class AsStringKernel : public Kernel {
 public:
  explicit AsStringKernel(KernelConstruction& c)
      : Kernel(c),
        precision_(c.attrs().GetOr<int64_t>("precision", -1)),
        width_(c.attrs().GetOr<int64_t>("width", -1)),
        fill_(c.attrs().GetOr<std::string>("fill", "")) {
    const bool scientific = c.attrs().GetOr<bool>("scientific", false);
    const bool shortest = c.attrs().GetOr<bool>("shortest", false);
    if (scientific) conversion_ = 'e';
    if (shortest) conversion_ = 'g';
    const auto type = c.attr<DataType>("T");
    const bool has_fractions = type == kHalf || type == kBfloat16 || type == kFloat ||
                               type == kDouble || type == kComplex64 || type == kComplex128;
    if (!has_fractions && type != kString) {
      if (scientific || shortest) {
        c.SetError(errors::InvalidArgument(
            "scientific and shortest format not supported for datatype ", DataTypeName(type)));
      } else if (precision_ >= 0) {
        c.SetError(
            errors::InvalidArgument("precision not supported for datatype ", DataTypeName(type)));
      }
    }
    if (fill_.size() > 1) {
      c.SetError(errors::InvalidArgument("Fill string must be one or fewer characters"));
    } else if (scientific && shortest) {
      c.SetError(errors::InvalidArgument("Cannot select both scientific and shortest notation"));
    } else if (fill_.size() == 1 && std::string(" +-0#").find(fill_) == std::string::npos) {
      c.SetError(errors::InvalidArgument("Fill argument not supported: \"", fill_, "\""));
    }
    // Bounds what a peer can make us write per element.
    if (precision_ > 1000 || width_ > 1000) {
      c.SetError(errors::InvalidArgument("precision and width must be at most 1000, got ",
                                         precision_, " and ", width_));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    std::string* text = out->data<std::string>();
    using Types = JoinTypes<RealTypes, TypeList<bool, std::string, Complex64, Complex128>>;
    const bool known = DispatchType(Types(), in.dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < in.num_elements(); ++i) text[i] = TextOf(in.data<T>()[i]);
    });
    if (!known) return errors::Unimplemented("AsString of ", DataTypeName(in.dtype()));
    return OkStatus();
  }

 private:
  template <typename T>
  std::string TextOf(const T& value) const {
    if constexpr (std::is_same_v<T, std::string>) {
      return width_ > 0 ? Padded(value) : value;
    } else if constexpr (kIsComplex<T>) {
      return StrCat("(", Format(conversion_, static_cast<double>(value.real())), ",",
                    Format(conversion_, static_cast<double>(value.imag())), ")");
    } else if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (kIsFloating<T>) {
      return Format(conversion_, static_cast<double>(static_cast<ComputeType<T>>(value)));
    } else if constexpr (std::is_signed_v<T>) {
      return Format('d', static_cast<long long>(value));
    } else {
      return Format('u', static_cast<unsigned long long>(value));
    }
  }

  // What "%WIDTH.PRECISIONs" makes of it, without an end at a zero byte.
  std::string Padded(const std::string& text) const {
    std::string out = text.substr(0, precision_ < 0 ? std::string::npos : precision_);
    const auto width = static_cast<std::size_t>(width_);
    if (out.size() < width) out.insert(fill_ == "-" ? out.size() : 0, width - out.size(), ' ');
    return out;
  }

  template <typename V>
  std::string Format(char conversion, V value) const {
    std::string format = "%" + fill_;
    if (width_ > -1) format += std::to_string(width_);
    if constexpr (std::is_floating_point_v<V>) {
      if (precision_ > -1) format += "." + std::to_string(precision_);
    } else {
      format += "ll";
    }
    format += conversion;
    const int length = std::snprintf(nullptr, 0, format.c_str(), value);
    std::string text(length > 0 ? length : 0, '\0');
    std::snprintf(text.data(), text.size() + 1, format.c_str(), value);
    return text;
  }

  const int64_t precision_, width_;
  const std::string fill_;
  char conversion_ = 'f';
};

// RE2's syntax and its linear time, as TensorFlow's.
class StaticRegexFullMatchKernel : public Kernel {
 public:
  explicit StaticRegexFullMatchKernel(KernelConstruction& c)
      : Kernel(c), pattern_(c.attr<std::string>("pattern"), RE2::Quiet) {
    if (!pattern_.ok()) {
      c.SetError(errors::InvalidArgument("Invalid pattern: ", pattern_.pattern(),
                                         ", error: ", pattern_.error()));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      out->data<bool>()[i] = RE2::FullMatch(in.data<std::string>()[i], pattern_);
    }
    return OkStatus();
  }

 private:
  const RE2 pattern_;
};

class UnsortedSegmentJoinKernel : public Kernel {
 public:
  explicit UnsortedSegmentJoinKernel(KernelConstruction& c)
      : Kernel(c), separator_(c.attr<std::string>("separator")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &ids = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const int64_t count, CountOf(ctx.input(2)));
    MR_RETURN_IF_ERROR(CheckIds(in.shape(), ids.shape()));
    Dims dims = {count};
    for (int i = ids.rank(); i < in.rank(); ++i) dims.push_back(in.dim(i));
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t row = ids.num_elements() == 0 ? 0 : in.num_elements() / ids.num_elements();
    std::vector<bool> begun(row == 0 ? 0 : count, false);
    for (int64_t i = 0; i < ids.num_elements(); ++i) {
      const int64_t id = ids.dtype() == kInt32 ? ids.data<int32_t>()[i] : ids.data<int64_t>()[i];
      if (id < 0 || id >= count) {
        return errors::InvalidArgument(
            "segment_ids are not allowed to exceed num_segments or to have negative values.");
      }
      if (row == 0) continue;
      for (int64_t k = 0; k < row; ++k) {
        std::string& text = out->data<std::string>()[id * row + k];
        if (begun[id]) text += separator_;
        text += in.data<std::string>()[i * row + k];
      }
      begun[id] = true;
    }
    return OkStatus();
  }

 private:
  static StatusOr<int64_t> CountOf(const Tensor& t) {
    if (t.num_elements() == 0)
      return errors::InvalidArgument("Number of segments cannot be empty.");
    if (t.rank() != 0) return errors::InvalidArgument("Number of segments must be a scalar");
    MR_ASSIGN_OR_RETURN(const int64_t count, IntScalar(t, "num_segments"));
    if (count >= 0) return count;
    return errors::InvalidArgument("Number of segments must be non-negative but got ", count);
  }

  static Status CheckIds(const Shape& in, const Shape& ids) {
    if (ids.rank() == 0) return errors::InvalidArgument("Segment_id cannot have rank 0");
    if (ids.rank() > in.rank()) {
      return errors::OutOfRange("Invalid segment_id rank ", ids.rank(), " for input with ",
                                in.rank(), " dimension(s)");
    }
    for (int i = 0; i < ids.rank(); ++i) {
      if (ids.dim(i) == in.dim(i)) continue;
      // TensorFlow's words, which give the number of the input's dimensions.
      return errors::InvalidArgument("Segment dimension is ", ids.dim(i),
                                     " while input dimension is ", in.rank(), " in rank ", i);
    }
    return OkStatus();
  }

  const std::string separator_;
};

}  // namespace

void RegisterStringKernels(KernelRegistry& r) {
  RegisterCpu<StaticRegexFullMatchKernel>(r, "StaticRegexFullMatch");
  RegisterCpu<StringJoinKernel>(r, "StringJoin");
  RegisterCpu<AsStringKernel>(r, "AsString");
  RegisterCpu<UnsortedSegmentJoinKernel>(r, "UnsortedSegmentJoin");
}

}  // namespace millrace
