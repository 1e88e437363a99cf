// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/session_tensors.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/errors.h"

namespace millrace {
namespace {

int64_t NewNumber() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

SessionTensors::SessionTensors(std::string owner, std::string name)
    : owner_(std::move(owner)),
      container_(StrCat("_session_", NewNumber())),
      name_(std::move(name)),
      number_(NewNumber()) {}

void SessionTensors::ForgetPrivate() {
  std::vector<ResourceManager*> managers;
  {
    MutexLock lock(&mu_);
    managers.swap(managers_);
  }
  for (ResourceManager* resources : managers) resources->Cleanup(container_);
}

const std::string& SessionTensors::PrivateContainer(ResourceManager* resources) {
  MutexLock lock(&mu_);
  if (std::find(managers_.begin(), managers_.end(), resources) == managers_.end()) {
    managers_.push_back(resources);
  }
  return container_;
}

std::string SessionTensors::Add(std::string_view node, std::string_view device, Tensor value) {
  MutexLock lock(&mu_);
  std::string handle = StrCat(node, ";", next_++, ";", device);
  tensors_[handle] = std::move(value);
  return handle;
}

StatusOr<Tensor> SessionTensors::Get(std::string_view handle) const {
  MutexLock lock(&mu_);
  const auto it = tensors_.find(handle);
  if (it != tensors_.end()) return it->second;
  return errors::InvalidArgument("The tensor with handle '", handle,
                                 "' is not in the session store.");
}

Status SessionTensors::Delete(std::string_view handle) {
  MutexLock lock(&mu_);
  const auto it = tensors_.find(handle);
  if (it == tensors_.end()) {
    return errors::InvalidArgument("Failed to delete a tensor with handle '", handle,
                                   "' in the session store.");
  }
  tensors_.erase(it);
  return OkStatus();
}

}  // namespace millrace
