// SPDX-License-Identifier: Apache-2.0
// What was issued to a device's streams and has not been seen to end.
#ifndef DEVICE_CUDA_MACHINE_IN_FLIGHT_H_
#define DEVICE_CUDA_MACHINE_IN_FLIGHT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/driver/context.h"
#include "device/cuda/driver/cuda_driver.h"
#include "device/stream.h"
#include "tensor/allocator.h"

namespace millrace {

// What is in a stream.
struct InFlightItem {
  RefPtr<DeviceWork> work;  // may be null
  int64_t id = 0;           // in the work
  std::string node;
  std::function<Status()> run;  // was called; what it owns is in use until the item has ended
  std::function<void(const Status&)> callback;
  std::vector<RefPtr<Buffer>> staging;
};

// A list for each stream, and events behind some of what is in it. To be locked by its user.
class InFlight {
 public:
  InFlight(CudaDriver* driver, std::shared_ptr<CudaEventPool> events)
      : driver_(driver), events_(std::move(events)) {}

  bool empty() const;
  // The last item of stream `s`, whose handle is `stream`.
  void Add(int s, InFlightItem item) { queues_[s].items.push_back(std::move(item)); }
  // Likewise, with an event behind it. The item is only taken if that was recorded.
  Status AddMarked(int s, void* stream, InFlightItem* item);
  // Moves what has run to `ended`. Asks the driver, and marks streams that have no event.
  Status Collect(const std::array<void*, kNumStreamKinds>& streams,
                 std::vector<InFlightItem>* ended);
  // All there is; nothing will be asked about it.
  std::vector<InFlightItem> TakeAll();

 private:
  struct Queue {
    std::deque<InFlightItem> items;
    int64_t first = 0;  // number of the first item
    struct Marker {
      int64_t item;  // it and all before it have run when
      void* event;   // has happened
    };
    std::deque<Marker> markers;
  };
  // An event behind the last item.
  Status Mark(Queue* queue, void* stream);

  CudaDriver* const driver_;
  const std::shared_ptr<CudaEventPool> events_;
  std::array<Queue, kNumStreamKinds> queues_;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_IN_FLIGHT_H_
