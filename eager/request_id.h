// SPDX-License-Identifier: Apache-2.0
// What errors, logs and pages call an op or a call of a function.
#ifndef EAGER_REQUEST_ID_H_
#define EAGER_REQUEST_ID_H_

#include <cstdint>

#include "proto/eager.pb.h"

namespace millrace {

// Clients send no names of their requests, but they number the ops of a context. This is the same
// in all tasks that have a part in one: who cuts a function passes the number on.
inline int64_t EagerRequestId(uint64_t context, int64_t number) {
  uint64_t id = context + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(number);
  id = (id ^ (id >> 33)) * 0xff51afd7ed558ccd;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53;
  id ^= id >> 33;
  return id == 0 ? 1 : static_cast<int64_t>(id);
}

// 0 if the client gave it no number. A part of a function without one has that of its step.
inline int64_t EagerRequestId(uint64_t context, const pb::Operation& operation) {
  if (operation.id() >= 0) return EagerRequestId(context, operation.id());
  return operation.func_step_id() == 0 ? 0 : EagerRequestId(context, operation.func_step_id());
}

}  // namespace millrace

#endif  // EAGER_REQUEST_ID_H_
