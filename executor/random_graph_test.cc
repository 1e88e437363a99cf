// SPDX-License-Identifier: Apache-2.0
// Random programs of sums, branches and loops, some nested and some dead, against a naive
// interpreter; with 0, 1, 2 and 8 threads, in calm and while somebody cancels the step.
// MILLRACE_SEEDS sets how many programs.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "executor/executor.h"
#include "executor/test_graph.h"
#include "gtest/gtest.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

using test::TestGraph;

// A statement reads variables of its block by number and appends its results to them.
// Variables 0 and 1 of every block are 0 and the limit of loops.
struct Statement;
struct Block {
  std::vector<Statement> statements;
  std::vector<int> results;
};
struct Statement {
  enum Kind { kSum, kAddOne, kLater, kNow, kKeep, kBranch, kLoop };
  Kind kind = kSum;
  int a = 0, b = 0;
  bool expensive = false;
  int parallel = 1;
  std::vector<int> captured;  // of a branch or loop: variables 2... of its blocks
  std::vector<int> carried;   // of a loop: start values of what follows the captured ones
  std::vector<Block> blocks;  // not taken and taken; body
};

class Writer {
 public:
  // Every other program has no asynchronous node: those may run on one thread as a list.
  explicit Writer(uint32_t seed) : random_(seed), asynchronous_(seed % 2 == 0) {}
  Block Program() {
    Block block = MakeBlock(2, 3, /*in_loop=*/false, 0);
    for (int i = 0; i < num_variables_; ++i) Keep(i, &block);
    return block;
  }
  int num_kept() const { return num_kept_; }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void Keep(int variable, Block* block) {
    Statement keep;
    keep.kind = Statement::kKeep;
    keep.a = variable;
    keep.b = num_kept_++;
    block->statements.push_back(keep);
  }

  Block MakeBlock(int num_variables, int depth, bool in_loop, int num_results) {
    Block block;
    const int count = 2 + Pick(4);
    for (int i = 0; i < count; ++i) {
      Statement s;
      s.kind = static_cast<Statement::Kind>(Pick(depth > 0 ? 7 : 4));
      if (!asynchronous_ && (s.kind == Statement::kLater || s.kind == Statement::kNow)) {
        s.kind = Statement::kAddOne;
      }
      s.a = Pick(num_variables);
      s.b = Pick(num_variables);
      s.expensive = Pick(3) == 0;
      if (s.kind == Statement::kKeep) {
        // A value that enters a loop is alive there once more than its body runs.
        if (!in_loop) Keep(s.a, &block);
        continue;
      }
      num_variables += AddParts(num_variables, depth, in_loop, &s);
      block.statements.push_back(std::move(s));
    }
    for (int i = 0; i < num_results; ++i) block.results.push_back(Pick(num_variables));
    num_variables_ = num_variables;
    return block;
  }

  // Returns how many variables the statement makes.
  int AddParts(int num_variables, int depth, bool in_loop, Statement* s) {
    if (s->kind != Statement::kBranch && s->kind != Statement::kLoop) return 1;
    for (int i = Pick(3); i > 0; --i) s->captured.push_back(Pick(num_variables));
    const int inside = 2 + static_cast<int>(s->captured.size());
    const int results = 1 + Pick(2);
    if (s->kind == Statement::kBranch) {
      for (int i = 0; i < 2; ++i) {
        s->blocks.push_back(MakeBlock(inside, depth - 1, in_loop, results));
      }
      return results;
    }
    s->parallel = 1 + Pick(4);
    for (int i = 0; i < results; ++i) s->carried.push_back(Pick(num_variables));
    s->blocks.push_back(MakeBlock(inside + results, depth - 1, true, results));
    return results;
  }

  std::mt19937 random_;
  const bool asynchronous_;
  int num_kept_ = 0;
  int num_variables_ = 0;  // of the block made last
};

class Interpreter {
 public:
  explicit Interpreter(int num_kept) : kept(num_kept), is_kept(num_kept) {}

  std::vector<float> Run(const Block& block, std::vector<float> v) {
    for (const Statement& s : block.statements) {
      switch (s.kind) {
        case Statement::kSum:
          v.push_back(v[s.a] + v[s.b]);
          break;
        case Statement::kAddOne:
          v.push_back(v[s.a] + 1);
          break;
        case Statement::kLater:
        case Statement::kNow:
          v.push_back(v[s.a]);
          break;
        case Statement::kKeep:
          kept[s.b] = v[s.a];
          is_kept[s.b] = true;
          break;
        case Statement::kBranch:
          Append(Run(s.blocks[v[s.a] < v[s.b] ? 1 : 0], Inside(s, v)), &v);
          break;
        case Statement::kLoop:
          Append(Loop(s, v), &v);
          break;
      }
    }
    std::vector<float> results;
    for (const int i : block.results) results.push_back(v[i]);
    return results;
  }

  std::vector<float> kept;
  std::vector<bool> is_kept;

