// SPDX-License-Identifier: Apache-2.0
#include "jit/fused_kernel.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "jit/code_cache.h"
#include "jit/fused_interpreter.h"
#include "jit/fused_layout.h"
#include "jit/fused_parts.h"
#include "jit/instruction_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/math/row_reduction.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

using jit::CodeCache;
using jit::FusedCode;
using jit::FusedInterpreter;
using jit::FusedLayout;
using jit::InstructionLoop;
using jit::Spread;

// Elements that one call of the loop works on; also the grain at which threads share them.
constexpr int64_t kGrain = 8192;
// Shorter rows are written down several times.
constexpr int64_t kLeastTile = 1024;
// Shapes that are remembered; others are looked at anew in every step.
constexpr int kMostLayouts = 16;

// The loop for one way in which operands repeat.
struct Variant {
  Variant(const FusedProgram* program, std::span<const InstructionLoop> loops,
          std::span<const DataType> types, std::span<const Spread> inputs)
      : spreads(inputs.begin(), inputs.end()),
        interpreter(program, loops, inputs),
        cache(CodeCache::Global()),
        code(cache->Find(*program, types, inputs)) {}
  const std::vector<Spread> spreads;
  const FusedInterpreter interpreter;
  CodeCache* const cache;
  FusedCode* const code;  // null: never compiled
};

struct KnownLayout {
  FusedLayout layout;
  Variant* variant = nullptr;
  int64_t tile = 0;  // rows are repeated to this many elements; 0 without rows
  KnownLayout* next = nullptr;
};

// Outputs that do not fit into the last cache anyway are written past it.
int64_t LastCacheBytes() {
  static const int64_t bytes = [] {
    const long size = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return size > 0 ? int64_t{size} : int64_t{32} << 20;
  }();
  return bytes;
}

// How many elements of rows to write down: short rows are repeated where that is little beside the
// whole, and then, where outputs may be streamed, so that tiles of an aligned output are aligned.
int64_t TileFor(int64_t period, int64_t count) {
  constexpr int64_t kLarge = int64_t{1} << 22;
  if (period == 0 || period >= kLeastTile) return period;
  int64_t times = (kLeastTile + period - 1) / period;
  if (times * period > count / 4) return period;
  if (count >= kLarge) {
    while (times * period % 64 != 0) ++times;
  }
  return times * period;
}

class FusedKernel : public Kernel {
 public:
  explicit FusedKernel(KernelConstruction& c)
      : Kernel(c),
        input_types_(c.input_types().begin(), c.input_types().end()),
        parts_(&program_, c.attrs().GetOr<std::vector<std::string>>("nodes", {})) {
    StatusOr<FusedProgram> program =
        ParseFusedProgram(c.attr<std::string>("program"), c.input_types(), c.output_types());
    if (!program.ok()) {
      c.SetError(program.status());
      return;
    }
    program_ = *std::move(program);
    ReadReduction(c);
    for (const FusedInstruction& in : program_.instructions) {
      StatusOr<InstructionLoop> loop = jit::FindLoop(in);
      if (!loop.ok()) {
        c.SetError(loop.status());
        return;
      }
      loops_.push_back(*loop);
      cost_ += jit::CostOf(in);
    }
  }
  ~FusedKernel() override {
    for (KnownLayout* known = layouts_.load(std::memory_order_relaxed); known != nullptr;) {
      delete std::exchange(known, known->next);
    }
  }

  Status Compute(KernelContext& ctx) override {
    KnownLayout* known = layouts_.load(std::memory_order_acquire);
    while (known != nullptr && !Fits(ctx, known->layout)) known = known->next;
    std::unique_ptr<KnownLayout> own;
    if (known == nullptr) known = Learn(ctx, &own);
    if (!reduce_.empty()) return ComputeReduced(ctx, *known);
    return ComputeMapped(ctx, *known);
  }

