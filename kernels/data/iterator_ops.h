// SPDX-License-Identifier: Apache-2.0
// What ops on all kinds of iterators share: their handles as texts, which a client may keep and
// feed later or send elsewhere, and components as they are declared.
#ifndef KERNELS_DATA_ITERATOR_OPS_H_
#define KERNELS_DATA_ITERATOR_OPS_H_

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/data/dataset.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "tensor/tensor_proto.h"

namespace millrace {

// `handle` is a scalar of type resource.
inline Tensor HandleText(const Tensor& handle) {
  pb::TensorProto proto;
  TensorToProto(handle, &proto);
  return Tensor::String(proto.SerializeAsString());
}

// The other way; InvalidArgument if `text` is none, or of another device than the kernel's.
inline StatusOr<Tensor> HandleFromText(const KernelContext& ctx, const Tensor& text) {
  pb::TensorProto proto;
  if (text.num_elements() != 1 || !proto.ParseFromString(text.scalar<std::string>()) ||
      proto.dtype() != static_cast<pb::DataType>(kResource)) {
    return errors::InvalidArgument("Could not parse string_handle as a valid ResourceHandle");
  }
  MR_ASSIGN_OR_RETURN(Tensor handle, TensorFromProto(proto));
  if (handle.rank() != 0) return errors::InvalidArgument("string_handle is not one handle");
  const ResourceHandle& h = handle.scalar<ResourceHandle>();
  if (h.device == ctx.device()->name()) return handle;
  return errors::InvalidArgument("Attempted create an iterator on device \"", ctx.device()->name(),
                                 "\" from handle defined on device \"", h.device, "\"");
}

// The op that gives the text of the handle of an `Iterator`, which must be there.
template <typename Iterator>
class IteratorToStringKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(LookupHandle<Iterator>(ctx, 0).status());
    ctx.SetOutput(0, HandleText(ctx.input(0)));
    return OkStatus();
  }
};

// The other way. The iterator's components must be of the types `output_types`, if there are any.
template <typename Iterator>
class IteratorFromStringKernel : public Kernel {
 public:
  explicit IteratorFromStringKernel(KernelConstruction& c)
      : Kernel(c), types_(c.attr<std::vector<DataType>>("output_types")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor handle, HandleFromText(ctx, ctx.input(0)));
    const ResourceHandle& h = handle.scalar<ResourceHandle>();
    MR_ASSIGN_OR_RETURN(const RefPtr<Iterator> iterator,
                        ctx.resources()->Lookup<Iterator>(h.container, h.name));
    if (!types_.empty() && iterator->types() != types_) {
      return errors::InvalidArgument("the iterator's components have other types");
    }
    ctx.SetOutput(0, std::move(handle));
    return OkStatus();
  }

 private:
  const std::vector<DataType> types_;
};

// The attributes output_types and output_shapes of an op that gives elements.
class DeclaredComponents {
 public:
  explicit DeclaredComponents(KernelConstruction& c)
      : types_(c.attr<std::vector<DataType>>("output_types")),
        shapes_(c.attr<std::vector<PartialShape>>("output_shapes")) {
    if (types_.size() != shapes_.size()) {
      c.SetError(
          errors::InvalidArgument("output_types and output_shapes must have as many entries"));
    }
  }

  Status CheckTypes(const std::vector<DataType>& of_iterator, std::string_view node) const {
    if (of_iterator == types_) return OkStatus();
    return errors::InvalidArgument("the outputs of ", node,
                                   " do not have the types of the iterator's components");
  }
  // Of an element with these types.
  Status CheckShapes(const DatasetElement& element) const {
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].IsCompatibleWith(element[i].shape())) continue;
      return errors::InvalidArgument("component ", i, " has shape ",
                                     element[i].shape().DebugString(), ", declared is ",
                                     shapes_[i].DebugString());
    }
    return OkStatus();
  }

 private:
  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
};

}  // namespace millrace

#endif  // KERNELS_DATA_ITERATOR_OPS_H_
