// SPDX-License-Identifier: Apache-2.0
// For what both the host's compiler and nvcc compile.
#ifndef KERNELS_COMMON_HOST_DEVICE_H_
#define KERNELS_COMMON_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define MR_HD __host__ __device__
#else
#define MR_HD
#endif

namespace millrace {

// std::min and std::max, which functions of the device may not call.
template <typename A>
MR_HD A Smaller(A a, A b) {
  return b < a ? b : a;
}
template <typename A>
MR_HD A Larger(A a, A b) {
  return a < b ? b : a;
}

}  // namespace millrace

#endif  // KERNELS_COMMON_HOST_DEVICE_H_
