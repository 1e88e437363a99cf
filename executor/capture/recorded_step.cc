// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/recorded_step.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/copy.h"
#include "device/trimmable_allocator.h"
#include "executor/capture/capture_memory.h"
#include "kernels/capturable_kernel.h"
#include "kernels/run_kernel.h"
#include "kernels/state/variable.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

bool Within(const void* data, const void* begin, std::size_t bytes) {
  return data >= begin && data < static_cast<const char*>(begin) + bytes;
}

// The values of one walk over a program, in the slots of their consumers.
class Values {
 public:
  explicit Values(const CompiledGraph& graph) : graph_(graph), slots_(graph.num_slots()) {}

  std::span<EdgeValue> inputs(const CompiledNode& node) {
    return {slots_.data() + node.input_begin, static_cast<std::size_t>(node.num_inputs)};
  }
  void HandOn(const CompiledNode& node, int output, const Tensor& value) {
    for (int32_t e = 0; e < node.num_edges; ++e) {
      const OutEdge& edge = graph_.edges()[node.edges_begin + e];
      if ((edge.flags & kEdgeControl) || edge.output != output) continue;
      slots_[edge.slot].value = value;
      slots_[edge.slot].kind = EdgeValue::Kind::kValue;
    }
  }
  void Clear(const CompiledNode& node) {
    for (EdgeValue& value : inputs(node)) value.Clear();
  }

 private:
  const CompiledGraph& graph_;
  std::vector<EdgeValue> slots_;
};

// The variables behind the handles that a program makes.
class Variables {
 public:
  explicit Variables(ResourceManager* resources) : resources_(resources) {}

  void Add(const ResourceHandle& handle) {
    for (const UsedVariable& known : used_) {
      if (known.container == handle.container && known.name == handle.name) return;
    }
    StatusOr<RefPtr<ResourceVariable>> found =
        resources_->Lookup<ResourceVariable>(handle.container, handle.name);
    if (!found.ok()) return;  // then nothing uses it
    UsedVariable& used = used_.emplace_back();
    used.container = handle.container;
    used.name = handle.name;
    MutexLock lock(&(*found)->mu);
    used.data = (*found)->value.raw_data();
    used.dtype = (*found)->value.dtype();
    used.shape = (*found)->value.shape();
  }
  void Update(const ResourceHandle& handle) {
    for (UsedVariable& used : used_) {
      if (used.container == handle.container && used.name == handle.name) used.is_updated = true;
    }
  }
  std::vector<UsedVariable> Take() { return std::move(used_); }

 private:
  ResourceManager* const resources_;
  std::vector<UsedVariable> used_;
};

const ResourceHandle* HandleIn(const Tensor& value) {
  const bool is_one = value.dtype() == kResource && value.num_elements() == 1;
  return is_one ? &value.scalar<ResourceHandle>() : nullptr;
}

class Walker {
 public:
  Walker(const CompiledGraph& graph, const CapturePlan& plan, StepEnv* env, RecordedStep* recording)
      : graph_(graph),
        plan_(plan),
        env_(*env),
        device_(graph.device()),
        machine_(AcceleratorOf(graph.device())),
        recording_(*recording) {}

  Status Walk(bool rehearses, Allocator* memory);

 private:
  // A send or a receive within the program.
  Status Transfer(int32_t n, bool rehearses, Values* values);
  Status Compute(const CompiledNode& node, Allocator* memory, OperationRecorder* recorder,
                 Values* values, Variables* variables);
  Status RecordDrawn(const CompiledNode& node, KernelContext* ctx);
  Status Describe(const Tensor& value, RecordedStep::Sent* sent) const;

  const CompiledGraph& graph_;
  const CapturePlan& plan_;
  StepEnv& env_;
  Device* const device_;
  Accelerator* const machine_;
  RecordedStep& recording_;
  std::map<int32_t, Tensor> local_;  // by send
};

