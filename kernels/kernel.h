// SPDX-License-Identifier: Apache-2.0
// What runs for a node. A kernel is made once per session and node (once per graph for a
// stateless op) and computes many steps, possibly at the same time.
#ifndef KERNELS_KERNEL_H_
#define KERNELS_KERNEL_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "millrace/status.h"
#include "ops/attr_map.h"
#include "ops/op_registry.h"

namespace millrace {

class KernelContext;  // kernels/kernel_context.h

// What a kernel's constructor may ask. Errors are collected: the first one makes the
// creation of the kernel fail with the node's name in the message.
class KernelConstruction {
 public:
  KernelConstruction(Device* device, const OpInfo* op, std::string_view node_name,
                     const AttrMap* attrs, std::span<const DataType> input_types,
                     std::span<const DataType> output_types)
      : device_(device),
        op_(op),
        name_(node_name),
        attrs_(attrs),
        input_types_(input_types),
        output_types_(output_types) {}

  Device* device() const { return device_; }
  const pb::OpDef& def() const { return op_->def; }
  std::string_view name() const { return name_; }
  const AttrMap& attrs() const { return *attrs_; }
  std::span<const DataType> input_types() const { return input_types_; }
  std::span<const DataType> output_types() const { return output_types_; }
  // The attribute's value; a default T, and a recorded error, if it is missing.
  template <typename T>
  T attr(std::string_view name) {
    StatusOr<T> value = attrs_->Get<T>(name);
    if (value.ok()) return *std::move(value);
    SetError(value.status());
    return T();
  }
  void SetError(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  Device* device_;
  const OpInfo* op_;
  std::string_view name_;
  const AttrMap* attrs_;
  std::span<const DataType> input_types_, output_types_;
  Status status_;
};

// How an asynchronous kernel says that it is done; no allocation. Call exactly once, from
// any thread; the context is gone afterwards.
struct DoneCallback {
  void (*fn)(void* arg, Status status) = nullptr;
  void* arg = nullptr;
  void operator()(Status status) const { fn(arg, std::move(status)); }
};

// What a kernel makes of scalars: reads one element at `a` and one at `b` (the same place if it
// has one input) and writes one to `out`, which is neither. False if it refuses them: then Compute
// says why.
using ScalarFn = bool (*)(const void* a, const void* b, void* out);

// Thread-safe after construction: Compute may run for several steps at once.
class Kernel {
 public:
  explicit Kernel(const KernelConstruction& c);
  virtual ~Kernel() = default;

  // Reads inputs and sets every output through `ctx`. An error fails the step; the executor
  // adds node and device to its text. So does an exception of the standard library, such as memory
  // that is not there: callers go through kernels/run_kernel.h.
  virtual Status Compute(KernelContext& ctx) = 0;
  // An asynchronous kernel returns true here and implements ComputeAsync; `ctx` stays valid
  // until `done` is called. It never blocks the calling thread. It may throw as long as `done` has
  // not been handed on or called.
  virtual bool IsAsync() const { return false; }
  virtual void ComputeAsync(KernelContext& ctx, DoneCallback done);
  // False for kernels that always cost less than a hand-over to another thread.
  virtual bool IsExpensive() const { return true; }
  // Of a kernel with one or two inputs and one output, all of plain elements in host memory, that
  // makes a scalar of scalars: the same bits as Compute gives. Else null.
  virtual ScalarFn scalar_function() const { return nullptr; }

  const std::string& name() const { return name_; }
  const pb::OpDef& def() const { return *def_; }
  int num_inputs() const { return num_inputs_; }
  int num_outputs() const { return num_outputs_; }

 private:
  const std::string name_;
  const pb::OpDef* const def_;
  const int num_inputs_, num_outputs_;
};

}  // namespace millrace

#endif  // KERNELS_KERNEL_H_
