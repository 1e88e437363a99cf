// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 16;  // one or two cache lines of a 4-byte type each way

// Drops axes of size 1 and joins neighbours that are one axis in both layouts.
void Simplify(CopyDims* dims) {
  CopyDims out;
  for (const CopyDim& d : *dims) {
    if (d.size == 1) continue;
    if (!out.empty() && out.back().src_stride == d.src_stride * d.size &&
        out.back().dst_stride == d.dst_stride * d.size) {
      out.back().size *= d.size;
      out.back().src_stride = d.src_stride;
      out.back().dst_stride = d.dst_stride;
    } else {
      out.push_back(d);
    }
  }
  *dims = std::move(out);
}

// Where index `flat` over `dims` (row major) starts in both layouts, and how to step on.
class OuterCursor {
 public:
  OuterCursor(std::span<const CopyDim> dims, int64_t flat) : dims_(dims) {
    index_.resize(dims.size());
    for (int k = static_cast<int>(dims.size()) - 1; k >= 0; --k) {
      index_[k] = flat % dims[k].size;
      flat /= dims[k].size;
      src += index_[k] * dims[k].src_stride;
      dst += index_[k] * dims[k].dst_stride;
    }
  }
  void Next() {
    for (int k = static_cast<int>(dims_.size()) - 1; k >= 0; --k) {
      src += dims_[k].src_stride;
      dst += dims_[k].dst_stride;
      if (++index_[k] < dims_[k].size) return;
      src -= dims_[k].src_stride * dims_[k].size;
      dst -= dims_[k].dst_stride * dims_[k].size;
      index_[k] = 0;
    }
  }
  int64_t src = 0, dst = 0;

 private:
  std::span<const CopyDim> dims_;
  absl::InlinedVector<int64_t, 8> index_;
};

template <typename T>
void CopyRow(const T* src, T* dst, const CopyDim& d) {
  if (d.src_stride == 1 && d.dst_stride == 1) {
    std::copy_n(src, d.size, dst);
  } else if (d.src_stride == 0 && d.dst_stride == 1) {
    std::fill_n(dst, d.size, *src);
  } else {
    for (int64_t i = 0; i < d.size; ++i) dst[i * d.dst_stride] = src[i * d.src_stride];
  }
}

// `rows` is contiguous in the source, `cols` in the destination.
template <typename T>
void TransposeTile(const T* src, T* dst, const CopyDim& rows, const CopyDim& cols) {
  for (int64_t r = 0; r < rows.size; ++r) {
    for (int64_t c = 0; c < cols.size; ++c) {
      dst[r * rows.dst_stride + c] = src[r + c * cols.src_stride];
    }
  }
}

template <typename T>
void Copy2d(const T* src, T* dst, const CopyDim& rows, const CopyDim& cols) {
  for (int64_t r = 0; r < rows.size; r += kTile) {
    CopyDim tile_rows = rows;
    tile_rows.size = std::min(kTile, rows.size - r);
    for (int64_t c = 0; c < cols.size; c += kTile) {
      CopyDim tile_cols = cols;
      tile_cols.size = std::min(kTile, cols.size - c);
      TransposeTile(src + r + c * cols.src_stride, dst + r * rows.dst_stride + c, tile_rows,
                    tile_cols);
    }
  }
}

template <typename T>
void CopyTyped(const KernelContext& ctx, const T* src, T* dst, CopyDims dims) {
  // Nanoseconds per element: strings allocate, plain ones stream.
  constexpr double kCost = std::is_trivially_copyable_v<T> ? 0.1 + sizeof(T) * 0.1 : 50.0;
  if (dims.empty()) {
    *dst = *src;
    return;
  }
  if (dims.size() == 1) {
    const CopyDim d = dims[0];
    ctx.ParallelFor(d.size, kCost, [&](int64_t begin, int64_t end) {
      CopyRow(src + begin * d.src_stride, dst + begin * d.dst_stride,
              CopyDim{end - begin, d.src_stride, d.dst_stride});
    });
    return;
  }
  // An axis that runs along the source while the last one runs along the destination: copy
  // in tiles, so that both sides use whole cache lines.
  int tiled = -1;
  if (dims.back().dst_stride == 1 && dims.back().src_stride != 1 && dims.back().src_stride != 0) {
    for (std::size_t k = 0; k + 1 < dims.size(); ++k) {
      if (dims[k].src_stride == 1) tiled = static_cast<int>(k);
    }
  }
  const CopyDim inner = dims.back();
  dims.pop_back();
  CopyDim rows{1, 1, 0};
  if (tiled >= 0) {
    // Cut the tiled axis so that one huge matrix is still shared between threads.
    rows = dims[tiled];
    constexpr int64_t kStrip = 4 * kTile;
    if (rows.size > kStrip && rows.size % kStrip == 0) {
      dims[tiled] = CopyDim{rows.size / kStrip, kStrip, rows.dst_stride * kStrip};
      rows.size = kStrip;
    } else {
      dims.erase(dims.begin() + tiled);
    }
  }
  int64_t outer = 1;
  for (const CopyDim& d : dims) outer *= d.size;
  const double cost = kCost * static_cast<double>(inner.size * rows.size);
  ctx.ParallelFor(outer, cost, [&](int64_t begin, int64_t end) {
    OuterCursor at(std::span<const CopyDim>(dims.data(), dims.size()), begin);
    for (int64_t i = begin; i < end; ++i, at.Next()) {
      if (tiled >= 0) {
        Copy2d(src + at.src, dst + at.dst, rows, inner);
      } else {
        CopyRow(src + at.src, dst + at.dst, inner);
      }
    }
  });
}

}  // namespace

bool CopyStrided(const KernelContext& ctx, DataType dtype, const void* src, void* dst,
                 CopyDims dims) {
  for (const CopyDim& d : dims) {
    if (d.size == 0) return true;
  }
  Simplify(&dims);
  if (dtype == kVariant) {
    using Object = RefPtr<RefCounted>;
    CopyTyped(ctx, static_cast<const Object*>(src), static_cast<Object*>(dst), std::move(dims));
    return true;
  }
  return DispatchMovable(dtype, [&]<typename T>() {
    CopyTyped(ctx, static_cast<const T*>(src), static_cast<T*>(dst), std::move(dims));
  });
}

bool FillWith(const KernelContext& ctx, DataType dtype, const void* value, void* dst, int64_t n) {
  return CopyStrided(ctx, dtype, value, dst, {CopyDim{n, 0, 1}});
}

bool FillZero(const KernelContext& ctx, DataType dtype, void* dst, int64_t n) {
  if (IsMemcpyable(dtype)) {
    const double cost = 0.1 * static_cast<double>(DataTypeSize(dtype));
    ctx.ParallelFor(n, cost, [&](int64_t begin, int64_t end) {
      if (end == begin) return;
      std::memset(ElementAt(dst, dtype, begin), 0, (end - begin) * DataTypeSize(dtype));
    });
    return true;
  }
  return DispatchMovable(dtype, [&]<typename T>() { std::fill_n(static_cast<T*>(dst), n, T()); });
}

Dims RowMajorStrides(std::span<const int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (int i = static_cast<int>(dims.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * dims[i + 1];
  }
  return strides;
}

}  // namespace millrace
