// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/conv_parts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

// Images per execution. One allocates a little within oneDNN and takes a microsecond of
// overhead: no more of them than threads may want, and enough work in each. Images do not see
// each other, so that the result does not depend on it.
int64_t ImagesPerCall(const ConvGeometry& g, int64_t threads) {
  constexpr int64_t kCallsPerThread = 2, kMostCalls = 16;
  const int64_t calls = std::min(kMostCalls, threads > 1 ? kCallsPerThread * threads : 1);
  const double flops = 2.0 * static_cast<double>(g.out_image()) * static_cast<double>(g.taps());
  const auto enough = static_cast<int64_t>(std::min(16.0, 4e6 / std::max(flops, 1.0)));
  return std::min(g.batch, std::max({(g.batch + calls - 1) / calls, enough, int64_t{1}}));
}

// A pass compiled for all parts of a batch: `whole` for most, `rest` for a smaller last one.
struct CompiledParts {
  int64_t size = 0, count = 0;  // images per part; parts
  std::shared_ptr<const OneDnnConv> whole, rest;

  const OneDnnConv& part(int64_t i) const { return i + 1 == count && rest ? *rest : *whole; }
  int64_t scratch_size() const {
    return std::max(whole->scratch_size(), rest ? rest->scratch_size() : 0);
  }
};

// `count` is 0 where oneDNN is not the better choice.
CompiledParts Compile(const OneDnnConvCache& cache, const ConvGeometry& g, int64_t size) {
  CompiledParts parts;
  ConvGeometry part = g;
  part.batch = size;
  parts.size = size;
  parts.whole = cache.Get(part);
  if (!parts.whole) return parts;
  part.batch = g.batch % size;
  if (part.batch != 0) {
    parts.rest = cache.Get(part);
    if (!parts.rest || !parts.rest->PacksLike(*parts.whole)) return parts;
  }
  parts.count = (g.batch + size - 1) / size;
  return parts;
}

// Runs body(part, scratch) for all parts, on several threads.
Status ForEachPart(KernelContext& ctx, const ConvGeometry& g, const CompiledParts& parts,
                   absl::FunctionRef<Status(int64_t part, float* scratch)> body) {
  Status failed;
  Mutex mu;
  const double flops = 2.0 * static_cast<double>(parts.size * g.out_image() * g.taps());
  ctx.ParallelFor(parts.count, flops / 50, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> scratch = ctx.AllocateTemp(kFloat, Shape({parts.scratch_size()}));
    Status status = scratch.status();
    for (int64_t i = begin; status.ok() && i < end; ++i) {
      status = body(i, scratch->data<float>());
    }
    if (status.ok()) return;
    MutexLock lock(&mu);
    failed = std::move(status);
  });
  return failed;
}

// The images of one part, whose outputs are independent of other parts.
Status RunParts(KernelContext& ctx, const ConvGeometry& g, const CompiledParts& parts,
                float* images, const float* filter, float* outputs, const ConvPartDone* part_done) {
  MR_ASSIGN_OR_RETURN(Tensor packed,
                      ctx.AllocateTemp(kFloat, Shape({parts.whole->packed_filter_size()})));
  MR_RETURN_IF_ERROR(parts.whole->PackFilter(filter, packed.data<float>()));
  return ForEachPart(ctx, g, parts, [&](int64_t i, float* scratch) {
    const int64_t first = i * parts.size;
    float* const made = outputs + first * g.out_image();
    MR_RETURN_IF_ERROR(
        parts.part(i).Execute(images + first * g.image(), packed.data<float>(), made, scratch));
    if (part_done != nullptr) (*part_done)(made, std::min(parts.size, g.batch - first));
    return OkStatus();
  });
}

// One sum per part, added up in order: the result does not depend on the threads.
Status SumParts(KernelContext& ctx, const ConvGeometry& g, const CompiledParts& parts,
                float* images, float* filter, float* outputs) {
  const int64_t n = parts.whole->packed_filter_size();
  MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(kFloat, Shape({parts.count, n})));
  float* sum = sums.data<float>();
  MR_RETURN_IF_ERROR(ForEachPart(ctx, g, parts, [&](int64_t i, float* scratch) {
    const int64_t first = i * parts.size;
    return parts.part(i).Execute(images + first * g.image(), sum + i * n,
                                 outputs + first * g.out_image(), scratch);
  }));
  ctx.ParallelFor(n, 0.2 * static_cast<double>(parts.count), [&](int64_t begin, int64_t end) {
    for (int64_t i = 1; i < parts.count; ++i) {
      const float* part = sum + i * n;
      for (int64_t j = begin; j < end; ++j) sum[j] += part[j];
    }
  });
  return parts.whole->UnpackFilter(sum, filter);
}

}  // namespace

StatusOr<bool> ConvByOneDnn(ConvPass pass, const OneDnnConvCache& cache, KernelContext& ctx,
                            const ConvGeometry& g, const float* images, const float* filter,
                            const float* outputs, const ConvPartDone* part_done) {
  if (g.batch == 0 || g.out_image() == 0 || g.image() == 0) return false;
  // The compiled code works on 8 or 16 channels of the images' gradient.
  if (pass == ConvPass::kInput && g.groups == 1 && g.channels < 8) return false;
  constexpr int64_t kSums = 8;
  const ThreadPool* const pool = ctx.intra_op_pool();
  const int64_t threads = pool == nullptr ? 1 : pool->num_threads() + 1;
  const int64_t size =
      pass == ConvPass::kFilter ? (g.batch + kSums - 1) / kSums : ImagesPerCall(g, threads);
  const CompiledParts parts = Compile(cache, g, size);
  if (parts.count == 0) return false;
  float* const image_data = const_cast<float*>(images);
  float* const output_data = const_cast<float*>(outputs);
  if (pass == ConvPass::kFilter) {
    MR_RETURN_IF_ERROR(
        SumParts(ctx, g, parts, image_data, const_cast<float*>(filter), output_data));
  } else {
    MR_RETURN_IF_ERROR(RunParts(ctx, g, parts, image_data, filter, output_data, part_done));
  }
  return true;
}

}  // namespace millrace
