// SPDX-License-Identifier: Apache-2.0
// Handles that no client names. Those of clients before TensorFlow 2.5 come with what deletes them.
// Here what a handle names lives as long as the step, or until it is deleted.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/common/variant.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/iterator_resource.h"
#include "kernels/data/walk_seeds.h"

namespace millrace {
namespace {

// What a deleter holds; it is asked for nothing.
struct Deleter : public RefCounted {};

void SetHandle(KernelContext& ctx, Tensor handle) {
  ctx.SetOutput(0, std::move(handle));
  if (ctx.num_outputs() > 1) ctx.SetOutput(1, VariantTensor(MakeRef<Deleter>()));
}

class AnonymousIteratorKernel : public Kernel {
 public:
  explicit AnonymousIteratorKernel(KernelConstruction& c)
      : Kernel(c), types_(c.attr<std::vector<DataType>>("output_types")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, "iterator", MakeRef<IteratorResource>(types_)));
    SetHandle(ctx, std::move(handle));
    return OkStatus();
  }

 private:
  const std::vector<DataType> types_;
};

// AnonymousSeedGenerator, which is told whether to give other seeds each time, and
// AnonymousRandomSeedGenerator, which does.
class SeedGeneratorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t seed, IntScalar(ctx.input(0), "seed"));
    MR_ASSIGN_OR_RETURN(const int64_t seed2, IntScalar(ctx.input(1), "seed2"));
    bool reshuffle = true;
    if (ctx.num_inputs() == 3) {
      if (ctx.input(2).rank() != 0) {
        return errors::InvalidArgument("reshuffle must be a bool scalar");
      }
      reshuffle = ctx.input(2).scalar<bool>();
    }
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, "seeds", MakeWalkSeeds(seed, seed2, reshuffle)));
    SetHandle(ctx, std::move(handle));
    return OkStatus();
  }
};

// A handle that names nothing: a cache in memory belongs to its data set, and V2 and V3 of data
// sets want handles beside what they need.
class EmptyHandleKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    Tensor handle(kResource, Shape());
    handle.data<ResourceHandle>()[0].device = ctx.device()->name();
    handle.data<ResourceHandle>()[0].name = def().name();
    SetHandle(ctx, std::move(handle));
    return OkStatus();
  }
};

class DeleteKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    return DeleteByHandle<IteratorResource, WalkSeeds>(ctx);
  }
};

class IteratorGetDeviceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, Tensor::String(ctx.device()->name()));
    return OkStatus();
  }
};

}  // namespace

void RegisterAnonymousDataKernels(KernelRegistry& r) {
  RegisterCpu<AnonymousIteratorKernel>(r, "AnonymousIterator");
  RegisterCpu<AnonymousIteratorKernel>(r, "AnonymousIteratorV2");
  RegisterCpu<AnonymousIteratorKernel>(r, "AnonymousIteratorV3");
  RegisterCpu<SeedGeneratorKernel>(r, "AnonymousSeedGenerator");
  RegisterCpu<SeedGeneratorKernel>(r, "AnonymousRandomSeedGenerator");
  RegisterCpu<EmptyHandleKernel>(r, "AnonymousMemoryCache");
  RegisterCpu<EmptyHandleKernel>(r, "DummyMemoryCache");
  RegisterCpu<EmptyHandleKernel>(r, "DummySeedGenerator");
  for (const char* op : {"DeleteIterator", "DeleteMemoryCache", "DeleteRandomSeedGenerator",
                         "DeleteSeedGenerator"}) {
    RegisterCpu<DeleteKernel>(r, op);
  }
  RegisterCpu<IteratorGetDeviceKernel>(r, "IteratorGetDevice");
}

}  // namespace millrace
