// SPDX-License-Identifier: Apache-2.0
// What the device uses of libcupti.so.13: functions, by the names that they have in the library,
// and the records that it fills buffers with. Enumerations are int, handles are pointers. Records
// are declared up to the last field that is read here; cupti_calls_test.cc holds all of it against
// the toolkit's headers.
#ifndef DEVICE_CUDA_TRACE_CUPTI_CALLS_H_
#define DEVICE_CUDA_TRACE_CUPTI_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "millrace/status.h"

namespace millrace {

// Asks for an empty buffer; null declines, and records are dropped.
using CuptiRequest = void(uint8_t** buffer, std::size_t* bytes, std::size_t* max_records);
// Hands one back of which `valid` bytes are records.
using CuptiComplete = void(void* context, uint32_t stream, uint8_t* buffer, std::size_t bytes,
                           std::size_t valid);

#define MR_CUPTI_CALLS(F)                                                                         \
  F(cuptiActivityDisable, int(int kind))                                                          \
  F(cuptiActivityEnable, int(int kind))                                                           \
  F(cuptiActivityEnableDriverApi, int(uint32_t function, uint8_t enable))                         \
  F(cuptiActivityFlushAll, int(uint32_t flags))                                                   \
  F(cuptiActivityGetNextRecord, int(uint8_t* buffer, std::size_t valid, void** record))           \
  F(cuptiActivityGetNumDroppedRecords, int(void* context, uint32_t stream, std::size_t* dropped)) \
  F(cuptiActivityPopExternalCorrelationId, int(int kind, uint64_t* last))                         \
  F(cuptiActivityPushExternalCorrelationId, int(int kind, uint64_t id))                           \
  F(cuptiActivityRegisterCallbacks, int(CuptiRequest * requested, CuptiComplete * completed))     \
  F(cuptiGetResultString, int(int result, const char** text))                                     \
  F(cuptiGetTimestamp, int(uint64_t* nanoseconds))                                                \
  F(cuptiGetVersion, int(uint32_t* version))

struct CuptiCalls {
  template <typename Signature>
  using Call = Signature*;
#define MR_CUPTI_MEMBER(name, ...) Call<__VA_ARGS__> name = nullptr;
  MR_CUPTI_CALLS(MR_CUPTI_MEMBER)
#undef MR_CUPTI_MEMBER
};

// The library of this machine, looked for at the first call. NotFound with what was tried and what
// to do, FailedPrecondition for one that lacks a function. Thread-safe.
StatusOr<const CuptiCalls*> LoadedCupti();

namespace cupti {

// CUptiResult.
inline constexpr int kSuccess = 0;
inline constexpr int kMaxLimitReached = 12;
inline constexpr int kInvalidKind = 21;
inline constexpr int kInsufficientPrivileges = 35;
inline constexpr int kMultipleSubscribers = 39;
inline constexpr int kVirtualizedInsufficientPrivileges = 40;

// CUpti_ActivityKind.
inline constexpr int kMemcpy = 1;
inline constexpr int kMemset = 2;
inline constexpr int kDriver = 4;
inline constexpr int kRuntime = 5;
inline constexpr int kConcurrentKernel = 10;
inline constexpr int kPeerMemcpy = 22;
inline constexpr int kExternalCorrelation = 39;

inline constexpr int kCustom0 = 3;           // CUpti_ExternalCorrelationKind
inline constexpr uint32_t kFlushForced = 1;  // CUpti_ActivityFlag
inline constexpr int kHostToDevice = 1;      // CUpti_ActivityMemcpyKind
inline constexpr int kDeviceToHost = 2;
inline constexpr int kDeviceToDevice = 8;
inline constexpr int kPeerToPeer = 10;
inline constexpr uint32_t kEventRecord = 119;  // CUpti_driver_api_trace_cbid
inline constexpr uint32_t kEventQuery = 120;
inline constexpr uint32_t kStreamWaitEvent = 295;
inline constexpr uint32_t kCtxSetCurrent = 303;

// Times are nanoseconds of the library's clock, 0 where it has none.

struct Memcpy {  // CUpti_ActivityMemcpy6
  int kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};

struct PeerMemcpy {  // CUpti_ActivityMemcpyPtoP4
  int kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, source_device, source_context, destination_device,
      destination_context, correlation;
};

struct Memset {  // CUpti_ActivityMemset4
  int kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};

struct Kernel {  // CUpti_ActivityKernel10
  int kind;
  uint8_t cache, shared_memory;
  uint16_t registers;
  int global_cache_requested, global_cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], static_shared, dynamic_shared;
  uint32_t local_per_thread, local_total, correlation;
  int64_t grid_id;
  const char* name;
};

struct ExternalCorrelation {  // CUpti_ActivityExternalCorrelation
  int kind, external_kind;
  uint64_t external;
  uint32_t correlation, reserved;
};

}  // namespace cupti
}  // namespace millrace

#endif  // DEVICE_CUDA_TRACE_CUPTI_CALLS_H_
