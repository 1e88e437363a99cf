// SPDX-License-Identifier: Apache-2.0
// Messages as the strings that tensors hold.
#ifndef KERNELS_COMMON_MESSAGE_TEXT_H_
#define KERNELS_COMMON_MESSAGE_TEXT_H_

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <limits>
#include <string>

#include "base/errors.h"

namespace millrace {

// ResourceExhausted for what no message can hold: what is written of it would be nothing.
inline Status CheckMessageBytes(std::size_t bytes) {
  if (bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return OkStatus();
  return errors::ResourceExhausted("a message of ", bytes, " bytes; it may have 2 GiB at most");
}

inline StatusOr<std::string> MessageText(const google::protobuf::MessageLite& message) {
  if (Status fits = CheckMessageBytes(message.ByteSizeLong()); !fits.ok()) return fits;
  return message.SerializeAsString();
}

}  // namespace millrace

#endif  // KERNELS_COMMON_MESSAGE_TEXT_H_
