// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/cluster_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "distributed_runtime/pages/trace_nodes.h"
#include "executor/stats/step_trace.h"
#include "observe/page.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// What a master calls the ends of an edge that it cuts: the name of the node that the edge comes
// from, "_S" and a number that grows from end to end, the send's before the receive's.
struct EndName {
  std::string_view source;
  int64_t number = 0;

  static bool Parse(std::string_view name, EndName* end) {
    const std::size_t mark = name.rfind("_S");
    if (mark == std::string_view::npos) return false;
    end->source = name.substr(0, mark);
    return ParseInt64(name.substr(mark + 2), &end->number);
  }
};

// What a task does at one time; of several the first one counts.
enum Doing { kCompute, kInput, kTransfer, kWait, kNumDoings };

// How long each was the first of all that were done.
class Timeline {
 public:
  void Add(Doing what, int64_t begin, int64_t end) {
    begin = std::max(begin, window_.begin);
    end = std::min(end, window_.end);
    if (begin >= end) return;
    changes_.push_back({begin, what, 1});
    changes_.push_back({end, what, -1});
  }
  explicit Timeline(StepWindow window) : window_(window) {}

  void AddTo(double (&seconds)[kNumDoings]) {
    std::sort(changes_.begin(), changes_.end(),
              [](const Change& a, const Change& b) { return a.time < b.time; });
    int running[kNumDoings] = {};
    int64_t before = window_.begin;
    for (const Change& change : changes_) {
      for (int what = 0; what < kNumDoings; ++what) {
        if (running[what] == 0) continue;
        seconds[what] += static_cast<double>(change.time - before) * 1e-9;
        break;
      }
      running[change.what] += change.by;
      before = change.time;
    }
  }

 private:
  struct Change {
    int64_t time;
    Doing what;
    int by;
  };
  const StepWindow window_;
  std::vector<Change> changes_;
};

// When each task began its collectives. Which of them belong together the records do not say: a
// node of the same name in another task, if there is one, and else all of the same op.
class CollectiveStarts {
 public:
  // With clocks that are set.
  explicit CollectiveStarts(std::span<const pb::TraceResponse> traces) {
    for (const pb::TraceResponse& trace : traces) {
      for (const pb::TracedStep& step : trace.step()) {
        for (const pb::TracedPart& part : step.part()) {
          ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
            const std::string_view op = OpOf(node);
            if (!IsCollective(op)) return;
            const Start start = {StartOf(node), part.task()};
            of_op_[op].push_back(start);
            of_node_[{op, node.node_name()}].push_back(start);
          });
        }
      }
    }
    for (auto& [op, starts] : of_op_) std::sort(starts.begin(), starts.end());
    for (auto& [key, starts] : of_node_) std::sort(starts.begin(), starts.end());
  }

  // The last time that another task joined while `node` waited for it; the node's own start if it
  // was the last one, its end if nothing is known of others.
  int64_t LastJoined(std::string_view task, const pb::NodeExecStats& node) const {
    const std::string_view op = OpOf(node);
    const auto is_other = [&](const Start& start) { return start.second != task; };
    for (const auto* starts : {&of_node_.at({op, node.node_name()}), &of_op_.at(op)}) {
      if (std::none_of(starts->begin(), starts->end(), is_other)) continue;
      auto it = std::lower_bound(starts->begin(), starts->end(), EndOf(node),
                                 [](const Start& start, int64_t end) { return start.first < end; });
      while (it != starts->begin() && std::prev(it)->first > StartOf(node)) {
        if (is_other(*--it)) return it->first;
      }
      return StartOf(node);
    }
    return EndOf(node);
  }

 private:
  using Start = std::pair<int64_t, std::string_view>;  // when, of which task

  std::map<std::string_view, std::vector<Start>> of_op_;
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Start>> of_node_;
};

}  // namespace

std::vector<TracedTransfer> FindTransfers(const pb::TracedStep& step) {
  struct Sent {
    int64_t number;
    const std::string* task;
    const pb::NodeExecStats* node;
  };
  std::map<std::string_view, std::vector<Sent>> sent;
  for (const pb::TracedPart& part : step.part()) {
    ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
      EndName end;
      if (!IsSend(OpOf(node)) || !EndName::Parse(node.node_name(), &end)) return;
      sent[end.source].push_back({end.number, &part.task(), &node});
    });
  }
  std::vector<TracedTransfer> transfers;
  for (const pb::TracedPart& part : step.part()) {
    ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
      EndName end;
      if (!IsReceive(OpOf(node)) || !EndName::Parse(node.node_name(), &end)) return;
      const auto found = sent.find(end.source);
      if (found == sent.end()) return;
      const Sent* nearest = nullptr;
      for (const Sent& other : found->second) {
        if (other.number > end.number) continue;
        if (nearest == nullptr || other.number > nearest->number) nearest = &other;
      }
      if (nearest == nullptr || *nearest->task == part.task()) return;
      transfers.push_back({*nearest->task, part.task(), nearest->node, &node});
    });
  }
  return transfers;
}

