// SPDX-License-Identifier: Apache-2.0
// Texts that were packed.
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/input_stream.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class DecodeCompressedKernel : public Kernel {
 public:
  explicit DecodeCompressedKernel(KernelConstruction& c)
      : Kernel(c), compression_(c.attrs().GetOr<std::string>("compression_type", "")) {
    if (compression_ == "ZSTD") {
      c.SetError(errors::Unimplemented("ZSTD is not among the compressions that are read here"));
    } else if (!CheckCompression(compression_).ok()) {
      c.SetError(
          errors::InvalidArgument("Only ZLIB, ZSTD, GZIP or NONE are supported compressions"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor in = ctx.locked_input(0);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, in.shape()));
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      MR_ASSIGN_OR_RETURN(
          out->data<std::string>()[i],
          Unpack(in.data<std::string>()[i], compression_, std::numeric_limits<int32_t>::max()));
    }
    return OkStatus();
  }

 private:
  const std::string compression_;
};

}  // namespace

void RegisterDecodeCompressedKernels(KernelRegistry& r) {
  RegisterCpu<DecodeCompressedKernel>(r, "DecodeCompressed");
}

}  // namespace millrace
