// SPDX-License-Identifier: Apache-2.0
// The devices of replicas, as options say them.
#ifndef STRATEGY_DEVICES_H_
#define STRATEGY_DEVICES_H_

#include <string>
#include <string_view>
#include <vector>

#include "millrace/strategy.h"

namespace millrace {

// One for each replica of this process, behind `prefix` ("/job:worker/task:1"): those that were
// named, or CPUs. InvalidArgument for a negative number, a device named twice, and a number of
// replicas that is not that of the devices.
StatusOr<std::vector<std::string>> DevicesOf(const StrategyOptions& options,
                                             std::string_view prefix);
// Those of the pieces of a batch where the strategy is deterministic: each device as often as it
// takes some. InvalidArgument if the pieces cannot be dealt out equally to `all` devices, those of
// other workers too. Else the devices.
StatusOr<std::vector<std::string>> WithPieces(const StrategyOptions& options, int all,
                                              std::vector<std::string> devices);
// How many CPU devices a process needs that has these; at least one.
int CpuDevicesOf(const std::vector<std::string>& devices);

}  // namespace millrace

#endif  // STRATEGY_DEVICES_H_