std::vector<TimeShares> ShareTime(std::span<const pb::TraceResponse> traces) {
  struct Sum {
    double all = 0;
    double seconds[kNumDoings] = {};
  };
  std::map<std::string, Sum> sums;
  const CollectiveStarts collectives(traces);
  for (const pb::TraceResponse& trace : traces) {
    for (const pb::TracedStep& step : trace.step()) {
      const StepWindow window = WindowOf(step);
      std::map<const pb::NodeExecStats*, const pb::NodeExecStats*> sends;
      for (const TracedTransfer& transfer : FindTransfers(step)) {
        sends[transfer.receive] = transfer.send;
      }
      for (const pb::TracedPart& part : step.part()) {
        Timeline timeline(window);
        const auto calls = CallsOf(part);
        ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
          if (calls.contains(&node)) return;
          const std::string_view op = OpOf(node);
          int64_t sent = EndOf(node);
          if (IsCollective(op)) {
            sent = collectives.LastJoined(part.task(), node);
          } else if (!IsWait(op)) {
            return timeline.Add(IsInput(op) ? kInput : kCompute, StartOf(node), EndOf(node));
          } else if (const auto send = sends.find(&node); send != sends.end()) {
            sent = std::clamp(StartOf(*send->second), StartOf(node), EndOf(node));
          }
          timeline.Add(kWait, StartOf(node), sent);
          timeline.Add(kTransfer, sent, EndOf(node));
        });
        Sum& sum = sums[part.task()];
        sum.all += static_cast<double>(window.nanos()) * 1e-9;
        timeline.AddTo(sum.seconds);
      }
    }
  }
  std::vector<TimeShares> shares;
  for (const auto& [task, sum] : sums) {
    if (sum.all <= 0) continue;
    shares.push_back({task, sum.all, sum.seconds[kCompute] / sum.all, sum.seconds[kInput] / sum.all,
                      sum.seconds[kTransfer] / sum.all, sum.seconds[kWait] / sum.all});
  }
  return shares;
}

