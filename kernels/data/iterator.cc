// SPDX-License-Identifier: Apache-2.0
// Iterators: where a program stands in a data set. They live on a device between steps.
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/common/variant_codec.h"
#include "kernels/data/captured_function.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/graphs.h"
#include "kernels/data/iterator_ops.h"
#include "kernels/data/iterator_position.h"
#include "kernels/data/iterator_resource.h"
#include "kernels/data/spare_elements.h"
#include "kernels/lists/optional.h"
#include "kernels/state/session_tensors.h"

namespace millrace {
namespace {

// The position of the iterator of that handle.
StatusOr<RefPtr<IteratorPosition>> PositionBeside(KernelContext& ctx,
                                                  const ResourceHandle& handle) {
  return ctx.resources()->LookupOrCreate<IteratorPosition>(
      handle.container, handle.name,
      []() -> StatusOr<RefPtr<IteratorPosition>> { return MakeRef<IteratorPosition>(); });
}

// Base of ops that output the handle of an iterator. One without a shared name is of its session
// alone: the same program in another session stands elsewhere in its data.
class IteratorHandleKernel : public Kernel {
 public:
  explicit IteratorHandleKernel(KernelConstruction& c)
      : Kernel(c),
        types_(c.attr<std::vector<DataType>>("output_types")),
        container_(c.attrs().GetOr<std::string>("container", "")),
        shared_name_(c.attrs().GetOr<std::string>("shared_name", "")) {
    if (container_.empty()) container_ = kDefaultContainer;
  }

 protected:
  StatusOr<RefPtr<IteratorResource>> FindOrMake(KernelContext& ctx, Tensor* handle) const {
    std::string_view container = container_, name = shared_name_;
    if (name.empty()) {
      name = this->name();
      auto* const session = static_cast<SessionTensors*>(ctx.env().session_state);
      // A function that a data set calls belongs to no session: as long as the call.
      container = session != nullptr ? std::string_view(session->PrivateContainer(ctx.resources()))
                                     : ctx.env().step_container;
    }
    MR_ASSIGN_OR_RETURN(RefPtr<IteratorResource> found,
                        ctx.resources()->LookupOrCreate<IteratorResource>(
                            container, name, [this]() -> StatusOr<RefPtr<IteratorResource>> {
                              return MakeRef<IteratorResource>(types_);
                            }));
    if (found->types() != types_) {
      return errors::InvalidArgument("Shared iterator '", name, "' exists with other types");
    }
    *handle = HandleOf(ctx, container, name);
    return found;
  }

  const std::vector<DataType> types_;

 private:
  // The one of the step before where it is the same, as that of a session is: steps take no memory.
  Tensor HandleOf(const KernelContext& ctx, std::string_view container,
                  std::string_view name) const {
    MutexLock lock(&mu_);
    if (handle_.IsInitialized()) {
      const ResourceHandle& last = handle_.scalar<ResourceHandle>();
      if (last.container == container && last.device == ctx.device()->name()) return handle_;
    }
    Tensor handle(kResource, Shape());
    ResourceHandle& h = handle.data<ResourceHandle>()[0];
    h.device = ctx.device()->name();
    h.container = container;
    h.name = name;
    h.hash_code = typeid(IteratorResource).hash_code();
    h.type_name = def().name();
    handle_ = handle;
    return handle;
  }

  std::string container_;
  const std::string shared_name_;
  mutable Mutex mu_;
  mutable Tensor handle_ ABSL_GUARDED_BY(mu_);
};

// Iterator and IteratorV2.
class IteratorKernel : public IteratorHandleKernel {
 public:
  using IteratorHandleKernel::IteratorHandleKernel;
  Status Compute(KernelContext& ctx) override {
    Tensor handle;
    MR_RETURN_IF_ERROR(FindOrMake(ctx, &handle).status());
    ctx.SetOutput(0, std::move(handle));
    return OkStatus();
  }
};

// An iterator that stands, the first time, at the beginning of what a function gives.
class OneShotIteratorKernel : public IteratorHandleKernel {
 public:
  explicit OneShotIteratorKernel(KernelConstruction& c)
      : IteratorHandleKernel(c),
        factory_(c.attr<FunctionName>("dataset_factory"), /*on_one_device=*/true) {}
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    Tensor handle;
    StatusOr<RefPtr<IteratorResource>> found = FindOrMake(ctx, &handle);
    if (!found.ok()) return done(found.status());
    ctx.SetOutput(0, handle);
    if ((*found)->started()) return done(OkStatus());
    ComputeInBackground(ctx.device(), done, [this, &ctx, iterator = *std::move(found), handle] {
      return Fill(ctx, *iterator, handle.scalar<ResourceHandle>());
    });
  }

