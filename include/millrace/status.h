// Errors are values: every function that can fail returns a Status or a StatusOr.
#ifndef MILLRACE_STATUS_H_
#define MILLRACE_STATUS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

// Codes equal gRPC's and TensorFlow's numbers. Payloads carry what the wire carries
// (docs/wire.md); a message names node, device and task where one is involved.
using Status = absl::Status;
using StatusCode = absl::StatusCode;

template <typename T>
using StatusOr = absl::StatusOr<T>;

inline Status OkStatus() { return absl::OkStatus(); }

}  // namespace millrace

#endif  // MILLRACE_STATUS_H_
