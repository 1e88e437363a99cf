// SPDX-License-Identifier: Apache-2.0
// What device functions tell besides the device.
#ifndef FRONTEND_DEVICE_FUNCTIONS_H_
#define FRONTEND_DEVICE_FUNCTIONS_H_

#include <string>

#include "millrace/graph.h"

namespace millrace {

// Which rule decided when the function was called last, in words: "replica_device_setter:
// VariableV2 is a ps op, task 1 of 2 in turn"; "a device function" for those of users.
std::string LastRuleOf(const DeviceFunction& function);

}  // namespace millrace

#endif  // FRONTEND_DEVICE_FUNCTIONS_H_
