// SPDX-License-Identifier: Apache-2.0
// The kernels of a step by themselves: called one after the other from a list, by one thread, with
// nothing of an executor between them. What a step takes beyond that is the framework's.
#ifndef BENCH_EXECUTOR_KERNEL_LIST_H_
#define BENCH_EXECUTOR_KERNEL_LIST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "device/device.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"
#include "proto/graph.pb.h"

namespace millrace {

// Not thread-safe. Every value has its slot, every node its place in the list, before the first
// run. Constants are computed once; the last reader of a value may work in its memory, and what
// nobody reads any more goes back to the device's allocator, as in a step.
class KernelList {
 public:
  // `graph` is a partition as a session runs it: no control flow, no asynchronous kernel, no
  // reference variables (Unimplemented). What the session fed, `feeds` has by the names of the
  // nodes that bring it there. The registries and the device must outlive the list.
  static StatusOr<std::unique_ptr<KernelList>> Make(const pb::GraphDef& graph,
                                                    const std::map<std::string, Tensor>& feeds,
                                                    const OpRegistry& ops,
                                                    const KernelRegistry& kernels, Device* device);
  // Calls every kernel once, in order. The first error, with the node's name.
  Status Run();
  int num_calls() const { return static_cast<int>(calls_.size()); }

 private:
  struct Call {
    std::unique_ptr<Kernel> kernel;
    std::vector<DataType> output_types;
    std::vector<int32_t> inputs, outputs;  // slots
    uint64_t last_reader = 0;              // as in KernelValues
    std::vector<int32_t> clears;           // slots that nobody reads after this
  };

  explicit KernelList(Device* device) : device_(device) {}
  Status Compute(const Call& call);
  void FindLastReaders(const std::vector<bool>& kept);

  Device* const device_;
  CancellationManager cancellation_;
  StepEnv env_;
  std::vector<Call> calls_, constants_;
  std::vector<EdgeValue> slots_;
};

}  // namespace millrace

#endif  // BENCH_EXECUTOR_KERNEL_LIST_H_
