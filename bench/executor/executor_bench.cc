// SPDX-License-Identifier: Apache-2.0
// What the executor costs: nanoseconds of a node, microseconds of a call.
//
//   executor_bench [--rounds N] [--only ITEM] [--peer PROGRAM --peer_graphs FOLDER]
//                  [--peer_command COMMAND]...
//
// Items are null, add, wide, latency and while. Peers print a line of JSON for each thing they
// time, {"name": "A.add_chain_1000_scalar.ort", "value": nanoseconds}; theirs and ours take turns,
// and below each row is one for each way of theirs to run the same workload, with our ratio to it.
// PROGRAM is called with an item and FOLDER; a shell COMMAND finds the item in $ITEM and may leave
// out the others: --peer_command 'case $ITEM in null|wide) tbb_peer $ITEM;; esac'.
// A row on two threads ends with its rate beside the one of the same workload on one thread.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "bench/executor/chains.h"
#include "bench/executor/peer.h"
#include "bench/executor/row.h"
#include "bench/executor/while_rows.h"
#include "executor/executor.h"
#include "executor/test_graph.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"

namespace millrace {
namespace {

// Of 20,000 calls, in nanoseconds: what a caller mostly sees.
double MedianCall(const std::function<void()>& call) {
  std::vector<double> nanos;
  for (int i = 0; i < 20'000; ++i) {
    const int64_t start = SteadyNanos();
    call();
    nanos.push_back(static_cast<double>(SteadyNanos() - start));
  }
  return Median(std::move(nanos));
}

Row NullChain() {
  constexpr int kNodes = 100'000;
  auto w = std::make_shared<Workload>();
  Operation last = ops::NoOp(w->graph.root());
  for (int i = 1; i < kNodes; ++i) {
    last = ops::NoOp(w->graph.root().WithControlDependencies({last}));
  }
  w->Prepare(CallerAlone(), {}, {}, {&last, 1});
  return {"chain of 100,000 NoOps (no instruction left)",
          "ns/node",
          {"A.null_chain_100k.2t_grappler"},  // with its NoOps removed as well
          [w] { return NanosPer(50, [&] { w->Run(); }) / kNodes; }};
}

Row NullKernels() {
  constexpr int kNodes = 100'000;
  const auto step = NullKernelChain(kNodes);
  return {"chain of 100,000 kernels that do nothing",
          "ns/node",
          {"A.null_chain_100k.caller", "A.null_chain_100k.single", "A.null_chain_100k.1t",
           "A.null_chain_100k.2t", "A.null_chain_100k.tbb"},
          [step] { return NanosPer(20, step) / kNodes; }};
}

Row Adds(int64_t elements) {
  constexpr int kNodes = 1'000;
  const auto step = AddChain(kNodes, elements, CallerAlone());
  return {StrCat("chain of 1,000 additions, ", elements, " float(s)"),
          "ns/node",
          {elements == 1 ? "A.add_chain_1000_scalar" : "A.add_chain_1000_1KiB"},
          [step] { return NanosPer(500, step) / kNodes; }};
}

Row Wide(bool adds, int threads) {
  constexpr int kWide = 100, kDeep = 1000;
  auto w = std::make_shared<Workload>();
  const Scope root = w->graph.root();
  std::vector<Operation> layer;
  if (adds) {
    const Output x = Placeholder(root, kFloat, PartialShape({}));
    std::vector<Output> values(kWide, x);
    for (int d = 0; d < kDeep; ++d) {
      std::vector<Output> next;
      for (int i = 0; i < kWide; ++i) {
        next.push_back(ops::Add(root, values[i], values[(i + 1) % kWide]));
      }
      values = next;
    }
    for (const Output& value : values) layer.push_back(value.op());
    w->feeds = {Tensor::Scalar<float>(0)};
    const Operation done = ops::NoOp(root.WithControlDependencies(layer));
    // Nodes of the first layer compute the same: merged, there would be one in every layer.
    w->Prepare({.inter_op_threads = threads, .intra_op_threads = -1, .rewrite_graph = false},
               {&x, 1}, {}, {&done, 1});
  } else {
    for (int d = 0; d < kDeep; ++d) {
      std::vector<Operation> next;
      for (int i = 0; i < kWide; ++i) {
        next.push_back(ops::NoOp(
            d == 0 ? root : root.WithControlDependencies({layer[i], layer[(i + 1) % kWide]})));
      }
      layer = next;
    }
    const Operation done = ops::NoOp(root.WithControlDependencies(layer));
    w->Prepare({.inter_op_threads = threads, .intra_op_threads = -1}, {}, {}, {&done, 1});
  }
  const std::string what = adds ? "scalar additions" : "NoOps (no instruction left)";
  std::vector<std::string> peers;
  if (adds) peers.push_back("A.wide_100x1000_add");
  return {StrCat("100 wide x 1,000 ", what, ", ", threads < 0 ? "caller alone" : "2 threads"),
          "ns/node", peers, [w] { return NanosPer(5, [&] { w->Run(); }) / (kWide * kDeep); },
          threads < 0 ? 0 : 1};
}

Row WideNullKernels(int more_threads) {
  constexpr int kWide = 100, kDeep = 1000;
  const auto step = NullKernelLayers(kWide, kDeep, more_threads);
  return {StrCat("100 wide x 1,000 kernels that do nothing, ",
                 more_threads == 0 ? "caller alone" : "2 threads"),
          "ns/node",
          {"A.wide_100x1000_null"},
          [step] { return NanosPer(5, step) / (kWide * kDeep); },
          more_threads == 0 ? 0 : 1};
}

// Bodies that compute for so long, on two threads of a pool; the caller waits.
Row WideBodies(int nanos) {
  constexpr int kWide = 100, kDeep = 20;
  struct State {
    test::TestGraph t;
    ThreadPool pool{"bench", 2};
    std::unique_ptr<CompiledGraph> compiled;
  };
  auto s = std::make_shared<State>();
  std::vector<Node*> layer;
  for (int d = 0; d < kDeep; ++d) {
    std::vector<Node*> next;
    for (int i = 0; i < kWide; ++i) {
      next.push_back(s->t.Add("Work", {}, test::TestGraph::Attr("expensive", true)));
      for (const int from : {i, (i + 1) % kWide}) {
        if (d > 0) s->t.Control(layer[from], next.back());
      }
    }
    layer = next;
  }
  s->t.hook = [nanos](const std::string&) {
    const int64_t end = SteadyNanos() + nanos;
    while (SteadyNanos() < end) {
    }
  };
  s->compiled = *s->t.Compile();
  const auto run = [s] {
    StepEnv env;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &s->pool;
    args.caller_runs = false;
    MR_CHECK(Executor(s->compiled.get()).Run(args).ok());
  };
  for (int i = 0; i < 20; ++i) run();  // until costs are known
  std::vector<std::string> peers;
  if (nanos == 10'000) peers.push_back("A.wide_100x20_10us");
  return {StrCat("100 wide x 20 bodies of ", nanos / 1000, " us, 2 threads"), "us/node", peers,
          [run] { return NanosPer(5, run) / (kWide * kDeep) / 1000; }};
}

// A recurrent cell with gates in a loop: six products of 32 x 128 by 128 x 128 an iteration, and
// ten small operations.
Row Recurrent(int threads) {
  constexpr int kIterations = 100, kBatch = 32, kUnits = 128;
  auto w = std::make_shared<Workload>();
  const Scope root = w->graph.root();
  const auto weights = [&root](int64_t rows, float value) {
    Tensor filled(kFloat, Shape({rows, kUnits}));
    std::fill_n(filled.data<float>(), filled.num_elements(), value);
    return ops::Const(root, filled, kFloat);
  };
  const Output x = weights(kBatch, 0.5f);
  std::vector<Output> matrices;
  for (int i = 0; i < 6; ++i) matrices.push_back(weights(kUnits, 0.001f * static_cast<float>(i)));
  const auto gate = [&](const Scope& s, const Output& h, int i) {
    return ops::AddV2(s, ops::MatMul(s, h, matrices[i]), ops::MatMul(s, x, matrices[i + 1]));
  };
  const auto last = WhileLoop(
      root, {ops::Const(root, Tensor::Scalar<int32_t>(0), kInt32), weights(kBatch, 0)},
      [](const Scope& s, std::span<const Output> v) { return ops::Less(s, v[0], kIterations); },
      [&](const Scope& s, std::span<const Output> v) {
        const Output update = ops::Sigmoid(s, gate(s, v[1], 0));
        const Output reset = ops::Sigmoid(s, gate(s, v[1], 2));
        const Output next = ops::Tanh(s, gate(s, ops::Mul(s, v[1], reset), 4));
        const Output more = ops::Mul(s, update, ops::Sub(s, v[1], next));
        return std::vector<Output>{ops::AddV2(s, v[0], 1), ops::AddV2(s, next, more)};
      });
  MR_CHECK(w->graph.status().ok());
  SessionOptions options;
  options.inter_op_threads = threads;
  w->Prepare(options, {}, {&last[1], 1}, {});
  w->Run();
  return {StrCat("loop of a recurrent cell, ", threads < 0 ? "caller alone" : "2 threads"),
          "us/iteration",
          {},
          [w] { return NanosPer(5, [&] { w->Run(); }) / kIterations / 1000; },
          threads < 0 ? 0 : 1};
}

std::shared_ptr<Workload> OneOp(Output* x, Output* y) {
  auto w = std::make_shared<Workload>();
  *x = Placeholder(w->graph.root(), kFloat, PartialShape({}));
  *y = ops::Neg(w->graph.root(), *x);
  w->feeds = {Tensor::Scalar<float>(1)};
  w->Prepare(CallerAlone(), {x, 1}, {y, 1}, {});
  return w;
}

Row Prepared() {
  Output x, y;
  auto w = OneOp(&x, &y);
  return {"one op, feed and fetch, prepared: median call", "us", {"A.run_latency.callable"}, [w] {
            return MedianCall([&] { w->Run(); }) / 1000;
          }};
}

Row StringKeyed() {
  Output x, y;
  auto w = OneOp(&x, &y);
  const Feed feed{x, w->feeds[0]};
  return {"one op, feed and fetch, by name: median call",
          "us",
          {"A.run_latency.string_keyed", "A.run_latency.ort_python"},
          [w, feed, y] {
            return MedianCall([&] { MR_CHECK(w->session->Run({&feed, 1}, {&y, 1}).ok()); }) / 1000;
          }};
}

struct Item {
  const char* name;
  std::vector<std::function<Row()>> makers;
};

std::vector<Item> Items() {
  const auto loop = [](LoopForm form, int threads) {
    return [form, threads] { return WhileRow(form, threads); };
  };
  return {
      {"null", {NullChain, NullKernels}},
      {"add", {[] { return Adds(1); }, [] { return Adds(256); }}},
      {"wide",
       {[] { return Wide(false, -1); }, [] { return Wide(false, 2); },
        [] { return WideNullKernels(0); }, [] { return WideNullKernels(1); },
        [] { return Wide(true, -1); }, [] { return Wide(true, 2); },
        [] { return WideBodies(10'000); }, [] { return WideBodies(2'000); }}},
      {"latency", {Prepared, StringKeyed}},
      {"while",
       {loop(LoopForm::kNodes, -1), loop(LoopForm::kLowered, -1), loop(LoopForm::kFunctional, -1),
        loop(LoopForm::kNodes, 0), loop(LoopForm::kFunctional, 0), [] { return Recurrent(-1); },
        [] { return Recurrent(2); }}}};
}

void Print(const std::vector<Row>& rows, const std::vector<std::vector<double>>& values,
           const Peer& peer) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [low, high] = std::minmax_element(values[r].begin(), values[r].end());
    std::printf("%-58s %9.3f %-10s [%.3f, %.3f]", rows[r].what.c_str(), Median(values[r]),
                rows[r].unit.c_str(), *low, *high);
    if (rows[r].alone > 0) {
      std::printf("  rate %s of the caller's alone",
                  RatioText(values[r - rows[r].alone], values[r]).c_str());
    }
    std::printf("\n");
    PrintWays(peer, rows[r].peers, values[r], rows[r].unit);
  }
  std::fflush(stdout);
}

int Usage() {
  std::fprintf(stderr,
               "usage: executor_bench [--rounds N] [--only ITEM] [--peer PROGRAM --peer_graphs "
               "FOLDER]\n                      [--peer_command COMMAND]...\n");
  return 2;
}

int Main(int argc, char** argv) {
  int rounds = 5;
  std::string only, program, graphs;
  std::vector<std::string> commands;
  if (argc % 2 == 0) return Usage();
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--rounds") {
      rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--peer") {
      program = value;
    } else if (flag == "--peer_graphs") {
      graphs = value;
    } else if (flag == "--peer_command") {
      commands.push_back(value);
    } else {
      return Usage();
    }
  }
  if (!program.empty()) {
    commands.insert(commands.begin(), StrCat("'", program, "' \"$ITEM\" '", graphs, "'"));
  }
  bool found = false;
  for (const Item& item : Items()) {
    if (!only.empty() && only != item.name) continue;
    found = true;
    std::vector<Row> rows;
    for (const auto& make : item.makers) rows.push_back(make());
    std::vector<std::vector<double>> values(rows.size());
    Peer peer;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t r = 0; r < rows.size(); ++r) values[r].push_back(rows[r].measure());
      for (const std::string& command : commands) {
        if (!peer.RunCommand(command, item.name)) {
          std::fprintf(stderr, "a peer failed (%s): %s\n", item.name, command.c_str());
        }
      }
    }
    Print(rows, values, peer);
  }
  return found ? 0 : Usage();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
