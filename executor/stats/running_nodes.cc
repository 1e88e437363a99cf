// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/running_nodes.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "base/mutex.h"
#include "base/notification.h"
#include "executor/compiled_graph.h"
#include "executor/engine/cycle_count.h"

namespace millrace {
namespace {

// A moment on both clocks.
struct Moment {
  uint64_t ticks = CycleCount();
  SteadyClock::time_point time = SteadyClock::now();
};

// The records of all threads that ever ran a node and have not ended.
class Records {
 public:
  void Add(ThreadRecord* record) {
    MutexLock lock(&mu_);
    all_.push_back(record);
  }
  void Remove(ThreadRecord* record) {
    MutexLock lock(&mu_);
    std::erase(all_, record);
  }
  template <typename F>
  void ForEach(F&& f) {
    MutexLock lock(&mu_);
    for (const ThreadRecord* record : all_) f(*record);
  }
  // What so many ticks are; the clocks are compared over the time since the first thread came.
  std::chrono::nanoseconds Duration(uint64_t ticks) const {
    const Moment now;
    const double passed = std::chrono::duration<double, std::nano>(now.time - start_.time).count();
    const double rate = passed / std::max<double>(1, static_cast<double>(now.ticks - start_.ticks));
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(ticks) * rate));
  }

  static Records& All() {
    static auto* const all = new Records;  // threads end later than everything else
    return *all;
  }

 private:
  const Moment start_;
  Mutex mu_;
  std::vector<ThreadRecord*> all_ ABSL_GUARDED_BY(mu_);
};

struct OwnRecord {
  OwnRecord() {
    record.id = ::gettid();
    pthread_getname_np(pthread_self(), record.name, sizeof(record.name));
    Records::All().Add(&record);
  }
  ~OwnRecord() { Records::All().Remove(&record); }
  ThreadRecord record;
};

// What a reader saw of a record, all at one time.
struct Sight {
  const CompiledGraph* graph = nullptr;
  int32_t node = -1, timed_node = -1;
  uint64_t since = 0, loop_since = 0;
  int64_t rounds = 0;
  const CompiledGraph* outer_graph = nullptr;
  int32_t outer_node = -1;
  uint64_t outer_since = 0;
};

// False if the thread runs something else, or is just changing over.
bool Look(const ThreadRecord& record, const CancellationManager* step, Sight* sight) {
  const uint32_t version = record.version.load(std::memory_order_acquire);
  if (version % 2 != 0 || record.step.load(std::memory_order_acquire) != step) return false;
  sight->graph = record.graph.load(std::memory_order_acquire);
  sight->node = record.node.load(std::memory_order_acquire);
  sight->timed_node = record.timed_node.load(std::memory_order_acquire);
  sight->since = record.since.load(std::memory_order_acquire);
  sight->loop_since = record.loop_since.load(std::memory_order_acquire);
  sight->rounds = record.rounds.load(std::memory_order_acquire);
  sight->outer_graph = record.outer_graph.load(std::memory_order_acquire);
  sight->outer_node = record.outer_node.load(std::memory_order_acquire);
  sight->outer_since = record.outer_since.load(std::memory_order_acquire);
  return record.version.load(std::memory_order_acquire) == version && sight->node >= 0;
}

// Since then; negative for 0.
std::chrono::nanoseconds Elapsed(uint64_t since, uint64_t now) {
  return since != 0 && now > since ? Records::All().Duration(now - since)
                                   : std::chrono::nanoseconds(-1);
}

// The loop that the node is in, if it is in one. A node without a line of its own, such as those
// that a loop consists of, gets that of another one of the loop.
void TellLoop(const Sight& sight, uint64_t now, RunningNode* node) {
  const int32_t number = sight.graph->nodes()[sight.node].frame;
  if (number == 0) return;
  const FrameInfo& frame = sight.graph->frames()[number];
  node->loop = frame.name;
  node->loop_elapsed = Elapsed(sight.loop_since, now);
  if (sight.loop_since != 0) node->rounds = sight.rounds;
  for (const int32_t other : frame.nodes) {
    if (!node->origin.empty()) break;
    node->origin = sight.graph->origin(other);
  }
}

