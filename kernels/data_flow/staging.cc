// SPDX-License-Identifier: Apache-2.0
// Staging areas: tuples that one step leaves for another, bounded by number and bytes.
#include "kernels/data_flow/staging.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

struct StagedTuples {
  std::string Contents() const { return StrCat(tuples.size(), " tuples"); }

  std::deque<StagedTuple> tuples;
  int64_t bytes = 0;
};

class StagingArea final : public Staging<StagedTuples> {
 public:
  explicit StagingArea(std::string name) : Staging("StagingArea", std::move(name)) {}
};

class StageKernel final : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<RefPtr<StagingArea>> area = Find<StagingArea>(ctx);
    if (!area.ok()) return done(area.status());
    StagedTuple tuple;
    for (int i = 0; i < ctx.num_inputs(); ++i) tuple.push_back(ctx.locked_input(i));
    const int64_t bytes = BytesOf(tuple);
    Status fits = CheckFitsStaging(bytes, memory_limit());
    if (!fits.ok()) return done(std::move(fits));
    (*area)->Do(
        StagingArea::Use::kPut, "a stage",
        [tuple = std::move(tuple), bytes, capacity = capacity(),
         limit = memory_limit()](StagedTuples& held) mutable {
          const auto count = static_cast<int64_t>(held.tuples.size());
          if (capacity > 0 && count >= capacity) return false;
          if (limit > 0 && held.bytes + bytes > limit) return false;
          held.tuples.push_back(std::move(tuple));
          held.bytes += bytes;
          return true;
        },
        Waiter(ctx), done);
  }
};

// Unstage and StagePeek: a tuple once it is there.
class GetKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;

 protected:
  // The tuple at `index`; the first one is taken away if `takes`.
  void Get(KernelContext& ctx, int64_t index, bool takes, DoneCallback done) {
    const StatusOr<RefPtr<StagingArea>> area = Find<StagingArea>(ctx);
    if (!area.ok()) return done(area.status());
    auto got = std::make_shared<StagedTuple>();
    (*area)->Do(
        takes ? StagingArea::Use::kTake : StagingArea::Use::kLook, takes ? "an unstage" : "a peek",
        [got, index, takes](StagedTuples& held) {
          if (index >= static_cast<int64_t>(held.tuples.size())) return false;
          *got = held.tuples[static_cast<std::size_t>(index)];
          if (takes) {
            held.tuples.pop_front();
            held.bytes -= BytesOf(*got);
          }
          return true;
        },
        Waiter(ctx),
        [this, &ctx, got, done](Status status) {
          done(status.ok() ? SetTuple(ctx, std::move(*got)) : std::move(status));
        });
  }

 private:
  Status SetTuple(KernelContext& ctx, StagedTuple tuple) const {
    if (static_cast<int>(tuple.size()) != ctx.num_outputs()) {
      return errors::InvalidArgument("Mismatch stage/unstage: ", tuple.size(), " vs. ",
                                     ctx.num_outputs());
    }
    return SetOutputs(ctx, 0, std::move(tuple));
  }
};

class UnstageKernel final : public GetKernel {
 public:
  using GetKernel::GetKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    Get(ctx, 0, /*takes=*/true, done);
  }
};

class StagePeekKernel final : public GetKernel {
 public:
  using GetKernel::GetKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    if (ctx.input(0).rank() != 0) {
      return done(errors::InvalidArgument("index must be scalar, got shape ",
                                          ctx.input(0).shape().DebugString()));
    }
    const StatusOr<int64_t> index = IntScalar(ctx.input(0), "index");
    if (!index.ok()) return done(index.status());
    if (*index < 0) return done(errors::InvalidArgument("index must not be negative"));
    Get(ctx, *index, /*takes=*/false, done);
  }
};

class StageSizeKernel final : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<RefPtr<StagingArea>> area = Find<StagingArea>(ctx);
    if (!area.ok()) return done(area.status());
    const auto size = (*area)->Look([](const StagedTuples& held) { return held.tuples.size(); });
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(size)));
    done(OkStatus());
  }
};

class StageClearKernel final : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    const StatusOr<RefPtr<StagingArea>> area = Find<StagingArea>(ctx);
    if (!area.ok()) return done(area.status());
    (*area)->Do(
        StagingArea::Use::kTake, "a clear",
        [](StagedTuples& held) {
          held = StagedTuples();
          return true;
        },
        Waiter(ctx), done);
  }
};

}  // namespace

void RegisterStagingKernels(KernelRegistry& r) {
  RegisterCpu<StageKernel>(r, "Stage");
  RegisterCpu<UnstageKernel>(r, "Unstage");
  RegisterCpu<StagePeekKernel>(r, "StagePeek");
  RegisterCpu<StageSizeKernel>(r, "StageSize");
  RegisterCpu<StageClearKernel>(r, "StageClear");
}

}  // namespace millrace