std::string Advice(const TimeShares& shares) {
  const std::pair<double, const char*> kinds[] = {
      {shares.compute,
       "compute dominates: more or faster processors, larger batches for an accelerator, or "
       "MILLRACE_FUSION (docs/fusion.md); millrace profile names the nodes"},
      {shares.input,
       "reading data dominates: read ahead and in parallel (prefetch, map with several calls), or "
       "keep what was read (docs/data.md)"},
      {shares.transfer,
       "transfer dominates: send less (bfloat16 between tasks, rows instead of tables) or spread "
       "variables over more parameter servers; millrace plan says what is sent"},
      {shares.wait,
       "waiting for other tasks, or for what they put into queues and accumulators, dominates: "
       "find "
       "the one that is late (millrace trace, /stepz), and give it less to do or more to do it "
       "with"},
      {shares.rest(),
       "time between nodes dominates: steps are so small that starting them costs most; put more "
       "into a step (larger batches, loops in the graph)"},
  };
  return std::max_element(std::begin(kinds), std::end(kinds),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

std::vector<NodeTime> TopNodes(std::span<const pb::TraceResponse> traces, std::size_t most) {
  std::map<std::pair<std::string, std::string>, NodeTime> times;
  for (const pb::TraceResponse& trace : traces) {
    for (const pb::TracedStep& step : trace.step()) {
      for (const pb::TracedPart& part : step.part()) {
        const auto calls = CallsOf(part);
        ForEachNode(part, [&](const pb::DeviceStepStats& device, const pb::NodeExecStats& node) {
          if (calls.contains(&node)) return;
          NodeTime& time = times[{device.device(), node.node_name()}];
          if (time.calls == 0) {
            time.node = node.node_name();
            time.op = OpOf(node);
            time.device = device.device();
            time.waits = IsWait(time.op);
          }
          ++time.calls;
          time.seconds += static_cast<double>(node.all_end_rel_nanos()) * 1e-9;
        });
      }
    }
  }
  std::vector<NodeTime> nodes;
  for (auto& [key, time] : times) nodes.push_back(std::move(time));
  std::stable_sort(nodes.begin(), nodes.end(), [](const NodeTime& a, const NodeTime& b) {
    return std::pair(!a.waits, a.seconds) > std::pair(!b.waits, b.seconds);
  });
  if (nodes.size() > most) nodes.resize(most);
  return nodes;
}

namespace {

// Beyond the processes that ChromeTrace makes.
constexpr int kStepsProcess = 1 << 20;
constexpr int kCriticalRow = 1 << 16;  // and on, one for each master

class ClusterWriter {
 public:
  explicit ClusterWriter(std::span<const pb::TraceResponse> traces) {
    pb::StepStats all;
    std::map<std::string, pb::DeviceStepStats*> devices;
    begin_ = INT64_MAX;
    for (const pb::TraceResponse& trace : traces) {
      for (const pb::TracedStep& step : trace.step()) {
        for (const pb::TracedPart& part : step.part()) {
          for (const pb::DeviceStepStats& device : part.stats().dev_stats()) {
            pb::DeviceStepStats*& merged = devices[device.device()];
            if (merged == nullptr) merged = all.add_dev_stats();
            merged->MergeFrom(device);
            merged->set_device(device.device());
          }
          ForEachNode(part,
                      [this](const pb::DeviceStepStats& device, const pb::NodeExecStats& node) {
                        begin_ = std::min(begin_, StartOf(node));
                        device_of_[&node] = device.device();
                      });
        }
      }
    }
    trace_ = Json::parse(ChromeTrace(all));
    for (const Json& event : trace_["traceEvents"]) {
      if (event["ph"] == "M" && event["name"] == "process_name") {
        pid_of_[event["args"]["name"].get<std::string>()] = event["pid"].get<int>();
      }
    }
  }

  void AddSteps(const pb::TraceResponse& trace, int row) {
    Add({{"ph", "M"},
         {"name", "process_name"},
         {"pid", kStepsProcess},
         {"args", {{"name", "steps"}}}});
    Add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", kStepsProcess},
         {"tid", row},
         {"args", {{"name", trace.task()}}}});
    Add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", kStepsProcess},
         {"tid", kCriticalRow + row},
         {"args", {{"name", StrCat("critical path, ", trace.task())}}}});
    for (const pb::TracedStep& step : trace.step()) {
      const StepWindow window = WindowOf(step);
      int64_t cost = 0;
      const std::string straggler = Straggler(step, &cost);
      Json args = {{"session", step.session()},
                   {"step", Hex16(static_cast<uint64_t>(step.step_id()))}};
      if (step.request_id() != 0) {
        args["request"] = Hex16(static_cast<uint64_t>(step.request_id()));
      }
      if (!straggler.empty()) {
        args["straggler"] = straggler;
        args["straggler_cost"] = DurationText(static_cast<double>(cost) * 1e-9);
        if (window.nanos() > 0) {
          args["straggler_share"] =  // percent of the step
              100 * static_cast<double>(cost) / static_cast<double>(window.nanos());
        }
      }
      Add({{"ph", "X"},
           {"cat", "step"},
           {"name", straggler.empty() ? "step" : "step, straggler: " + straggler},
           {"pid", kStepsProcess},
           {"tid", row},
           {"ts", Micros(window.begin)},
           {"dur", static_cast<double>(window.nanos()) / 1000},
           {"args", args}});
      for (const TracedTransfer& transfer : FindTransfers(step)) AddArrow(transfer);
      for (const CriticalNode& critical : CriticalPath(step)) AddCritical(critical, row);
    }
  }

  std::string Take() { return trace_.dump() + "\n"; }

 private:
  void Add(Json event) { trace_["traceEvents"].push_back(std::move(event)); }
  double Micros(int64_t nanos) const { return static_cast<double>(nanos - begin_) / 1000; }

  void AddCritical(const CriticalNode& critical, int row) {
    const pb::NodeExecStats& node = *critical.node;
    Add({{"ph", "X"},
         {"cat", "critical path"},
         {"name", OpOf(node)},
         {"pid", kStepsProcess},
         {"tid", kCriticalRow + row},
         {"ts", Micros(StartOf(node))},
         {"dur", static_cast<double>(EndOf(node) - StartOf(node)) / 1000},
         {"args", {{"node", node.node_name()}, {"task", critical.task}}}});
  }

  void AddArrow(const TracedTransfer& transfer) {
    const int id = ++arrows_;
    const std::string name = transfer.send->node_name();
    Add({{"ph", "s"},
         {"cat", "transfer"},
         {"name", name},
         {"id", id},
         {"pid", pid_of_[device_of_[transfer.send]]},
         {"tid", transfer.send->thread_id()},
         {"ts", Micros(StartOf(*transfer.send))}});
    Add({{"ph", "f"},
         {"bp", "e"},
         {"cat", "transfer"},
         {"name", name},
         {"id", id},
         {"pid", pid_of_[device_of_[transfer.receive]]},
         {"tid", transfer.receive->thread_id()},
         {"ts", Micros(EndOf(*transfer.receive))}});
  }

  Json trace_;
  int64_t begin_ = 0;
  int arrows_ = 0;
  std::map<const pb::NodeExecStats*, std::string> device_of_;
  std::map<std::string, int> pid_of_;
};

}  // namespace

std::string ClusterTrace(std::span<const pb::TraceResponse> traces) {
  ClusterWriter writer(traces);
  int row = 0;
  for (const pb::TraceResponse& trace : traces) writer.AddSteps(trace, row++);
  return writer.Take();
}

}  // namespace millrace
