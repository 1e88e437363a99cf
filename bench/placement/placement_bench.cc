// SPDX-License-Identifier: Apache-2.0
// What a graph costs on its way from a message to the first result, pass by pass, and how the
// cost grows with the graph.
//
//   placement_bench [--peer PROGRAM GRAPHS] [NODES...]     default: 10000 100000 1000000
//
// With a peer, its session gets a graph of the same kind and size right before and right after
// ours, and the ratio to the faster one follows (bench/executor/peer.h).
//
// The graph: layers of ten ops, two inputs each (2n edges), a constant layer first; two tasks of
// two devices; 1 % of the nodes ask for a device, 1 % for the company of another node. For each
// size a line with milliseconds for each pass, the session as a whole, and resident bytes per
// node; then what it costs to extend that session by ten nodes and run only these. With several
// sizes, the ratio of times between neighbours follows.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/executor/peer.h"
#include "executor/compiled_graph.h"
#include "graph/graph_def_io.h"
#include "graph/node_batch.h"
#include "master/feed_fetch.h"
#include "master/session_test_util.h"
#include "partitioner/partition.h"
#include "partitioner/verify.h"
#include "placer/placer.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWidth = 10;
constexpr int kTasks = 2, kCpus = 2;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string NodeName(int i) { return StrCat("layer", i / kWidth, "/op", i % kWidth); }

TestGraph MakeGraph(int num_nodes) {
  TestGraph graph;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> percent(0, 99), column(0, kWidth - 1);
  for (int i = 0; i < num_nodes; ++i) {
    std::string device;
    if (percent(random) == 0) {
      device =
          StrCat("/job:worker/task:", column(random) % kTasks, "/cpu:", column(random) / 2 % kCpus);
    }
    if (i < kWidth) {
      graph.Const(NodeName(i), 0.f, device);
      continue;
    }
    const int layer = i / kWidth;
    pb::NodeDef* const node =
        graph.Sum(NodeName(i), NodeName((layer - 1) * kWidth + column(random)),
                  NodeName((layer - 1) * kWidth + column(random)), device);
    if (device.empty() && percent(random) == 0) {
      const std::string near = NodeName((layer - 1) * kWidth + column(random));
      (*node->mutable_attr())["_class"].mutable_list()->add_s(StrCat("loc:@", near));
    }
  }
  return graph;
}

PlacerInput Devices(const KernelRegistry& kernels) {
  PlacerInput input;
  for (int task = 0; task < kTasks; ++task) {
    for (int cpu = 0; cpu < kCpus; ++cpu) {
      input.devices.push_back({.name = StrCat(TestCluster::TaskName(task), "/device:CPU:", cpu),
                               .type = "CPU",
                               .is_local = task == 0});
    }
  }
  input.kernel = [&kernels](const OpInfo& op, const AttrMap& attrs,
                            std::string_view type) -> std::optional<int> {
    const KernelDef* kernel = kernels.Find(op.def.name(), type, attrs);
    return kernel == nullptr ? std::nullopt : std::optional<int>(kernel->priority);
  };
  input.allow_soft_placement = true;
  return input;
}

using Times = std::vector<std::pair<std::string, double>>;

// The passes one by one, as the session calls them.
Times TimePasses(const pb::GraphDef& def, const std::string& target) {
  OpRegistry ops;
  KernelRegistry kernels;
  RegisterTestOpsAndKernels(ops, kernels);
  Times times;
  const auto timed = [&](const char* name, auto&& pass) {
    const auto start = Clock::now();
    pass();
    times.emplace_back(name, MsSince(start));
  };
  const auto check = [](const Status& status) {
    if (!status.ok()) Fatal(std::source_location::current(), Message(status));
  };
  DataflowGraph graph(&ops);
  timed("build", [&] { check(ImportGraphDef({}, def, &graph)); });
  // What a session of this process has instead of it.
  timed("copy", [&] { check(CopyNodes(graph, 0).status()); });
  const PlacerInput input = Devices(kernels);
  PlacementLog log;
  timed("place", [&] { check(Place(&graph, input, &log)); });
  const int64_t without_log = [&] {
    for (Node* node : graph.OpNodes()) node->set_assigned_device("");
    const auto start = Clock::now();
    check(Place(&graph, input, nullptr));
    return static_cast<int64_t>(MsSince(start) * 1000);
  }();
  times.emplace_back("(no log)", static_cast<double>(without_log) / 1000);
  std::unique_ptr<DataflowGraph> pruned;
  RunSignature signature;
  signature.targets = {target};
  timed("prune", [&] {
    pruned = CopyForRun(signature, graph);
    check(RewriteForRun(signature, {input.devices[0].name, 1}, pruned.get()));
  });
  int made = 0;
  PartitionOptions options;
  options.node_to_location = [](const Node& node) { return node.assigned_device(); };
  options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_S", made++); };
  std::vector<Partition> parts;
  timed("partition", [&] {
    auto cut = PartitionGraph(*pruned, options);
    check(cut.status());
    parts = *std::move(cut);
  });
  timed("verify", [&] { check(VerifyPartitions(parts)); });
  TestCluster cluster({.num_tasks = 1, .num_cpus = 1});
  std::vector<std::unique_ptr<Kernel>> made_kernels;
  timed("compile", [&] {
    for (const Partition& part : parts) {
      const auto source = [&](const Node& node) -> StatusOr<Kernel*> {
        auto kernel = kernels.Create(cluster.device(), &node.op(), node.name(), node.attrs(),
                                     node.input_types(), node.output_types());
        if (!kernel.ok()) return kernel.status();
        made_kernels.push_back(*std::move(kernel));
        return made_kernels.back().get();
      };
      check(CompiledGraph::Compile(*part.graph, cluster.device(), source).status());
    }
  });
  return times;
}

