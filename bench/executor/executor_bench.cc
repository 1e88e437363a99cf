// What the executor costs: nanoseconds of a node, microseconds of a call.
//
//   executor_bench [--rounds N] [--only TEXT] [--peer PROGRAM --peer_graphs FOLDER]
//
// With a peer its items and ours take turns, and each row ends with the ratio to the peer's
// best way to run the same workload.
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
#include "executor/executor.h"
#include "executor/test_graph.h"
#include "millrace/millrace.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// Nanoseconds of each of `count` calls.
double NanosPer(int count, const std::function<void()>& call) {
  const int64_t start = SteadyNanos();
  for (int i = 0; i < count; ++i) call();
  return static_cast<double>(SteadyNanos() - start) / count;
}

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

struct Row {
  std::string what, unit;
  std::string item, peer_prefix;  // of the peer; "" if it has no such workload
  std::function<double()> measure;
};

Row NullChain() {
  constexpr int kNodes = 100'000;
  auto w = std::make_shared<Workload>();
  Operation last = ops::NoOp(w->graph.root());
  for (int i = 1; i < kNodes; ++i) {
    last = ops::NoOp(w->graph.root().WithControlDependencies({last}));
  }
  w->Prepare(CallerAlone(), {}, {}, {&last, 1});
  return {"null chain of 100,000 NoOps (no instruction left)", "ns/node", "null", "A.null_chain",
          [w] { return NanosPer(50, [&] { w->Run(); }) / kNodes; }};
}

Row NullKernels() {
  constexpr int kNodes = 100'000;
  const auto step = NullKernelChain(kNodes);
  return {"chain of 100,000 kernels that do nothing", "ns/node", "null", "A.null_chain_100k.single",
          [step] { return NanosPer(20, step) / kNodes; }};
}

