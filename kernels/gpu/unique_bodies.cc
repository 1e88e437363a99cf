// SPDX-License-Identifier: Apache-2.0
// The distinct elements of vectors.
#include "base/status_macros.h"
#include "kernels/array/unique_plan.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/reduce_plan.h"

namespace millrace::gpu {
namespace {

// Unique and UniqueWithCounts.
class UniqueBody final : public Body {
 public:
  explicit UniqueBody(KernelConstruction& c) : counts_(c.output_types().size() == 3) {}
  int64_t num_counts() const override { return 1; }
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    const int64_t n = call.inputs[0].num_elements();
    return loops.scatter_scratch_bytes(n) + RoundUp(8 * Chunks(n));
  }
  Status Count(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_RETURN_IF_ERROR(CheckUnique(call.inputs[0].shape()));
    UniqueParams p = Params(call);
    p.distinct = static_cast<int64_t*>(call.counts.raw_data());
    return ToStatus(loops.Unique(queue, p));
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    const Shape distinct({call.counted[0]});
    std::vector<Shape> shapes = {distinct, call.inputs[0].shape()};
    if (counts_) shapes.push_back(distinct);
    return shapes;
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    if (call.inputs[0].num_elements() == 0) return OkStatus();
    UniqueParams p = Params(call);
    p.index_type = call.outputs[1].dtype();
    p.values = call.outputs[0].raw_data();
    p.places = call.outputs[1].raw_data();
    if (counts_) p.counts = call.outputs[2].raw_data();
    return ToStatus(loops.Unique(queue, p));
  }

 private:
  static int64_t Chunks(int64_t n) { return PlanScanChunks(1, n, 1); }
  static UniqueParams Params(const StreamCall& call) {
    const Tensor& in = call.inputs[0];
    UniqueParams p;
    p.type = in.dtype();
    p.in = in.raw_data();
    p.n = in.num_elements();
    p.scratch = call.scratch.raw_data();
    p.scratch_bytes = call.scratch.num_elements();
    p.chunks = Chunks(p.n);
    return p;
  }

  const bool counts_;
};

}  // namespace

void AddUniqueBodies(std::vector<BodyDef>* bodies) {
  const std::vector<DataType> numbers = {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32};
  for (const char* op : {"Unique", "UniqueWithCounts"}) {
    bodies->push_back({op, {{"T", numbers}, {"out_idx", {kInt32, kInt64}}}, &MakeBody<UniqueBody>});
  }
}

}  // namespace millrace::gpu
