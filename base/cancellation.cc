// SPDX-License-Identifier: Apache-2.0
#include "base/cancellation.h"

#include <algorithm>
#include <utility>

namespace millrace {

CancellationManager::CancellationManager(CancellationManager* parent) : parent_(parent) {
  if (parent == nullptr) return;
  parent_token_ = parent->NextToken();
  if (!parent->RegisterCallback(parent_token_, [this] { StartCancel(parent_->reason()); })) {
    StartCancel(parent->reason());
  }
}

CancellationManager::~CancellationManager() {
  if (parent_ != nullptr) parent_->DeregisterCallback(parent_token_);
}

void CancellationManager::StartCancel(Status reason) {
  absl::flat_hash_map<Token, Callback> callbacks;
  absl::flat_hash_map<Token, Description> descriptions;
  {
    MutexLock lock(&mu_);
    if (cancelled_.load(std::memory_order_relaxed)) return;
    reason_ = std::move(reason);
    cancelling_ = true;
    cancelled_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    descriptions.swap(descriptions_);
  }
  for (auto& [token, callback] : callbacks) callback();
  MutexLock lock(&mu_);
  cancelling_ = false;
  done_cv_.SignalAll();
}

Status CancellationManager::reason() const {
  MutexLock lock(&mu_);
  return reason_;
}

bool CancellationManager::RegisterCallback(Token token, Callback callback) {
  MutexLock lock(&mu_);
  if (cancelled_.load(std::memory_order_relaxed)) return false;
  callbacks_[token] = std::move(callback);
  return true;
}

bool CancellationManager::DeregisterCallback(Token token) {
  Callback removed;  // destroyed after the lock is released
  Description description;
  MutexLock lock(&mu_);
  while (cancelling_) done_cv_.Wait(&mu_);
  const auto it = callbacks_.find(token);
  if (it == callbacks_.end()) return false;
  removed = std::move(it->second);
  callbacks_.erase(it);
  if (!descriptions_.empty()) TakeDescription(token, &description);
  return true;
}

bool CancellationManager::TryDeregisterCallback(Token token) {
  Callback removed;
  Description description;
  MutexLock lock(&mu_);
  const auto it = callbacks_.find(token);
  if (it == callbacks_.end()) return false;
  removed = std::move(it->second);
  callbacks_.erase(it);
  if (!descriptions_.empty()) TakeDescription(token, &description);
  return true;
}

void CancellationManager::TakeDescription(Token token, Description* description) {
  const auto it = descriptions_.find(token);
  if (it == descriptions_.end()) return;
  *description = std::move(it->second);
  descriptions_.erase(it);
}

void CancellationManager::Describe(Token token, Description description) {
  MutexLock lock(&mu_);
  if (callbacks_.contains(token)) descriptions_[token] = std::move(description);
}

std::vector<std::string> CancellationManager::DescribeWaits() const {
  std::vector<Description> descriptions;
  {
    MutexLock lock(&mu_);
    for (const auto& [token, description] : descriptions_) descriptions.push_back(description);
  }
  std::vector<std::string> waits;
  for (const Description& description : descriptions) waits.push_back(description());
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  return waits;
}

}  // namespace millrace
