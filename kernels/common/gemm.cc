// SPDX-License-Identifier: Apache-2.0
// A blocked matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (TOMS 2008): panels of b are packed, a is read where it lies, and a register tile
// of c is kept over a block of k. Threads share c out and nothing else. One body is compiled for
// three instruction sets; the best is chosen once, at run time.
//
// Every row of a tile costs a load for each k, that brings one number to all lanes, and every
// vector of columns a load of its own. With 512-bit vectors 8 rows of 3 take 11 loads for 24
// products where 12 of 2 take 14: a processor whose load ports another thread uses as well is bound
// by those.
#include "kernels/common/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "kernels/common/isa.h"

namespace millrace {
namespace {

// Depth of a block: a panel of b (this times a tile's width) stays in L2, the rows of a in L1.
constexpr int64_t kBlockK = 256;
// How many rows of a panel ahead are asked for.
constexpr int64_t kAhead = 8;
constexpr int64_t kBlockN = 240;  // columns of b that are packed at a time: they stay in L2
constexpr int64_t kBlockM = 192;  // rows of a that are worked on at a time: they stay in L2
constexpr int kNarrowRows = 12;   // of a tile of one vector

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

// c[m, n] = a * b, or a part of it.
template <typename T>
struct Product {
  int64_t m, n, k;
  MatrixView<T> a, b;
  T* c;
  int64_t c_stride;
  bool accumulate;
};

// One product over a packed block of b.
template <typename T>
struct Block {
  MatrixView<T> a;  // at the first row and the first k of the block
  const T* packed;  // panels of columns, each k x width, zero padded
  T* c;             // at the first row and column of the block
  int64_t c_stride, m, n, k;
  bool accumulate;
};

// kRows x (kVecs * lanes) of c from a panel whose rows are kStride apart; the elements of a column
// of a lie together if kColumnsOfA says so.
template <typename V, typename T, int kRows, int kVecs, int kStride, bool kColumnsOfA>
MR_ALWAYS_INLINE void Tile(const Block<T>& block, const T* a, const T* panel, T* c,
                           int64_t columns) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  V acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = V{};
      // What is written at the end; nothing of it need be there.
      __builtin_prefetch(c + r * block.c_stride + v * kLanes, 1);
    }
  }
  const int64_t rs = kColumnsOfA ? 1 : block.a.row_stride;
  const int64_t cs = kColumnsOfA ? block.a.col_stride : 1;
  for (int64_t p = 0; p < block.k; ++p) {
    V b[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      __builtin_memcpy(&b[v], panel + v * kLanes, sizeof(V));
      __builtin_prefetch(panel + kAhead * kStride + v * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V av = a[r * rs] - V{};  // to all lanes (x - 0 is x, and folds away)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] += av * b[v];
    }
    a += cs;
    panel += kStride;
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
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      V sum;
      __builtin_memcpy(&sum, &edge[r][j], sizeof(V));
      if (block.accumulate) {
        V old;
        __builtin_memcpy(&old, out + j, sizeof(V));
        sum += old;
      }
      __builtin_memcpy(out + j, &sum, sizeof(V));
    }
    for (; j < columns; ++j) out[j] = block.accumulate ? out[j] + edge[r][j] : edge[r][j];
  }
}

// All rows of one panel, of which kVecs vectors are wanted.
template <typename V, typename T, int kRows, int kVecs, int kStride, bool kColumnsOfA>
MR_ALWAYS_INLINE void Panel(const Block<T>& block, int64_t j, int64_t columns) {
  const T* const panel = block.packed + j * block.k;
  T* const c = block.c + j;
  const T* const a = block.a.data;
  const int64_t rs = kColumnsOfA ? 1 : block.a.row_stride;
  int64_t i = 0;
  const auto rows = [&]<int kCount>() __attribute__((always_inline)) {
    for (; i + kCount <= block.m; i += kCount) {
      Tile<V, T, kCount, kVecs, kStride, kColumnsOfA>(block, a + i * rs, panel,
                                                      c + i * block.c_stride, columns);
    }
  };
  rows.template operator()<kRows>();
  if constexpr (kRows > 6) rows.template operator()<4>();
  rows.template operator()<2>();
  rows.template operator()<1>();
}

