// SPDX-License-Identifier: Apache-2.0
// How many calls of one method a task serves at once, as RpcLimits.max_method_calls has it.
#ifndef DISTRIBUTED_RUNTIME_METHOD_LIMITS_H_
#define DISTRIBUTED_RUNTIME_METHOD_LIMITS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "millrace/status.h"

namespace millrace {

using MethodLimits = std::map<std::string, int64_t>;

// For servers that this process makes from now on: what each text says, "100" of all methods or
// "NAME=100" of a method or service, and where they say nothing what there is without any text
// (docs/security.md); 0: no bound. InvalidArgument for any other text.
Status SetMethodLimits(const std::vector<std::string>& texts);
MethodLimits CurrentMethodLimits();
// As such texts with commas between.
std::string ToText(const MethodLimits& limits);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_METHOD_LIMITS_H_
