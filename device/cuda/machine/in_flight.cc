// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/in_flight.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace millrace {

bool InFlight::empty() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return queue.items.empty(); });
}

Status InFlight::Mark(Queue* queue, void* stream) {
  MR_ASSIGN_OR_RETURN(void* const event, events_->Get());
  const Status status = driver_->Record(event, stream);
  if (!status.ok()) {
    events_->Put(event);
    return status;
  }
  queue->markers.push_back({queue->first + static_cast<int64_t>(queue->items.size()) - 1, event});
  return OkStatus();
}

Status InFlight::AddMarked(int s, void* stream, InFlightItem* item) {
  Queue& queue = queues_[s];
  queue.items.push_back(std::move(*item));
  Status status = Mark(&queue, stream);
  if (status.ok()) return status;
  *item = std::move(queue.items.back());
  queue.items.pop_back();
  return status;
}

Status InFlight::Collect(const std::array<void*, kNumStreamKinds>& streams,
                         std::vector<InFlightItem>* ended) {
  for (int s = 0; s < kNumStreamKinds; ++s) {
    Queue& queue = queues_[s];
    if (queue.items.empty()) continue;
    if (queue.markers.empty()) MR_RETURN_IF_ERROR(Mark(&queue, streams[s]));
    while (!queue.markers.empty()) {
      const Queue::Marker marker = queue.markers.front();
      MR_ASSIGN_OR_RETURN(const bool happened, driver_->Query(marker.event));
      if (!happened) break;
      queue.markers.pop_front();
      events_->Put(marker.event);
      for (; queue.first <= marker.item; ++queue.first) {
        ended->push_back(std::move(queue.items.front()));
        queue.items.pop_front();
      }
    }
  }
  return OkStatus();
}

std::vector<InFlightItem> InFlight::TakeAll() {
  std::vector<InFlightItem> items;
  for (Queue& queue : queues_) {
    for (InFlightItem& item : queue.items) items.push_back(std::move(item));
    queue.first += static_cast<int64_t>(queue.items.size());
    queue.items.clear();
    for (const Queue::Marker& marker : queue.markers) events_->Put(marker.event);
    queue.markers.clear();
  }
  return items;
}

}  // namespace millrace