// All panels of a block. Of the last, only the vectors that hold columns are computed, with the
// more rows at a time the fewer there are.
template <typename V, typename T, int kRows, int kVecs, bool kColumnsOfA>
MR_ALWAYS_INLINE void Panels(const Block<T>& block) {
  static_assert(kVecs <= 3, "the last panel has cases for up to three vectors");
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  int64_t j = 0;
  for (; j + kWidth <= block.n; j += kWidth) {
    Panel<V, T, kRows, kVecs, kWidth, kColumnsOfA>(block, j, kWidth);
  }
  const int64_t columns = block.n - j, vecs = (columns + kLanes - 1) / kLanes;
  if (vecs == kVecs) {
    Panel<V, T, kRows, kVecs, kWidth, kColumnsOfA>(block, j, columns);
  } else if (vecs == 1) {
    Panel<V, T, kNarrowRows, 1, kWidth, kColumnsOfA>(block, j, columns);
  } else if (kVecs == 3 && vecs == 2) {
    Panel<V, T, 12, 2, kWidth, kColumnsOfA>(block, j, columns);
  }
}

// Four rows of four neighbours, `stride` apart, to four columns, `out_stride` apart.
MR_ALWAYS_INLINE void Transpose4(const float* in, int64_t stride, float* out, int64_t out_stride) {
  typedef float V4 __attribute__((vector_size(16)));
  V4 r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&r[i], in + i * stride, sizeof(V4));
  const V4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const V4 b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const V4 c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const V4 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const V4 t[4] = {
      __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
      __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(out + i * out_stride, &t[i], sizeof(V4));
}

// Columns [0, columns) of b as k rows of kWidth elements, zeros beyond `columns` to the end of the
// vector of kLanes; further vectors are nobody's.
template <typename T, int kWidth, int kLanes>
MR_ALWAYS_INLINE void PackPanel(MatrixView<T> b, int64_t k, int64_t columns, T* out) {
  int64_t done = 0;
  if constexpr (sizeof(T) == 4) {
    if (b.row_stride == 1 && columns == kWidth) {  // transposed: read along k
      for (; done + 4 <= k; done += 4) {
        for (int64_t j = 0; j < kWidth; j += 4) {
          Transpose4(b.data + done + j * b.col_stride, b.col_stride, out + done * kWidth + j,
                     kWidth);
        }
      }
    }
  }
  const int64_t used = (columns + kLanes - 1) / kLanes * kLanes;
  for (int64_t p = done; p < k; ++p) {
    const T* const in = b.data + p * b.row_stride;
    T* const to = out + p * kWidth;
    int64_t j = 0;
    if (b.col_stride == 1) {
      for (; j + kLanes <= columns; j += kLanes) {
        __builtin_memcpy(to + j, in + j, kLanes * sizeof(T));
      }
    }
    for (; j < columns; ++j) to[j] = in[j * b.col_stride];
    for (; j < used; ++j) to[j] = T(0);
  }
}

// n columns of b, as panels of k rows of kVecs vectors.
template <typename V, typename T, int kVecs>
MR_ALWAYS_INLINE void PackB(const MatrixView<T>& b, int64_t k, int64_t n, T* out) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  int64_t packed = 0;
  if (b.col_stride == 1) {
    // Row by row: rows may be pages apart.
    packed = n / kWidth * kWidth;
    for (int64_t p = 0; p < k; ++p) {
      const T* in = b.data + p * b.row_stride;
      for (int64_t j = 0; j < packed; j += kWidth) {
        T* to = out + j * k + p * kWidth;
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          V row;
          __builtin_memcpy(&row, in + j + v * kLanes, sizeof(V));
          __builtin_memcpy(to + v * kLanes, &row, sizeof(V));
        }
      }
    }
  }
  for (; packed < n; packed += kWidth) {
    PackPanel<T, kWidth, kLanes>({b.data + packed * b.col_stride, b.row_stride, b.col_stride}, k,
                                 std::min<int64_t>(kWidth, n - packed), out + packed * k);
  }
}

