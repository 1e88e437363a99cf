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
  std::span<const Tensor> call_args;  // for _Arg
  std::span<Tensor> call_results;     // for _Retval
  void* session_state = nullptr;      // session/session_state.h, for session handles
};

// Used by one thread at a time.
class KernelContext {
 public:
  // `inputs` and `outputs` are slots of the step; outputs start empty.
  KernelContext(Kernel* kernel, Device* device, StepEnv* env, std::span<EdgeValue> inputs,
                std::span<EdgeValue> outputs, std::span<const DataType> output_types)
      : kernel_(kernel),
        device_(device),
        env_(env),
        inputs_(inputs),
        outputs_(outputs),
        output_types_(output_types) {}

  const std::string& node_name() const { return kernel_->name(); }
  Kernel& kernel() const { return *kernel_; }
  Device* device() const { return device_; }
  StepEnv& env() const { return *env_; }
  Rendezvous* rendezvous() const { return env_->rendezvous; }
  CancellationManager* cancellation() const { return env_->cancellation; }
  ResourceManager* resources() const { return device_->resource_manager(); }
  ThreadPool* intra_op_pool() const { return device_->intra_op_pool(); }
  Allocator* allocator() const { return device_->allocator(); }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }

  // The value of input i. For a reference this is the variable's tensor as it lies: hold
  // its lock, or use locked_copy.
  const Tensor& input(int i) const {
    const EdgeValue& v = inputs_[i];
    return v.kind == EdgeValue::Kind::kRef ? *v.ref : v.value;
  }
  // False for the dead inputs of a Merge; true for every other kernel that runs.
  bool has_input(int i) const {
    return inputs_[i].kind == EdgeValue::Kind::kValue || inputs_[i].kind == EdgeValue::Kind::kRef;
  }
  bool input_is_ref(int i) const { return inputs_[i].kind == EdgeValue::Kind::kRef; }
  Mutex* input_ref_mutex(int i) const { return inputs_[i].ref_mu; }
  // For reference inputs: the variable's tensor (hold input_ref_mutex to use it).
  Tensor* input_ref(int i) const { return inputs_[i].ref; }
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
  void SetOutputDead(int i) { outputs_[i].kind = EdgeValue::Kind::kDead; }
  // Output i refers to the same variable as reference input `input`.
  void ForwardRef(int input, int i);

  // Runs body over [0, n) on the device's intra-op pool; see ThreadPool::ParallelFor.
  void ParallelFor(int64_t n, double cost_per_unit,
                   absl::FunctionRef<void(int64_t, int64_t)> body) const;

 private:
  Kernel* kernel_;
  Device* device_;
  StepEnv* env_;
  std::span<EdgeValue> inputs_, outputs_;
  std::span<const DataType> output_types_;
  uint64_t frame_id_ = 0;
  int64_t iteration_ = 0;
  bool input_dead_ = false;
};

}  // namespace millrace

#endif  // KERNELS_KERNEL_CONTEXT_H_