Row Adds(int64_t elements) {
  constexpr int kNodes = 1'000;
  const auto step = AddChain(kNodes, elements, CallerAlone());
  return {StrCat("chain of 1,000 additions, ", elements, " float(s)"), "ns/node", "add",
          elements == 1 ? "A.add_chain_1000_scalar" : "A.add_chain_1000_1KiB",
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
  return {StrCat("100 wide x 1,000 ", adds ? "scalar additions" : "NoOps", ", ",
                 threads < 0 ? "caller alone" : "2 threads"),
          "ns/node", "wide", adds ? "A.wide_100x1000_add" : "A.wide_100x1000_null",
          [w] { return NanosPer(5, [&] { w->Run(); }) / (kWide * kDeep); }};
}

// Bodies that compute for 10 us, on two threads of a pool; the caller waits.
Row WideBodies() {
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
  s->t.hook = [](const std::string&) {
    const int64_t end = SteadyNanos() + 10'000;
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
  for (int i = 0; i < 5; ++i) run();
  return {"100 wide x 20 bodies of 10 us, 2 threads", "us/node", "wide", "A.wide_100x20_10us",
          [run] { return NanosPer(5, run) / (kWide * kDeep) / 1000; }};
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
  return {"one op, feed and fetch, prepared: median call", "us", "latency",
          "A.run_latency.callable", [w] { return MedianCall([&] { w->Run(); }) / 1000; }};
}

Row StringKeyed() {
  Output x, y;
  auto w = OneOp(&x, &y);
  const Feed feed{x, w->feeds[0]};
  return {"one op, feed and fetch, by name: median call", "us", "latency",
          "A.run_latency.string_keyed", [w, feed, y] {
            return MedianCall([&] { MR_CHECK(w->session->Run({&feed, 1}, {&y, 1}).ok()); }) / 1000;
          }};
}

// i = 0; while (i < n) { v = five additions and multiplications; ++i }, as TensorFlow 1 writes it.
pb::GraphDef WhileGraph() {
  pb::GraphDef graph;
  graph.mutable_versions()->set_producer(1000);
  const auto add = [&](const char* name, const char* op, std::vector<std::string> inputs,
                       pb::DataType type, const char* key = "T") {
    pb::NodeDef* node = graph.add_node();
    node->set_name(name);
    node->set_op(op);
    for (const std::string& input : inputs) node->add_input(input);
    (*node->mutable_attr())[key].set_type(type);
    return node;
  };
  const auto constant = [&](const char* name, const Tensor& value, const char* after) {
    std::vector<std::string> inputs;
    if (*after != '\0') inputs.push_back(after);
    pb::NodeDef* node =
        add(name, "Const", inputs, static_cast<pb::DataType>(value.dtype()), "dtype");
    TensorToProto(value, (*node->mutable_attr())["value"].mutable_tensor());
  };
  const auto enter = [&](const char* name, const char* from, pb::DataType type, bool is_constant) {
    pb::NodeDef* node = add(name, "Enter", {from}, type);
    (*node->mutable_attr())["frame_name"].set_s("loop");
    (*node->mutable_attr())["is_constant"].set_b(is_constant);
  };
  const auto merge = [&](const char* name, std::vector<std::string> inputs, pb::DataType type) {
    (*add(name, "Merge", std::move(inputs), type)->mutable_attr())["N"].set_i(2);
  };
  add("n", "Placeholder", {}, pb::DT_INT32, "dtype");
  add("x", "Placeholder", {}, pb::DT_FLOAT, "dtype");
  constant("zero", Tensor::Scalar<int32_t>(0), "");
  enter("i_in", "zero", pb::DT_INT32, false);
  enter("v_in", "x", pb::DT_FLOAT, false);
  enter("n_in", "n", pb::DT_INT32, true);
  merge("i", {"i_in", "i_next"}, pb::DT_INT32);
  merge("v", {"v_in", "v_next"}, pb::DT_FLOAT);
  add("less", "Less", {"i", "n_in"}, pb::DT_INT32);
  pb::NodeDef* cond = graph.add_node();
  cond->set_name("cond");
  cond->set_op("LoopCond");
  cond->add_input("less");
  add("i_switch", "Switch", {"i", "cond"}, pb::DT_INT32);
  add("v_switch", "Switch", {"v", "cond"}, pb::DT_FLOAT);
  add("i_body", "Identity", {"i_switch:1"}, pb::DT_INT32);
  add("v_body", "Identity", {"v_switch:1"}, pb::DT_FLOAT);
  const struct {
    const char *name, *op, *input, *constant;
    float value;
  } body[] = {{"b1", "AddV2", "v_body", "c1", 1.0f},
              {"b2", "Mul", "b1", "c2", 0.5f},
              {"b3", "Sub", "b2", "c3", 0.25f},
              {"b4", "Mul", "b3", "c4", 0.75f},
              {"b5", "AddV2", "b4", "c5", 0.125f}};
  for (const auto& op : body) {
    constant(op.constant, Tensor::Scalar<float>(op.value), "^i_body");
    add(op.name, op.op, {op.input, op.constant}, pb::DT_FLOAT);
  }
  constant("one", Tensor::Scalar<int32_t>(1), "^i_body");
  add("i_plus", "AddV2", {"i_body", "one"}, pb::DT_INT32);
  add("i_next", "NextIteration", {"i_plus"}, pb::DT_INT32);
  add("v_next", "NextIteration", {"b5"}, pb::DT_FLOAT);
  add("out", "Exit", {"v_switch"}, pb::DT_FLOAT);
  return graph;
}

Row While() {
  constexpr int kIterations = 100'000, kBodyOps = 5;
  pb::ConfigProto config;
  config.set_inter_op_parallelism_threads(-1);
  auto master = ConnectTarget("", config, "");
  MR_CHECK(master.ok());
  ClientSession::Options options;
  options.config = config;
  auto opened = ClientSession::Create(*master, WhileGraph(), options);
  MR_CHECK(opened.ok());
  std::shared_ptr<ClientSession> session = *std::move(opened);
  pb::CallableOptions wanted;
  for (const char* feed : {"n:0", "x:0"}) wanted.add_feed(feed);
  wanted.add_fetch("out:0");
  const auto callable = session->MakeCallable(wanted);
  MR_CHECK(callable.ok());
  const auto run = [session, callable] {
    const auto result = session->RunCallable(
        *callable, {Tensor::Scalar<int32_t>(kIterations), Tensor::Scalar<float>(1)});
    MR_CHECK(result.ok());
  };
  run();
  return {"while loop of five scalar ops, 100,000 iterations", "ns/body op", "while",
          "A.while_100k_5ops", [run] { return NanosPer(2, run) / (kIterations * kBodyOps); }};
}

int Main(int argc, char** argv) {
  int rounds = 5;
  std::string only, program, graphs;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--rounds") {
      rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--peer") {
      program = value;
    } else if (flag == "--peer_graphs") {
      graphs = value;
    } else {
      std::fprintf(stderr,
                   "usage: executor_bench [--rounds N] [--only TEXT] [--peer PROGRAM "
                   "--peer_graphs FOLDER]\n");
      return 2;
    }
  }
  const std::pair<const char*, std::function<Row()>> makers[] = {
      {"null", NullChain},
      {"null", NullKernels},
      {"add", [] { return Adds(1); }},
      {"add", [] { return Adds(256); }},
      {"wide", [] { return Wide(false, -1); }},
      {"wide", [] { return Wide(false, 2); }},
      {"wide", [] { return Wide(true, -1); }},
      {"wide", [] { return Wide(true, 2); }},
      {"wide", WideBodies},
      {"latency", Prepared},
      {"latency", StringKeyed},
      {"while", While},
  };
  Peer peer(program, graphs);
  for (std::size_t i = 0; i < std::size(makers);) {
    const std::string item = makers[i].first;
    std::vector<Row> rows;
    for (; i < std::size(makers) && makers[i].first == item; ++i) {
      if (item.find(only) != std::string::npos) rows.push_back(makers[i].second());
    }
    std::vector<std::vector<double>> values(rows.size());
    for (int round = 0; round < rounds && !rows.empty(); ++round) {
      for (std::size_t r = 0; r < rows.size(); ++r) values[r].push_back(rows[r].measure());
      if (peer.present() && !peer.Run(item))
        std::fprintf(stderr, "the peer failed: %s\n", item.c_str());
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto [low, high] = std::minmax_element(values[r].begin(), values[r].end());
      std::printf("%-52s %9.3f %-10s [%.3f, %.3f]", rows[r].what.c_str(), Median(values[r]),
                  rows[r].unit.c_str(), *low, *high);
      const double best = peer.Best(rows[r].peer_prefix);
      if (best > 0) std::printf("   peer %9.3f  ratio %.3f", best, Median(values[r]) / best);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