// Elements of working memory that Run needs: panels of every width fill a block.
constexpr int64_t kScratch = kBlockK * kBlockN;

// The whole product in this thread.
template <typename V, typename T, int kRows, int kVecs>
MR_ALWAYS_INLINE void Run(const Product<T>& p, T* packed) {
  static_assert(kBlockN * sizeof(T) % (kVecs * sizeof(V)) == 0);
  const bool columns_of_a = p.a.row_stride == 1 && p.a.col_stride != 1;
  // Blocks of about the same depth, so that the last is not a sliver.
  const int64_t depths = (p.k + kBlockK - 1) / kBlockK, depth = (p.k + depths - 1) / depths;
  for (int64_t j = 0; j < p.n; j += kBlockN) {
    const int64_t n = std::min(kBlockN, p.n - j);
    for (int64_t q = 0; q < p.k; q += depth) {
      const int64_t k = std::min(depth, p.k - q);
      PackB<V, T, kVecs>(
          {p.b.data + q * p.b.row_stride + j * p.b.col_stride, p.b.row_stride, p.b.col_stride}, k,
          n, packed);
      for (int64_t i = 0; i < p.m; i += kBlockM) {
        const Block<T> block{
            {p.a.data + i * p.a.row_stride + q * p.a.col_stride, p.a.row_stride, p.a.col_stride},
            packed,
            p.c + i * p.c_stride + j,
            p.c_stride,
            std::min(kBlockM, p.m - i),
            n,
            k,
            p.accumulate || q > 0};
        if (columns_of_a) {
          Panels<V, T, kRows, kVecs, true>(block);
        } else {
          Panels<V, T, kRows, kVecs, false>(block);
        }
      }
    }
  }
}

template <typename T>
struct Kernel {
  void (*wide)(const Product<T>&, T* scratch);    // several vectors per row of c
  void (*narrow)(const Product<T>&, T* scratch);  // one
  int lanes, vecs, rows;                          // of `wide`
};

#define MR_GEMM_VARIANT(name, target, T, bytes, vecs, rows)         \
  target void name##Wide(const Product<T>& product, T* scratch) {   \
    typedef T V __attribute__((vector_size(bytes)));                \
    Run<V, T, rows, vecs>(product, scratch);                        \
  }                                                                 \
  target void name##Narrow(const Product<T>& product, T* scratch) { \
    typedef T V __attribute__((vector_size(bytes)));                \
    Run<V, T, kNarrowRows, 1>(product, scratch);                    \
  }                                                                 \
  constexpr Kernel<T> k##name = {name##Wide, name##Narrow, bytes / sizeof(T), vecs, rows};

MR_GEMM_VARIANT(FloatAvx512, MR_TARGET_AVX512, float, 64, 3, 8)
MR_GEMM_VARIANT(FloatAvx2, MR_TARGET_AVX2, float, 32, 2, 6)
MR_GEMM_VARIANT(FloatBase, , float, 16, 2, 4)
MR_GEMM_VARIANT(DoubleAvx512, MR_TARGET_AVX512, double, 64, 3, 8)
MR_GEMM_VARIANT(DoubleAvx2, MR_TARGET_AVX2, double, 32, 2, 6)
MR_GEMM_VARIANT(DoubleBase, , double, 16, 2, 4)

template <typename T>
Kernel<T> Choose() {
  const Isa isa = BestIsa();
  if constexpr (sizeof(T) == 4) {
    return isa == Isa::kAvx512 ? kFloatAvx512 : isa == Isa::kAvx2 ? kFloatAvx2 : kFloatBase;
  } else {
    return isa == Isa::kAvx512 ? kDoubleAvx512 : isa == Isa::kAvx2 ? kDoubleAvx2 : kDoubleBase;
  }
}

// How c is cut for threads: each part packs what it needs of b.
struct Grid {
  int64_t row_parts = 1, column_parts = 1;
};

// Of `tiles`, as many parts as are wanted or a few less, none of which is much larger than others.
int64_t EvenParts(int64_t tiles, int64_t wanted) {
  const int64_t each = (tiles + wanted - 1) / wanted;
  return (tiles + each - 1) / each;
}