 private:
  Status Fill(KernelContext& ctx, IteratorResource& iterator, const ResourceHandle& handle) {
    MutexLock lock(&mu_);
    if (iterator.started()) return OkStatus();
    MR_ASSIGN_OR_RETURN(const FunctionPtr factory, Capture(ctx, factory_, 0, 0));
    DatasetElement results;
    MR_RETURN_IF_ERROR(factory->Call({ctx.allocator(), ctx.cancellation()}, {}, &results));
    MR_ASSIGN_OR_RETURN(DatasetPtr dataset, ResultDataset(results));
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorPosition> position, PositionBeside(ctx, handle));
    return iterator.Start(position->Watch(dataset), dataset);
  }

  const LazyFunction factory_;
  Mutex mu_;  // one call of the factory at a time
};

// A new iterator for each step, gone with it.
class MakeIteratorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr dataset, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                        LookupHandle<IteratorResource>(ctx, 1));
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorPosition> position,
                        PositionBeside(ctx, ctx.input(1).scalar<ResourceHandle>()));
    return iterator->Start(position->Watch(dataset), dataset);
  }
};

StatusOr<RefPtr<IteratorPosition>> PositionOf(
    KernelContext& ctx, std::string_view without =
                            "the iterator has no position: run its initializer before, also to "
                            "set one") {
  StatusOr<RefPtr<IteratorPosition>> found = LookupHandle<IteratorPosition>(ctx, 0);
  if (found.ok()) return found;
  MR_RETURN_IF_ERROR(LookupHandle<IteratorResource>(ctx, 0).status());
  return errors::FailedPrecondition(without);
}

// The op _IteratorPosition.
class IteratorPositionKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorPosition> position, PositionOf(ctx));
    MR_ASSIGN_OR_RETURN(Tensor saved, position->Save());
    ctx.SetOutput(0, std::move(saved));
    return OkStatus();
  }
};

// The op _SetIteratorPosition. Elements that are left out may take their time.
class SetIteratorPositionKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [&ctx]() -> Status {
      MR_ASSIGN_OR_RETURN(const RefPtr<IteratorPosition> position, PositionOf(ctx));
      MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                          LookupHandle<IteratorResource>(ctx, 0));
      MR_ASSIGN_OR_RETURN(DatasetPtr rest,
                          position->Restore({ctx.allocator(), ctx.cancellation()}, ctx.input(1)));
      return iterator->Start(std::move(rest));
    });
  }
};

// The same as one object of type variant, as TensorFlow's clients save it.
class SerializeIteratorKernel : public Kernel {
 public:
  explicit SerializeIteratorKernel(KernelConstruction& c)
      : Kernel(c), policy_(c.attr<int64_t>("external_state_policy")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(
        const RefPtr<IteratorPosition> position,
        PositionOf(ctx,
                   "Save() failed because the iterator has not been initialized. Ensure that "
                   "you have run the initializer operation for this iterator before saving "
                   "it."));
    if (policy_ == kStateFails) {
      MR_ASSIGN_OR_RETURN(const DatasetPtr dataset, position->dataset());
      const Status written = WriteGraph(*dataset, kStateFails, false).status();
      if (errors::IsFailedPrecondition(written)) return written;
    }
    MR_ASSIGN_OR_RETURN(Tensor saved, position->Save());
    Tensor objects(kVariant, Shape({1}));
    objects.data<Variant>()[0] =
        Variant(MakeRef<PlainValue>(kIteratorPositionType, std::move(saved)));
    ctx.SetOutput(0, std::move(objects));
    return OkStatus();
  }

 private:
  const int64_t policy_;
};

class DeserializeIteratorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [&ctx] { return GoThere(ctx); });
  }

 private:
  static Status GoThere(KernelContext& ctx) {
    MR_ASSIGN_OR_RETURN(
        const RefPtr<IteratorPosition> position,
        PositionOf(ctx,
                   "Restore() failed because the iterator has not been initialized. Ensure "
                   "that you have run the initializer operation for this iterator before "
                   "restoring it."));
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                        LookupHandle<IteratorResource>(ctx, 0));
    const auto* const saved = VariantCast<PlainValue>(ctx.input(1));
    if (ctx.input(1).rank() != 1 || saved == nullptr || saved->type_name != kIteratorPositionType) {
      return errors::Internal("Cannot initialize an iterator from tensor ",
                              ctx.input(1).DebugString(1), ": it is not a position of one");
    }
    StatusOr<DatasetPtr> rest =
        position->Restore({ctx.allocator(), ctx.cancellation()}, saved->value);
    if (rest.ok()) return iterator->Start(*std::move(rest));
    return Status(
        rest.status().code(),
        StrCat("Failed to restore dataset iterator from checkpoint: ", Message(rest.status()),
               ". Make sure the dataset definition has not changed between the process "
               "that saved the checkpoint and the process that is restoring it."));
  }
};

