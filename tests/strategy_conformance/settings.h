// SPDX-License-Identifier: Apache-2.0
// Strategies to run a program under: each with the processes that take part, as threads.
#ifndef TESTS_STRATEGY_CONFORMANCE_SETTINGS_H_
#define TESTS_STRATEGY_CONFORMANCE_SETTINGS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/millrace.h"

namespace millrace::testing {

// One cell's strategy and number of replicas.
struct Setting {
  std::string strategy;
  int replicas = 1;

  std::string Name() const { return strategy + "_" + std::to_string(replicas); }
};

// Every strategy with 1, 2 and 4 replicas; default and one_device have one.
std::vector<Setting> AllSettings();

// What a program gives back: tensors that must be the same whatever the strategy.
using Results = StatusOr<std::vector<Tensor>>;
using Program = std::function<Results(const std::shared_ptr<Strategy>& strategy)>;

// Runs the program once in every process that the setting has: one result each.
std::vector<Results> RunUnder(const Setting& setting, const Program& program);

}  // namespace millrace::testing

#endif  // TESTS_STRATEGY_CONFORMANCE_SETTINGS_H_
