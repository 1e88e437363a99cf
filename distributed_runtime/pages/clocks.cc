// SPDX-License-Identifier: Apache-2.0
// How far the clocks of tasks are apart: a system of differences, each of which is bounded by what
// has been seen to come before what.
#include <algorithm>
#include <limits>

#include "distributed_runtime/pages/cluster_trace.h"
#include "distributed_runtime/pages/trace_nodes.h"

namespace millrace {
namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;

// The most that one clock may be ahead of another. By Floyd and Warshall a bound of two steps is as
// good as one that was seen.
class Bounds {
 public:
  int Index(const std::string& task) {
    const auto [it, is_new] = index_.try_emplace(task, static_cast<int>(index_.size()));
    if (!is_new) return it->second;
    for (auto& row : most_) row.push_back(kFar);
    most_.emplace_back(index_.size(), kFar);
    most_.back().back() = 0;
    return it->second;
  }
  // The clock of `a` is ahead of that of `b` by at most so much.
  void Add(int a, int b, int64_t most) { most_[a][b] = std::min(most_[a][b], most); }

  std::map<std::string, int64_t> Solve() {
    const std::size_t n = most_.size();
    for (std::size_t k = 0; k < n; ++k) Pass(static_cast<int>(k));
    std::vector<int64_t> ahead(n, 0);
    for (std::size_t i = 1; i < n; ++i) {
      const int64_t most = most_[i][0], least = -most_[0][i];
      if (most == kFar && least == -kFar) continue;
      if (most == kFar) {
        ahead[i] = least;
      } else if (least == -kFar) {
        ahead[i] = most;
      } else {
        ahead[i] = least + (most - least) / 2;
      }
      // Others are bound to what was chosen.
      most_[i][0] = ahead[i];
      most_[0][i] = -ahead[i];
      Pass(static_cast<int>(i));
      Pass(0);
    }
    std::map<std::string, int64_t> result;
    for (const auto& [task, i] : index_) result[task] = ahead[static_cast<std::size_t>(i)];
    return result;
  }

 private:
  // Shortens what may be shorter by way of `k`.
  void Pass(int k) {
    const std::size_t n = most_.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (most_[i][k] == kFar) continue;
      for (std::size_t j = 0; j < n; ++j) {
        if (most_[k][j] == kFar) continue;
        most_[i][j] = std::min(most_[i][j], most_[i][k] + most_[k][j]);
      }
    }
  }

  std::map<std::string, int> index_;
  std::vector<std::vector<int64_t>> most_;
};

void AddPart(const std::string& master, const pb::TracedPart& part, Bounds* bounds) {
  int64_t first = kFar, last = -kFar;
  for (const pb::DeviceStepStats& device : part.stats().dev_stats()) {
    for (const pb::NodeExecStats& node : device.node_stats()) {
      first = std::min(first, StartOf(node));
      last = std::max(last, EndOf(node));
    }
  }
  const int here = bounds->Index(master), there = bounds->Index(part.task());
  if (here == there || first == kFar) return;
  bounds->Add(there, here, first - part.sent_nanos());
  bounds->Add(here, there, part.answered_nanos() - last);
}

// The times of a message that are of a clock.
void Shift(int64_t by, pb::StepStats* stats) {
  for (pb::DeviceStepStats& device : *stats->mutable_dev_stats()) {
    for (pb::NodeExecStats& node : *device.mutable_node_stats()) {
      node.set_all_start_nanos(node.all_start_nanos() + by);
      node.set_all_start_micros(node.all_start_nanos() / 1000);
      node.set_scheduled_nanos(node.scheduled_nanos() + by);
      node.set_scheduled_micros(node.scheduled_nanos() / 1000);
    }
  }
}

}  // namespace

std::map<std::string, int64_t> AlignClocks(std::span<const pb::TraceResponse> traces) {
  Bounds bounds;
  for (const pb::TraceResponse& trace : traces) {
    (void)bounds.Index(trace.task());
    for (const pb::TracedStep& step : trace.step()) {
      for (const pb::TracedPart& part : step.part()) AddPart(trace.task(), part, &bounds);
      for (const TracedTransfer& transfer : FindTransfers(step)) {
        // What has come was being sent before.
        const int from = bounds.Index(transfer.from_task), to = bounds.Index(transfer.to_task);
        bounds.Add(to, from, EndOf(*transfer.receive) - StartOf(*transfer.send));
      }
    }
  }
  return bounds.Solve();
}

void SetClocks(const std::map<std::string, int64_t>& ahead,
               std::vector<pb::TraceResponse>* traces) {
  const auto of = [&](const std::string& task) {
    const auto it = ahead.find(task);
    return it == ahead.end() ? 0 : it->second;
  };
  for (pb::TraceResponse& trace : *traces) {
    for (pb::TracedStep& step : *trace.mutable_step()) {
      for (pb::TracedPart& part : *step.mutable_part()) {
        part.set_sent_nanos(part.sent_nanos() - of(trace.task()));
        part.set_answered_nanos(part.answered_nanos() - of(trace.task()));
        Shift(-of(part.task()), part.mutable_stats());
      }
    }
  }
}

}  // namespace millrace
