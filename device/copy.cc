// SPDX-License-Identifier: Apache-2.0
#include "device/copy.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

bool HasBytes(const Tensor& value) {
  return IsMemcpyable(value.dtype()) && value.num_elements() > 0;
}

// From here on `later` runs after what `first` was given so far.
void Join(Stream* first, Stream* later) { later->Wait(first->Record()); }

}  // namespace

StatusOr<Tensor> CopyToDevice(Accelerator* to, Allocator* allocator, const Tensor& host,
                              DeviceWork* work, std::string_view node) {
  if (!HasBytes(host)) return host;
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, host.dtype(), host.shape()));
  Stream* const compute = to->stream(StreamKind::kCompute);
  Stream* const copies = to->stream(StreamKind::kCopyIn);
  Join(compute, copies);  // the block's last users are there
  const auto account = RefPtr<DeviceWork>::Share(work);
  copies->EnqueueCopy(account, node, copy.raw_data(), host.raw_data(), host.num_bytes());
  Join(copies, compute);
  copies->EnqueueCallback(account, node, [host](const Status&) {});  // keeps its share until then
  return copy;
}

void CopyToHost(Accelerator* from, const Tensor& value, DeviceWork* work, std::string_view node,
                std::function<void(const Status&, const Tensor&)> done) {
  Stream* const copies = from->stream(StreamKind::kCopyOut);
  const auto account = RefPtr<DeviceWork>::Share(work);
  Join(from->stream(StreamKind::kCompute), copies);
  Tensor copy = value;
  if (HasBytes(value) && InDeviceMemory(value)) {
    StatusOr<Tensor> made =
        Tensor::Allocate(from->staging_allocator(), value.dtype(), value.shape());
    if (!made.ok()) return done(made.status(), Tensor());
    copy = *std::move(made);
    copies->EnqueueCopy(account, node, copy.raw_data(), value.raw_data(), value.num_bytes());
  }
  copies->EnqueueCallback(
      account, node,
      [copy, value = Tensor(value), done = std::move(done)](const Status& status) mutable {
        value = Tensor();
        done(status, status.ok() ? copy : Tensor());
      });
}

StatusOr<Tensor> CopyToPeer(Accelerator* from, Accelerator* to, Allocator* allocator,
                            const Tensor& value, DeviceWork* work, std::string_view node) {
  if (!HasBytes(value)) return value;
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, value.dtype(), value.shape()));
  Stream* const compute = to->stream(StreamKind::kCompute);
  Stream* const copies = to->stream(StreamKind::kPeer);
  Join(from->stream(StreamKind::kCompute), copies);
  Join(compute, copies);
  const auto account = RefPtr<DeviceWork>::Share(work);
  copies->EnqueueCopy(account, node, copy.raw_data(), value.raw_data(), value.num_bytes());
  Join(copies, compute);
  copies->EnqueueCallback(account, node, [value](const Status&) {});
  return copy;
}

StatusOr<Tensor> CopyOnDevice(Accelerator* on, Allocator* allocator, const Tensor& value,
                              DeviceWork* work, std::string_view node) {
  if (!HasBytes(value)) return value;
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(allocator, value.dtype(), value.shape()));
  on->stream(StreamKind::kCompute)
      ->EnqueueCopy(RefPtr<DeviceWork>::Share(work), node, copy.raw_data(), value.raw_data(),
                    value.num_bytes(), /*even_after_error=*/true);
  return copy;
}

}  // namespace millrace