Status Walker::Walk(bool rehearses, Allocator* memory) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<OperationRecorder> recorder,
                      RecorderOf(machine_)->NewRecorder(memory));
  recording_.draws.clear();
  Values values(graph_);
  Variables variables(device_->resource_manager());
  for (std::size_t i = 0; i < plan_.heads.size(); ++i) {
    values.HandOn(graph_.nodes()[plan_.heads[i].node], 0, recording_.inputs[i]);
  }
  for (const int32_t n : plan_.order) {
    const CompiledNode& node = graph_.nodes()[n];
    if (node.flags & kNodeNoCompute) continue;
    MR_RETURN_IF_ERROR(node.flags & kNodeTransfer
                           ? Transfer(n, rehearses, &values)
                           : Compute(node, memory, recorder.get(), &values, &variables));
  }
  MR_ASSIGN_OR_RETURN(recording_.operations, recorder->End());
  if (rehearses) return OkStatus();
  recording_.variables = variables.Take();
  for (const int32_t tail : plan_.tails) {
    MR_RETURN_IF_ERROR(
        Describe(values.inputs(graph_.nodes()[tail])[0].value, &recording_.sends.emplace_back()));
  }
  return OkStatus();
}

Status Walker::Transfer(int32_t n, bool rehearses, Values* values) {
  const CompiledNode& node = graph_.nodes()[n];
  if (!(node.flags & kNodeAsync)) {
    local_[n] = values->inputs(node)[0].value;
    values->Clear(node);
    return OkStatus();
  }
  // Once for all steps: the host's part is the same in all of them.
  Tensor& copied = recording_.copied[n];
  if (rehearses) {
    MR_ASSIGN_OR_RETURN(copied,
                        CopyToDevice(machine_, machine_->allocator(), local_[plan_.local_send[n]],
                                     WorkOf(env_.rendezvous), node.kernel->name()));
  }
  values->HandOn(node, 0, copied);
  return OkStatus();
}

Status Walker::Compute(const CompiledNode& node, Allocator* memory, OperationRecorder* recorder,
                       Values* values, Variables* variables) {
  const auto traits = dynamic_cast<const CapturableKernel*>(node.kernel)->capture_traits();
  const std::span<EdgeValue> inputs = values->inputs(node);
  for (int i = 0; i < traits.num_updated; ++i) {
    if (const ResourceHandle* handle = HandleIn(inputs[i].value)) variables->Update(*handle);
  }
  std::vector<EdgeValue> outputs(node.num_outputs);
  KernelContext ctx(node.kernel, device_, &env_, inputs, outputs,
                    {node.output_types(), static_cast<std::size_t>(node.num_outputs)});
  ctx.set_allocator(memory);
  if (traits.enqueues) {
    if (recording_.first_node.empty()) recording_.first_node = node.kernel->name();
    recording_.last_node = node.kernel->name();
    recorder->Resume();
  }
  const Status status = traits.draws ? RecordDrawn(node, &ctx) : RunKernel(node.kernel, ctx);
  recorder->Pause();
  if (!status.ok()) return Annotate(status, StrCat(" [[{{node ", node.kernel->name(), "}}]]"));
  values->Clear(node);
  for (int i = 0; i < node.num_outputs; ++i) {
    if (outputs[i].kind != EdgeValue::Kind::kValue) {
      return errors::FailedPrecondition("{{node ", node.kernel->name(), "}} has no value");
    }
    if (const ResourceHandle* handle = HandleIn(outputs[i].value)) variables->Add(*handle);
    values->HandOn(node, i, outputs[i].value);
  }
  return OkStatus();
}

Status Walker::RecordDrawn(const CompiledNode& node, KernelContext* ctx) {
  const auto* const drawn = static_cast<const uint64_t*>(recording_.drawn.raw_data());
  const auto index = recording_.draws.size();
  return dynamic_cast<CapturableKernel*>(node.kernel)
      ->RecordDrawn(*ctx, drawn + index, &recording_.draws.emplace_back());
}

