// SPDX-License-Identifier: Apache-2.0
// A cancellation of one call under that of its caller, for as long as the caller waits.
#ifndef BASE_LINKED_CANCELLATION_H_
#define BASE_LINKED_CANCELLATION_H_

#include "base/cancellation.h"
#include "millrace/ref_ptr.h"

namespace millrace {

// Unlike a CancellationManager with a parent it may outlive the parent: whoever ends the call
// unlinks it before it tells the caller. Thread-safe.
class LinkedCancellation : public RefCounted {
 public:
  CancellationManager* get() { return &own_; }

  // Once, before the call begins; `parent` may be null. Cancels at once if the parent is.
  void Link(CancellationManager* parent) {
    if (parent == nullptr) return;
    parent_ = parent;
    token_ = parent->NextToken();
    const auto self = RefPtr<LinkedCancellation>::Share(this);
    const bool registered = parent->RegisterCallback(
        token_, [self, parent] { self->own_.StartCancel(parent->reason()); });
    if (!registered) {
      parent_ = nullptr;
      own_.StartCancel(parent->reason());
    }
  }
  // Once, while the parent still lives. A cancellation that runs meanwhile may still arrive.
  void Unlink() {
    if (parent_ != nullptr) parent_->TryDeregisterCallback(token_);
  }

 private:
  CancellationManager own_;
  CancellationManager* parent_ = nullptr;
  CancellationManager::Token token_ = 0;
};

}  // namespace millrace

#endif  // BASE_LINKED_CANCELLATION_H_
