// SPDX-License-Identifier: Apache-2.0
// Elementwise ops.
#include <cstring>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/gpu/body.h"
#include "kernels/math/output_gradient_plan.h"
#include "kernels/nn/bias_plan.h"

namespace millrace::gpu {
namespace {

// --- One operand -----------------------------------------------------------------------------

const StringMap<UnaryOp>& UnaryOps() {
  static const auto* const ops = [] {
    auto* map = new StringMap<UnaryOp>;
#define MR_GPU_NAME(Name) (*map)[#Name] = UnaryOp::k##Name;
    MR_GPU_UNARY_OPS(MR_GPU_NAME)
#undef MR_GPU_NAME
    (*map)["Inv"] = UnaryOp::kReciprocal;
    (*map)["Rint"] = UnaryOp::kRound;
    return map;
  }();
  return *ops;
}

class UnaryBody final : public Body {
 public:
  explicit UnaryBody(KernelConstruction& c)
      : op_(UnaryOps().find(c.def().name())->second),
        alpha_(c.attrs().GetOr<float>("alpha", 0.0f)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    return ToStatus(loops.Unary(queue, {op_, in.dtype(), in.raw_data(), call.outputs[0].raw_data(),
                                        in.num_elements(), alpha_}));
  }

 private:
  const UnaryOp op_;
  const float alpha_;
};

// --- Two operands ----------------------------------------------------------------------------

using BinaryLoop = Outcome (*Loops::*)(Queue, const BinaryParams&);

// What the shapes of the operands have to have in common.
enum class Meeting { kBroadcast, kSameShape, kSameCount };

struct BinaryEntry {
  BinaryOp op;
  BinaryLoop loop;
  Meeting meeting;
};

const StringMap<BinaryEntry>& BinaryOps() {
  static const auto* const ops = [] {
    auto* map = new StringMap<BinaryEntry>;
#define MR_GPU_NAME(Name) {#Name, BinaryOp::k##Name},
    const std::pair<const char*, BinaryOp> names[] = {MR_GPU_BINARY_OPS(MR_GPU_NAME)};
#undef MR_GPU_NAME
    for (const auto& [name, op] : names) {
      BinaryEntry entry{op, &Loops::Binary, Meeting::kBroadcast};
      if (op >= BinaryOp::kSigmoidGrad) {
        entry = {op, &Loops::BinaryGrad, Meeting::kSameShape};
      } else if (op >= BinaryOp::kLess) {
        entry = {op, &Loops::Compare, Meeting::kBroadcast};
      }
      (*map)[name] = entry;
    }
    for (const char* name :
         {"SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad"}) {
      (*map)[name].meeting = Meeting::kSameCount;
    }
    (*map)["AddV2"] = (*map)["Add"];
    (*map)["RealDiv"] = (*map)["Div"];
    (*map)["Mod"] = (*map)["TruncateMod"];
    (*map)["InvGrad"] = (*map)["ReciprocalGrad"];
    return map;
  }();
  return *ops;
}

Status FillMap(const Shape& a, const Shape& b, BinaryParams* p) {
  MR_ASSIGN_OR_RETURN(const BroadcastPlan plan, MakeBroadcastPlan(a, b));
  p->flat = plan.dims.size() == 1;
  if (p->flat) {
    p->a_step = static_cast<int>(plan.dims[0].a_stride);
    p->b_step = static_cast<int>(plan.dims[0].b_stride);
    return OkStatus();
  }
  for (const BroadcastPlan::Dim& dim : plan.dims) {
    if (!p->map.Add(dim.size, {dim.a_stride, dim.b_stride})) return TooManyAxes();
  }
  p->map.Finish();
  return OkStatus();
}

class BinaryBody final : public Body {
 public:
  explicit BinaryBody(KernelConstruction& c)
      : entry_(BinaryOps().find(c.def().name())->second),
        alpha_(c.attrs().GetOr<float>("alpha", 0.0f)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    BinaryParams p;
    p.op = entry_.op;
    p.type = a.dtype();
    p.a = a.raw_data();
    p.b = b.raw_data();
    p.out = out.raw_data();
    p.n = out.num_elements();
    p.alpha = alpha_;
    if (entry_.meeting == Meeting::kSameShape && !(a.shape() == b.shape())) {
      return errors::InvalidArgument("operands must have the same shape, got ",
                                     a.shape().DebugString(), " and ", b.shape().DebugString());
    }
    const bool same_count = entry_.meeting == Meeting::kSameCount;
    if (same_count) MR_RETURN_IF_ERROR(CheckSameCount(a.shape(), b.shape()));
    MR_RETURN_IF_ERROR(FillMap(a.shape(), same_count ? a.shape() : b.shape(), &p));
    return ToStatus((loops.*entry_.loop)(queue, p));
  }

