// SPDX-License-Identifier: Apache-2.0
// Training steps of two fixed models in an in-process session, to compare builds with each
// other and to see where a step's time goes (perf record). Prints, for each, the fastest of
// several blocks and the processor time of a step: on a busy machine the second repeats better.
//   train_step_bench [mlp|cnn] [steps per block] [inter-op threads, -1: the caller's]
// and what memory the step has: the block of its program, the least that the same buffers need,
// what the process has in all, and its page faults. Then what statistics cost: blocks of steps
// with and without them in turns, the fastest of each.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "executor/memory/step_arena.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "millrace/step_trace.h"

namespace millrace {
namespace {

constexpr int kTracedBlocks = 10;  // of each kind

double Wall() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double Processor() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}
double ResidentMiB() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

Tensor Uniform(const Shape& shape) {
  Tensor out(kFloat, shape);
  uint32_t state = 1;
  for (float& x : out.flat<float>()) {
    state = state * 1664525 + 1013904223;
    x = static_cast<float>(state >> 8) / 16777216.0f;
  }
  return out;
}

Variable Weights(const Scope& s, const char* name, const Shape& shape, float fan_in) {
  return MakeVariable(s, name, TruncatedNormal(s, shape, {.stddev = std::sqrt(2.0f / fan_in)}));
}
Variable Bias(const Scope& s, const char* name, int64_t n) {
  return MakeVariable(s, name, Zeros(s, {n}));
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Variable w = Weights(s, (name + "_w").c_str(), {in, out}, static_cast<float>(in));
  return ops::BiasAdd(s, ops::MatMul(s, x, w.read), Bias(s, (name + "_b").c_str(), out).read);
}

Output Convolve(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Variable w =
      Weights(s, (name + "_w").c_str(), {5, 5, in, out}, static_cast<float>(25 * in));
  const Output y = ops::BiasAdd(s, ops::Conv2D(s, x, w.read, {1, 1, 1, 1}, "SAME"),
                                Bias(s, (name + "_b").c_str(), out).read);
  return ops::MaxPool(s, ops::Relu(s, y), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

// 784-512-512-10.
Output Mlp(const Scope& s, const Output& x) {
  const Output a = ops::Relu(s, Dense(s, "a", x, 784, 512));
  const Output b = ops::Relu(s, Dense(s, "b", a, 512, 512));
  return Dense(s, "c", b, 512, 10);
}

// Two convolutions of 5x5 with pools, a dense layer of 1,024.
Output Cnn(const Scope& s, const Output& x) {
  const Output image = ops::Reshape(s, x, {-1, 28, 28, 1});
  const Output y = Convolve(s, "b", Convolve(s, "a", image, 1, 32), 32, 64);
  const Output flat = ops::Reshape(s, y, {-1, 7 * 7 * 64});
  return Dense(s, "d", ops::Relu(s, Dense(s, "c", flat, 7 * 7 * 64, 1024)), 1024, 10);
}

Status CompareTraced(Session* session, std::span<const Feed> feeds, std::span<const Output> fetches,
                     std::span<const Operation> targets, int steps);

Status Run(const char* name, int64_t batch, Output (*model)(const Scope&, const Output&), int steps,
           int threads) {
  Graph graph;
  const Scope s = graph.root();
  const Output x = Placeholder(s.WithOpName("x"), kFloat, {batch, 784});
  const Output y = Placeholder(s.WithOpName("y"), kFloat, {batch, 10});
  const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, model(s, x), y));
  StatusOr<Operation> train = GradientDescent({.learning_rate = 0.01f})->Minimize(s, loss, nullptr);
  if (!train.ok()) return train.status();
  const Operation init = InitializeVariables(s);
  if (!graph.status().ok()) return graph.status();
  StatusOr<Session> session = Session::Create(graph, {.inter_op_threads = threads});
  if (!session.ok()) return session.status();
  if (Status status = session->RunTargets({init}); !status.ok()) return status;
  const Output feeds[] = {x, y}, fetches[] = {loss};
  StatusOr<Callable> step = session->MakeCallable(feeds, fetches, std::span(&*train, 1));
  if (!step.ok()) return step.status();
  Tensor labels(kFloat, {batch, 10});
  std::fill_n(labels.data<float>(), batch * 10, 0.0f);
  for (int64_t i = 0; i < batch; ++i) labels.data<float>()[i * 10 + i % 10] = 1;
  const Tensor values[] = {Uniform({batch, 784}), labels};
  double best = 1e9, processor = 1e9;
  int64_t faults = 0;
  std::vector<Tensor> results;
  for (int block = 0; block < 6; ++block) {
    const double wall = Wall(), spent = Processor();
    faults = MinorFaults();
    for (int i = 0; i < steps; ++i) {
      if (Status status = step->Run(values, &results); !status.ok()) return status;
    }
    faults = MinorFaults() - faults;
    if (block == 0) continue;  // warms up
    best = std::min(best, (Wall() - wall) / steps);
    processor = std::min(processor, (Processor() - spent) / steps);
  }
  std::printf("%s training step: %.2f ms, processor time %.2f ms\n", name, best * 1e3,
              processor * 1e3);
  const PlannedMemory memory = TotalPlannedMemory();
  const double resident = ResidentMiB();
  const Feed fed[] = {{x, values[0]}, {y, values[1]}};
  RunMetadata metadata;
  RunOptions traced;
  traced.trace = true;
  if (auto out = session->Run(fed, fetches, std::span(&*train, 1), traced, &metadata); !out.ok()) {
    return out.status();
  }
  StatusOr<int64_t> peak = StepPeakBytes(metadata.step_stats);
  if (!peak.ok()) return peak.status();
  std::printf(
      "  block %.2f MiB, bound %.2f MiB, ratio %.3f; peak of a traced step %.2f MiB; "
      "process %.1f MiB; %.2f faults a step; %lld steps not as planned\n",
      memory.arena_bytes / 1048576.0, memory.bound_bytes / 1048576.0,
      static_cast<double>(memory.arena_bytes) / std::max<int64_t>(1, memory.bound_bytes),
      *peak / 1048576.0, resident, static_cast<double>(faults) / steps,
      static_cast<long long>(memory.misses));
  return CompareTraced(&*session, fed, fetches, std::span(&*train, 1), steps);
}

// Both kinds of steps by the same call, but for the options.
Status CompareTraced(Session* session, std::span<const Feed> feeds, std::span<const Output> fetches,
                     std::span<const Operation> targets, int steps) {
  RunOptions traced;
  traced.trace = true;
  double best[2] = {1e9, 1e9};
  for (int block = 0; block < 2 * kTracedBlocks; ++block) {
    const bool traces = block % 2 == 1;
    const double wall = Wall();
    for (int i = 0; i < steps; ++i) {
      RunMetadata metadata;
      auto out = session->Run(feeds, fetches, targets, traces ? traced : RunOptions(), &metadata);
      if (!out.ok()) return out.status();
    }
    if (block >= 2) best[traces] = std::min(best[traces], (Wall() - wall) / steps);  // warm by then
  }
  std::printf("  statistics off %.3f ms, on %.3f ms: ratio %.3f\n", best[0] * 1e3, best[1] * 1e3,
              best[1] / best[0]);
  return OkStatus();
}

int Main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 10;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 0;
  Status status;
  if (which != "cnn") status = Run("MLP128", 128, Mlp, steps * 10, threads);
  if (status.ok() && which != "mlp") status = Run("CNN64", 64, Cnn, steps, threads);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
