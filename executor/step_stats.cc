#include "executor/step_stats.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"

namespace millrace {
namespace {

void FillOutput(int slot, const EdgeValue& value, pb::NodeOutput* out) {
  out->set_slot(slot);
  // A reference's tensor may be changing under its lock; its shape is not worth the wait.
  if (value.kind != EdgeValue::Kind::kValue) return;
  const Tensor& tensor = value.value;
  pb::TensorDescription* description = out->mutable_tensor_description();
  description->set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  for (int64_t dim : tensor.shape().dims()) description->mutable_shape()->add_dim()->set_size(dim);
  pb::AllocationDescription* allocation = description->mutable_allocation_description();
  allocation->set_requested_bytes(static_cast<int64_t>(tensor.num_bytes()));
  if (tensor.buffer() == nullptr) return;
  allocation->set_allocated_bytes(static_cast<int64_t>(tensor.buffer()->size()));
  allocation->set_has_single_reference(tensor.OwnsBufferAlone());
  allocation->set_ptr(reinterpret_cast<uintptr_t>(tensor.raw_data()));
}

}  // namespace

StepStatsCollector::StepStatsCollector(std::string device) : device_(std::move(device)) {}

void StepStatsCollector::Record(const Kernel& kernel, const NodeTimes& times,
                                std::span<const EdgeValue> outputs, const NodeAllocator* memory) {
  pb::NodeExecStats node;
  node.set_node_name(kernel.name());
  node.set_timeline_label(StrCat(kernel.name(), " = ", kernel.def().name(), "()"));
  const int64_t all_end = std::max(WallNanos(), times.op_end);
  const int64_t start = times.all_start;
  node.set_scheduled_micros(times.scheduled / 1000);
  node.set_scheduled_nanos(times.scheduled);
  node.set_all_start_micros(start / 1000);
  node.set_all_start_nanos(start);
  node.set_op_start_rel_micros((times.op_start - start) / 1000);
  node.set_op_start_rel_nanos(times.op_start - start);
  node.set_op_end_rel_micros((times.op_end - start) / 1000);
  node.set_op_end_rel_nanos(times.op_end - start);
  node.set_all_end_rel_micros((all_end - start) / 1000);
  node.set_all_end_rel_nanos(all_end - start);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == EdgeValue::Kind::kEmpty) continue;
    FillOutput(static_cast<int>(i), outputs[i], node.add_output());
  }
  if (memory != nullptr && memory->step_bytes() > 0) {
    pb::AllocatorMemoryUsed* used = node.add_memory();
    used->set_allocator_name(std::string(memory->name()));
    used->set_total_bytes(memory->total_bytes());
    used->set_peak_bytes(memory->peak_bytes());
    used->set_live_bytes(memory->live_bytes());
    used->set_allocator_bytes_in_use(memory->step_bytes());
    for (pb::NodeOutput& output : *node.mutable_output()) {
      output.mutable_tensor_description()->mutable_allocation_description()->set_allocator_name(
          std::string(memory->name()));
    }
  }
  const uint32_t thread = static_cast<uint32_t>(::gettid());
  node.set_thread_id(thread);
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));

  MutexLock lock(&mu_);
  *stats_.add_node_stats() = std::move(node);
  auto& names = *stats_.mutable_thread_names();
  if (names.count(thread) == 0) names[thread] = name;
}

void StepStatsCollector::MoveTo(pb::StepStats* stats) {
  MutexLock lock(&mu_);
  stats_.set_device(device_);
  *stats->add_dev_stats() = std::move(stats_);
  stats_.Clear();
}

int64_t PeakBytes(const pb::DeviceStepStats& stats) {
  int64_t peak = 0;
  for (const pb::NodeExecStats& node : stats.node_stats()) {
    for (const pb::AllocatorMemoryUsed& used : node.memory()) {
      peak = std::max<int64_t>(peak, used.allocator_bytes_in_use());
    }
  }
  return peak;
}

}  // namespace millrace
