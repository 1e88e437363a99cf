// SPDX-License-Identifier: Apache-2.0
// For fuzzers of what carries tensors.
#ifndef TENSOR_FUZZ_GUARD_H_
#define TENSOR_FUZZ_GUARD_H_

#include "google/protobuf/message.h"

namespace millrace {

// True if a tensor somewhere in the message is far larger than its bytes, which a list of
// values may be: with such inputs a fuzzer only finds slowness.
bool StandsForMuch(const google::protobuf::Message& message);

}  // namespace millrace

#endif  // TENSOR_FUZZ_GUARD_H_
