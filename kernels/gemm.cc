// A blocked matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (TOMS 2008): panels of b are packed once and shared by all threads, rows
// of a are read where they lie, and a register tile of c is kept over a block of k. One body
// is compiled for three instruction sets; the best is chosen once, at run time.
#include "kernels/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/isa.h"

namespace millrace {
namespace {

constexpr int64_t kBlockK = 512;   // a panel of b (kBlockK x tile width) stays in L1/L2
constexpr int64_t kBlockN = 1024;  // packed b: at most kBlockK * kBlockN elements

// Grows, never shrinks: warm steps find it large enough.
class Scratch {
 public:
  void* Get(std::size_t bytes) {
    if (bytes > size_) {
      data_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      size_ = data_ ? bytes : 0;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t size_ = 0;
};

// One product over a packed block of b.
template <typename T>
struct Block {
  MatrixView<T> a;  // at the first k of the block
  const T* packed;  // panels of `width` columns, each k x width, zero padded
  T* c;             // at the first column of the block
  int64_t c_stride, n, k;
  bool accumulate;
};

// kRows x (kVecs * lanes) of c from a panel whose rows are kStride apart.
template <typename V, typename T, int kRows, int kVecs, int kStride>
MR_ALWAYS_INLINE void Tile(const Block<T>& block, const T* panel, int64_t row, T* c,
                           int64_t columns) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  V acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = V{};
  }
  const int64_t rs = block.a.row_stride, cs = block.a.col_stride;
  const T* a = block.a.data + row * rs;
  for (int64_t p = 0; p < block.k; ++p) {
    V b[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      __builtin_memcpy(&b[v], panel + p * kStride + v * kLanes, sizeof(V));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V av = a[r * rs + p * cs] - V{};  // to all lanes (x - 0 is x, and folds away)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] += av * b[v];
    }
  }
  if (columns == kWidth) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        T* out = c + r * block.c_stride + v * kLanes;
        V sum = acc[r][v];
        if (block.accumulate) {
          V old;
          __builtin_memcpy(&old, out, sizeof(V));
          sum += old;
        }
        __builtin_memcpy(out, &sum, sizeof(V));
      }
    }
    return;
  }
  alignas(64) T edge[kRows][kWidth];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) __builtin_memcpy(&edge[r][v * kLanes], &acc[r][v], sizeof(V));
  }
  for (int r = 0; r < kRows; ++r) {
    T* out = c + r * block.c_stride;
    for (int64_t j = 0; j < columns; ++j) {
      out[j] = block.accumulate ? out[j] + edge[r][j] : edge[r][j];
    }
  }
}

// Rows [begin, end) of one panel.
template <typename V, typename T, int kRows, int kVecs, int kStride>
MR_ALWAYS_INLINE void Panel(const Block<T>& block, int64_t begin, int64_t end, int64_t j,
                            int64_t columns) {
  const T* panel = block.packed + j * block.k;
  T* c = block.c + j;
  int64_t i = begin;
  for (; i + kRows <= end; i += kRows) {
    Tile<V, T, kRows, kVecs, kStride>(block, panel, i, c + i * block.c_stride, columns);
  }
  for (; i + 4 <= end; i += 4) {
    Tile<V, T, 4, kVecs, kStride>(block, panel, i, c + i * block.c_stride, columns);
  }
  for (; i < end; ++i) {
    Tile<V, T, 1, kVecs, kStride>(block, panel, i, c + i * block.c_stride, columns);
  }
}

// Rows [begin, end) of the block, whose panels are kVecs vectors wide; where no more than
// one vector of columns is left, only that one is computed.
template <typename V, typename T, int kRows, int kVecs>
MR_ALWAYS_INLINE void Rows(const Block<T>& block, int64_t begin, int64_t end) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  for (int64_t j = 0; j < block.n; j += kWidth) {
    const int64_t columns = std::min<int64_t>(kWidth, block.n - j);
    if (kVecs > 1 && columns <= kLanes) {
      Panel<V, T, kRows, 1, kWidth>(block, begin, end, j, columns);
    } else {
      Panel<V, T, kRows, kVecs, kWidth>(block, begin, end, j, columns);
    }
  }
}

template <typename T>
struct Kernel {
  void (*wide)(const Block<T>&, int64_t, int64_t);    // two vectors per row of c
  void (*narrow)(const Block<T>&, int64_t, int64_t);  // one
  int lanes;
};

