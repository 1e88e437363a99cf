// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <utility>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

struct DeviceMemory {
  Mutex mu;
  std::map<const char*, std::pair<std::size_t, Accelerator*>> ranges ABSL_GUARDED_BY(mu);
};

DeviceMemory& TheDeviceMemory() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

}  // namespace

Accelerator* AcceleratorOf(const void* address) {
  const char* const at = static_cast<const char*>(address);
  DeviceMemory& memory = TheDeviceMemory();
  MutexLock lock(&memory.mu);
  auto next = memory.ranges.upper_bound(at);
  if (next == memory.ranges.begin()) return nullptr;
  const auto& [begin, range] = *--next;
  return at < begin + range.first ? range.second : nullptr;
}

void AddDeviceMemory(const void* begin, std::size_t size, Accelerator* accelerator) {
  DeviceMemory& memory = TheDeviceMemory();
  MutexLock lock(&memory.mu);
  memory.ranges[static_cast<const char*>(begin)] = {size, accelerator};
}

void RemoveDeviceMemory(const void* begin) {
  DeviceMemory& memory = TheDeviceMemory();
  MutexLock lock(&memory.mu);
  memory.ranges.erase(static_cast<const char*>(begin));
}

void DeviceWork::SetOnError(std::function<void(const Status&)> on_error) {
  MutexLock lock(&mu_);
  on_error_ = std::move(on_error);
}

Status DeviceWork::error() const {
  MutexLock lock(&mu_);
  return error_;
}

std::string DeviceWork::PendingLocked() const {
  if (pending_.empty()) return "";
  const Operation& first = pending_.begin()->second;
  std::string text = StrCat("{{node ", first.node, "}} on ", first.device->name());
  if (pending_.size() > 1) {
    StrAppend(&text, " and ", pending_.size() - 1, " more operation",
              pending_.size() == 2 ? "" : "s");
  }
  return text;
}

std::string DeviceWork::Pending() const {
  MutexLock lock(&mu_);
  return PendingLocked();
}

std::function<void()> DeviceWork::TakeDone() {
  if (done_ == nullptr) return nullptr;
  Status status;
  if (pending_.empty()) {
    if (telling_) return nullptr;  // whoever tells comes by here again
    status = error_;
  } else if (given_up_) {
    status = errors::Cancelled("the step did not wait for ", PendingLocked());
  } else {
    return nullptr;
  }
  on_error_ = nullptr;
  return [done = std::exchange(done_, nullptr), status] { done(status); };
}

void DeviceWork::WhenIdle(Done done) {
  std::function<void()> now;
  {
    MutexLock lock(&mu_);
    done_ = std::move(done);
    now = TakeDone();
  }
  if (now) now();
}

void DeviceWork::GiveUp() {
  std::function<void()> now;
  {
    MutexLock lock(&mu_);
    given_up_ = true;
    now = TakeDone();
  }
  if (now) now();
}

int64_t DeviceWork::Begin(const Accelerator* device, std::string_view node) {
  MutexLock lock(&mu_);
  pending_.emplace(next_, Operation{device, std::string(node)});
  return next_++;
}

void DeviceWork::End(int64_t operation, Accelerator* device, const Status& status) {
  std::function<void()> now;
  bool tell = false;
  {
    MutexLock lock(&mu_);
    const auto ended = pending_.find(operation);
    if (!status.ok() && error_.ok()) {
      error_ = Annotate(
          status, StrCat("\n\t [[{{node ", ended->second.node, "}}]]\n\t on ", device->name()));
      failed_.store(true, std::memory_order_release);
      tell = telling_ = on_error_ != nullptr;
    }
    pending_.erase(ended);
    now = TakeDone();
  }
  if (tell) device->Post([self = RefPtr<DeviceWork>::Share(this)] { self->TellError(); });
  if (now) device->Post(std::move(now));
}

void DeviceWork::TellError() {
  std::function<void(const Status&)> on_error;
  Status error;
  {
    MutexLock lock(&mu_);
    on_error = std::exchange(on_error_, nullptr);
    error = error_;
  }
  if (on_error) on_error(error);
  std::function<void()> now;
  {
    MutexLock lock(&mu_);
    telling_ = false;
    now = TakeDone();
  }
  if (now) now();
}

}  // namespace millrace
