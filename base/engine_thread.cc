// SPDX-License-Identifier: Apache-2.0
#include "base/engine_thread.h"

namespace millrace {
namespace {
constinit thread_local bool t_engine_thread = false;
}  // namespace

constinit thread_local int DeferScope::depth_ = 0;
constinit thread_local DeferredWork* DeferScope::head_ = nullptr;
constinit thread_local DeferredWork* DeferScope::tail_ = nullptr;
constinit thread_local bool HurryScope::hurry_ = false;

bool DeferScope::Defer(DeferredWork* work) {
  if (depth_ == 0) return false;
  work->next = nullptr;
  (tail_ != nullptr ? tail_->next : head_) = work;
  tail_ = work;
  return true;
}

void DeferScope::RunAll() {
  while (DeferredWork* work = head_) {
    head_ = work->next;
    if (head_ == nullptr) tail_ = nullptr;
    work->run(work);
  }
}

void MarkEngineThread() { t_engine_thread = true; }
bool OnEngineThread() { return t_engine_thread; }

}  // namespace millrace
