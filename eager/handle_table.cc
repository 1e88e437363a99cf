// SPDX-License-Identifier: Apache-2.0
#include "eager/handle_table.h"

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

Status NoSuchTensor(int64_t op_id, int output) {
  return errors::InvalidArgument(
      "Unable to find the relevant tensor remote_handle: Op ID: ", op_id, ", Output num: ", output,
      ". The op that makes it failed or has not run, or the tensor was given back already");
}

}  // namespace

Status HandleTable::Put(int64_t op_id, int output, Tensor value, int64_t sent_bytes) {
  MutexLock lock(&mu_);
  if (tensors_.size() >= limit_) {
    return errors::ResourceExhausted("the context keeps ", tensors_.size(),
                                     " tensors, the most that one may: let go of some");
  }
  if (most_sent_ > 0 && sent_bytes > most_sent_ - sent_bytes_) {
    return errors::ResourceExhausted(
        "the tensor of op ", op_id, ", output ", output, ", has ", sent_bytes,
        " bytes; of what its client has sent, a context may keep ", most_sent_, " and has ",
        sent_bytes_, " (--session_memory_limit): let go of some");
  }
  const auto [it, is_new] =
      tensors_.try_emplace(Key(op_id, output), Entry{std::move(value), sent_bytes});
  if (!is_new) {
    return errors::InvalidArgument("the context has a tensor of op ", op_id, ", output ", output,
                                   " already");
  }
  sent_bytes_ += sent_bytes;
  Count(it->second.value, +1, nullptr);
  return OkStatus();
}

StatusOr<Tensor> HandleTable::Get(int64_t op_id, int output) const {
  MutexLock lock(&mu_);
  const auto it = tensors_.find(Key(op_id, output));
  if (it == tensors_.end()) return NoSuchTensor(op_id, output);
  return it->second.value;
}

Status HandleTable::Drop(int64_t op_id, int output) {
  Tensor dropped;  // freed without the lock
  Free free;
  {
    MutexLock lock(&mu_);
    const auto it = tensors_.find(Key(op_id, output));
    if (it == tensors_.end()) return NoSuchTensor(op_id, output);
    dropped = std::move(it->second.value);
    sent_bytes_ -= it->second.sent_bytes;
    tensors_.erase(it);
    Count(dropped, -1, &free);
  }
  CleanUp(free);
  return OkStatus();
}

void HandleTable::Clear() {
  absl::flat_hash_map<Key, Entry> tensors;
  StringMap<Held> held;
  {
    MutexLock lock(&mu_);
    tensors.swap(tensors_);
    sent_bytes_ = 0;
    held.swap(held_);
  }
  tensors.clear();
  Free free;
  for (auto& [container, entry] : held) free.emplace_back(container, std::move(entry.devices));
  CleanUp(free);
}

std::size_t HandleTable::size() const {
  MutexLock lock(&mu_);
  return tensors_.size();
}

std::string HandleTable::NewContainer() {
  MutexLock lock(&mu_);
  return StrCat(prefix_, next_container_++);
}

void HandleTable::Hold(const std::string& container, std::span<Device* const> devices) {
  MutexLock lock(&mu_);
  Held& held = held_[container];
  held.devices.assign(devices.begin(), devices.end());
  ++held.count;
}

void HandleTable::LetGo(const std::string& container) {
  Free free;
  {
    MutexLock lock(&mu_);
    CountOne(container, -1, &free);
  }
  CleanUp(free);
}

void HandleTable::Count(const Tensor& value, int change, Free* free) {
  if (value.dtype() != kResource) return;
  const ResourceHandle* const handles = value.data<ResourceHandle>();
  for (int64_t i = 0; i < value.num_elements(); ++i) {
    if (handles[i].container.starts_with(prefix_)) CountOne(handles[i].container, change, free);
  }
}

void HandleTable::CountOne(const std::string& container, int change, Free* free) {
  // A handle may name what is gone, or what another context had.
  const auto it = held_.find(container);
  if (it == held_.end()) return;
  it->second.count += change;
  if (it->second.count > 0) return;
  free->emplace_back(container, std::move(it->second.devices));
  held_.erase(it);
}

void HandleTable::CleanUp(const Free& free) {
  for (const auto& [container, devices] : free) {
    for (Device* device : devices) device->resource_manager()->Cleanup(container);
  }
}

}  // namespace millrace