 private:
  const BinaryEntry entry_;
  const float alpha_;
};

// One value per channel.
class BiasAddBody final : public Body {
 public:
  explicit BiasAddBody(KernelConstruction& c) {
    const auto format = c.attrs().GetOr<std::string>("data_format", "NHWC");
    channels_first_ = format.size() > 1 && format[1] == 'C';
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &value = call.inputs[0], &bias = call.inputs[1];
    MR_ASSIGN_OR_RETURN(const ChannelView view,
                        PlanBiasAdd(value.shape(), bias.shape(), channels_first_));
    BinaryParams p;
    p.op = BinaryOp::kAdd;
    p.type = value.dtype();
    p.a = value.raw_data();
    p.b = bias.raw_data();
    p.out = call.outputs[0].raw_data();
    p.n = value.num_elements();
    p.flat = false;
    p.map.Add(view.outer, {view.channels * view.inner, 0});
    p.map.Add(view.channels, {view.inner, 1});
    p.map.Add(view.inner, {1, 0});
    p.map.Finish();
    return ToStatus(loops.Binary(queue, p));
  }

 private:
  bool channels_first_ = false;
};

template <typename P>
P ParamsFor(const Tensor& out) {
  P p;
  p.type = out.dtype();
  p.out = out.raw_data();
  p.n = out.num_elements();
  return p;
}

// --- Several operands ------------------------------------------------------------------------

class AddNBody final : public Body {
 public:
  explicit AddNBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    auto p = ParamsFor<SumOfParams>(out);
    for (const Tensor& in : call.inputs) {
      if (!(in.shape() == out.shape())) {
        return errors::InvalidArgument("Inputs to operation AddN must have the same size and ",
                                       "shape: ", in.shape().DebugString(),
                                       " != ", out.shape().DebugString());
      }
      if (p.count == SumOfParams::kMost) {
        MR_RETURN_IF_ERROR(ToStatus(loops.SumOf(queue, p)));
        p.in[0] = out.raw_data();
        p.count = 1;
      }
      p.in[p.count++] = in.raw_data();
    }
    return ToStatus(loops.SumOf(queue, p));
  }
};

class ClipBody final : public Body {
 public:
  explicit ClipBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    int steps[3];
    for (int i = 1; i < 3; ++i) {
      const Tensor& limit = call.inputs[i];
      steps[i] = limit.num_elements() == 1 ? 0 : 1;
      if (steps[i] != 0 && !(limit.shape() == in.shape())) {
        return errors::InvalidArgument(
            "clip_value_min and clip_value_max must be either of the ",
            "same shape as input, or a scalar. input shape: ", in.shape().DebugString(),
            ", limit: ", limit.shape().DebugString());
      }
    }
    return ToStatus(loops.Clip(
        queue, {in.dtype(), in.raw_data(), call.inputs[1].raw_data(), call.inputs[2].raw_data(),
                steps[1], steps[2], call.outputs[0].raw_data(), in.num_elements()}));
  }
};

class CastBody final : public Body {
 public:
  explicit CastBody(KernelConstruction& c) : truncate_(c.attrs().GetOr<bool>("Truncate", false)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    if (in.dtype() == out.dtype()) return MoveAll(loops, queue, in, out);
    return ToStatus(loops.Cast(queue, {in.dtype(), out.dtype(), truncate_, in.raw_data(),
                                       out.raw_data(), in.num_elements()}));
  }

 private:
  const bool truncate_;
};

// Strides of `in` along the axes of `out`, which it is broadcast to; false if it is not.
bool StridesUnder(const Shape& in, const Shape& out, std::vector<int64_t>* strides) {
  const int extra = out.rank() - in.rank();
  if (extra < 0) return false;
  strides->assign(out.rank(), 0);
  int64_t step = 1;
  for (int i = in.rank() - 1; i >= 0; --i) {
    if (in.dim(i) != 1) (*strides)[extra + i] = step;
    if (in.dim(i) != 1 && in.dim(i) != out.dim(extra + i)) return false;
    step *= in.dim(i);
  }
  return true;
}

class SelectBody final : public Body {
 public:
  explicit SelectBody(KernelConstruction& c) : broadcasts_(c.def().name() == "SelectV2") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &cond = call.inputs[0], &a = call.inputs[1], &b = call.inputs[2];
    const Shape& shape = call.outputs[0].shape();
    SelectParams p;
    p.size = SizeOf(a);
    p.cond = cond.data<bool>();
    p.a = a.raw_data();
    p.b = b.raw_data();
    p.out = call.outputs[0].raw_data();
    std::vector<int64_t> strides[3];
    Shape cond_shape = cond.shape();
    if (!broadcasts_ && cond.rank() == 1) {  // chooses rows
      while (cond_shape.rank() < shape.rank()) cond_shape.AddDim(1);
    }
    const bool same = broadcasts_ || (a.shape() == shape && b.shape() == shape);
    if (!same || !StridesUnder(cond_shape, shape, &strides[0]) ||
        !StridesUnder(a.shape(), shape, &strides[1]) ||
        !StridesUnder(b.shape(), shape, &strides[2])) {
      return errors::InvalidArgument("the shapes ", cond.shape().DebugString(), ", ",
                                     a.shape().DebugString(), " and ", b.shape().DebugString(),
                                     " do not go together");
    }
    for (int i = 0; i < shape.rank(); ++i) {
      if (!p.map.Add(shape.dim(i), {strides[0][i], strides[1][i], strides[2][i]})) {
        return TooManyAxes();
      }
    }
    p.map.Finish();
    return ToStatus(loops.Select(queue, p));
  }

 private:
  const bool broadcasts_;
};

