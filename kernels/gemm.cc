// A blocked matrix product after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (TOMS 2008): panels of b are packed, rows of a are read where they lie
// (only a transposed a is packed), and a register tile of c is kept over a block of k. Threads
// share c out and nothing else. One body is compiled for three instruction sets; the best is
// chosen once, at run time.
#include "kernels/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/isa.h"

namespace millrace {
namespace {

// Depth of a block: a panel of b (this times a tile's width) and one of a stay in L1.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockN = 256;  // columns of b that are packed at a time: they stay in L2
constexpr int64_t kBlockM = 192;  // rows of a that are worked on at a time: they stay in L2

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

// kRows x (kVecs * lanes) of c from a panel whose rows are kStride apart. Of a packed a
// (kPackedRows > 0) the elements of a column lie together and columns that far apart.
template <typename V, typename T, int kRows, int kVecs, int kStride, int kPackedRows>
MR_ALWAYS_INLINE void Tile(const Block<T>& block, const T* a, const T* panel, T* c, int64_t rows,
                           int64_t columns) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  V acc[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = V{};
  }
  const int64_t rs = kPackedRows > 0 ? 1 : block.a.row_stride;
  const int64_t cs = kPackedRows > 0 ? kPackedRows : block.a.col_stride;
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
  if (columns == kWidth && rows == kRows) {
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
  for (int r = 0; r < rows; ++r) {
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

// All rows of one panel.
template <typename V, typename T, int kRows, int kVecs, int kStride, bool kPacksA>
MR_ALWAYS_INLINE void Panel(const Block<T>& block, const T* packed_a, int64_t j, int64_t columns) {
  const T* panel = block.packed + j * block.k;
  T* c = block.c + j;
  if (kPacksA) {
    for (int64_t i = 0; i < block.m; i += kRows) {
      Tile<V, T, kRows, kVecs, kStride, kRows>(block, packed_a + i * block.k, panel,
                                               c + i * block.c_stride,
                                               std::min<int64_t>(kRows, block.m - i), columns);
    }
    return;
  }
  const T* a = block.a.data;
  const int64_t rs = block.a.row_stride;
  int64_t i = 0;
  for (; i + kRows <= block.m; i += kRows) {
    Tile<V, T, kRows, kVecs, kStride, 0>(block, a + i * rs, panel, c + i * block.c_stride, kRows,
                                         columns);
  }
  for (; i + 4 <= block.m; i += 4) {
    Tile<V, T, 4, kVecs, kStride, 0>(block, a + i * rs, panel, c + i * block.c_stride, 4, columns);
  }
  for (; i < block.m; ++i) {
    Tile<V, T, 1, kVecs, kStride, 0>(block, a + i * rs, panel, c + i * block.c_stride, 1, columns);
  }
}

// All panels of a block; where no more than one vector of columns is left, only that one is
// computed.
template <typename V, typename T, int kRows, int kVecs, bool kPacksA>
MR_ALWAYS_INLINE void Panels(const Block<T>& block, const T* packed_a) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  constexpr int kWidth = kLanes * kVecs;
  for (int64_t j = 0; j < block.n; j += kWidth) {
    const int64_t columns = std::min<int64_t>(kWidth, block.n - j);
    if (kVecs > 1 && columns <= kLanes) {
      Panel<V, T, kRows, 1, kWidth, kPacksA>(block, packed_a, j, columns);
    } else {
      Panel<V, T, kRows, kVecs, kWidth, kPacksA>(block, packed_a, j, columns);
    }
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

// Columns [0, columns) of b as k rows of kWidth elements, zeros beyond `columns`.
template <typename T, int kWidth>
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
  for (int64_t p = done; p < k; ++p) {
    for (int64_t j = 0; j < kWidth; ++j) {
      out[p * kWidth + j] = j < columns ? b.data[p * b.row_stride + j * b.col_stride] : T(0);
    }
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
    PackPanel<T, kWidth>({b.data + packed * b.col_stride, b.row_stride, b.col_stride}, k,
                         std::min<int64_t>(kWidth, n - packed), out + packed * k);
  }
}

// A transposed a as panels of k columns of kRows elements, zeros beyond its last row.
template <typename T, int kRows>
MR_ALWAYS_INLINE void PackA(const MatrixView<T>& a, int64_t m, int64_t k, T* out) {
  for (int64_t i = 0; i < m; i += kRows, out += kRows * k) {
    const T* in = a.data + i;
    if (i + kRows <= m) {
      for (int64_t p = 0; p < k; ++p) {
        __builtin_memcpy(out + p * kRows, in + p * a.col_stride, kRows * sizeof(T));
      }
      continue;
    }
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t r = 0; r < kRows; ++r) {
        out[p * kRows + r] = i + r < m ? in[p * a.col_stride + r] : T(0);
      }
    }
  }
}

// Elements of working memory that Run needs.
template <int kRows, int kWidth>
constexpr int64_t kScratch = kBlockK * (kBlockN + kWidth + kBlockM + kRows);

// The whole product in this thread.
template <typename V, typename T, int kRows, int kVecs>
MR_ALWAYS_INLINE void Run(const Product<T>& p, T* scratch) {
  constexpr int kWidth = static_cast<int>(sizeof(V) / sizeof(T)) * kVecs;
  const bool packs_a = p.a.row_stride == 1 && p.a.col_stride != 1;
  constexpr int64_t block_m = kBlockM / kRows * kRows;
  T* const packed_b = scratch;
  T* const packed_a = scratch + kBlockK * (kBlockN + kWidth);
  // Blocks of about the same depth, so that the last is not a sliver.
  const int64_t depths = (p.k + kBlockK - 1) / kBlockK, depth = (p.k + depths - 1) / depths;
  for (int64_t j = 0; j < p.n; j += kBlockN) {
    const int64_t n = std::min(kBlockN, p.n - j);
    for (int64_t q = 0; q < p.k; q += depth) {
      const int64_t k = std::min(depth, p.k - q);
      PackB<V, T, kVecs>(
          {p.b.data + q * p.b.row_stride + j * p.b.col_stride, p.b.row_stride, p.b.col_stride}, k,
          n, packed_b);
      for (int64_t i = 0; i < p.m; i += block_m) {
        const Block<T> block{
            {p.a.data + i * p.a.row_stride + q * p.a.col_stride, p.a.row_stride, p.a.col_stride},
            packed_b,
            p.c + i * p.c_stride + j,
            p.c_stride,
            std::min(block_m, p.m - i),
            n,
            k,
            p.accumulate || q > 0};
        if (packs_a) {
          PackA<T, kRows>(block.a, block.m, k, packed_a);
          Panels<V, T, kRows, kVecs, true>(block, packed_a);
        } else {
          Panels<V, T, kRows, kVecs, false>(block, nullptr);
        }
      }
    }
  }
}

template <typename T>
struct Kernel {
  void (*wide)(const Product<T>&, T* scratch);    // two vectors per row of c
  void (*narrow)(const Product<T>&, T* scratch);  // one
  int lanes, rows;                                // of `wide`
  int64_t scratch;                                // elements, for either
};

#define MR_GEMM_VARIANT(name, target, T, bytes, rows_wide, rows_narrow)                  \
  target void name##Wide(const Product<T>& product, T* scratch) {                        \
    typedef T V __attribute__((vector_size(bytes)));                                     \
    Run<V, T, rows_wide, 2>(product, scratch);                                           \
  }                                                                                      \
  target void name##Narrow(const Product<T>& product, T* scratch) {                      \
    typedef T V __attribute__((vector_size(bytes)));                                     \
    Run<V, T, rows_narrow, 1>(product, scratch);                                         \
  }                                                                                      \
  constexpr Kernel<T> k##name = {name##Wide, name##Narrow, bytes / sizeof(T), rows_wide, \
                                 std::max(kScratch<rows_wide, 2 * bytes / sizeof(T)>,    \
                                          kScratch<rows_narrow, bytes / sizeof(T)>)};

