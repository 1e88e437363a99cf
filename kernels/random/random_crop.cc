// SPDX-License-Identifier: Apache-2.0
// A window of an image at a random place; deprecated.
#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/shared_philox.h"
#include "kernels/random/distributions.h"
#include "kernels/random/random_distributions.h"

namespace millrace {
namespace {

class RandomCropKernel : public Kernel {
 public:
  explicit RandomCropKernel(KernelConstruction& c) : Kernel(c), generator_(c) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &image = ctx.input(0), &size = ctx.input(1);
    if (image.rank() != 3) {
      return errors::InvalidArgument("input must be 3-dimensional", image.shape().DebugString());
    }
    if (size.rank() != 1) {
      return errors::InvalidArgument("shape_t must be 1-dimensional", size.shape().DebugString());
    }
    if (size.dim(0) != 2) {
      return errors::InvalidArgument("shape_t must have two elements", size.shape().DebugString());
    }
    const int64_t rows = size.data<int64_t>()[0], columns = size.data<int64_t>()[1];
    const int64_t height = image.dim(0), width = image.dim(1), channels = image.dim(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(Dims{rows, columns, channels}));
    if (width < columns) {
      return errors::FailedPrecondition("width must be >= target_width: width = ", width,
                                        ", target_width = ", columns);
    }
    if (height < rows) {
      return errors::FailedPrecondition("height must be >= target_height: height = ", height,
                                        ", target_height = ", rows);
    }
    PhiloxWords words(generator_.Reserve(1));
    const int64_t left = width > columns ? words() % (width - columns + 1) : 0;
    const int64_t top = height > rows ? words() % (height - rows + 1) : 0;
    if (rows == height && columns == width) {
      ctx.SetOutput(0, image);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    if (out->num_elements() == 0) return OkStatus();
    for (int64_t y = 0; y < rows; ++y) {
      CopyRange(image, ((y + top) * width + left) * channels, out, y * columns * channels,
                columns * channels);
    }
    return OkStatus();
  }

 private:
  SharedPhilox generator_;
};

}  // namespace

void RegisterRandomCropKernels(KernelRegistry& r) {
  r.Register(KernelDef("RandomCrop").Types("T", DataTypesOf(RealTypes())),
             &MakeKernel<RandomCropKernel>);
}

}  // namespace millrace
