// Graphs of random ops on the host and two devices, the same for the same seed.
#ifndef TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_
#define TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_

#include <vector>

#include "millrace/millrace.h"
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

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_RANDOM_GRAPH_H_