MR_GEMM_VARIANT(FloatAvx512, MR_TARGET_AVX512, float, 64, 12, 24)
MR_GEMM_VARIANT(FloatAvx2, MR_TARGET_AVX2, float, 32, 6, 12)
MR_GEMM_VARIANT(FloatBase, , float, 16, 4, 8)
MR_GEMM_VARIANT(DoubleAvx512, MR_TARGET_AVX512, double, 64, 12, 24)
MR_GEMM_VARIANT(DoubleAvx2, MR_TARGET_AVX2, double, 32, 6, 12)
MR_GEMM_VARIANT(DoubleBase, , double, 16, 4, 8)

template <typename T>
Kernel<T> Choose() {
  const Isa isa = BestIsa();
  if constexpr (sizeof(T) == 4) {
    return isa == Isa::kAvx512 ? kFloatAvx512 : isa == Isa::kAvx2 ? kFloatAvx2 : kFloatBase;
  } else {
    return isa == Isa::kAvx512 ? kDoubleAvx512 : isa == Isa::kAvx2 ? kDoubleAvx2 : kDoubleBase;
  }
}

// How c is cut for threads: each part packs what it needs of b (and of a transposed a).
struct Grid {
  int64_t row_parts = 1, column_parts = 1;
};

Grid ChooseGrid(int64_t row_tiles, int64_t column_tiles, double operations, double pack_rows,
                double pack_columns) {
  constexpr double kLeastOperations = 1e6;  // per part: some 20 us
  constexpr int64_t kMostParts = 12;
  const auto wanted =
      std::min<int64_t>(kMostParts, static_cast<int64_t>(operations / kLeastOperations));
  Grid best;
  if (wanted <= 1) return best;
  double least = 1e300;
  for (int64_t rows = 1; rows <= std::min(wanted, row_tiles); ++rows) {
    const int64_t columns = std::min(column_tiles, (wanted + rows - 1) / rows);
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
  const int64_t width = wide ? 2 * kernel.lanes : kernel.lanes;
  const int64_t height = wide ? kernel.rows : 2 * kernel.rows;
  const int64_t row_tiles = (m + height - 1) / height, column_tiles = (n + width - 1) / width;
  const double operations =
      static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const bool packs_a = a.row_stride == 1 && a.col_stride != 1;
  const Grid grid =
      ChooseGrid(row_tiles, column_tiles, operations,
                 (packs_a ? 1.0 : 0.1) * static_cast<double>(m), static_cast<double>(n));
  const int64_t parts = grid.row_parts * grid.column_parts;
  parallel(parts, operations / static_cast<double>(parts) / 40, [&](int64_t from, int64_t to) {
    thread_local Scratch scratch;
    T* memory = static_cast<T*>(scratch.Get(static_cast<std::size_t>(kernel.scratch) * sizeof(T)));
    if (memory == nullptr) std::abort();
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
