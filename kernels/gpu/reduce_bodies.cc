// SPDX-License-Identifier: Apache-2.0
// Reductions over axes, positions of extremes, scans; segments' kin is in index_bodies.cc.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/strided_copy.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/reduce_plan.h"
#include "kernels/math/reduction_plan.h"
#include "kernels/nn/bias_plan.h"

namespace millrace::gpu {
namespace {

int64_t Chunks(const ReduceParams& p) {
  return PlanChunks(p.by_column, p.kept.count(), p.reduced.count());
}

// Accumulators are as wide as this at most.
constexpr int64_t kWidestPart = 8;

class ReduceBody : public Body {
 public:
  ReduceBody(ReduceOp op, ReduceFinish finish) : op_(op), finish_(finish) {}

  int64_t ScratchBytes(const StreamCall& call, const Loops&) const override {
    ReduceParams p;
    if (!Plan(call, &p).ok()) return 0;  // Run will say so
    p.chunks = Chunks(p);
    return p.chunks > 1 ? p.chunks * p.kept.count() * kWidestPart : 0;
  }

  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    ReduceParams p;
    MR_RETURN_IF_ERROR(Plan(call, &p));
    if (p.kept.count() != call.outputs[0].num_elements()) {
      return errors::Internal("a reduction to ", p.kept.count(), " elements was given room for ",
                              call.outputs[0].num_elements());
    }
    p.chunks = Chunks(p);
    p.op = op_;
    p.finish = finish_;
    p.type = call.inputs[0].dtype();
    p.in = call.inputs[0].raw_data();
    p.out = call.outputs[0].raw_data();
    p.scratch = call.scratch.raw_data();
    return ToStatus(loops.Reduce(queue, p));
  }

 protected:
  // Which axes are reduced.
  virtual Status Axes(const StreamCall& call, std::vector<bool>* reduced) const = 0;

 private:
  Status Plan(const StreamCall& call, ReduceParams* p) const {
    const Shape& in = call.inputs[0].shape();
    std::vector<bool> reduced(in.rank(), false);
    MR_RETURN_IF_ERROR(Axes(call, &reduced));
    return PlanReduction(in, reduced, p) ? OkStatus() : TooManyAxes();
  }

  const ReduceOp op_;
  const ReduceFinish finish_;
};

// Over the axes that input 1 lists.
class AxesBody final : public ReduceBody {
 public:
  using ReduceBody::ReduceBody;

 protected:
  Status Axes(const StreamCall& call, std::vector<bool>* reduced) const override {
    MR_ASSIGN_OR_RETURN(const ReducedAxes given,
                        ReadReducedAxes(call.inputs[0].rank(), call.inputs[1]));
    reduced->assign(given.begin(), given.end());
    return OkStatus();
  }
};

class AllAxesBody final : public ReduceBody {
 public:
  using ReduceBody::ReduceBody;

 protected:
  Status Axes(const StreamCall&, std::vector<bool>* reduced) const override {
    std::fill(reduced->begin(), reduced->end(), true);
    return OkStatus();
  }
};

// All but the channels.
class BiasGradBody final : public ReduceBody {
 public:
  explicit BiasGradBody(KernelConstruction& c) : ReduceBody(ReduceOp::kSum, ReduceFinish::kNone) {
    const auto format = c.attrs().GetOr<std::string>("data_format", "NHWC");
    channels_first_ = format.size() > 1 && format[1] == 'C';
  }

 protected:
  Status Axes(const StreamCall& call, std::vector<bool>* reduced) const override {
    MR_RETURN_IF_ERROR(ViewChannels(call.inputs[0].shape(), channels_first_).status());
    std::fill(reduced->begin(), reduced->end(), true);
    (*reduced)[channels_first_ ? 1 : reduced->size() - 1] = false;
    return OkStatus();
  }

 private:
  bool channels_first_ = false;
};

template <ReduceOp kOp, ReduceFinish kFinish>
std::unique_ptr<Body> MakeAxes(KernelConstruction&) {
  return std::make_unique<AxesBody>(kOp, kFinish);
}
std::unique_ptr<Body> MakeL2Loss(KernelConstruction&) {
  return std::make_unique<AllAxesBody>(ReduceOp::kSquares, ReduceFinish::kHalf);
}

class ArgBody final : public Body {
 public:
  explicit ArgBody(KernelConstruction& c) : largest_(c.def().name() == "ArgMax") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    MR_ASSIGN_OR_RETURN(const AxisLines lines, PlanArg(in.shape(), call.inputs[1]));
    return ToStatus(loops.Arg(queue, {largest_, in.dtype(), out.dtype(), in.raw_data(),
                                      out.raw_data(), lines.outer, lines.size, lines.inner}));
  }