#define MR_GEMM_VARIANT(name, target, T, bytes, rows_wide, rows_narrow)         \
  target void name##Wide(const Block<T>& block, int64_t begin, int64_t end) {   \
    typedef T V __attribute__((vector_size(bytes)));                            \
    Rows<V, T, rows_wide, 2>(block, begin, end);                                \
  }                                                                             \
  target void name##Narrow(const Block<T>& block, int64_t begin, int64_t end) { \
    typedef T V __attribute__((vector_size(bytes)));                            \
    Rows<V, T, rows_narrow, 1>(block, begin, end);                              \
  }

MR_GEMM_VARIANT(FloatAvx512, MR_TARGET_AVX512, float, 64, 12, 24)
MR_GEMM_VARIANT(FloatAvx2, MR_TARGET_AVX2, float, 32, 6, 12)
MR_GEMM_VARIANT(FloatBase, , float, 16, 4, 8)
MR_GEMM_VARIANT(DoubleAvx512, MR_TARGET_AVX512, double, 64, 12, 24)
MR_GEMM_VARIANT(DoubleAvx2, MR_TARGET_AVX2, double, 32, 6, 12)
MR_GEMM_VARIANT(DoubleBase, , double, 16, 4, 8)

template <typename T>
Kernel<T> Choose();
template <>
Kernel<float> Choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return {FloatAvx512Wide, FloatAvx512Narrow, 16};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {FloatAvx2Wide, FloatAvx2Narrow, 8};
  }
  return {FloatBaseWide, FloatBaseNarrow, 4};
}
template <>
Kernel<double> Choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return {DoubleAvx512Wide, DoubleAvx512Narrow, 8};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {DoubleAvx2Wide, DoubleAvx2Narrow, 4};
  }
  return {DoubleBaseWide, DoubleBaseNarrow, 2};
}

// Columns [j, j + width) of b as k rows of `width` elements, zeros beyond `columns`.
template <typename T>
void PackPanel(MatrixView<T> b, int64_t k, int64_t columns, int64_t width, T* out) {
  if (b.col_stride == 1 && columns == width) {
    for (int64_t p = 0; p < k; ++p) {
      std::copy_n(b.data + p * b.row_stride, width, out + p * width);
    }
    return;
  }
  if (b.row_stride == 1) {  // transposed: read along k
    for (int64_t j = 0; j < width; ++j) {
      const T* column = b.data + j * b.col_stride;
      for (int64_t p = 0; p < k; ++p) out[p * width + j] = j < columns ? column[p] : T(0);
    }
    return;
  }
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < width; ++j) {
      out[p * width + j] = j < columns ? b.data[p * b.row_stride + j * b.col_stride] : T(0);
    }
  }
}

}  // namespace

template <typename T>
void Gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, int64_t c_stride,
          bool accumulate, ParallelRunner parallel) {
  static const Kernel<T> kernel = Choose<T>();
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    if (!accumulate) {
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, T(0));
    }
    return;
  }
  const bool wide = n > kernel.lanes;
  const int64_t width = wide ? 2 * kernel.lanes : kernel.lanes;
  thread_local Scratch scratch;
  for (int64_t j0 = 0; j0 < n; j0 += kBlockN) {
    const int64_t nb = std::min(kBlockN, n - j0);
    const int64_t panels = (nb + width - 1) / width;
    for (int64_t p0 = 0; p0 < k; p0 += kBlockK) {
      const int64_t kb = std::min(kBlockK, k - p0);
      T* packed = static_cast<T*>(scratch.Get(panels * width * kb * sizeof(T)));
      if (packed == nullptr) std::abort();
      for (int64_t q = 0; q < panels; ++q) {
        const int64_t j = j0 + q * width;
        PackPanel<T>({b.data + p0 * b.row_stride + j * b.col_stride, b.row_stride, b.col_stride},
                     kb, std::min(width, n - j), width, packed + q * width * kb);
      }
      const Block<T> block{{a.data + p0 * a.col_stride, a.row_stride, a.col_stride},
                           packed,
                           c + j0,
                           c_stride,
                           nb,
                           kb,
                           accumulate || p0 > 0};
      // Shares of whole row tiles; 24 is a multiple of every variant's.
      constexpr int64_t kShare = 24;
      const int64_t shares = (m + kShare - 1) / kShare;
      parallel(shares, static_cast<double>(kShare * nb * kb) / 40, [&](int64_t from, int64_t to) {
        (wide ? kernel.wide : kernel.narrow)(block, from * kShare, std::min(m, to * kShare));
      });
    }
  }
}

template void Gemm<float>(int64_t, int64_t, int64_t, MatrixView<float>, MatrixView<float>, float*,
                          int64_t, bool, ParallelRunner);
template void Gemm<double>(int64_t, int64_t, int64_t, MatrixView<double>, MatrixView<double>,
                           double*, int64_t, bool, ParallelRunner);

}  // namespace millrace