 private:
  // One step's work.
  struct Loop {
    const Variant* variant;
    const void* const* in;
    void* const* out;
    uint64_t shared;                  // by outputs that take the place of inputs
    const MrJitCode* code = nullptr;  // null: to be interpreted
    bool streams = false;
  };

  // Longer rows are written down before they are reduced.
  static constexpr int64_t kLongestRow = 4 * kReductionBlock;

  void ReadReduction(KernelConstruction& c) {
    reduce_ = c.attrs().GetOr<std::string>("reduce", "");
    if (reduce_.empty()) return;
    axes_ = c.attrs().GetOr<std::vector<int64_t>>("axes", {});
    keep_dims_ = c.attrs().GetOr<bool>("keep_dims", false);
    if (program_.outputs.size() != 1 ||
        !FindRowReduction(reduce_, c.output_types()[0], &row_reduction_)) {
      c.SetError(errors::InvalidArgument("a fused node cannot end with ", reduce_, " of ",
                                         program_.outputs.size(), " output(s)"));
    }
  }

  Status ComputeMapped(KernelContext& ctx, const KnownLayout& known) {
    return known.layout.is_one_loop ? ComputeTogether(ctx, known) : ComputeOneByOne(ctx);
  }

  Status ComputeReduced(KernelContext& ctx, const KnownLayout& known) {
    std::optional<jit::FusedRows> rows;
    if (known.layout.is_one_loop) {
      rows = jit::FindFusedRows(known.layout.output_shapes[0], axes_, keep_dims_);
    }
    if (!rows || (rows->rows > 1 && rows->row > kLongestRow)) return ReduceAfterwards(ctx, known);
    const void* in[kMaxFusedInputs];
    for (int i = 0; i < ctx.num_inputs(); ++i) in[i] = ctx.input(i).raw_data();
    Tensor tiles[kMaxFusedInputs];
    MR_RETURN_IF_ERROR(MakeTiles(ctx, known, in, tiles));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, rows->out));
    Loop loop{.variant = known.variant, .in = in, .out = nullptr, .shared = 0};
    FusedCode* const code = known.variant->code;
    if (code != nullptr) loop.code = code->ready.load(std::memory_order_acquire);
    MR_RETURN_IF_ERROR(rows->rows == 1 ? ReduceAll(ctx, loop, known.tile, rows->row, out)
                                       : ReduceRows(ctx, loop, known.tile, *rows, out));
    if (row_reduction_.divide != nullptr) {
      row_reduction_.divide(out->raw_data(), rows->rows, rows->row);
    }
    if (code != nullptr && loop.code == nullptr) {
      known.variant->cache->CountWork(
          code, known.layout.count * static_cast<int64_t>(program_.instructions.size()));
    }
    return OkStatus();
  }

  // Runs body(begin, end, scratch) over [0, units), with memory for `elements` in each call.
  Status WithScratch(KernelContext& ctx, int64_t units, double cost, DataType type,
                     int64_t elements,
                     absl::FunctionRef<void(int64_t, int64_t, char*)> body) const {
    Status failed;
    Mutex mu;
    ctx.ParallelFor(units, cost, [&](int64_t begin, int64_t end) {
      StatusOr<Tensor> scratch = ctx.AllocateTemp(type, Shape({elements}));
      if (scratch.ok()) return body(begin, end, static_cast<char*>(scratch->raw_data()));
      MutexLock lock(&mu);
      failed = scratch.status();
    });
    return failed;
  }

  // The same blocks and the same order as the kernel of the reduction.
  Status ReduceAll(KernelContext& ctx, const Loop& loop, int64_t tile, int64_t count,
                   Tensor* out) const {
    const DataType type = out->dtype();
    const auto size = static_cast<int64_t>(DataTypeSize(type));
    const int64_t blocks = (count + kReductionBlock - 1) / kReductionBlock;
    MR_ASSIGN_OR_RETURN(Tensor partial, ctx.AllocateTemp(type, Shape({blocks})));
    char* const parts = static_cast<char*>(partial.raw_data());
    MR_RETURN_IF_ERROR(
        WithScratch(ctx, blocks, cost_ * kReductionBlock, type, std::min(count, kReductionBlock),
                    [&](int64_t first, int64_t last, char* scratch) {
                      for (int64_t b = first; b < last; ++b) {
                        const int64_t n = std::min(kReductionBlock, count - b * kReductionBlock);
                        RunSpan(loop, tile, b * kReductionBlock, n, scratch, size);
                        row_reduction_.reduce(scratch, n, parts + b * size);
                      }
                    }));
    if (blocks == 1) {
      std::memcpy(out->raw_data(), parts, static_cast<std::size_t>(size));
    } else {
      row_reduction_.reduce(parts, blocks, out->raw_data());
    }
    return OkStatus();
  }

  Status ReduceRows(KernelContext& ctx, const Loop& loop, int64_t tile, const jit::FusedRows& rows,
                    Tensor* out) const {
    const DataType type = out->dtype();
    const auto size = static_cast<int64_t>(DataTypeSize(type));
    const int64_t together = std::max<int64_t>(1, kReductionBlock / rows.row);
    const int64_t units = (rows.rows + together - 1) / together;
    char* const values = static_cast<char*>(out->raw_data());
    MR_RETURN_IF_ERROR(WithScratch(
        ctx, units, cost_ * static_cast<double>(together * rows.row), type,
        std::min(together, rows.rows) * rows.row, [&](int64_t first, int64_t last, char* scratch) {
          for (int64_t unit = first; unit < last; ++unit) {
            const int64_t begin = unit * together, end = std::min(rows.rows, begin + together);
            RunSpan(loop, tile, begin * rows.row, (end - begin) * rows.row, scratch, size);
            for (int64_t r = begin; r < end; ++r) {
              row_reduction_.reduce(scratch + (r - begin) * rows.row * size, rows.row,
                                    values + r * size);
            }
          }
        }));
    row_reduction_.finish_rows(values, rows.rows);
    return OkStatus();
  }

  // Elements [begin, begin + n) of the output, to `scratch`.
  void RunSpan(Loop loop, int64_t tile, int64_t begin, int64_t n, char* scratch,
               int64_t size) const {
    // Where the whole output would begin.
    void* out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(scratch) -
                                        static_cast<std::uintptr_t>(begin * size));
    loop.out = &out;
    while (n > 0) {
      const int64_t row = tile == 0 ? 0 : begin % tile;
      const int64_t part = std::min({n, kGrain, tile == 0 ? n : tile - row});
      RunRange(loop, begin, row, part);
      begin += part;
      n -= part;
    }
  }

  // As if the reduction had not been fused.
  Status ReduceAfterwards(KernelContext& ctx, const KnownLayout& known) {
    EdgeValue in[kMaxFusedInputs], mapped[2], result;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      in[i].value = ctx.input(i);
      in[i].kind = EdgeValue::Kind::kValue;
    }
    const DataType type = program_.instructions[program_.outputs[0]].result;
    KernelContext inner(this, ctx.device(), &ctx.env(),
                        {in, static_cast<std::size_t>(ctx.num_inputs())}, {mapped, 1}, {&type, 1});
    inner.set_allocator(ctx.allocator());
    MR_RETURN_IF_ERROR(ComputeMapped(inner, known));
    const auto axes = std::span<const int64_t>(axes_);
    mapped[1].value = Tensor::FromValues<int64_t>(axes, Shape({static_cast<int64_t>(axes.size())}));
    mapped[1].kind = EdgeValue::Kind::kValue;
    MR_RETURN_IF_ERROR(MakeReduction(type, ctx.device()));
    KernelContext last(reduction_.get(), ctx.device(), &ctx.env(), {mapped, 2}, {&result, 1},
                       {&type, 1});
    last.set_allocator(ctx.allocator());
    MR_RETURN_IF_ERROR(reduction_->Compute(last));
    ctx.SetOutput(0, std::move(result.value));
    return OkStatus();
  }

  static bool Fits(const KernelContext& ctx, const FusedLayout& layout) {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!(ctx.input(i).shape() == layout.inputs[i])) return false;
    }
    return true;
  }

  // Remembers the layout, or gives it to `own` when there are many already.
  KnownLayout* Learn(const KernelContext& ctx, std::unique_ptr<KnownLayout>* own) {
    std::vector<Shape> shapes;
    for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.input(i).shape());
    auto made = std::make_unique<KnownLayout>();
    made->layout = jit::MakeFusedLayout(program_, shapes);
    made->tile = TileFor(made->layout.period, made->layout.count);
    MutexLock lock(&mu_);
    if (made->layout.is_one_loop) made->variant = FindVariant(made->layout.spreads);
    if (num_layouts_ == kMostLayouts) {
      *own = std::move(made);
      return own->get();
    }
    ++num_layouts_;
    made->next = layouts_.load(std::memory_order_relaxed);
    layouts_.store(made.get(), std::memory_order_release);
    return made.release();
  }

  Variant* FindVariant(const std::vector<Spread>& spreads) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& variant : variants_) {
      if (variant->spreads == spreads) return variant.get();
    }
    variants_.push_back(std::make_unique<Variant>(&program_, loops_, input_types_, spreads));
    return variants_.back().get();
  }

  Status ComputeTogether(KernelContext& ctx, const KnownLayout& known) {
    const FusedLayout& layout = known.layout;
    const void* in[kMaxFusedInputs];
    void* out[kMaxFusedInstructions];
    for (int i = 0; i < ctx.num_inputs(); ++i) in[i] = ctx.input(i).raw_data();
    const int outputs = static_cast<int>(layout.output_shapes.size());
    uint64_t shared = 0;
    int64_t bytes = 0;
    for (int k = 0; k < outputs; ++k) {
      const auto& from = layout.candidates[k];
      MR_ASSIGN_OR_RETURN(Tensor * tensor,
                          from[0] < 0
                              ? ctx.AllocateOutput(k, layout.output_shapes[k])
                              : ctx.ForwardOrAllocateOutput({from[0], from[1], from[2], from[3]}, k,
                                                            layout.output_shapes[k]));
      out[k] = tensor->raw_data();
      bytes += static_cast<int64_t>(tensor->num_bytes());
      if (std::find(in, in + ctx.num_inputs(), out[k]) != in + ctx.num_inputs()) {
        shared |= uint64_t{1} << k;
      }
    }
    if (layout.count == 0) return OkStatus();
    Loop loop{.variant = known.variant, .in = in, .out = out, .shared = shared};
    FusedCode* const code = known.variant->code;
    if (code != nullptr) loop.code = code->ready.load(std::memory_order_acquire);
    loop.streams = shared == 0 && bytes > LastCacheBytes();
    if (known.tile == 0) {
      RunEach(ctx, layout.count, loop);
    } else {
      MR_RETURN_IF_ERROR(RunTiles(ctx, known, in, loop));
    }
    if (code != nullptr && loop.code == nullptr) {
      known.variant->cache->CountWork(
          code, layout.count * static_cast<int64_t>(program_.instructions.size()));
    }
    return OkStatus();
  }

  void RunEach(KernelContext& ctx, int64_t count, const Loop& loop) const {
    if (count <= kGrain) return RunRange(loop, 0, 0, count);
    const int64_t grains = (count + kGrain - 1) / kGrain;
    ctx.ParallelFor(grains, cost_ * kGrain, [&](int64_t first, int64_t last) {
      const int64_t begin = first * kGrain;
      RunRange(loop, begin, 0, std::min(count, last * kGrain) - begin);
    });
  }

  // Writes rows several times behind one another where that is worth it.
  Status MakeTiles(KernelContext& ctx, const KnownLayout& known, const void** in,
                   Tensor* tiles) const {
    const FusedLayout& layout = known.layout;
    const int64_t tile = known.tile;
    for (int i = 0; i < ctx.num_inputs() && tile > layout.period; ++i) {
      if (layout.spreads[i] != Spread::kRow) continue;
      MR_ASSIGN_OR_RETURN(tiles[i], ctx.AllocateTemp(input_types_[i], Shape({tile})));
      const auto bytes = static_cast<std::size_t>(layout.period) * DataTypeSize(input_types_[i]);
      char* const to = static_cast<char*>(tiles[i].raw_data());
      for (int64_t k = 0; k < tile / layout.period; ++k) {
        std::memcpy(to + static_cast<std::size_t>(k) * bytes, in[i], bytes);
      }
      in[i] = to;
    }
    return OkStatus();
  }

  // Runs along rows, or tiles of them.
  Status RunTiles(KernelContext& ctx, const KnownLayout& known, const void** in,
                  const Loop& loop) const {
    const FusedLayout& layout = known.layout;
    const int64_t tile = known.tile;
    Tensor tiles[kMaxFusedInputs];
    MR_RETURN_IF_ERROR(MakeTiles(ctx, known, in, tiles));
    const int64_t rows = (layout.count + tile - 1) / tile;
    const int64_t pieces = (tile + kGrain - 1) / kGrain;
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t unit = first; unit < last; ++unit) {
        const int64_t row = unit / pieces * tile, from = unit % pieces * kGrain;
        const int64_t end = std::min({tile, from + kGrain, layout.count - row});
        if (from < end) RunRange(loop, row + from, from, end - from);
      }
    };
    ctx.ParallelFor(rows * pieces, cost_ * static_cast<double>(std::min(tile, kGrain)), run);
    return OkStatus();
  }

  void RunRange(const Loop& loop, int64_t begin, int64_t row, int64_t n) const {
    if (loop.code == nullptr) {
      loop.variant->interpreter.Run(loop.in, loop.out, begin, row, n, loop.shared);
    } else if (loop.streams && IsAligned(loop.out, begin)) {
      loop.code->streaming(loop.in, loop.out, begin, row, n);
    } else {
      loop.code->plain(loop.in, loop.out, begin, row, n);
    }
  }

  bool IsAligned(void* const* out, int64_t begin) const {
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      const std::size_t size = DataTypeSize(program_.instructions[program_.outputs[k]].result);
      const auto at =
          reinterpret_cast<std::uintptr_t>(out[k]) + static_cast<std::size_t>(begin) * size;
      if (at % kTensorAlignment != 0) return false;
    }
    return true;
  }

  Status ComputeOneByOne(KernelContext& ctx) {
    return parts_.Compute(ctx, name(),
                          [&ctx](const FusedInstruction& part, const std::string& node) {
                            return jit::MakeInstructionKernel(part, node, ctx.device());
                          });
  }

  Status MakeReduction(DataType type, Device* device) {
    if (reduction_made_.load(std::memory_order_acquire)) return OkStatus();
    MutexLock lock(&mu_);
    if (reduction_made_.load(std::memory_order_relaxed)) return OkStatus();
    MR_ASSIGN_OR_RETURN(reduction_,
                        jit::MakeReductionKernel(reduce_, type, keep_dims_, name(), device));
    reduction_made_.store(true, std::memory_order_release);
    return OkStatus();
  }

  const std::vector<DataType> input_types_;
  FusedProgram program_;
  FusedParts parts_;
  std::vector<InstructionLoop> loops_;
  double cost_ = 0.3;   // nanoseconds per element
  std::string reduce_;  // "": the outputs are what was computed
  std::vector<int64_t> axes_;
  bool keep_dims_ = false;
  RowReduction row_reduction_;
  Mutex mu_;
  std::atomic<KnownLayout*> layouts_{nullptr};  // grows only; written under mu_
  int num_layouts_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Variant>> variants_ ABSL_GUARDED_BY(mu_);
  // Made when it is first needed, constant from then on.
  std::atomic<bool> reduction_made_{false};
  std::unique_ptr<Kernel> reduction_;
};

}  // namespace

void RegisterFusedKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("_Fused"), &MakeKernel<FusedKernel>);
}

}  // namespace millrace