 private:
  const bool largest_;
};

class ScanBody final : public Body {
 public:
  explicit ScanBody(KernelConstruction& c)
      : product_(c.def().name() == "Cumprod"),
        exclusive_(c.attrs().GetOr<bool>("exclusive", false)),
        reverse_(c.attrs().GetOr<bool>("reverse", false)) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops&) const override {
    const StatusOr<AxisLines> view = View(call);
    if (!view.ok()) return 0;  // Run will say so
    const int64_t lines = view->outer * view->inner, chunks = Chunks(*view);
    return chunks > 1 ? lines * chunks * kWidestPart : 0;
  }

  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    MR_ASSIGN_OR_RETURN(const AxisLines view, View(call));
    return ToStatus(loops.Scan(queue, {product_, exclusive_, reverse_, in.dtype(), in.raw_data(),
                                       call.outputs[0].raw_data(), view.outer, view.size,
                                       view.inner, Chunks(view), call.scratch.raw_data()}));
  }

 private:
  static StatusOr<AxisLines> View(const StreamCall& call) {
    return PlanScan(call.inputs[0].shape(), call.inputs[1]);
  }
  static int64_t Chunks(const AxisLines& view) {
    return PlanScanChunks(view.outer * view.inner, view.size, view.inner);
  }

  const bool product_, exclusive_, reverse_;
};

}  // namespace

bool PlanReduction(const Shape& in, const std::vector<bool>& reduced, ReduceParams* p) {
  const Dims strides = RowMajorStrides(in.dims());
  for (int i = 0; i < in.rank(); ++i) {
    if (!(reduced[i] ? p->reduced : p->kept).Add(in.dim(i), {strides[i]})) return false;
  }
  p->reduced.Finish();
  p->kept.Finish();
  p->by_column = p->reduced.rank() == 0 || (p->kept.rank() > 0 && p->kept.inner_stride(0) == 1);
  return true;
}

int64_t PlanChunks(bool by_column, int64_t outputs, int64_t count) {
  if (outputs <= 0) return 1;
  if (by_column) {  // a thread for each chunk: many, but each of 32 elements or more
    constexpr int64_t kThreads = 65536, kLeast = 32;
    return std::clamp<int64_t>(std::min(kThreads / outputs, count / kLeast), 1, 4096);
  }
  constexpr int64_t kTeams = 1024, kLeast = 4096;
  return std::clamp<int64_t>(std::min(kTeams / outputs, count / kLeast), 1, kTeams);
}

int64_t PlanScanChunks(int64_t lines, int64_t size, int64_t inner) {
  // Every element is read once more for it.
  constexpr int64_t kWorthwhile = 4;
  const int64_t chunks = PlanChunks(inner > 1, lines, size);
  return chunks < kWorthwhile ? 1 : chunks;
}

void AddReduceBodies(std::vector<BodyDef>* bodies) {
  using F = ReduceFinish;
  const auto add = [bodies](const char* op, BodyMaker make) {
    bodies->push_back({op, {{"T", FloatAndInt64Types()}}, make});
  };
  add("Sum", &MakeAxes<ReduceOp::kSum, F::kNone>);
  add("Mean", &MakeAxes<ReduceOp::kSum, F::kMean>);
  add("Prod", &MakeAxes<ReduceOp::kProd, F::kNone>);
  add("Max", &MakeAxes<ReduceOp::kMax, F::kNone>);
  add("Min", &MakeAxes<ReduceOp::kMin, F::kNone>);
  bodies->push_back({"All", {}, &MakeAxes<ReduceOp::kAll, F::kNone>});
  bodies->push_back({"Any", {}, &MakeAxes<ReduceOp::kAny, F::kNone>});
  bodies->push_back(
      {"EuclideanNorm", {{"T", FloatTypes()}}, &MakeAxes<ReduceOp::kSquares, F::kRoot>});
  bodies->push_back({"L2Loss", {{"T", FloatTypes()}}, &MakeL2Loss});
  add("BiasAddGrad", &MakeBody<BiasGradBody>);
  const std::vector<DataType> comparable = {kFloat, kDouble, kHalf, kBfloat16,
                                            kInt64, kInt32,  kUint8};
  for (const char* op : {"ArgMax", "ArgMin"}) {
    bodies->push_back(
        {op, {{"T", comparable}, {"output_type", {kInt32, kInt64}}}, &MakeBody<ArgBody>});
  }
  for (const char* op : {"Cumsum", "Cumprod"}) {
    bodies->push_back(
        {op, {{"T", {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32}}}, &MakeBody<ScanBody>});
  }
}

}  // namespace millrace::gpu