RunningNode Tell(const Sight& sight, uint64_t now) {
  const Kernel& kernel = *sight.graph->nodes()[sight.node].kernel;
  RunningNode node;
  node.node = kernel.name();
  node.op = kernel.def().name();
  node.device = sight.graph->device()->name();
  node.origin = sight.graph->origin(sight.node);
  if (sight.timed_node == sight.node) node.elapsed = Elapsed(sight.since, now);
  TellLoop(sight, now, &node);
  if (sight.outer_graph == nullptr) return node;
  const Kernel& caller = *sight.outer_graph->nodes()[sight.outer_node].kernel;
  node.caller = caller.name();
  node.caller_op = caller.def().name();
  node.caller_origin = sight.outer_graph->origin(sight.outer_node);
  node.caller_elapsed = Elapsed(sight.outer_since, now);
  return node;
}

constinit thread_local ThreadRecord* t_record = nullptr;

ThreadRecord& NewRecord() {
  thread_local OwnRecord own;
  t_record = &own.record;
  return own.record;
}

}  // namespace

ThreadRecord& ThisThreadRecord() {
  if (t_record == nullptr) [[unlikely]]
    return NewRecord();
  return *t_record;
}

RunningMark::RunningMark(const CompiledGraph& graph, const CancellationManager* step)
    : record_(ThisThreadRecord()),
      graph_before_(record_.graph.load(std::memory_order_relaxed)),
      step_before_(record_.step.load(std::memory_order_relaxed)),
      node_before_(record_.node.load(std::memory_order_relaxed)) {
  Set(&graph, step, -1);
  // Nobody sees what is between: the mark has no node yet.
  if (step == nullptr || step != step_before_) {
    ++record_.num_steps;
  } else if (node_before_ >= 0 && record_.outer_node.load(std::memory_order_relaxed) < 0) {
    EnterOuter();
  }
}

RunningMark::~RunningMark() {
  if (is_within_) [[unlikely]] {
    Idle();
    SetOuter(nullptr, -1, 0);
  }
  Set(graph_before_, step_before_, node_before_);
}

// A kernel may call functions again and again: it has run since the first one.
void RunningMark::EnterOuter() {
  is_within_ = true;
  if (record_.outer_step != record_.num_steps || record_.last_outer != node_before_) {
    record_.outer_step = record_.num_steps;
    record_.last_outer = node_before_;
    record_.last_outer_since = CycleCount();
  }
  SetOuter(graph_before_, node_before_, record_.last_outer_since);
}

void RunningMark::SetOuter(const CompiledGraph* graph, int32_t node, uint64_t since) {
  const uint32_t version = record_.version.load(std::memory_order_relaxed);
  record_.version.store(version + 1, std::memory_order_relaxed);
  record_.outer_graph.store(graph, std::memory_order_release);
  record_.outer_node.store(node, std::memory_order_release);
  record_.outer_since.store(since, std::memory_order_release);
  record_.version.store(version + 2, std::memory_order_release);
}

// Whoever sees one of the new values sees the odd version as well, and looks away.
void RunningMark::Set(const CompiledGraph* graph, const CancellationManager* step, int32_t node) {
  const uint32_t version = record_.version.load(std::memory_order_relaxed);
  record_.version.store(version + 1, std::memory_order_relaxed);
  record_.node.store(node, std::memory_order_release);
  record_.graph.store(graph, std::memory_order_release);
  record_.step.store(step, std::memory_order_release);
  record_.version.store(version + 2, std::memory_order_release);
}

std::vector<RunningNode> FindRunningNodes(const CancellationManager* step) {
  std::vector<RunningNode> found;
  if (step == nullptr) return found;
  Records::All().ForEach([&](const ThreadRecord& record) {
    Sight sight;
    if (!Look(record, step, &sight)) return;
    // After the look: what it saw may have begun just then.
    RunningNode& node = found.emplace_back(Tell(sight, CycleCount()));
    node.thread = record.name;
    node.thread_id = record.id;
  });
  return found;
}

}  // namespace millrace
