// Handles of iterators as texts that a client may keep and feed later, or send elsewhere.
#ifndef KERNELS_DATA_HANDLE_TEXT_H_
#define KERNELS_DATA_HANDLE_TEXT_H_

#include "base/errors.h"
#include "base/status_macros.h"
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

}  // namespace millrace

#endif  // KERNELS_DATA_HANDLE_TEXT_H_
