// SPDX-License-Identifier: Apache-2.0
// CUPTI's functions and records as they are declared here, beside those of the toolkit's headers.
#include "device/cuda/trace/cupti_calls.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "base/errors.h"
#include "base/strings.h"

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
  requires(sizeof...(A) == sizeof...(B) && std::is_void_v<R> == std::is_void_v<S>)
struct Same<R (*)(A...), S (*)(B...)> : std::bool_constant<(kAlike<A, B> && ...)> {};
// All that return something return an int.
template <typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B) && !std::is_void_v<S>)
struct Same<int (*)(A...), S (*)(B...)>
    : std::bool_constant<kAlike<int, S> && (kAlike<A, B> && ...)> {};

#define MR_CHECK_CALL(name, ...) \
  static_assert(Same<decltype(CuptiCalls::name), decltype(&::name)>::value, #name);
MR_CUPTI_CALLS(MR_CHECK_CALL)
#undef MR_CHECK_CALL
static_assert(Same<CuptiRequest*, CUpti_BuffersCallbackRequestFunc>::value);
static_assert(Same<CuptiComplete*, CUpti_BuffersCallbackCompleteFunc>::value);

// A field is where the library's is, and as large.
#define MR_CHECK_FIELD(Ours, field, Theirs, their_field)                         \
  static_assert(offsetof(cupti::Ours, field) == offsetof(Theirs, their_field) && \
                    sizeof(cupti::Ours::field) == sizeof(Theirs::their_field),   \
                #Ours "::" #field)

MR_CHECK_FIELD(Memcpy, kind, CUpti_ActivityMemcpy6, kind);
MR_CHECK_FIELD(Memcpy, copy_kind, CUpti_ActivityMemcpy6, copyKind);
MR_CHECK_FIELD(Memcpy, bytes, CUpti_ActivityMemcpy6, bytes);
MR_CHECK_FIELD(Memcpy, start, CUpti_ActivityMemcpy6, start);
MR_CHECK_FIELD(Memcpy, end, CUpti_ActivityMemcpy6, end);
MR_CHECK_FIELD(Memcpy, stream, CUpti_ActivityMemcpy6, streamId);
MR_CHECK_FIELD(Memcpy, correlation, CUpti_ActivityMemcpy6, correlationId);

MR_CHECK_FIELD(PeerMemcpy, kind, CUpti_ActivityMemcpyPtoP4, kind);
MR_CHECK_FIELD(PeerMemcpy, copy_kind, CUpti_ActivityMemcpyPtoP4, copyKind);
MR_CHECK_FIELD(PeerMemcpy, bytes, CUpti_ActivityMemcpyPtoP4, bytes);
MR_CHECK_FIELD(PeerMemcpy, start, CUpti_ActivityMemcpyPtoP4, start);
MR_CHECK_FIELD(PeerMemcpy, end, CUpti_ActivityMemcpyPtoP4, end);
MR_CHECK_FIELD(PeerMemcpy, stream, CUpti_ActivityMemcpyPtoP4, streamId);
MR_CHECK_FIELD(PeerMemcpy, correlation, CUpti_ActivityMemcpyPtoP4, correlationId);

MR_CHECK_FIELD(Memset, kind, CUpti_ActivityMemset4, kind);
MR_CHECK_FIELD(Memset, bytes, CUpti_ActivityMemset4, bytes);
MR_CHECK_FIELD(Memset, start, CUpti_ActivityMemset4, start);
MR_CHECK_FIELD(Memset, end, CUpti_ActivityMemset4, end);
MR_CHECK_FIELD(Memset, stream, CUpti_ActivityMemset4, streamId);
MR_CHECK_FIELD(Memset, correlation, CUpti_ActivityMemset4, correlationId);

MR_CHECK_FIELD(Kernel, kind, CUpti_ActivityKernel10, kind);
MR_CHECK_FIELD(Kernel, registers, CUpti_ActivityKernel10, registersPerThread);
MR_CHECK_FIELD(Kernel, start, CUpti_ActivityKernel10, start);
MR_CHECK_FIELD(Kernel, end, CUpti_ActivityKernel10, end);
MR_CHECK_FIELD(Kernel, stream, CUpti_ActivityKernel10, streamId);
MR_CHECK_FIELD(Kernel, correlation, CUpti_ActivityKernel10, correlationId);
MR_CHECK_FIELD(Kernel, grid_id, CUpti_ActivityKernel10, gridId);
MR_CHECK_FIELD(Kernel, name, CUpti_ActivityKernel10, name);

MR_CHECK_FIELD(ExternalCorrelation, kind, CUpti_ActivityExternalCorrelation, kind);
MR_CHECK_FIELD(ExternalCorrelation, external_kind, CUpti_ActivityExternalCorrelation, externalKind);
MR_CHECK_FIELD(ExternalCorrelation, external, CUpti_ActivityExternalCorrelation, externalId);
MR_CHECK_FIELD(ExternalCorrelation, correlation, CUpti_ActivityExternalCorrelation, correlationId);
static_assert(sizeof(cupti::ExternalCorrelation) == sizeof(CUpti_ActivityExternalCorrelation));

// The numbers that the device's code uses.
static_assert(CUPTI_SUCCESS == cupti::kSuccess);
static_assert(CUPTI_ERROR_MAX_LIMIT_REACHED == cupti::kMaxLimitReached);
static_assert(CUPTI_ERROR_INVALID_KIND == cupti::kInvalidKind);
static_assert(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES == cupti::kInsufficientPrivileges);
static_assert(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED == cupti::kMultipleSubscribers);
static_assert(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES ==
              cupti::kVirtualizedInsufficientPrivileges);
static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == cupti::kMemcpy);
static_assert(CUPTI_ACTIVITY_KIND_MEMSET == cupti::kMemset);
static_assert(CUPTI_ACTIVITY_KIND_DRIVER == cupti::kDriver);
static_assert(CUPTI_ACTIVITY_KIND_RUNTIME == cupti::kRuntime);
static_assert(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == cupti::kConcurrentKernel);
static_assert(CUPTI_ACTIVITY_KIND_MEMCPY2 == cupti::kPeerMemcpy);
static_assert(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION == cupti::kExternalCorrelation);
static_assert(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 == cupti::kCustom0);
static_assert(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED == cupti::kFlushForced);
static_assert(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD == cupti::kHostToDevice);
static_assert(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH == cupti::kDeviceToHost);
static_assert(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD == cupti::kDeviceToDevice);
static_assert(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP == cupti::kPeerToPeer);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuEventRecord == cupti::kEventRecord);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuEventQuery == cupti::kEventQuery);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent == cupti::kStreamWaitEvent);
static_assert(CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent == cupti::kCtxSetCurrent);

TEST(CuptiCallsTest, AChangedSignatureWouldNotCompile) {
  EXPECT_FALSE((Same<int (*)(int), int (*)(int, int)>::value));
  EXPECT_FALSE((Same<int (*)(void*), int (*)(int)>::value));
  EXPECT_FALSE((Same<void (*)(int), int (*)(int)>::value));
  EXPECT_FALSE((Same<int (*)(uint32_t), int (*)(uint64_t)>::value));
}

// The library is here, with every function of the table, or the error says what is missing.
TEST(CuptiCallsTest, TheLibraryIsLoadedOrTheErrorNamesIt) {
  const StatusOr<const CuptiCalls*> calls = LoadedCupti();
  if (!calls.ok()) {
    EXPECT_TRUE(errors::IsNotFound(calls.status())) << calls.status();
    EXPECT_NE(Message(calls.status()).find("libcupti.so.13"), std::string::npos);
    EXPECT_NE(Message(calls.status()).find("install"), std::string::npos);
    return;
  }
  uint32_t version = 0;
  EXPECT_EQ((*calls)->cuptiGetVersion(&version), cupti::kSuccess);
  EXPECT_GE(version, static_cast<uint32_t>(CUPTI_API_VERSION));
}

}  // namespace
}  // namespace millrace