// --- None ------------------------------------------------------------------------------------

class FillBody final : public Body {
 public:
  explicit FillBody(KernelConstruction& c) : op_(c.def().name()) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    FillParams p;
    p.size = SizeOf(out);
    p.to = out.raw_data();
    p.n = out.num_elements();
    if (op_ == "Fill") p.from = call.inputs[1].raw_data();
    if (op_ == "OnesLike") {
      DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), out.dtype(), [&]<typename T>() {
        const T one = static_cast<T>(millrace::ComputeType<T>(1));
        std::memcpy(p.value, &one, sizeof(one));
      });
    }
    return ToStatus(loops.Fill(queue, p));
  }

 private:
  const std::string op_;
};

class LinSpaceBody final : public Body {
 public:
  explicit LinSpaceBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    auto p = ParamsFor<LinSpaceParams>(out);
    DispatchType(TypeList<float, double, Half, BFloat16>(), out.dtype(), [&]<typename T>() {
      p.start =
          static_cast<double>(static_cast<millrace::ComputeType<T>>(call.inputs[0].scalar<T>()));
      p.stop =
          static_cast<double>(static_cast<millrace::ComputeType<T>>(call.inputs[1].scalar<T>()));
    });
    return ToStatus(loops.LinSpace(queue, p));
  }
};

std::vector<DataType> UnaryTypes(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
    case UnaryOp::kNeg:
    case UnaryOp::kSign:
    case UnaryOp::kSquare:
      return FloatAndInt64Types();
    default:
      return FloatTypes();
  }
}

std::vector<DataType> BinaryTypes(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
    case BinaryOp::kMul:
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod:
    case BinaryOp::kTruncateMod:
    case BinaryOp::kMaximum:
    case BinaryOp::kMinimum:
    case BinaryOp::kSquaredDifference:
    case BinaryOp::kLess:
    case BinaryOp::kLessEqual:
    case BinaryOp::kGreater:
    case BinaryOp::kGreaterEqual:
      return FloatAndInt64Types();
    case BinaryOp::kEqual:
    case BinaryOp::kNotEqual:
      return {kFloat, kDouble, kHalf, kBfloat16, kInt64, kBool};
    default:
      return FloatTypes();
  }
}

}  // namespace

void AddElementwiseBodies(std::vector<BodyDef>* bodies) {
  for (const auto& [name, op] : UnaryOps()) {
    BodyDef def{name, {{"T", UnaryTypes(op)}}, &MakeBody<UnaryBody>};
    if (op == UnaryOp::kLogicalNot) def.types.clear();
    bodies->push_back(std::move(def));
  }
  for (const auto& [name, entry] : BinaryOps()) {
    BodyDef def{name, {{"T", BinaryTypes(entry.op)}}, &MakeBody<BinaryBody>};
    if (entry.op == BinaryOp::kLogicalAnd || entry.op == BinaryOp::kLogicalOr) def.types.clear();
    bodies->push_back(std::move(def));
  }
  for (const char* op : {"BiasAdd", "BiasAddV1"}) {
    bodies->push_back({op, {{"T", FloatAndInt64Types()}}, &MakeBody<BiasAddBody>});
  }
  bodies->push_back({"AddN", {{"T", FloatAndInt64Types()}}, &MakeBody<AddNBody>});
  bodies->push_back({"ClipByValue", {{"T", FloatAndInt64Types()}}, &MakeBody<ClipBody>});
  const std::vector<DataType> castable = {kFloat,  kDouble, kHalf,  kBfloat16, kBool,
                                          kInt8,   kInt16,  kInt32, kInt64,    kUint8,
                                          kUint16, kUint32, kUint64};
  bodies->push_back({"Cast", {{"SrcT", castable}, {"DstT", castable}}, &MakeBody<CastBody>});
  for (const char* op : {"Select", "SelectV2"}) {
    bodies->push_back({op, {{"T", MovableTypes()}}, &MakeBody<SelectBody>});
  }
  bodies->push_back({"ZerosLike", {{"T", MovableTypes()}}, &MakeBody<FillBody>});
  bodies->push_back({"OnesLike",
                     {{"T", DataTypesOf(JoinTypes<NumberTypes, TypeList<bool>>())}},
                     &MakeBody<FillBody>});
  bodies->push_back({"Fill", {{"T", MovableTypes()}}, &MakeBody<FillBody>});
  bodies->push_back({"LinSpace", {{"T", FloatTypes()}}, &MakeBody<LinSpaceBody>});
}

}  // namespace millrace::gpu
