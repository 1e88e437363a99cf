// SPDX-License-Identifier: Apache-2.0
// The driver's functions as they are declared here, beside those of the toolkit's header.
#include "device/cuda/driver/driver_calls.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace millrace {
namespace {

// Passed the same way: pointers as pointers, and numbers of one size and kind.
template <typename Ours, typename Theirs>
constexpr bool kAlike =
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
    std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;

template <typename Ours, typename Theirs>
struct Same : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B))
struct Same<R (*)(A...), S (*)(B...)> : std::bool_constant<kAlike<R, S> && (kAlike<A, B> && ...)> {
};

#define MR_CHECK_CALL(name, ...) \
  static_assert(Same<decltype(DriverCalls::name), decltype(&::name)>::value, #name);
MR_DRIVER_CALLS(MR_CHECK_CALL)
#undef MR_CHECK_CALL

TEST(DriverCallsTest, AChangedSignatureWouldNotCompile) {
  EXPECT_FALSE((Same<int (*)(int), int (*)(int, int)>::value));
  EXPECT_FALSE((Same<int (*)(void*), int (*)(int)>::value));
  EXPECT_TRUE((Same<decltype(DriverCalls::cuEventQuery), decltype(&::cuEventQuery)>::value));
}

// The numbers that the device's code uses.
static_assert(CUDA_SUCCESS == 0 && CUDA_ERROR_OUT_OF_MEMORY == 2 && CUDA_ERROR_NO_DEVICE == 100);
static_assert(CUDA_ERROR_NOT_READY == 600 && CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED == 704);
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16);
static_assert(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE == 38);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == 76);
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == 97);
static_assert(CU_JIT_ERROR_LOG_BUFFER == 5 && CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES == 6);
static_assert(CU_MEMHOSTALLOC_PORTABLE == 1 && CU_STREAM_NON_BLOCKING == 1);
static_assert(CU_EVENT_DISABLE_TIMING == 2 && CU_STREAM_CAPTURE_MODE_RELAXED == 2);

}  // namespace
}  // namespace millrace
