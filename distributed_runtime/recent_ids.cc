// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/recent_ids.h"

#include "base/errors.h"

namespace millrace {

Status RecentIds::Track(int64_t id, std::string_view method) {
  if (id == 0) return OkStatus();
  MutexLock lock(&mu_);
  if (!ids_.insert(id).second) {
    return errors::Aborted("The same ", method, " request was received twice, request_id ", id,
                           ": the first one is being served or has been answered");
  }
  if (order_.size() < capacity_) {
    order_.push_back(id);
  } else {
    ids_.erase(order_[oldest_]);
    order_[oldest_] = id;
    oldest_ = (oldest_ + 1) % capacity_;
  }
  return OkStatus();
}

}  // namespace millrace
