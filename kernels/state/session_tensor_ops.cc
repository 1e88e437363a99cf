// SPDX-License-Identifier: Apache-2.0
// Leaving tensors at a worker between steps, and taking them up again.
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "kernels/state/session_tensors.h"

namespace millrace {
namespace {

StatusOr<SessionTensors*> TensorsOf(const KernelContext& ctx) {
  if (ctx.env().session_state != nullptr) {
    return static_cast<SessionTensors*>(ctx.env().session_state);
  }
  return errors::FailedPrecondition(ctx.node_name(), " needs a session");
}

StatusOr<std::string> HandleInput(const KernelContext& ctx) {
  const Tensor handle = ctx.locked_input(0);
  if (handle.num_elements() == 1) return handle.scalar<std::string>();
  return errors::InvalidArgument("handle must be a scalar, got ", handle.shape().DebugString());
}

// GetSessionHandle and its V2.
class GetSessionHandleKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(SessionTensors * tensors, TensorsOf(ctx));
    std::string handle = tensors->Add(name(), ctx.device()->name(), ctx.locked_input(0));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    if (out->dtype() == kString) {
      out->data<std::string>()[0] = std::move(handle);
    } else {
      ResourceHandle& resource = out->data<ResourceHandle>()[0];
      resource.device = ctx.device()->name();
      resource.container = "TensorHandle";
      resource.name = std::move(handle);
      resource.type_name = "TensorHandle";
    }
    return OkStatus();
  }
};

class GetSessionTensorKernel : public Kernel {
 public:
  explicit GetSessionTensorKernel(KernelConstruction& c)
      : Kernel(c), dtype_(c.attr<DataType>("dtype")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(SessionTensors * tensors, TensorsOf(ctx));
    MR_ASSIGN_OR_RETURN(const std::string handle, HandleInput(ctx));
    MR_ASSIGN_OR_RETURN(Tensor value, tensors->Get(handle));
    if (value.dtype() != dtype_) {
      return errors::InvalidArgument("the tensor with handle '", handle, "' is of type ",
                                     DataTypeName(value.dtype()), ", not ", DataTypeName(dtype_));
    }
    ctx.SetOutput(0, std::move(value));
    return OkStatus();
  }

 private:
  const DataType dtype_;
};

class DeleteSessionTensorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(SessionTensors * tensors, TensorsOf(ctx));
    MR_ASSIGN_OR_RETURN(const std::string handle, HandleInput(ctx));
    return tensors->Delete(handle);
  }
};

}  // namespace

void RegisterSessionTensorKernels(KernelRegistry& r) {
  RegisterCpu<GetSessionHandleKernel>(r, "GetSessionHandle");
  RegisterCpu<GetSessionHandleKernel>(r, "GetSessionHandleV2");
  RegisterCpu<GetSessionTensorKernel>(r, "GetSessionTensor");
  RegisterCpu<DeleteSessionTensorKernel>(r, "DeleteSessionTensor");
}

}  // namespace millrace