 private:
  static std::vector<float> Inside(const Statement& s, const std::vector<float>& v) {
    std::vector<float> inside = {v[0], v[1]};
    for (const int i : s.captured) inside.push_back(v[i]);
    return inside;
  }
  static void Append(const std::vector<float>& more, std::vector<float>* v) {
    v->insert(v->end(), more.begin(), more.end());
  }
  std::vector<float> Loop(const Statement& s, const std::vector<float>& v) {
    std::vector<float> carried;
    for (const int i : s.carried) carried.push_back(v[i]);
    for (float i = v[0]; i < v[1]; ++i) {
      std::vector<float> inside = Inside(s, v);
      Append(carried, &inside);
      carried = Run(s.blocks[0], std::move(inside));
    }
    return carried;
  }
};

// The same program as TensorFlow 1 would write it.
class GraphMaker {
 public:
  explicit GraphMaker(TestGraph* graph) : t_(*graph) {}

  struct Source {
    Node* node = nullptr;
    int output = 0;
  };

  std::vector<Source> Add(const Block& block, std::vector<Source> v) {
    for (const Statement& s : block.statements) {
      switch (s.kind) {
        case Statement::kSum:
          v.push_back(Op("Sum", {v[s.a], v[s.b]}, TestGraph::Attr("expensive", s.expensive)));
          break;
        case Statement::kAddOne:
          v.push_back(Op("InPlace", {v[s.a]}));
          break;
        case Statement::kLater:
          v.push_back(Op("Later", {v[s.a]}));
          break;
        case Statement::kNow:
          v.push_back(Op("Now", {v[s.a]}));
          break;
        case Statement::kKeep:
          Op("Keep", {v[s.a]}, TestGraph::Attr("index", s.b));
          break;
        case Statement::kBranch:
          AddBranch(s, &v);
          break;
        case Statement::kLoop:
          AddLoop(s, &v);
          break;
      }
    }
    std::vector<Source> results;
    for (const int i : block.results) results.push_back(v[i]);
    return results;
  }

 private:
  Source Op(std::string_view op, std::vector<Source> inputs, AttrMap attrs = {}) {
    Node* node = t_.Add(op, {}, std::move(attrs));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      t_.Connect(inputs[i].node, inputs[i].output, node, static_cast<int>(i));
    }
    return {node, 0};
  }
  static AttrMap Float() { return TestGraph::Attr("T", kFloat); }
  static AttrMap MergeOfTwo() {
    AttrMap attrs = Float();
    attrs.Set("N", int64_t{2});
    return attrs;
  }
  static std::vector<Source> Inside(const Statement& s, const std::vector<Source>& v) {
    std::vector<Source> inside = {v[0], v[1]};
    for (const int i : s.captured) inside.push_back(v[i]);
    return inside;
  }

  void AddBranch(const Statement& s, std::vector<Source>* v) {
    const Source predicate = Op("Below", {(*v)[s.a], (*v)[s.b]});
    std::vector<Source> sides[2];
    for (const Source& from : Inside(s, *v)) {
      const Source both = Op("Switch", {from, predicate}, Float());
      for (int side = 0; side < 2; ++side) sides[side].push_back({both.node, side});
    }
    std::vector<Source> results[2];
    for (int side = 0; side < 2; ++side) results[side] = Add(s.blocks[side], sides[side]);
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      v->push_back(Op("Merge", {results[0][i], results[1][i]}, MergeOfTwo()));
    }
  }

  Source Enter(Source from, const Statement& s, const std::string& frame, bool constant) {
    AttrMap attrs = Float();
    attrs.Set("frame_name", frame);
    attrs.Set("is_constant", constant);
    attrs.Set("parallel_iterations", s.parallel);
    return Op("Enter", {from}, std::move(attrs));
  }

  void AddLoop(const Statement& s, std::vector<Source>* v) {
    const std::string frame = "loop" + std::to_string(num_loops_++);
    std::vector<Source> inside;
    for (const Source& from : Inside(s, *v)) inside.push_back(Enter(from, s, frame, true));
    std::vector<Source> starts = {(*v)[0]};  // the counter
    for (const int i : s.carried) starts.push_back((*v)[i]);
    std::vector<Source> merges, switches;
    for (const Source& start : starts) {
      merges.push_back(Op("Merge", {Enter(start, s, frame, false)}, MergeOfTwo()));
    }
    const Source go_on = Op("LoopCond", {Op("Below", {merges[0], inside[1]})});
    for (const Source& merge : merges) switches.push_back(Op("Switch", {merge, go_on}, Float()));
    // What decides over loops within the body dies with it, as in every graph that a program makes:
    // a loop whose condition lives on while a variable of it is dead would not end.
    for (int i = 0; i < 2; ++i) inside[i] = {Op("Switch", {inside[i], go_on}, Float()).node, 1};
    for (std::size_t i = 1; i < switches.size(); ++i) inside.push_back({switches[i].node, 1});
    std::vector<Source> next = Add(s.blocks[0], inside);
    next.insert(next.begin(), Op("InPlace", {{switches[0].node, 1}}));
    for (std::size_t i = 0; i < next.size(); ++i) {
      // What the body does not compute passes through a Switch as well: a value that is alive in
      // every iteration would never let the loop end.
      const Source live = Op("Switch", {next[i], go_on}, Float());
      t_.Connect(Op("NextIteration", {{live.node, 1}}, Float()).node, 0, merges[i].node, 1);
    }
    for (std::size_t i = 1; i < switches.size(); ++i)
      v->push_back(Op("Exit", {switches[i]}, Float()));
  }

  TestGraph& t_;
  int num_loops_ = 0;
};

