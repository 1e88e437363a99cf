// SPDX-License-Identifier: Apache-2.0
// Elementwise comparisons, and operations on truth values and bits.
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/elementwise.h"

namespace millrace {
namespace {

#define MR_COMPARISON(Name, op)              \
  struct Name {                              \
    static constexpr double kCost = 0.3;     \
    template <typename T>                    \
    static bool Do(const T& a, const T& b) { \
      return a op b;                         \
    }                                        \
  }
MR_COMPARISON(Less, <);
MR_COMPARISON(LessEqual, <=);
MR_COMPARISON(Greater, >);
MR_COMPARISON(GreaterEqual, >=);
MR_COMPARISON(Equal, ==);
MR_COMPARISON(NotEqual, !=);
MR_COMPARISON(LogicalAnd, &&);
MR_COMPARISON(LogicalOr, ||);
#undef MR_COMPARISON

#define MR_BITWISE(Name, op)             \
  struct Name {                          \
    static constexpr double kCost = 0.3; \
    template <typename T>                \
    static T Do(T a, T b) {              \
      return static_cast<T>(a op b);     \
    }                                    \
  }
MR_BITWISE(BitwiseAnd, &);
MR_BITWISE(BitwiseOr, |);
MR_BITWISE(BitwiseXor, ^);
#undef MR_BITWISE

// Equal and NotEqual may be told to answer "different" for shapes that do not broadcast.
template <bool kAnswerIfIncompatible>
class EqualityKernel : public BinaryKernel {
 public:
  EqualityKernel(const KernelConstruction& c, BinaryLoopFn loop, ScalarFn scalar)
      : BinaryKernel(c, loop, scalar, 0.3, OkStatus(), true),
        shapes_must_fit_(c.attrs().template GetOr<bool>("incompatible_shape_error", true)) {}

  Status Compute(KernelContext& ctx) override {
    if (!shapes_must_fit_ && !BroadcastShapes(ctx.input(0).shape(), ctx.input(1).shape()).ok()) {
      ctx.SetOutput(0, Tensor::Scalar<bool>(kAnswerIfIncompatible));
      return OkStatus();
    }
    return BinaryKernel::Compute(ctx);
  }

 private:
  const bool shapes_must_fit_;
};

using Comparable = JoinTypes<NumberTypes, TypeList<bool, std::string>>;

// Quantised numbers are equal when the integers that hold them are.
DataType HeldAs(DataType type) {
  switch (type) {
    case DataType::kQint8:
      return kInt8;
    case DataType::kQuint8:
      return kUint8;
    case DataType::kQint16:
      return kInt16;
    case DataType::kQuint16:
      return kUint16;
    case DataType::kQint32:
      return kInt32;
    default:
      return type;
  }
}

std::vector<DataType> ComparableTypes() {
  std::vector<DataType> types = DataTypesOf(Comparable());
  types.insert(types.end(), {DataType::kQint8, DataType::kQuint8, DataType::kQint16,
                             DataType::kQuint16, DataType::kQint32});
  return types;
}

template <typename Op, bool kAnswerIfIncompatible>
std::unique_ptr<Kernel> MakeEquality(KernelConstruction& c) {
  BinaryLoopFn loop = nullptr;
  ScalarFn scalar = nullptr;
  DispatchType(Comparable(), HeldAs(BaseType(c.input_types()[0])), [&]<typename T>() {
    loop = BinaryLoopFor<Op, T>();
    scalar = IfPlain<T>(&BinaryScalar<Op, T>);
  });
  if (loop == nullptr) c.SetError(NoLoopFor(c));
  return std::make_unique<EqualityKernel<kAnswerIfIncompatible>>(c, loop, scalar);
}

}  // namespace

void RegisterElementwiseCompareKernels(KernelRegistry& r) {
  RegisterBinary<Less, RealTypes>(r, "Less");
  RegisterBinary<LessEqual, RealTypes>(r, "LessEqual");
  RegisterBinary<Greater, RealTypes>(r, "Greater");
  RegisterBinary<GreaterEqual, RealTypes>(r, "GreaterEqual");
  r.Register(KernelDef("Equal").Types("T", ComparableTypes()), &MakeEquality<Equal, false>);
  r.Register(KernelDef("NotEqual").Types("T", ComparableTypes()), &MakeEquality<NotEqual, true>);
  RegisterBinary<LogicalAnd, TypeList<bool>>(r, "LogicalAnd", "");
  RegisterBinary<LogicalOr, TypeList<bool>>(r, "LogicalOr", "");
  RegisterBinary<BitwiseAnd, IntTypes>(r, "BitwiseAnd");
  RegisterBinary<BitwiseOr, IntTypes>(r, "BitwiseOr");
  RegisterBinary<BitwiseXor, IntTypes>(r, "BitwiseXor");
}

}  // namespace millrace
