// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/conv_products.h"

#include <algorithm>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/gemm.h"

namespace millrace {
namespace {

// Calls f(patch offset, image offset or -1) for every tap of the output rows [begin, end).
template <typename F>
void ForEachTap(const ConvGeometry& g, int64_t group, int64_t begin, int64_t end, F&& f) {
  const int64_t depth = g.group_channels();
  int64_t at = 0;
  for (int64_t oy = begin; oy < end; ++oy) {
    for (int64_t ox = 0; ox < g.cols.output; ++ox) {
      for (int64_t ky = 0; ky < g.rows.size; ++ky) {
        const int64_t y = oy * g.rows.stride - g.rows.pad_before + ky * g.rows.dilation;
        for (int64_t kx = 0; kx < g.cols.size; ++kx, at += depth) {
          const int64_t x = ox * g.cols.stride - g.cols.pad_before + kx * g.cols.dilation;
          const bool inside = y >= 0 && y < g.rows.input && x >= 0 && x < g.cols.input;
          f(at, inside ? (y * g.cols.input + x) * g.channels + group * depth : -1);
        }
      }
    }
  }
}

template <typename C>
void GatherPatches(const ConvGeometry& g, int64_t group, int64_t begin, int64_t end, const C* image,
                   C* patches) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t from) {
    if (from < 0) {
      std::fill_n(patches + at, depth, C(0));
    } else {
      std::copy_n(image + from, depth, patches + at);
    }
  });
}

template <typename C>
C Sum(C a, C b) {
  return a + b;
}
int32_t Sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

template <typename C>
void ScatterPatches(const ConvGeometry& g, int64_t group, int64_t begin, int64_t end,
                    const C* patches, C* image) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t to) {
    if (to < 0) return;
    for (int64_t i = 0; i < depth; ++i) image[to + i] = Sum(image[to + i], patches[at + i]);
  });
}

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

// A product of integers, which wraps around as TensorFlow's does.
void Multiply(int64_t m, int64_t n, int64_t k, MatrixView<int32_t> a, MatrixView<int32_t> b,
              int32_t* c, int64_t c_stride, bool accumulate, ParallelRunner parallel) {
  parallel(m, 0.5 * static_cast<double>(n * k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int32_t* row = c + i * c_stride;
      if (!accumulate) std::fill_n(row, n, 0);
      for (int64_t p = 0; p < k; ++p) {
        const auto factor = static_cast<uint32_t>(a.data[i * a.row_stride + p * a.col_stride]);
        const int32_t* other = b.data + p * b.row_stride;
        for (int64_t j = 0; j < n; ++j) {
          const auto term = factor * static_cast<uint32_t>(other[j * b.col_stride]);
          row[j] = static_cast<int32_t>(static_cast<uint32_t>(row[j]) + term);
        }
      }
    }
  });
}

template <typename C>
void Multiply(int64_t m, int64_t n, int64_t k, MatrixView<C> a, MatrixView<C> b, C* c,
              int64_t c_stride, bool accumulate, ParallelRunner parallel) {
  Gemm<C>(m, n, k, a, b, c, c_stride, accumulate, parallel);
}

// Output rows per patch matrix: about a thousand positions.
int64_t RowsPerBlock(const ConvGeometry& g) {
  return std::clamp<int64_t>(1024 / std::max<int64_t>(1, g.cols.output), 1,
                             std::max<int64_t>(1, g.rows.output));
}

}  // namespace

template <typename C>
Status ConvByProducts(KernelContext& ctx, const ConvGeometry& g, const C* input, const C* filter,
                      C* out) {
  const int64_t step = RowsPerBlock(g), blocks = (g.rows.output + step - 1) / step;
  const int64_t taps = g.taps();
  Status failed;
  const double cost = static_cast<double>(step * g.cols.output * taps * g.group_outputs()) / 20;
  Mutex mu;
  ctx.ParallelFor(g.batch * blocks, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / blocks, first = unit % blocks * step;
      const int64_t last = std::min(g.rows.output, first + step);
      const int64_t positions = (last - first) * g.cols.output;
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches->data<C>());
        Multiply(positions, g.group_outputs(), taps, MatrixView<C>{patches->data<C>(), taps, 1},
                 MatrixView<C>{filter + group * g.group_outputs(), g.out_channels, 1},
                 out + n * g.out_image() + first * g.cols.output * g.out_channels +
                     group * g.group_outputs(),
                 g.out_channels, false, RunHere);
      }
    }
  });
  return failed;
}

template <typename C>
Status ConvInputByProducts(KernelContext& ctx, const ConvGeometry& g, const C* filter,
                           const C* gradient, C* out) {
  std::fill_n(out, g.batch * g.image(), C(0));
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  if (g.batch * g.out_image() == 0) return OkStatus();
  Status failed;
  Mutex mu;
  const double cost = static_cast<double>(g.out_image() * taps) / 20;
  // One image at a time: patches overlap.
  ctx.ParallelFor(g.batch, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t first = 0; first < g.rows.output; first += step) {
        const int64_t last = std::min(g.rows.output, first + step);
        for (int64_t group = 0; group < g.groups; ++group) {
          Multiply(
              (last - first) * g.cols.output, taps, g.group_outputs(),
              MatrixView<C>{gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                                group * g.group_outputs(),
                            g.out_channels, 1},
              MatrixView<C>{filter + group * g.group_outputs(), 1, g.out_channels},
              patches->data<C>(), taps, false, RunHere);
          ScatterPatches(g, group, first, last, patches->data<C>(), out + n * g.image());
        }
      }
    }
  });
  return failed;
}

template <typename C>
Status ConvFilterByProducts(KernelContext& ctx, const ConvGeometry& g, const C* input,
                            const C* gradient, C* out) {
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  std::fill_n(out, taps * g.out_channels, C(0));
  if (g.batch * g.out_image() == 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(Tensor patches,
                      ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps})));
  // Blocks are added one after the other, whatever the number of threads; within a block the
  // product is shared between them.
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t first = 0; first < g.rows.output; first += step) {
      const int64_t last = std::min(g.rows.output, first + step);
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches.data<C>());
        Multiply(
            taps, g.group_outputs(), (last - first) * g.cols.output,
            MatrixView<C>{patches.data<C>(), 1, taps},
            MatrixView<C>{gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                              group * g.group_outputs(),
                          g.out_channels, 1},
            out + group * g.group_outputs(), g.out_channels, true,
            [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> f) {
              ctx.ParallelFor(count, cost, f);
            });
      }
    }
  }
  return OkStatus();
}

#define MR_CONV_BY_PRODUCTS(C)                                                                     \
  template Status ConvByProducts<C>(KernelContext&, const ConvGeometry&, const C*, const C*, C*);  \
  template Status ConvInputByProducts<C>(KernelContext&, const ConvGeometry&, const C*, const C*,  \
                                         C*);                                                      \
  template Status ConvFilterByProducts<C>(KernelContext&, const ConvGeometry&, const C*, const C*, \
                                          C*)
MR_CONV_BY_PRODUCTS(float);
MR_CONV_BY_PRODUCTS(double);
MR_CONV_BY_PRODUCTS(int32_t);
#undef MR_CONV_BY_PRODUCTS

}  // namespace millrace
