// SPDX-License-Identifier: Apache-2.0
// Conversions between element types. Pairs of plain types convert directly; small floats and
// complex numbers go through float or double, integers of four bits through int32, a block at a
// time.
#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

constexpr auto kInt4 = static_cast<DataType>(29);
constexpr auto kUint4 = static_cast<DataType>(30);
bool IsInt4(DataType dtype) { return dtype == kInt4 || dtype == kUint4; }

// Each in a byte of its own, of which the lower half counts: from -8 to 7, and from 0 to 15.
template <bool kSigned>
struct HalfByte {
  HalfByte() = default;
  explicit HalfByte(int32_t value) : bits(static_cast<uint8_t>(value & 0xf)) {}
  explicit operator int32_t() const {
    constexpr int kSign = kSigned ? 8 : 0;
    return ((bits & 0xf) ^ kSign) - kSign;
  }
  uint8_t bits = 0;
};
using Int4 = HalfByte<true>;
using Uint4 = HalfByte<false>;

using Float8Types =
    TypeList<Float8E5m2, Float8E4m3fn, Float8E4m3fnuz, Float8E4m3b11fnuz, Float8E5m2fnuz>;
using PlainTypes = JoinTypes<TypeList<float, double, bool>, IntTypes>;
using ConvertFn = void (*)(const void* in, void* out, int64_t n);

template <typename From, typename To>
To ConvertOne(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Out of range is undefined in C++. NaN and values beyond 64 bits become the lowest 64-bit
    // integer, as the processor has it; what is left is cut to the width of To.
    constexpr From kLimit = static_cast<From>(9223372036854775808.0);
    if constexpr (std::is_same_v<To, uint64_t>) {
      if (x >= kLimit && x < 2 * kLimit) {
        return static_cast<uint64_t>(static_cast<int64_t>(x - kLimit)) + (uint64_t{1} << 63);
      }
    }
    if constexpr (std::is_same_v<To, int32_t>) {
      const bool fits = x > From(-2147483904.0) && x < From(2147483648.0);
      return fits && static_cast<double>(x) > -2147483649.0 ? static_cast<int32_t>(x)
                                                            : std::numeric_limits<int32_t>::min();
    } else {
      const bool fits = x >= -kLimit && x < kLimit;
      return static_cast<To>(fits ? static_cast<int64_t>(x) : std::numeric_limits<int64_t>::min());
    }
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void ConvertPlain(const void* in_ptr, void* out_ptr, int64_t n) {
  const From* in = static_cast<const From*>(in_ptr);
  To* out = static_cast<To*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) out[i] = ConvertOne<From, To>(in[i]);
}
// To or from a type with an explicit conversion to the middle type M.
template <typename From, typename M>
void Widen(const void* in_ptr, void* out_ptr, int64_t n) {
  const From* in = static_cast<const From*>(in_ptr);
  M* out = static_cast<M*>(out_ptr);
  if constexpr (kIsSmallFloat<From>) return small_floats::Widen(in, out, n);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kIsComplex<From>) {
      out[i] = in[i].real();
    } else {
      out[i] = static_cast<M>(in[i]);
    }
  }
}
template <typename M, typename To>
void Narrow(const void* in_ptr, void* out_ptr, int64_t n) {
  const M* in = static_cast<const M*>(in_ptr);
  To* out = static_cast<To*>(out_ptr);
  if constexpr (kIsSmallFloat<To>) return small_floats::Narrow(in, out, n);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(in[i]);
}
template <typename From, typename To>
void ConvertComplex(const void* in_ptr, void* out_ptr, int64_t n) {
  const From* in = static_cast<const From*>(in_ptr);
  To* out = static_cast<To*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) out[i] = To(in[i]);
}
// Drops the low half of the float instead of rounding.
void TruncateToBfloat16(const void* in_ptr, void* out_ptr, int64_t n) {
  const float* in = static_cast<const float*>(in_ptr);
  BFloat16* out = static_cast<BFloat16*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const bool is_nan = in[i] != in[i];
    out[i] = BFloat16::FromBits(static_cast<uint16_t>((bits >> 16) | (is_nan ? 0x40u : 0u)));
  }
}

// The numbers of all patterns of a type of one byte.
template <typename From>
const std::array<float, 256>& NumbersOf() {
  static const auto* const numbers = [] {
    auto* made = new std::array<float, 256>;
    for (int bits = 0; bits < 256; ++bits) {
      (*made)[bits] = static_cast<float>(From::FromBits(static_cast<uint8_t>(bits)));
    }
    return made;
  }();
  return *numbers;
}
template <typename From>
void WidenFloat8(const void* in_ptr, void* out_ptr, int64_t n) {
  const std::array<float, 256>& numbers = NumbersOf<From>();
  const auto* in = static_cast<const uint8_t*>(in_ptr);
  auto* out = static_cast<float*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) out[i] = numbers[in[i]];
}

// Quantized numbers are converted as the integers that they are stored as.
DataType StoredType(DataType dtype) {
  switch (dtype) {
    case DataType::kQint8:
      return DataType::kInt8;
    case DataType::kQuint8:
      return DataType::kUint8;
    case DataType::kQint16:
      return DataType::kInt16;
    case DataType::kQuint16:
      return DataType::kUint16;
    case DataType::kQint32:
      return DataType::kInt32;
    default:
      return dtype;
  }
}

// What `dtype` goes through; itself for plain types.
DataType MiddleType(DataType dtype) {
  if (IsFloat8(dtype)) return kFloat;
  if (IsInt4(dtype)) return kInt32;
  switch (dtype) {
    case DataType::kHalf:
    case DataType::kBfloat16:
    case DataType::kComplex64:
      return kFloat;
    case DataType::kComplex128:
      return kDouble;
    default:
      return dtype;
  }
}

