// SPDX-License-Identifier: Apache-2.0
// The payloads of a status, as they travel beside its code and text.
#ifndef TRANSPORT_STATUS_PAYLOADS_H_
#define TRANSPORT_STATUS_PAYLOADS_H_

#include <string>

#include "millrace/status.h"

namespace millrace {

// A serialized GrpcPayloadContainer, "" if there are none.
std::string EncodeStatusPayloads(const Status& status);
// Adds them to `status`; bytes that cannot be decoded leave the payload GrpcPayloadsLost.
void DecodeStatusPayloads(const std::string& bytes, Status* status);

}  // namespace millrace

#endif  // TRANSPORT_STATUS_PAYLOADS_H_
