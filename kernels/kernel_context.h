// SPDX-License-Identifier: Apache-2.0
// One execution of a kernel: its inputs, its outputs, and the step it belongs to.
#ifndef KERNELS_KERNEL_CONTEXT_H_
#define KERNELS_KERNEL_CONTEXT_H_

#include <initializer_list>
#include <span>
#include <string>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "device/device.h"
#include "kernels/kernel.h"
#include "millrace/tensor.h"

namespace millrace {

class Rendezvous;          // rendezvous/rendezvous.h
class CollectiveExecutor;  // collective/collective_executor.h
class FunctionRunner;      // kernels/function_runner.h

// One value on an edge: a tensor, or a reference to a variable's tensor and its lock.
struct EdgeValue {
  enum class Kind : uint8_t { kEmpty, kValue, kRef, kDead };
  Tensor value;
  Tensor* ref = nullptr;    // kRef: lives in a variable's resource
  Mutex* ref_mu = nullptr;  // kRef: guards *ref
  Kind kind = Kind::kEmpty;

  void Clear() {
    value = Tensor();
    ref = nullptr;
    ref_mu = nullptr;
    kind = Kind::kEmpty;
  }
};

// What all nodes of one step on one device share. Owned by the step.
struct StepEnv {
  int64_t step_id = 0;
  Rendezvous* rendezvous = nullptr;
  CancellationManager* cancellation = nullptr;
  std::string step_container;  // resources that die with the step
  CollectiveExecutor* collective = nullptr;
  FunctionRunner* functions = nullptr;
  std::span<const Tensor> call_args;    // for _Arg
  std::span<Tensor> call_results;       // for _Retval
  void* session_state = nullptr;        // SessionTensors, kernels/state/session_tensors.h
  ThreadPool* inter_op_pool = nullptr;  // where the step's nodes run; null: in its own thread
};

// Where the values of one execution lie: input i is in[in_index[i]], or in[i] without an index;
// outputs likewise.
struct KernelValues {
  EdgeValue* in = nullptr;
  EdgeValue* out = nullptr;
  const int32_t* in_index = nullptr;
  const int32_t* out_index = nullptr;
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  const DataType* output_types = nullptr;
  // Bit i: nobody else will read the value of input i, so that it may be overwritten once its
  // buffer has no other owner. Inputs from 64 on may not.
  uint64_t last_reader = ~uint64_t{0};
};

// Used by one thread at a time.
class KernelContext {
 public:
  // `inputs` and `outputs` are slots of the step; outputs start empty.
  KernelContext(Kernel* kernel, Device* device, StepEnv* env, std::span<EdgeValue> inputs,
                std::span<EdgeValue> outputs, std::span<const DataType> output_types)
      : KernelContext(device, env) {
    Bind(kernel, {.in = inputs.data(),
                  .out = outputs.data(),
                  .num_inputs = static_cast<int32_t>(inputs.size()),
                  .num_outputs = static_cast<int32_t>(outputs.size()),
                  .output_types = output_types.data()});
  }
  // To be bound before it is used; one context may serve many kernels one after the other.
  KernelContext(Device* device, StepEnv* env)
      : device_(device), env_(env), allocator_(device->allocator()) {}
  void Bind(Kernel* kernel, const KernelValues& values) {
    kernel_ = kernel;
    values_ = values;
  }
  // Memory of outputs and temporaries, instead of the device's allocator.
  void set_allocator(Allocator* allocator) { allocator_ = allocator; }

  const std::string& node_name() const { return kernel_->name(); }
  Kernel& kernel() const { return *kernel_; }
  Device* device() const { return device_; }
  StepEnv& env() const { return *env_; }
  Rendezvous* rendezvous() const { return env_->rendezvous; }
  CancellationManager* cancellation() const { return env_->cancellation; }
  ResourceManager* resources() const { return device_->resource_manager(); }
  ThreadPool* intra_op_pool() const { return device_->intra_op_pool(); }
  Allocator* allocator() const { return allocator_; }

  int num_inputs() const { return values_.num_inputs; }
  int num_outputs() const { return values_.num_outputs; }

  // The value of input i. For a reference this is the variable's tensor as it lies: hold
  // its lock, or use locked_copy.
  const Tensor& input(int i) const {
    const EdgeValue& v = in(i);
    return v.kind == EdgeValue::Kind::kRef ? *v.ref : v.value;
  }
  // False for the dead inputs of a Merge; true for every other kernel that runs.
  bool has_input(int i) const {
    return in(i).kind == EdgeValue::Kind::kValue || in(i).kind == EdgeValue::Kind::kRef;
  }
  bool input_is_ref(int i) const { return in(i).kind == EdgeValue::Kind::kRef; }
  Mutex* input_ref_mutex(int i) const { return in(i).ref_mu; }
  // For reference inputs: the variable's tensor (hold input_ref_mutex to use it).
  Tensor* input_ref(int i) const { return in(i).ref; }
  // A share of the current value, taken under the lock for a reference.
  Tensor locked_input(int i) const;
  // True if this is a control-flow-dead input (only transfer kernels see it).
  bool is_input_dead() const { return input_dead_; }
  void set_input_dead(bool dead) { input_dead_ = dead; }
  uint64_t frame_id() const { return frame_id_; }
  int64_t iteration() const { return iteration_; }
  void set_frame(uint64_t frame_id, int64_t iteration) {
    frame_id_ = frame_id;
    iteration_ = iteration;
  }

  // Memory for output i from the device; the pointer is valid until the kernel is done.
  // ResourceExhausted if there is none.
  StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape);
  // Output i takes over the buffer of the first of `candidates` that is a value nobody else
  // shares, of the output's element size and as many elements; otherwise new memory.
  StatusOr<Tensor*> ForwardOrAllocateOutput(std::initializer_list<int> candidates, int i,
                                            const Shape& shape);
  StatusOr<Tensor> AllocateTemp(DataType dtype, const Shape& shape);
  void SetOutput(int i, Tensor value);
  void SetOutputRef(int i, Mutex* mu, Tensor* ref);
  void SetOutputDead(int i) { out(i).kind = EdgeValue::Kind::kDead; }
  // Output i refers to the same variable as reference input `input`.
  void ForwardRef(int input, int i);

  // Runs body over [0, n) on the device's intra-op pool; see ThreadPool::ParallelFor.
  void ParallelFor(int64_t n, double cost_per_unit,
                   absl::FunctionRef<void(int64_t, int64_t)> body) const;

 private:
  EdgeValue& in(int i) const {
    return values_.in[values_.in_index == nullptr ? i : values_.in_index[i]];
  }
  EdgeValue& out(int i) const {
    return values_.out[values_.out_index == nullptr ? i : values_.out_index[i]];
  }
  bool IsLastReader(int i) const { return i < 64 && (values_.last_reader >> i & 1) != 0; }

  Kernel* kernel_ = nullptr;
  Device* device_;
  StepEnv* env_;
  Allocator* allocator_;
  KernelValues values_;
  uint64_t frame_id_ = 0;
  int64_t iteration_ = 0;
  bool input_dead_ = false;
};

}  // namespace millrace

#endif  // KERNELS_KERNEL_CONTEXT_H_
