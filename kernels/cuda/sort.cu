// SPDX-License-Identifier: Apache-2.0
// The stable sort under scatters.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/cuda_launcher.h"

namespace millrace::gpu {
namespace {

// The run time keeps the last error until somebody asks: the next launch would be blamed for it.
Outcome Told(cudaError_t error) {
  if (error == cudaSuccess) return nullptr;
  static_cast<void>(cudaGetLastError());
  return cudaGetErrorString(error);
}

}  // namespace

int64_t CudaLauncher::SortScratchBytes(int64_t n) {
  std::size_t bytes = 0;
  // Without a size, sorting tells what is wrong.
  static_cast<void>(Told(cub::DeviceRadixSort::SortPairs<int64_t, int32_t>(
      nullptr, bytes, nullptr, nullptr, nullptr, nullptr, n)));
  return static_cast<int64_t>(bytes);
}

Outcome CudaLauncher::SortPairs(int64_t n, const int64_t* keys, int64_t* sorted_keys,
                                const int32_t* values, int32_t* sorted_values, void* scratch,
                                int64_t scratch_bytes, int64_t rows) const {
  if (n <= 0) return nullptr;
  int bits = 1;  // of keys up to `rows`
  while (bits < 63 && (rows >> bits) != 0) ++bits;
  auto bytes = static_cast<std::size_t>(scratch_bytes);
  const cudaError_t error = cub::DeviceRadixSort::SortPairs(
      scratch, bytes, keys, sorted_keys, values, sorted_values, n, 0, bits, stream_);
  return Told(error);
}

}  // namespace millrace::gpu
