// SPDX-License-Identifier: Apache-2.0
// Graphs of random ops on the host and two devices, the same for the same seed.
#ifndef TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_
#define TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_

#include <vector>

#include "millrace/core.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {

struct RandomGraph {
  Output fed;  // of RandomGraphInput
  std::vector<Output> fetches;
  std::vector<Variable> variables;
  std::vector<Operation> updates;  // after the fetches
  Operation init;
};

Tensor RandomGraphInput(int seed);
// On whatever devices the program has, before it is opened.
RandomGraph BuildRandomGraph(Program& p, int seed);
// The fetched values of four steps of an open program, each of which reads what the one before
// left in the variables, and those variables at the end. Fewer, and a failure, if a step fails.
std::vector<Tensor> RunRandomGraph(Program& p, const RandomGraph& graph);

// Initialises an open program and runs `steps` steps in each of so many threads at once, every
// other one with a deadline of few milliseconds. Those that end well have to have computed what
// a step alone computes, and only those in a hurry may end otherwise.
void RunStepsThatAreGivenUp(Program& p, const RandomGraph& graph, int num_callers, int steps);

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_
