// SPDX-License-Identifier: Apache-2.0
#include "io/background_write.h"

#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace millrace {

BackgroundWrite::~BackgroundWrite() { SyncOrLog(); }

Status BackgroundWrite::Start(std::function<Status()> write) {
  MR_RETURN_IF_ERROR(Sync());
  return Guarded([&]() -> Status {
    thread_ = std::thread([this, write = std::move(write)] { error_ = Guarded(write); });
    return OkStatus();
  });
}

Status BackgroundWrite::Sync() {
  Wait();
  return std::exchange(error_, OkStatus());
}

void BackgroundWrite::SyncOrLog() {
  const Status status = Sync();
  if (!status.ok()) MR_LOG(kError, "a save that nobody waited for has failed: ", Message(status));
}

void BackgroundWrite::Wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace millrace