template <typename From>
ConvertFn FindPlainTo(DataType to) {
  ConvertFn fn = nullptr;
  DispatchType(PlainTypes(), to, [&]<typename To>() { fn = &ConvertPlain<From, To>; });
  return fn;
}
ConvertFn FindPlain(DataType from, DataType to) {
  ConvertFn fn = nullptr;
  DispatchType(PlainTypes(), from, [&]<typename From>() { fn = FindPlainTo<From>(to); });
  return fn;
}
ConvertFn FindWiden(DataType from) {
  if (from == DataType::kHalf) return &Widen<Half, float>;
  if (from == DataType::kBfloat16) return &Widen<BFloat16, float>;
  if (from == DataType::kComplex64) return &Widen<Complex64, float>;
  if (from == DataType::kComplex128) return &Widen<Complex128, double>;
  if (from == kInt4) return &Widen<Int4, int32_t>;
  if (from == kUint4) return &Widen<Uint4, int32_t>;
  ConvertFn fn = nullptr;
  DispatchType(Float8Types(), from, [&]<typename From>() { fn = &WidenFloat8<From>; });
  return fn;
}
// `middle`: what it is narrowed from, where there is a choice.
ConvertFn FindNarrow(DataType to, DataType middle) {
  if (to == DataType::kHalf) return &Narrow<float, Half>;
  if (to == DataType::kBfloat16) return &Narrow<float, BFloat16>;
  if (to == DataType::kComplex64) return &Narrow<float, Complex64>;
  if (to == DataType::kComplex128) return &Narrow<double, Complex128>;
  if (to == kInt4) return &Narrow<int32_t, Int4>;
  if (to == kUint4) return &Narrow<int32_t, Uint4>;
  ConvertFn fn = nullptr;
  DispatchType(Float8Types(), to, [&]<typename To>() {
    fn = middle == kDouble ? &Narrow<double, To> : &Narrow<float, To>;
  });
  return fn;
}

// Integers of four bits have no conversions but to and from integers, as in TensorFlow.
bool GoTogether(DataType from, DataType to) {
  if (IsInt4(from)) return IsInteger(to) || IsInt4(to);
  return !IsInt4(to) || IsInteger(from);
}

class CastKernel : public Kernel {
 public:
  explicit CastKernel(KernelConstruction& c)
      : Kernel(c),
        result_(BaseType(c.output_types()[0])),
        from_(StoredType(BaseType(c.input_types()[0]))),
        to_(StoredType(result_)) {
    if (from_ == to_) return;
    if (from_ == DataType::kComplex64 && to_ == DataType::kComplex128) {
      plain_ = &ConvertComplex<Complex64, Complex128>;
    } else if (from_ == DataType::kComplex128 && to_ == DataType::kComplex64) {
      plain_ = &ConvertComplex<Complex128, Complex64>;
    } else {
      // A double is rounded once to a type of one byte.
      to_middle_ = IsFloat8(to_) && MiddleType(from_) == kDouble ? kDouble : MiddleType(to_);
      widen_ = FindWiden(from_);
      narrow_ = FindNarrow(to_, to_middle_);
      if (GoTogether(from_, to_)) plain_ = FindPlain(MiddleType(from_), to_middle_);
      if (to_ == DataType::kBfloat16 && c.attrs().GetOr<bool>("Truncate", false)) {
        narrow_ = &TruncateToBfloat16;
      }
    }
    if (plain_ == nullptr) {
      c.SetError(errors::Unimplemented("Cast ", DataTypeName(BaseType(c.input_types()[0])), " to ",
                                       DataTypeName(result_), " is not supported"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    if (from_ == to_) {
      const Tensor& in = ctx.input(0);
      ctx.SetOutput(0, in.dtype() == result_ ? in : in.BitcastTo(result_));
      return OkStatus();
    }
    const Shape& shape = ctx.input(0).shape();
    const void* in = ctx.input(0).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    void* dst = out->raw_data();
    ctx.ParallelFor(shape.num_elements(), 1.0, [&](int64_t begin, int64_t end) {
      ConvertRange(ElementAt(in, from_, begin), ElementAt(dst, to_, begin), end - begin);
    });
    return OkStatus();
  }

 private:
  void ConvertRange(const void* in, void* out, int64_t n) const {
    if (widen_ == nullptr && narrow_ == nullptr) return plain_(in, out, n);
    // Nothing to do between the two: the middle type is one of them.
    if (narrow_ == nullptr && MiddleType(from_) == to_) return widen_(in, out, n);
    if (widen_ == nullptr && to_middle_ == from_) return narrow_(in, out, n);
    constexpr int64_t kBlock = 256;
    alignas(64) char a[kBlock * sizeof(double)], b[kBlock * sizeof(double)];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = std::min(kBlock, n - i);
      const void* from = ElementAt(in, from_, i);
      void* to = ElementAt(out, to_, i);
      if (widen_ != nullptr) {
        widen_(from, a, count);
        from = a;
      }
      plain_(from, narrow_ != nullptr ? static_cast<void*>(b) : to, count);
      if (narrow_ != nullptr) narrow_(b, to, count);
    }
  }

  const DataType result_, from_, to_;
  DataType to_middle_ = DataType::kInvalid;
  ConvertFn widen_ = nullptr, plain_ = nullptr, narrow_ = nullptr;
};

}  // namespace

void RegisterCastKernels(KernelRegistry& r) {
  RegisterCpu<CastKernel>(r, "Cast");
  RegisterCpu<CastKernel>(r, "_HostCast");
}

}  // namespace millrace