struct SessionCosts {
  double first_result_ms = 0, extend_us = 0;
  int64_t bytes_per_node = 0;
};

// From the call that makes the session to the end of the first step; `def` is given up.
SessionCosts TimeSession(std::unique_ptr<TestGraph> graph, const std::string& target,
                         int num_nodes) {
  TestCluster cluster({.num_tasks = kTasks, .num_cpus = kCpus});
  malloc_trim(0);
  const int64_t before = ResidentBytes();
  SessionCosts costs;
  auto start = Clock::now();
  ClientSession::Options options;
  options.config.set_allow_soft_placement(true);
  auto session = cluster.NewSession(graph->def(), options);
  auto result = session->Run({}, {StrCat(target, ":0")});
  costs.first_result_ms = MsSince(start);
  MR_CHECK(result.ok());
  const int64_t message = static_cast<int64_t>(graph->def().SpaceUsedLong());
  graph.reset();
  malloc_trim(0);
  costs.bytes_per_node = (ResidentBytes() - before + message) / num_nodes;

  constexpr int kExtensions = 20;
  std::vector<double> times;
  for (int i = 0; i < kExtensions; ++i) {
    TestGraph more;
    more.Const(StrCat("more", i, "/0"), 1.f);
    for (int j = 1; j < 10; ++j) {
      more.Sum(StrCat("more", i, "/", j), StrCat("more", i, "/", j - 1), "more" + StrCat(i, "/0"));
    }
    const std::string fetch = StrCat("more", i, "/9:0");
    start = Clock::now();
    const Status extended = session->Extend(more.def());
    MR_CHECK(extended.ok());
    MR_CHECK(session->Run({}, {fetch}).ok());
    times.push_back(MsSince(start) * 1000);
  }
  std::sort(times.begin(), times.end());
  costs.extend_us = times[times.size() / 2];
  return costs;
}

int Main(int argc, char** argv) {
  std::vector<int> sizes;
  int first = 1;
  const bool with_peer = argc > 3 && std::string_view(argv[1]) == "--peer";
  if (with_peer) first = 4;
  for (int i = first; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {10'000, 100'000, 1'000'000};
  std::map<std::string, double> last;
  int last_size = 0;
  for (const int size : sizes) {
    auto graph = std::make_unique<TestGraph>(MakeGraph(size));
    const std::string target = NodeName(size - 1);
    const Times times = TimePasses(graph->def(), target);
    std::printf("%d nodes:", size);
    for (const auto& [pass, ms] : times) {
      std::printf(" %s %.1f", pass.c_str(), ms);
      if (last_size > 0 && last[pass] > 0) std::printf(" (x%.1f)", ms / last[pass]);
      last[pass] = ms;
    }
    last_size = size;
    std::printf(" ms\n");
    std::fflush(stdout);
    Peer peer;
    const auto run_peer = [&] {
      return !with_peer ||
             peer.RunCommand(StrCat("'", argv[2], "' big '", argv[3], "' ", size, " only"));
    };
    bool peer_ran = run_peer();
    const SessionCosts costs = TimeSession(std::move(graph), target, size);
    peer_ran = run_peer() && peer_ran;
    std::printf(
        "  session to first result %.1f ms, %lld bytes/node, extend by 10 and run %.0f us\n",
        costs.first_result_ms, static_cast<long long>(costs.bytes_per_node), costs.extend_us);
    double peer_ms = 0;  // of its fastest way
    for (const auto& [name, seconds] : peer.Medians()) {
      if (!name.starts_with("A.biggraph_")) continue;
      peer_ms = peer_ms == 0 ? 1000 * seconds : std::min(peer_ms, 1000 * seconds);
    }
    if (with_peer && (!peer_ran || peer_ms == 0)) std::printf("  the peer failed\n");
    if (peer_ms > 0) {
      std::printf("  the peer: %.0f ms; ratio %.3f\n", peer_ms, costs.first_result_ms / peer_ms);
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