int NumSeeds() {
  const char* seeds = std::getenv("MILLRACE_SEEDS");
  return seeds == nullptr ? 200 : std::max(1, std::atoi(seeds));
}

// Takes none, some or many nanoseconds, or lets another thread go first.
void Jitter() {
  thread_local std::mt19937 random(
      static_cast<uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  const uint32_t what = random() % 256;
  if (what == 0) std::this_thread::yield();
  if (what > 48) return;
  const int64_t until = SteadyNanos() + random() % 4'000;
  while (SteadyNanos() < until) {
  }
}

class RandomGraphTest : public testing::TestWithParam<int> {
 protected:
  void Make(uint32_t seed) {
    Writer writer(seed);
    const Block program = writer.Program();
    expected_ = std::make_unique<Interpreter>(writer.num_kept());
    expected_->Run(program, {0, 3});
    t_ = std::make_unique<TestGraph>();
    t_->kept.resize(writer.num_kept());
    if (seed % 3 == 0) t_->jitter = &Jitter;
    Node* zero = t_->Add("Value", {}, TestGraph::Attr("value", 0.0f));
    Node* limit = t_->Add("Value", {}, TestGraph::Attr("value", 3.0f));
    GraphMaker(t_.get()).Add(program, {{zero, 0}, {limit, 0}});
    auto compiled = t_->Compile();
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    compiled_ = *std::move(compiled);
    // Half of the programs begin with costs, so that lists of ready nodes are shared, and loops
    // do not run on one thread.
    std::mt19937 costs(seed);
    for (std::size_t i = 0; seed / 2 % 2 == 0 && i < compiled_->nodes().size(); ++i) {
      const uint64_t cost = costs() % (2 * CompiledGraph::kExpensiveCycles);
      if (compiled_->nodes()[i].flags & kNodeMaybeExpensive) {
        compiled_->RecordCost(static_cast<int32_t>(i), cost);
      }
    }
  }

  Status RunStep(CancellationManager* cancellation, bool caller_runs) {
    for (Tensor& kept : t_->kept) kept = Tensor();
    auto rendezvous = NewLocalRendezvous();
    StepEnv env;
    env.rendezvous = rendezvous.get();
    env.cancellation = cancellation;
    ExecutorArgs args;
    args.env = &env;
    args.pool = &pool_;
    args.caller_runs = caller_runs;
    return Executor(compiled_.get()).Run(args);
  }

  void ExpectKept() {
    for (std::size_t i = 0; i < t_->kept.size(); ++i) {
      ASSERT_EQ(t_->kept[i].IsInitialized(), expected_->is_kept[i]) << "kept value " << i;
      if (expected_->is_kept[i]) {
        ASSERT_EQ(t_->kept[i].scalar<float>(), expected_->kept[i]) << "kept value " << i;
      }
    }
  }

  ThreadPool pool_{"test", GetParam()};
  std::unique_ptr<TestGraph> t_;
  std::unique_ptr<CompiledGraph> compiled_;
  std::unique_ptr<Interpreter> expected_;
};

TEST_P(RandomGraphTest, AStepComputesWhatTheInterpreterDoes) {
  for (int seed = 0; seed < NumSeeds(); ++seed) {
    SCOPED_TRACE(seed);
    Make(seed);
    // Costs are learnt from step to step: later ones may take another way.
    for (int i = 0; i < 4; ++i) {
      CancellationManager cancellation;
      ASSERT_TRUE(RunStep(&cancellation, i % 2 == 0).ok());
      ExpectKept();
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RandomGraphTest, ACancelledStepEndsAndLeavesTheNextOneClean) {
  for (int seed = 0; seed < NumSeeds(); ++seed) {
    SCOPED_TRACE(seed);
    Make(1'000'000 + seed);
    CancellationManager cancellation;
    const int64_t wait = (seed * 7919) % 150'000;  // nanoseconds
    std::thread canceller([&] {
      const int64_t until = SteadyNanos() + wait;
      while (SteadyNanos() < until) {
      }
      cancellation.StartCancel(errors::Cancelled("enough"));
    });
    const Status status = RunStep(&cancellation, true);
    canceller.join();
    if (status.ok()) {
      ExpectKept();
    } else {
      EXPECT_TRUE(errors::IsCancelled(status)) << status;
    }
    CancellationManager calm;
    ASSERT_TRUE(RunStep(&calm, true).ok());
    ExpectKept();
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, RandomGraphTest, testing::Values(0, 1, 2, 8));

}  // namespace
}  // namespace millrace
