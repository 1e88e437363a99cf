// SPDX-License-Identifier: Apache-2.0
// /metrics: everything that a task counts, for Prometheus. docs/operating.md has the list.
#include <algorithm>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/strings.h"
#include "distributed_runtime/pages/task_pages.h"
#include "millrace/version.h"
#include "observe/open_metrics.h"
#include "observe/process.h"

namespace millrace {
namespace {

double ToDouble(int64_t value) { return static_cast<double>(value); }

void AddSteps(const StepLog& log, OpenMetricsWriter* out) {
  out->Family("millrace_steps", "counter", "", "Steps of this task's sessions that have ended.");
  out->Sample({}, ToDouble(log.ended.value()));
  out->Family("millrace_steps_failed", "counter", "", "Of these, those that ended with an error.");
  out->Sample({}, ToDouble(log.failed.value()));
  out->Family("millrace_steps_running", "gauge", "", "Steps that have begun and not ended.");
  out->Sample({}, ToDouble(std::max<int64_t>(log.begun.value() - log.ended.value(), 0)));
  out->Family("millrace_examples", "counter", "",
              "First dimension of what steps were fed, where it is largest.");
  out->Sample({}, ToDouble(log.examples.value()));
  out->Family("millrace_step_seconds", "histogram", "seconds", "How long steps took.");
  out->Sample({}, log.latency.Read());
}

void AddCalls(const RpcTable& rpc, OpenMetricsWriter* out) {
  const auto family = [&](const char* name, const char* type, const char* unit, const char* help,
                          auto value) {
    out->Family(name, type, unit, help);
    for (const MethodStats& method : rpc.methods()) {
      if (method.begun.value() == 0) continue;
      out->Sample({{"method", method.method}, {"carrier", method.carrier}}, value(method));
    }
  };
  family("millrace_rpc_calls", "counter", "", "Calls that came in.",
         [](const MethodStats& method) { return ToDouble(method.begun.value()); });
  family("millrace_rpc_errors", "counter", "", "Calls that were answered with an error.",
         [](const MethodStats& method) { return ToDouble(method.errors.value()); });
  family("millrace_rpc_running", "gauge", "", "Calls that have not been answered yet.",
         [](const MethodStats& method) {
           return ToDouble(std::max<int64_t>(method.begun.value() - method.ended.value(), 0));
         });
  family("millrace_rpc_request_bytes", "counter", "bytes", "Size of the requests.",
         [](const MethodStats& method) { return ToDouble(method.request_bytes.value()); });
  family("millrace_rpc_response_bytes", "counter", "bytes", "Size of the answers.",
         [](const MethodStats& method) { return ToDouble(method.response_bytes.value()); });
  family("millrace_rpc_seconds", "histogram", "seconds", "From the request to the answer.",
         [](const MethodStats& method) { return method.latency.Read(); });
}

void AddPeers(const PeerTraffic& traffic, OpenMetricsWriter* out) {
  const auto family = [&](const char* name, const char* type, const char* unit, const char* help,
                          auto value) {
    out->Family(name, type, unit, help);
    for (const PeerStats& peer : traffic.peers()) out->Sample({{"peer", peer.task}}, value(peer));
  };
  out->Family("millrace_peer", "info", "", "Where the other tasks are.");
  for (const PeerStats& peer : traffic.peers()) {
    out->Sample({{"peer", peer.task}, {"address", peer.address}}, 1);
  }
  family("millrace_peer_received_bytes", "counter", "bytes",
         "Tensors that this task asked the other one for and got.",
         [](const PeerStats& peer) { return ToDouble(peer.received_bytes.value()); });
  family("millrace_peer_collective_bytes", "counter", "bytes",
         "Of those the parts that collectives got from another task.",
         [](const PeerStats& peer) { return ToDouble(peer.collective_bytes.value()); });
  family("millrace_peer_receives_waiting", "gauge", "",
         "Tensors that this task waits for right now.", [](const PeerStats& peer) {
           return ToDouble(
               std::max<int64_t>(peer.receives_begun.value() - peer.receives.Read().count, 0));
         });
  family("millrace_peer_failed_calls", "counter", "", "Calls to the other task that failed.",
         [](const PeerStats& peer) { return ToDouble(peer.failed_calls.value()); });
  family("millrace_peer_silence_seconds", "gauge", "seconds",
         "Since the other task last answered or called; NaN: it never did.",
         [now = SteadyNanos()](const PeerStats& peer) {
           const int64_t heard = peer.last_heard.load(std::memory_order_relaxed);
           return heard == 0 ? __builtin_nan("")
                             : ToDouble(std::max<int64_t>(now - heard, 0)) * 1e-9;
         });
  family("millrace_peer_receive_seconds", "histogram", "seconds",
         "How long it took until a tensor was there.",
         [](const PeerStats& peer) { return peer.receives.Read(); });
}

// What queues and their like hold.
void AddResources(const TaskFacts& facts, OpenMetricsWriter* out) {
  struct Kind {
    const char* name;
    const char* help;
    const char* word;
  };
  constexpr Kind kKinds[] = {
      {"millrace_queue_elements", "Elements of a queue, stack or array.", "elements"},
      {"millrace_accumulator_gradients", "Gradients that wait in an accumulator.", "gradients"},
      {"millrace_staging_tuples", "Tuples of a staging area or map.", "tuples"},
      {"millrace_barrier_ready", "Keys of a barrier that have all their values.", "ready"},
      {"millrace_staleness_steps", "The oldest update so far, in steps.", "old"},
  };
  for (const Kind& kind : kKinds) {
    out->Family(kind.name, "gauge", "", kind.help);
    std::set<std::string> seen;  // one name may stand for two types
    for (const Device* device : facts.devices) {
      for (const ResourceLine& resource : ResourcesOf(*device)) {
        const int64_t number = resource.NumberBefore(kind.word);
        if (number < 0 || !seen.insert(StrCat(device->name(), resource.name)).second) continue;
        out->Sample({{"device", device->name()}, {"name", resource.name}}, ToDouble(number));
      }
    }
  }
}

void AddMemory(const TaskFacts& facts, OpenMetricsWriter* out) {
  const auto family = [&](const char* name, const char* type, const char* unit, const char* help,
                          int64_t AllocatorStats::* value) {
    out->Family(name, type, unit, help);
    for (const Device* device : facts.devices) {
      out->Sample({{"device", device->name()}, {"allocator", device->allocator()->name()}},
                  ToDouble(device->allocator()->stats().*value));
    }
  };
  family("millrace_tensor_bytes", "gauge", "bytes", "Memory of tensors. CPU devices share theirs.",
         &AllocatorStats::bytes_in_use);
  family("millrace_tensor_peak_bytes", "gauge", "bytes", "The same, at most so far.",
         &AllocatorStats::peak_bytes_in_use);
  family("millrace_tensor_buffers", "counter", "", "Buffers that were handed out.",
         &AllocatorStats::num_allocations);
}

void AddProcess(OpenMetricsWriter* out) {
  const ProcessStats process = ReadProcessStats();
  const auto gauge = [&](const char* name, const char* unit, const char* help, double value) {
    out->Family(name, "gauge", unit, help);
    out->Sample({}, value);
  };
  out->Family("process_cpu_seconds", "counter", "seconds", "Time of all threads on a processor.");
  out->Sample({}, process.cpu_seconds);
  gauge("process_resident_memory_bytes", "bytes", "Memory that is in the machine.",
        ToDouble(process.resident_bytes));
  gauge("process_virtual_memory_bytes", "bytes", "The address space.",
        ToDouble(process.virtual_bytes));
  gauge("process_open_fds", "", "File descriptors.", ToDouble(process.open_files));
  gauge("process_max_fds", "", "The most that there may be.", ToDouble(process.most_open_files));
  gauge("process_threads", "", "Threads.", ToDouble(process.threads));
  gauge("process_start_time_seconds", "seconds", "When it began, after the Unix epoch.",
        process.start_seconds);
}

}  // namespace

Page MakeMetrics(const TaskFacts& facts, const PageRequest& request) {
  const MetricsDialect dialect = ChooseDialect(request.accept);
  OpenMetricsWriter out(dialect);
  out.Family("millrace_build", "info", "", "The program.");
  out.Sample({{"version", MILLRACE_VERSION}, {"compiler", __VERSION__}}, 1);
  out.Family("millrace_task", "info", "", "The task.");
  out.Sample({{"task", facts.task}, {"address", facts.address()}}, 1);
  out.Family("millrace_uptime_seconds", "gauge", "seconds", "Since the task was started.");
  out.Sample({}, ToDouble(SteadyNanos() - facts.started_nanos) * 1e-9);
  AddSteps(facts.observed->steps, &out);
  AddCalls(facts.observed->rpc, &out);
  AddPeers(facts.observed->peers, &out);
  AddResources(facts, &out);
  AddMemory(facts, &out);
  AddProcess(&out);
  return {200, ContentType(dialect), out.Take()};
}

}  // namespace millrace