Grid ChooseGrid(int64_t row_tiles, int64_t column_tiles, double operations, double pack_rows,
                double pack_columns) {
  constexpr double kLeastOperations = 1e6;  // per part: some 20 us
  constexpr int64_t kMostParts = 12;
  const auto wanted =
      std::min<int64_t>(kMostParts, static_cast<int64_t>(operations / kLeastOperations));
  Grid best;
  if (wanted <= 1) return best;
  double least = 1e300;
  for (int64_t n = 1; n <= std::min(wanted, row_tiles); ++n) {
    const int64_t rows = EvenParts(row_tiles, n);
    const int64_t columns = EvenParts(column_tiles, std::min(column_tiles, (wanted + n - 1) / n));
    // What cannot be cut as finely as wanted counts as if it were packed again.
    const double parts = static_cast<double>(std::min(wanted, rows * columns));
    const double cost =
        (pack_columns * static_cast<double>(rows) + pack_rows * static_cast<double>(columns)) *
        static_cast<double>(wanted) / parts;
    if (cost < least) {
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

// Part i of n tiles cut into `parts`: where it begins, in elements.
int64_t PartBegin(int64_t i, int64_t parts, int64_t tiles, int64_t tile, int64_t size) {
  return std::min(size, tiles * i / parts * tile);
}

}  // namespace

template <typename T>
void Gemm(int64_t m, int64_t n, int64_t k, MatrixView<T> a, MatrixView<T> b, T* c, int64_t c_stride,
          bool accumulate, ParallelRunner parallel, const GemmEpilogue* epilogue) {
  static const Kernel<T> kernel = Choose<T>();
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    if (!accumulate) {
      for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, T(0));
    }
    if (epilogue != nullptr) (*epilogue)(0, m, 0, n);
    return;
  }
  const bool wide = n > kernel.lanes;
  const int64_t width = wide ? kernel.vecs * kernel.lanes : kernel.lanes;
  const int64_t height = wide ? kernel.rows : kNarrowRows;
  const int64_t row_tiles = (m + height - 1) / height, column_tiles = (n + width - 1) / width;
  const double operations =
      static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  // Parts side by side pack different columns of b; parts below each other pack the same.
  const Grid grid = ChooseGrid(row_tiles, column_tiles, operations, 0.1 * static_cast<double>(m),
                               static_cast<double>(n));
  const int64_t parts = grid.row_parts * grid.column_parts;
  parallel(parts, operations / static_cast<double>(parts) / 40, [&](int64_t from, int64_t to) {
    thread_local Scratch scratch;
    T* memory = static_cast<T*>(scratch.Get(kScratch * sizeof(T)));
    if (memory == nullptr) throw std::bad_alloc();
    for (int64_t part = from; part < to; ++part) {
      const int64_t row = part % grid.row_parts, column = part / grid.row_parts;
      const int64_t i = PartBegin(row, grid.row_parts, row_tiles, height, m);
      const int64_t j = PartBegin(column, grid.column_parts, column_tiles, width, n);
      const Product<T> product{PartBegin(row + 1, grid.row_parts, row_tiles, height, m) - i,
                               PartBegin(column + 1, grid.column_parts, column_tiles, width, n) - j,
                               k,
                               {a.data + i * a.row_stride, a.row_stride, a.col_stride},
                               {b.data + j * b.col_stride, b.row_stride, b.col_stride},
                               c + i * c_stride + j,
                               c_stride,
                               accumulate};
      (wide ? kernel.wide : kernel.narrow)(product, memory);
      if (epilogue != nullptr) (*epilogue)(i, product.m, j, product.n);
    }
  });
}

template void Gemm<float>(int64_t, int64_t, int64_t, MatrixView<float>, MatrixView<float>, float*,
                          int64_t, bool, ParallelRunner, const GemmEpilogue*);
template void Gemm<double>(int64_t, int64_t, int64_t, MatrixView<double>, MatrixView<double>,
                           double*, int64_t, bool, ParallelRunner, const GemmEpilogue*);

}  // namespace millrace
