// Iterators: where a program stands in a data set. They live on a device between steps.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/iterator_resource.h"
#include "kernels/handle_kernel.h"
#include "kernels/kernel_util.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// Iterator and IteratorV2.
class IteratorKernel : public HandleKernel<IteratorResource> {
 public:
  explicit IteratorKernel(KernelConstruction& c)
      : HandleKernel<IteratorResource>(c), types_(c.attr<std::vector<DataType>>("output_types")) {}

 protected:
  StatusOr<RefPtr<IteratorResource>> Make() override { return MakeRef<IteratorResource>(types_); }
  Status CheckSame(const IteratorResource& existing) const override {
    if (existing.types() == types_) return OkStatus();
    return errors::InvalidArgument("Shared iterator '", resource_name(),
                                   "' exists with other types");
  }

 private:
  const std::vector<DataType> types_;
};

class MakeIteratorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr dataset, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                        LookupHandle<IteratorResource>(ctx, 1));
    return iterator->Start(std::move(dataset));
  }
};

// IteratorGetNext and IteratorGetNextSync.
class IteratorGetNextKernel : public Kernel {
 public:
  explicit IteratorGetNextKernel(KernelConstruction& c)
      : Kernel(c),
        types_(c.attr<std::vector<DataType>>("output_types")),
        shapes_(c.attr<std::vector<PartialShape>>("output_shapes")) {
    if (types_.size() != shapes_.size()) {
      c.SetError(
          errors::InvalidArgument("output_types and output_shapes must have as many ", "entries"));
    }
  }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<IteratorResource>> found = LookupHandle<IteratorResource>(ctx, 0);
    if (!found.ok()) return done(found.status());
    if (!(*found)->blocks()) return done(Run(ctx, **found));
    DatasetThreads()->Schedule(
        [this, &ctx, done, iterator = *std::move(found)] { done(Run(ctx, *iterator)); });
  }

 private:
  Status Run(KernelContext& ctx, IteratorResource& iterator) const {
    if (iterator.types() != types_) {
      return errors::InvalidArgument("the outputs of ", name(),
                                     " do not have the types of the iterator's components");
    }
    DatasetElement element;
    const DatasetCall call{ctx.allocator(), ctx.cancellation()};
    MR_RETURN_IF_ERROR(iterator.Next(call, &element));
    for (int i = 0; i < num_outputs(); ++i) {
      if (!shapes_[i].IsCompatibleWith(element[i].shape())) {
        return errors::InvalidArgument("component ", i, " has shape ",
                                       element[i].shape().DebugString(), ", declared is ",
                                       shapes_[i].DebugString());
      }
      ctx.SetOutput(i, std::move(element[i]));
    }
    return OkStatus();
  }

  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
};

// A handle as text that a client may keep and feed later.
class IteratorToStringKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(LookupHandle<IteratorResource>(ctx, 0).status());
    pb::TensorProto proto;
    TensorToProto(ctx.input(0), &proto);
    ctx.SetOutput(0, Tensor::String(proto.SerializeAsString()));
    return OkStatus();
  }
};

// IteratorFromStringHandle and its V2.
class IteratorFromStringKernel : public Kernel {
 public:
  explicit IteratorFromStringKernel(KernelConstruction& c)
      : Kernel(c), types_(c.attr<std::vector<DataType>>("output_types")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& text = ctx.input(0);
    pb::TensorProto proto;
    if (text.num_elements() != 1 || !proto.ParseFromString(text.scalar<std::string>()) ||
        proto.dtype() != static_cast<pb::DataType>(kResource)) {
      return errors::InvalidArgument("Could not parse string_handle as a valid ResourceHandle");
    }
    MR_ASSIGN_OR_RETURN(Tensor handle, TensorFromProto(proto));
    if (handle.rank() != 0) return errors::InvalidArgument("string_handle is not one handle");
    const ResourceHandle& h = handle.scalar<ResourceHandle>();
    if (h.device != ctx.device()->name()) {
      return errors::InvalidArgument("Attempted create an iterator on device \"",
                                     ctx.device()->name(), "\" from handle defined on device \"",
                                     h.device, "\"");
    }
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                        ctx.resources()->Lookup<IteratorResource>(h.container, h.name));
    if (!types_.empty() && iterator->types() != types_) {
      return errors::InvalidArgument("the iterator's components have other types");
    }
    ctx.SetOutput(0, std::move(handle));
    return OkStatus();
  }

 private:
  const std::vector<DataType> types_;
};

}  // namespace

void RegisterIteratorKernels(KernelRegistry& r) {
  RegisterCpu<IteratorKernel>(r, "Iterator");
  RegisterCpu<IteratorKernel>(r, "IteratorV2");
  RegisterCpu<MakeIteratorKernel>(r, "MakeIterator");
  RegisterCpu<IteratorGetNextKernel>(r, "IteratorGetNext");
  RegisterCpu<IteratorGetNextKernel>(r, "IteratorGetNextSync");
  RegisterCpu<IteratorToStringKernel>(r, "IteratorToStringHandle");
  RegisterCpu<IteratorFromStringKernel>(r, "IteratorFromStringHandle");
  RegisterCpu<IteratorFromStringKernel>(r, "IteratorFromStringHandleV2");
}

}  // namespace millrace
