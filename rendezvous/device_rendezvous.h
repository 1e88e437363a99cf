// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a step that uses accelerators: it carries the account of the step's work on
// them to the kernels that add to it.
#ifndef RENDEZVOUS_DEVICE_RENDEZVOUS_H_
#define RENDEZVOUS_DEVICE_RENDEZVOUS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/stream.h"
#include "rendezvous/rendezvous.h"

namespace millrace {

// Passes everything on to another one. Thread-safe.
class DeviceRendezvous final : public Rendezvous {
 public:
  DeviceRendezvous(RefPtr<Rendezvous> base, RefPtr<DeviceWork> work)
      : base_(std::move(base)), work_(std::move(work)) {}

  DeviceWork* work() const { return work_.get(); }

  Status Send(std::string_view key, Tensor value, bool is_dead) override {
    return base_->Send(key, std::move(value), is_dead);
  }
  void RecvAsync(std::string_view key, CancellationManager* cancellation, RecvDone done) override {
    base_->RecvAsync(key, cancellation, std::move(done));
  }
  void StartAbort(const Status& status) override { base_->StartAbort(status); }
  void ListWaits(std::size_t limit, std::vector<std::string>* keys) const override {
    base_->ListWaits(limit, keys);
  }

 private:
  const RefPtr<Rendezvous> base_;
  const RefPtr<DeviceWork> work_;
};

// The account of the step that a rendezvous belongs to; null if it keeps none.
inline DeviceWork* WorkOf(const Rendezvous* rendezvous) {
  const auto* const accounted = dynamic_cast<const DeviceRendezvous*>(rendezvous);
  return accounted == nullptr ? nullptr : accounted->work();
}

}  // namespace millrace

#endif  // RENDEZVOUS_DEVICE_RENDEZVOUS_H_