Status Walker::Describe(const Tensor& value, RecordedStep::Sent* sent) const {
  sent->dtype = value.dtype();
  sent->shape = value.shape();
  sent->value = value;  // in host memory, or a constant
  if (!InDeviceMemory(value) || value.num_elements() == 0) return OkStatus();
  for (std::size_t v = 0; v < recording_.variables.size(); ++v) {
    const UsedVariable& used = recording_.variables[v];
    const std::size_t bytes = used.shape.num_elements() * DataTypeSize(used.dtype);
    if (!Within(value.raw_data(), used.data, bytes)) continue;
    if (value.raw_data() != used.data || value.num_bytes() != bytes) {
      return errors::FailedPrecondition("it sends a part of a variable");
    }
    sent->variable = static_cast<int>(v);
    sent->value = Tensor();
    return OkStatus();
  }
  bool is_ours = recording_.block &&
                 Within(value.raw_data(), recording_.block->data(), recording_.block->size());
  for (const Tensor& input : recording_.inputs) {
    is_ours = is_ours || Within(value.raw_data(), input.raw_data(), input.num_bytes());
  }
  if (!is_ours) return OkStatus();
  sent->data = value.raw_data();
  sent->value = Tensor();
  return OkStatus();
}

}  // namespace

Tensor RecordedStep::Lend(const std::shared_ptr<RecordedStep>& self, const Sent& sent) {
  self->in_use.fetch_add(1, std::memory_order_relaxed);
  auto* const share = new std::shared_ptr<RecordedStep>(self);
  const auto give_back = [](void* arg) {
    const std::unique_ptr<std::shared_ptr<RecordedStep>> owned(
        static_cast<std::shared_ptr<RecordedStep>*>(arg));
    (*owned)->in_use.fetch_sub(1, std::memory_order_release);
  };
  const std::size_t bytes = sent.shape.num_elements() * DataTypeSize(sent.dtype);
  return Tensor(sent.dtype, sent.shape,
                WrapBuffer(sent.data, bytes, give_back, share, MemorySpace::kDevice), sent.data);
}

StatusOr<std::shared_ptr<RecordedStep>> RecordStep(const CompiledGraph& graph,
                                                   const CapturePlan& plan, StepEnv* env,
                                                   std::span<const Tensor> inputs) {
  Accelerator* const machine = AcceleratorOf(graph.device());
  auto recording = std::make_shared<RecordedStep>();
  for (std::size_t i = 0; i < plan.heads.size(); ++i) {
    Tensor place = inputs[i];
    if (plan.heads[i].on_device) {
      MR_ASSIGN_OR_RETURN(
          place, Tensor::Allocate(machine->allocator(), inputs[i].dtype(), inputs[i].shape()));
    }
    recording->inputs.push_back(std::move(place));
  }
  int64_t num_draws = 0;
  for (const int32_t n : plan.order) {
    const auto* const kernel = dynamic_cast<const CapturableKernel*>(graph.nodes()[n].kernel);
    if (kernel != nullptr && kernel->capture_traits().draws) ++num_draws;
  }
  if (num_draws > 0) {
    MR_ASSIGN_OR_RETURN(recording->drawn,
                        Tensor::Allocate(machine->allocator(), kUint64, Shape({num_draws})));
  }
  Walker walker(graph, plan, env, recording.get());
  CaptureLayout layout;
  {
    RehearsalMemory rehearsal(machine->allocator());
    MR_RETURN_IF_ERROR(walker.Walk(/*rehearses=*/true, &rehearsal));
    layout = rehearsal.Plan();
  }
  // The block is one piece: what the rehearsal and the steps before it took in smaller ones would
  // stay beside it for nothing.
  if (auto* const memory = dynamic_cast<TrimmableAllocator*>(machine->allocator())) {
    if (layout.block_bytes > 0) memory->Trim();
  }
  if (layout.block_bytes > 0) {
    recording->block = machine->allocator()->Allocate(layout.block_bytes);
    if (!recording->block) {
      return errors::ResourceExhausted("no room for the ", layout.block_bytes,
                                       " bytes of a recorded step");
    }
  }
  char* const block = recording->block ? static_cast<char*>(recording->block->data()) : nullptr;
  LaidOutMemory memory(machine->allocator(), &layout, block);
  const Status walked = walker.Walk(/*rehearses=*/false, &memory);
  if (!memory.kept()) return errors::FailedPrecondition("its kernels take other memory each time");
  MR_RETURN_IF_ERROR(walked);
  recording->block_bytes = layout.block_bytes;
  return recording;
}

}  // namespace millrace
