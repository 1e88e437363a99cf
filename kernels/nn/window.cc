// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/window.h"

#include <algorithm>
#include <type_traits>

#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel_context.h"

namespace millrace {

namespace {

// Each of `batch` matrices of rows x columns, transposed, in squares that stay in cache.
template <typename T>
void TransposeEach(KernelContext& ctx, const T* in, int64_t batch, int64_t rows, int64_t columns,
                   T* out) {
  constexpr int64_t kSide = 16;
  const int64_t size = rows * columns;
  ctx.ParallelFor(batch, static_cast<double>(size), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t r = 0; r < rows; r += kSide) {
        for (int64_t c = 0; c < columns; c += kSide) {
          for (int64_t j = c; j < std::min(columns, c + kSide); ++j) {
            for (int64_t i = r; i < std::min(rows, r + kSide); ++i) {
              out[n * size + j * rows + i] = in[n * size + i * columns + j];
            }
          }
        }
      }
    }
  });
}

void Move(KernelContext& ctx, const Tensor& in, int64_t rows, int64_t columns, Tensor* out) {
  DispatchMovable(in.dtype(), [&]<typename T>() {
    if constexpr (std::is_trivially_copyable_v<T>) {
      TransposeEach(ctx, static_cast<const T*>(in.raw_data()), in.dim(0), rows, columns,
                    static_cast<T*>(out->raw_data()));
    }
  });
}

}  // namespace

StatusOr<Tensor> CopyChannelsLast(KernelContext& ctx, const Tensor& images) {
  MR_ASSIGN_OR_RETURN(Tensor out,
                      ctx.AllocateTemp(images.dtype(), WithChannelsLast(images.shape())));
  Move(ctx, images, images.dim(1), images.dim(2) * images.dim(3), &out);
  return out;
}

Status CopyChannelsFirst(KernelContext& ctx, const Tensor& images, Tensor* out) {
  Move(ctx, images, images.dim(1) * images.dim(2), images.dim(3), out);
  return OkStatus();
}

}  // namespace millrace
