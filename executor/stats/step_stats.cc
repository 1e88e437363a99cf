// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/step_stats.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "executor/stats/running_nodes.h"

namespace millrace {
namespace {

// A step has so many nodes a thread, mostly; more make the buffers grow.
constexpr std::size_t kUsualNodes = 128;

struct OutputRecord {
  int32_t slot = 0;
  int32_t rank = -1;      // -1: a reference that was in use, or dead: no more is told
  int32_t first_dim = 0;  // in the thread's
  bool has_buffer = false;
  bool is_alone = false;
  DataType dtype = DataType::kInvalid;
  int64_t bytes = 0, buffer_bytes = 0;
  uintptr_t address = 0;
};

struct MemoryRecord {
  std::string_view allocator;
  int64_t total = 0, peak = 0, live = 0;
  int64_t step = 0;  // 0: nothing was taken
};

struct NodeRecord {
  const Kernel* kernel = nullptr;
  NodeTimes times;
  int64_t all_end = 0;
  int32_t body = 0;
  int32_t first_output = 0, num_outputs = 0;  // in the thread's
  MemoryRecord memory;
};

// What one thread recorded. Written by it alone.
struct ThreadRecords {
  explicit ThreadRecords(const ThreadRecord& of) : id(static_cast<uint32_t>(of.id)), name(of.name) {
    nodes.reserve(kUsualNodes);
    outputs.reserve(kUsualNodes);
    dims.reserve(2 * kUsualNodes);
  }

  void AddOutput(int32_t slot, const EdgeValue& value) {
    OutputRecord& out = outputs.emplace_back();
    out.slot = slot;
    if (value.kind == EdgeValue::Kind::kRef) {
      // Its tensor may be changing under its lock; its shape is not worth the wait.
      if (value.ref_mu == nullptr || !value.ref_mu->TryLock()) return;
      if (value.ref->dtype() != DataType::kInvalid) AddShape(*value.ref, &out);
      value.ref_mu->Unlock();
      return;
    }
    if (value.kind != EdgeValue::Kind::kValue) return;
    const Tensor& tensor = value.value;
    AddShape(tensor, &out);
    if (tensor.buffer() == nullptr) return;
    out.has_buffer = true;
    out.buffer_bytes = static_cast<int64_t>(tensor.buffer()->size());
    out.is_alone = tensor.OwnsBufferAlone();
    out.address = reinterpret_cast<uintptr_t>(tensor.raw_data());
  }

  void AddShape(const Tensor& tensor, OutputRecord* out) {
    out->rank = tensor.shape().rank();
    out->first_dim = static_cast<int32_t>(dims.size());
    for (const int64_t dim : tensor.shape().dims()) dims.push_back(dim);
    out->dtype = tensor.dtype();
    out->bytes = static_cast<int64_t>(tensor.num_bytes());
  }

  const uint32_t id;
  const std::string name;
  std::vector<NodeRecord> nodes;
  std::vector<OutputRecord> outputs;
  std::vector<int64_t> dims;
};

// The buffer that this thread wrote to last, and whose it is: numbers are never used again.
struct LatestBuffer {
  uint64_t owner = 0;
  ThreadRecords* buffer = nullptr;
};
constinit thread_local LatestBuffer t_latest;

void FillOutput(const ThreadRecords& thread, const OutputRecord& from, std::string_view allocator,
                pb::NodeOutput* out) {
  out->set_slot(from.slot);
  if (from.rank >= 0) {
    pb::TensorDescription* description = out->mutable_tensor_description();
    description->set_dtype(static_cast<pb::DataType>(from.dtype));
    auto* const dims = description->mutable_shape()->mutable_dim();
    dims->Reserve(from.rank);
    for (int i = 0; i < from.rank; ++i) dims->Add()->set_size(thread.dims[from.first_dim + i]);
    pb::AllocationDescription* allocation = description->mutable_allocation_description();
    allocation->set_requested_bytes(from.bytes);
    if (from.has_buffer) {
      allocation->set_allocated_bytes(from.buffer_bytes);
      allocation->set_has_single_reference(from.is_alone);
      allocation->set_ptr(from.address);
    }
  }
  if (!allocator.empty()) {
    out->mutable_tensor_description()->mutable_allocation_description()->set_allocator_name(
        allocator.data(), allocator.size());
  }
}

void FillTimes(const NodeRecord& from, pb::NodeExecStats* node) {
  const NodeTimes& times = from.times;
  const int64_t start = times.all_start;
  node->set_scheduled_micros(times.scheduled / 1000);
  node->set_scheduled_nanos(times.scheduled);
  node->set_all_start_micros(start / 1000);
  node->set_all_start_nanos(start);
  node->set_op_start_rel_micros((times.op_start - start) / 1000);
  node->set_op_start_rel_nanos(times.op_start - start);
  node->set_op_end_rel_micros((times.op_end - start) / 1000);
  node->set_op_end_rel_nanos(times.op_end - start);
  node->set_all_end_rel_micros((from.all_end - start) / 1000);
  node->set_all_end_rel_nanos(from.all_end - start);
}

void FillNode(const ThreadRecords& thread, const NodeRecord& from, const std::string& prefix,
              pb::NodeExecStats* node) {
  std::string* const name = node->mutable_node_name();
  name->reserve(prefix.size() + from.kernel->name().size());
  name->append(prefix).append(from.kernel->name());
  StrAppend(node->mutable_timeline_label(), *name, " = ", from.kernel->def().name(), "()");
  FillTimes(from, node);
  const MemoryRecord& memory = from.memory;
  const std::string_view allocator = memory.step > 0 ? memory.allocator : std::string_view();
  node->mutable_output()->Reserve(from.num_outputs);
  for (int i = 0; i < from.num_outputs; ++i) {
    FillOutput(thread, thread.outputs[from.first_output + i], allocator, node->add_output());
  }
  if (memory.step > 0) {
    pb::AllocatorMemoryUsed* used = node->add_memory();
    used->set_allocator_name(allocator.data(), allocator.size());
    used->set_total_bytes(memory.total);
    used->set_peak_bytes(memory.peak);
    used->set_live_bytes(memory.live);
    used->set_allocator_bytes_in_use(memory.step);
  }
  node->set_thread_id(thread.id);
}

pb::DeviceStepStats* FindOrAdd(pb::StepStats* stats, const std::string& device) {
  for (pb::DeviceStepStats& known : *stats->mutable_dev_stats()) {
    if (known.device() == device) return &known;
  }
  pb::DeviceStepStats* const added = stats->add_dev_stats();
  added->set_device(device);
  return added;
}

}  // namespace

struct StepStatsCollector::Records {
  // Nodes of the step itself are body 0.
  struct Body {
    std::string prefix, device;
  };
  static uint64_t NextNumber() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  ThreadRecords& OfThisThread() {
    if (t_latest.owner == number) [[likely]]
      return *t_latest.buffer;
    const ThreadRecord& self = ThisThreadRecord();
    MutexLock lock(&mu);
    ThreadRecords* found = nullptr;
    for (const auto& thread : threads) {
      if (thread->id == static_cast<uint32_t>(self.id)) found = thread.get();
    }
    if (found == nullptr) {
      found = threads.emplace_back(std::make_unique<ThreadRecords>(self)).get();
    }
    t_latest = {number, found};
    return *found;
  }