// IteratorGetNext, IteratorGetNextSync and IteratorGetNextAsOptional.
class IteratorGetNextKernel : public Kernel {
 public:
  explicit IteratorGetNextKernel(KernelConstruction& c)
      : Kernel(c), as_optional_(c.def().name() == "IteratorGetNextAsOptional"), declared_(c) {}
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<IteratorResource>> found = LookupHandle<IteratorResource>(ctx, 0);
    if (!found.ok()) return done(found.status());
    IteratorResource& iterator = **found;
    if (Status typed = declared_.CheckTypes(iterator.types(), name()); !typed.ok()) {
      return done(std::move(typed));
    }
    DatasetElement element = TakeSpare();
    Status status;
    if (iterator.TryNext({ctx.allocator(), ctx.cancellation()}, &element, &status)) {
      return done(Give(ctx, std::move(status), std::move(element)));
    }
    PutBack(std::move(element));
    // Not the iterator itself: with it this would take memory.
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Wait(ctx); });
  }

 private:
  Status Wait(KernelContext& ctx) {
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                        LookupHandle<IteratorResource>(ctx, 0));
    DatasetElement next = TakeSpare();
    Status status = iterator->Next({ctx.allocator(), ctx.cancellation()}, &next);
    return Give(ctx, std::move(status), std::move(next));
  }
  DatasetElement TakeSpare() {
    MutexLock lock(&mu_);
    return spare_.Take();
  }
  void PutBack(DatasetElement element) {
    MutexLock lock(&mu_);
    spare_.PutBack(std::move(element));
  }
  // Output of the element, whose vector is kept for the next step.
  Status Give(KernelContext& ctx, Status status, DatasetElement element) {
    status = Output(ctx, std::move(status), element);
    element.clear();
    PutBack(std::move(element));
    return status;
  }
  Status Output(KernelContext& ctx, Status status, DatasetElement& element) const {
    if (as_optional_ && IteratorResource::IsEnd(status)) {
      ctx.SetOutput(0, VariantTensor(MakeRef<Optional>()));
      return OkStatus();
    }
    MR_RETURN_IF_ERROR(status);
    MR_RETURN_IF_ERROR(declared_.CheckShapes(element));
    if (as_optional_) {
      MR_ASSIGN_OR_RETURN(Tensor optional, OptionalOf(std::move(element)));
      ctx.SetOutput(0, std::move(optional));
      return OkStatus();
    }
    for (std::size_t i = 0; i < element.size(); ++i) {
      ctx.SetOutput(static_cast<int>(i), std::move(element[i]));
    }
    return OkStatus();
  }

  const bool as_optional_;
  const DeclaredComponents declared_;
  Mutex mu_;
  SpareElements spare_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void RegisterIteratorKernels(KernelRegistry& r) {
  RegisterCpu<IteratorKernel>(r, "Iterator");
  RegisterCpu<IteratorKernel>(r, "IteratorV2");
  RegisterCpu<OneShotIteratorKernel>(r, "OneShotIterator");
  RegisterCpu<MakeIteratorKernel>(r, "MakeIterator");
  RegisterCpu<IteratorPositionKernel>(r, "_IteratorPosition");
  RegisterCpu<SetIteratorPositionKernel>(r, "_SetIteratorPosition");
  RegisterCpu<SerializeIteratorKernel>(r, "SerializeIterator");
  RegisterCpu<DeserializeIteratorKernel>(r, "DeserializeIterator");
  RegisterCpu<IteratorGetNextKernel>(r, "IteratorGetNext");
  RegisterCpu<IteratorGetNextKernel>(r, "IteratorGetNextSync");
  RegisterCpu<IteratorGetNextKernel>(r, "IteratorGetNextAsOptional");
  RegisterCpu<IteratorToStringKernel<IteratorResource>>(r, "IteratorToStringHandle");
  RegisterCpu<IteratorFromStringKernel<IteratorResource>>(r, "IteratorFromStringHandle");
  RegisterCpu<IteratorFromStringKernel<IteratorResource>>(r, "IteratorFromStringHandleV2");
}

}  // namespace millrace
