// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/trace/cupti_buffers.h"

#include <cstring>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Records are larger in the buffer than they are declared here; newer ones may be larger still.
template <typename Record>
Record Read(const void* from) {
  Record record;
  std::memcpy(&record, from, sizeof(record));
  return record;
}

DeviceActivity::Kind CopyKind(uint8_t kind) {
  switch (kind) {
    case cupti::kHostToDevice:
      return DeviceActivity::Kind::kToDevice;
    case cupti::kDeviceToHost:
      return DeviceActivity::Kind::kToHost;
    case cupti::kDeviceToDevice:
      return DeviceActivity::Kind::kOnDevice;
    case cupti::kPeerToPeer:
      return DeviceActivity::Kind::kToPeer;
    default:
      return DeviceActivity::Kind::kOtherCopy;
  }
}

template <typename Copy>
CuptiRecords::Activity CopyOf(const void* record) {
  const Copy copy = Read<Copy>(record);
  return {CopyKind(copy.copy_kind),
          copy.correlation,
          copy.stream,
          copy.start,
          copy.end,
          copy.bytes,
          ""};
}

void ReadRecord(const void* record, CuptiRecords* records) {
  switch (Read<int>(record)) {
    case cupti::kConcurrentKernel: {
      const auto kernel = Read<cupti::Kernel>(record);
      records->activities.push_back({DeviceActivity::Kind::kKernel, kernel.correlation,
                                     kernel.stream, kernel.start, kernel.end, 0,
                                     kernel.name == nullptr ? "" : kernel.name});
      return;
    }
    case cupti::kMemcpy:
      records->activities.push_back(CopyOf<cupti::Memcpy>(record));
      return;
    case cupti::kPeerMemcpy:
      records->activities.push_back(CopyOf<cupti::PeerMemcpy>(record));
      return;
    case cupti::kMemset: {
      const auto fill = Read<cupti::Memset>(record);
      records->activities.push_back({DeviceActivity::Kind::kFill, fill.correlation, fill.stream,
                                     fill.start, fill.end, fill.bytes, ""});
      return;
    }
    case cupti::kExternalCorrelation: {
      const auto pushed = Read<cupti::ExternalCorrelation>(record);
      if (pushed.external_kind != cupti::kCustom0) return;  // somebody else's
      records->pushed.emplace_back(pushed.correlation, pushed.external);
      return;
    }
    default:
      return;  // of calls: only what they enqueued matters
  }
}

}  // namespace

uint8_t* CuptiBuffers::Take() {
  if (out_.size() >= static_cast<std::size_t>(most_)) return nullptr;
  Buffer buffer;
  if (idle_.empty()) {
    buffer.reset(new uint8_t[bytes_]);
  } else {
    buffer = std::move(idle_.back());
    idle_.pop_back();
  }
  uint8_t* const data = buffer.get();
  out_[data] = {std::move(buffer), ++latest_};
  return data;
}

void CuptiBuffers::Put(uint8_t* buffer) {
  const auto it = out_.find(buffer);
  if (it == out_.end()) return;
  idle_.push_back(std::move(it->second.first));
  out_.erase(it);
}

int CuptiBuffers::NumOut(int64_t number) const {
  int num = 0;
  for (const auto& [data, buffer] : out_) num += buffer.second <= number ? 1 : 0;
  return num;
}

Status ReadCuptiBuffer(const CuptiCalls& calls, uint8_t* buffer, std::size_t valid,
                       CuptiRecords* records) {
  void* record = nullptr;
  while (valid > 0) {
    const int result = calls.cuptiActivityGetNextRecord(buffer, valid, &record);
    if (result == cupti::kMaxLimitReached) break;
    // One that was not complete when the buffer had to go; nothing follows it.
    if (result == cupti::kInvalidKind) break;
    if (result != cupti::kSuccess) {
      return errors::Internal("cuptiActivityGetNextRecord: error ", result);
    }
    ReadRecord(record, records);
  }
  return OkStatus();
}

}  // namespace millrace
