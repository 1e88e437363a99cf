// SPDX-License-Identifier: Apache-2.0
// Runs loops on the GPU, in the stream of the queue. For .cu files only.
#ifndef KERNELS_CUDA_CUDA_LAUNCHER_H_
#define KERNELS_CUDA_CUDA_LAUNCHER_H_

#include <cuda_runtime.h>

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// All threads of a warp get what another one has, which `exchange` finds for each word of it; for
// any plain type of less than a word, or of whole ones.
template <typename T, typename Exchange>
__device__ T Shuffle(T value, Exchange exchange) {
  if constexpr (sizeof(T) < 4) {
    int wide = 0;
    memcpy(&wide, &value, sizeof(T));
    wide = exchange(wide);
    memcpy(&value, &wide, sizeof(T));
  } else {
    static_assert(sizeof(T) % 4 == 0);
    int words[sizeof(T) / 4];
    memcpy(words, &value, sizeof(T));
    for (int& word : words) word = exchange(word);
    memcpy(&value, words, sizeof(T));
  }
  return value;
}
struct LaneXor {
  int mask;
  __device__ int operator()(int word) const { return __shfl_xor_sync(0xffffffffu, word, mask); }
};
// The first lanes keep what they have.
struct LaneBelow {
  int distance;
  __device__ int operator()(int word) const { return __shfl_up_sync(0xffffffffu, word, distance); }
};
struct LaneAt {
  int lane;
  __device__ int operator()(int word) const { return __shfl_sync(0xffffffffu, word, lane); }
};

// The same tree whatever the values: results repeat.
template <typename T, typename Op>
__device__ T ReduceWarp(T value, Op op) {
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, Shuffle(value, LaneXor{mask}));
  return value;
}

// The values of this lane and those below together.
template <typename T, typename Op>
__device__ T ScanWarp(T value, Op op) {
  const int lane = threadIdx.x % 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const T below = Shuffle(value, LaneBelow{distance});
    if (lane >= distance) value = op(below, value);
  }
  return value;
}
template <typename T>
__device__ T BelowInWarp(T scanned, T identity) {
  const T below = Shuffle(scanned, LaneBelow{1});
  return threadIdx.x % 32 == 0 ? identity : below;
}

// The threads of one warp.
class WarpTeam {
 public:
  __device__ int64_t rank() const { return threadIdx.x % 32; }
  __device__ static constexpr int64_t size() { return 32; }
  template <typename T, typename Op>
  __device__ T Reduce(T value, T, Op op) const {
    return ReduceWarp(value, op);
  }
  template <typename T, typename Op>
  __device__ Scanned<T> Scan(T value, T identity, Op op) const {
    const T scanned = ScanWarp(value, op);
    return {BelowInWarp(scanned, identity), Shuffle(scanned, LaneAt{31})};
  }
};

// The threads of one block, of whole warps.
class BlockTeam {
 public:
  static constexpr int kScratchBytes = 32 * 8;
  __device__ explicit BlockTeam(char* scratch) : scratch_(scratch) {}
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return blockDim.x; }
  template <typename T, typename Op>
  __device__ T Reduce(T value, T identity, Op op) const {
    static_assert(sizeof(T) <= 8);
    T* parts = reinterpret_cast<T*>(scratch_);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value = ReduceWarp(value, op);
    __syncthreads();  // whoever read what was reduced before has done so
    if (lane == 0) parts[warp] = value;
    __syncthreads();
    value = lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : identity;
    return ReduceWarp(value, op);
  }

  template <typename T, typename Op>
  __device__ Scanned<T> Scan(T value, T identity, Op op) const {
    static_assert(sizeof(T) <= 8);
    T* parts = reinterpret_cast<T*>(scratch_);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const T scanned = ScanWarp(value, op);
    __syncthreads();  // whoever read what was exchanged before has done so
    if (lane == 31) parts[warp] = scanned;
    __syncthreads();
    // Every warp scans the totals of all.
    const T totals =
        ScanWarp(lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : identity, op);
    const T warps_before = Shuffle(BelowInWarp(totals, identity), LaneAt{warp});
    return {op(warps_before, BelowInWarp(scanned, identity)), Shuffle(totals, LaneAt{31})};
  }

  __device__ static void Sync() { __syncthreads(); }

 private:
  char* scratch_;
};

template <typename F>
__global__ void __launch_bounds__(256) ForEachKernel(int64_t n, const __grid_constant__ F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    f(i);
  }
}

template <typename F>
__global__ void __launch_bounds__(256) ForWarpsKernel(int64_t rows, const __grid_constant__ F f) {
  const int64_t warps = blockDim.x / 32, step = gridDim.x * warps;
  for (int64_t row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += step) {
    f(WarpTeam(), row);
  }
}

template <typename F>
__global__ void __launch_bounds__(1024) ForBlocksKernel(int64_t rows, const __grid_constant__ F f) {
  __shared__ alignas(8) char scratch[BlockTeam::kScratchBytes];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) f(BlockTeam(scratch), row);
}

template <typename T, int kSize, typename F>
__global__ void __launch_bounds__(256) ForTilesKernel(int64_t n, const __grid_constant__ F f) {
  __shared__ T tile[kSize];
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) f(BlockTeam(nullptr), i, tile);
}

// As HostLauncher.
class CudaLauncher {
 public:
  explicit CudaLauncher(Queue queue) : stream_(static_cast<cudaStream_t>(queue.stream)) {}

  template <typename F>
  Outcome ForEach(int64_t n, const F& f) const {
    if (n <= 0) return nullptr;
    ForEachKernel<F><<<Blocks((n + 255) / 256), 256, 0, stream_>>>(n, f);
    return Check();
  }

  // Rows of up to a thousand elements are a warp's, longer ones a block's.
  template <typename F>
  Outcome ForTeams(int64_t rows, int64_t width, const F& f) const {
    if (rows <= 0) return nullptr;
    if (width <= 1024) {
      ForWarpsKernel<F><<<Blocks((rows + 7) / 8), 256, 0, stream_>>>(rows, f);
    } else {
      const int threads = width <= 4096 ? 256 : 1024;
      ForBlocksKernel<F><<<Blocks(rows), threads, 0, stream_>>>(rows, f);
    }
    return Check();
  }

  template <typename T, int kSize, typename F>
  Outcome ForTiles(int64_t n, const F& f) const {
    if (n <= 0) return nullptr;
    ForTilesKernel<T, kSize, F><<<Blocks(n), 256, 0, stream_>>>(n, f);
    return Check();
  }

  // In sort.cu: of CUB, which takes its time to compile. Keys lie in [0, rows].
  static int64_t SortScratchBytes(int64_t n);
  Outcome SortPairs(int64_t n, const int64_t* keys, int64_t* sorted_keys, const int32_t* values,
                    int32_t* sorted_values, void* scratch, int64_t scratch_bytes,
                    int64_t rows) const;

 private:
  // Enough to fill any GPU several times over; the rest is done by strides.
  static unsigned Blocks(int64_t wanted) {
    return static_cast<unsigned>(wanted < 65536 ? wanted : 65536);
  }
  static Outcome Check() {
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }

  cudaStream_t stream_;
};

}  // namespace millrace::gpu

#endif  // KERNELS_CUDA_CUDA_LAUNCHER_H_
