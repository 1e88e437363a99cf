// SPDX-License-Identifier: Apache-2.0
// Chains of nodes, ready to run: what is timed, and what is counted.
#ifndef BENCH_EXECUTOR_CHAINS_H_
#define BENCH_EXECUTOR_CHAINS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "millrace/core.h"

namespace millrace {

// A graph and its session. Not thread-safe.
struct Workload {
  Graph graph;
  std::unique_ptr<Session> session;
  std::unique_ptr<Callable> callable;
  std::vector<Tensor> feeds;

  // Opens the session and runs twenty steps. `options` has the threads.
  void Prepare(const SessionOptions& options, std::span<const Output> feeds_of,
               std::span<const Output> fetches, std::span<const Operation> targets);
  void Run();
};

// Everything on the calling thread.
SessionOptions CallerAlone();

// Each runs one step of a chain of `nodes`, and ends the program if the step fails.

// Kernels that do nothing, in the executor without a session: what is left of a node.
std::function<void()> NullKernelChain(int nodes);
// `deep` layers of `wide` such kernels, each after two of the layer before; by the caller and so
// many threads of a pool.
std::function<void()> NullKernelLayers(int wide, int deep, int more_threads);
// sum = sum + y over floats of `elements` (1: scalars), in a session.
std::function<void()> AddChain(int nodes, int64_t elements, const SessionOptions& options);

}  // namespace millrace

#endif  // BENCH_EXECUTOR_CHAINS_H_
