// SPDX-License-Identifier: Apache-2.0
// Runs the steps that tools/instruction_gate counts the instructions of.
//
//   instruction_count null|add STEPS
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "bench/executor/chains.h"

namespace millrace {
namespace {

constexpr int kNodes = 1'000;

int Main(int argc, char** argv) {
  const std::string chain = argc == 3 ? argv[1] : "";
  const int steps = argc == 3 ? std::atoi(argv[2]) : 0;
  if ((chain != "null" && chain != "add") || steps < 1) {
    std::fprintf(stderr, "usage: instruction_count null|add STEPS\n");
    return 2;
  }
  std::function<void()> step;
  if (chain == "null") {
    step = NullKernelChain(kNodes);
  } else {
    SessionOptions options = CallerAlone();
    options.rewrite_graph = false;  // every addition is dispatched, none is fused
    step = AddChain(kNodes, 1, options);
  }
  for (int i = 0; i < steps; ++i) step();
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
