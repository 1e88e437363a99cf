// SPDX-License-Identifier: Apache-2.0
// Rows that are dealt out, and put together again: DynamicPartition and DynamicStitch.
#include <algorithm>
#include <cstdint>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/scatter_plan.h"
#include "kernels/gpu/body.h"
#include "tensor/allocator.h"

namespace millrace::gpu {
namespace {

class PartitionBody final : public Body {
 public:
  explicit PartitionBody(KernelConstruction& c)
      : partitions_(static_cast<int64_t>(c.output_types().size())) {}
  int64_t num_counts() const override { return partitions_; }
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return loops.scatter_scratch_bytes(call.inputs[1].num_elements());
  }
  Status Count(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &data = call.inputs[0], &partitions = call.inputs[1];
    MR_RETURN_IF_ERROR(CheckPartitions(data.shape(), partitions.shape()));
    SortRowsParams p;
    p.index_type = kInt32;
    p.indices = partitions.raw_data();
    p.count = partitions.num_elements();
    p.rows = partitions_;
    p.scratch = call.scratch.raw_data();
    p.scratch_bytes = call.scratch.num_elements();
    p.counts = static_cast<int64_t*>(call.counts.raw_data());
    return ToStatus(loops.SortRows(queue, p));
  }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    const Shape row = RowShape(call.inputs[0].shape(), call.inputs[1].shape());
    std::vector<Shape> shapes;
    for (const int64_t count : call.counted) {
      shapes.push_back(row);
      shapes.back().InsertDim(0, count);
    }
    return shapes;
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &data = call.inputs[0], &partitions = call.inputs[1];
    const SortedRows sorted(call.scratch.raw_data(), partitions.num_elements());
    GatherParams p;
    p.size = SizeOf(data);
    p.index_type = kInt32;
    p.in = data.raw_data();
    p.limit = partitions.num_elements();
    p.inner = RowShape(data.shape(), partitions.shape()).num_elements();
    int64_t begin = 0;  // in the sorted rows, where those of a partition follow each other
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      p.indices = sorted.order + begin;
      p.per_batch = call.counted[i];
      p.out = call.outputs[i].raw_data();
      begin += p.per_batch;
      if (p.per_batch * p.inner == 0) continue;
      MR_RETURN_IF_ERROR(ToStatus(loops.Gather(queue, p)));
    }
    return OkStatus();
  }

 private:
  const int64_t partitions_;
};

// N lists of indices in host memory, then N lists of rows; later rows win.
class StitchBody final : public Body {
 public:
  explicit StitchBody(KernelConstruction&) {}
  bool stages() const override { return true; }
  // Which input each output row comes from, and which row of that; -1 if nobody names it.
  StatusOr<Tensor> Stage(const StreamCall& call) const override {
    const std::size_t n = call.inputs.size() / 2;
    const int64_t rows = call.outputs[0].dim(0);
    MR_ASSIGN_OR_RETURN(Tensor staged, Tensor::Allocate(HostAllocator(), kInt32, Shape({rows, 2})));
    auto* const sources = staged.data<int32_t>();
    std::fill_n(sources, 2 * rows, -1);
    for (std::size_t i = 0; i < n; ++i) {
      const Tensor &indices = call.inputs[i], &data = call.inputs[n + i];
      MR_RETURN_IF_ERROR(CheckStitched(static_cast<int>(i), indices, data.shape(),
                                       call.inputs[0].shape(), call.inputs[n].shape()));
      int32_t from = 0;
      for (const int32_t index : indices.flat<int32_t>()) {
        // Checked again: the indices may be another writer's memory.
        if (index < 0 || index >= rows) return errors::Internal("indices that changed meanwhile");
        sources[2 * index] = static_cast<int32_t>(i);
        sources[2 * index + 1] = from++;
      }
    }
    return staged;
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    if (out.num_elements() == 0) return OkStatus();
    CollectParams p;
    p.size = SizeOf(out);
    p.sources = static_cast<const int32_t*>(call.staged.raw_data());
    p.out = out.raw_data();
    p.count = out.dim(0);
    p.inner = out.num_elements() / out.dim(0);
    const int n = static_cast<int>(call.inputs.size() / 2);
    for (; p.first < n; p.first += CollectParams::kMost) {
      p.given = std::min(n - p.first, CollectParams::kMost);
      for (int i = 0; i < p.given; ++i) p.from[i] = call.inputs[n + p.first + i].raw_data();
      MR_RETURN_IF_ERROR(ToStatus(loops.Collect(queue, p)));
    }
    return OkStatus();
  }
};

}  // namespace

void AddPartitionBodies(std::vector<BodyDef>* bodies) {
  bodies->push_back({"DynamicPartition", {{"T", MovableTypes()}}, &MakeBody<PartitionBody>});
  bodies->push_back({"DynamicStitch", {{"T", MovableTypes()}}, &MakeBody<StitchBody>});
}

}  // namespace millrace::gpu