  int32_t BodyOf(int32_t caller, std::string_view call, std::string_view device) {
    MutexLock lock(&mu);
    const auto [it, is_new] =
        numbers.try_emplace({caller, std::string(call), std::string(device)}, bodies.size());
    if (is_new) {
      bodies.push_back({StrCat(bodies[caller].prefix, call, "/"), std::string(device)});
    }
    return it->second;
  }

  const uint64_t number = NextNumber();
  Mutex mu;
  std::vector<std::unique_ptr<ThreadRecords>> threads ABSL_GUARDED_BY(mu);
  std::vector<Body> bodies ABSL_GUARDED_BY(mu);
  // By the caller's body, the node that calls, and the device: a loop calls again and again.
  std::map<std::tuple<int32_t, std::string, std::string>, int32_t> numbers ABSL_GUARDED_BY(mu);
};

StepStatsCollector::StepStatsCollector(std::string device)
    : own_(std::make_unique<Records>()), records_(own_.get()), body_(0) {
  MutexLock lock(&records_->mu);
  records_->bodies.push_back({"", std::move(device)});
}

StepStatsCollector::StepStatsCollector(StepStatsCollector* caller, std::string_view call,
                                       std::string_view device)
    : records_(caller->records_), body_(records_->BodyOf(caller->body_, call, device)) {}

StepStatsCollector::~StepStatsCollector() = default;

void StepStatsCollector::Record(const Kernel& kernel, const NodeTimes& times,
                                std::span<const EdgeValue> outputs, const NodeAllocator* memory) {
  ThreadRecords& thread = records_->OfThisThread();
  NodeRecord& node = thread.nodes.emplace_back();
  node.kernel = &kernel;
  node.times = times;
  node.body = body_;
  node.first_output = static_cast<int32_t>(thread.outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind == EdgeValue::Kind::kEmpty) continue;
    thread.AddOutput(static_cast<int32_t>(i), outputs[i]);
  }
  node.num_outputs = static_cast<int32_t>(thread.outputs.size()) - node.first_output;
  if (memory != nullptr) {
    node.memory = {memory->name(), memory->total_bytes(), memory->peak_bytes(),
                   memory->live_bytes(), memory->step_bytes()};
  }
  node.all_end = std::max(WallNanos(), times.op_end);
}

void StepStatsCollector::MoveTo(pb::StepStats* stats) {
  MutexLock lock(&records_->mu);
  std::vector<pb::DeviceStepStats*> devices;  // by body
  std::vector<int> counts(records_->bodies.size());
  std::vector<std::pair<const ThreadRecords*, const NodeRecord*>> order;
  for (const auto& thread : records_->threads) {
    for (const NodeRecord& node : thread->nodes) {
      order.emplace_back(thread.get(), &node);
      ++counts[node.body];
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second->all_end < b.second->all_end; });
  for (const Records::Body& body : records_->bodies) FindOrAdd(stats, body.device);
  for (const Records::Body& body : records_->bodies) {
    devices.push_back(FindOrAdd(stats, body.device));
    auto* const nodes = devices.back()->mutable_node_stats();
    nodes->Reserve(nodes->size() + counts[devices.size() - 1]);
  }
  std::map<std::pair<pb::DeviceStepStats*, const ThreadRecords*>, bool> named;
  for (const auto& [thread, node] : order) {
    pb::DeviceStepStats* const device = devices[node->body];
    FillNode(*thread, *node, records_->bodies[node->body].prefix, device->add_node_stats());
    if (named.try_emplace({device, thread}, true).second) {
      device->mutable_thread_names()->insert({thread->id, thread->name});
    }
  }
  // Threads may still know the buffers: they stay, and are used again.
  for (const auto& thread : records_->threads) {
    thread->nodes.clear();
    thread->outputs.clear();
    thread->dims.clear();
  }
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
