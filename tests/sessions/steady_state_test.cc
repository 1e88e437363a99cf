// A warm training step takes no memory: counted over the whole step, feeds and fetches included.
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "executor/step_arena.h"
#include "gtest/gtest.h"
#include "millrace/millrace.h"
#include "millrace/ops.h"

// What the C library itself calls them.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* __libc_calloc(std::size_t count, std::size_t size);
extern "C" void* __libc_realloc(void* block, std::size_t size);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t size);

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_ours{0}, g_library{0};
thread_local bool t_inside = false;

// The library of dense kernels takes memory of its own in every primitive that runs.
bool CalledByLibrary() {
  void* frames[24];
  const int n = backtrace(frames, 24);
  for (int i = 0; i < n; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) != 0 && info.dli_fname != nullptr &&
        (std::strstr(info.dli_fname, "dnnl") || std::strstr(info.dli_fname, "gomp"))) {
      return true;
    }
  }
  return false;
}

void Count() {
  if (!g_counting.load(std::memory_order_relaxed) || t_inside) return;
  t_inside = true;
  if (CalledByLibrary()) {
    ++g_library;
  } else {
    if (++g_ours <= 3) {
      void* frames[16];
      backtrace_symbols_fd(frames, backtrace(frames, 16), 2);
    }
  }
  t_inside = false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) {
  Count();
  return __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  Count();
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? 12 : 0;
}
}

namespace millrace {
namespace {

using Model = Output (*)(const Scope&, const Output&);

Variable Weights(const Scope& s, const std::string& name, const Shape& shape) {
  return MakeVariable(s, name, TruncatedNormal(s, shape, {.stddev = 0.1f}), {.use_resource = true});
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  return ops::BiasAdd(s, ops::MatMul(s, x, Weights(s, name + "_w", {in, out}).read),
                      Weights(s, name + "_b", {out}).read);
}

Output Convolve(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Output y = ops::BiasAdd(
      s, ops::Conv2D(s, x, Weights(s, name + "_w", {5, 5, in, out}).read, {1, 1, 1, 1}, "SAME"),
      Weights(s, name + "_b", {out}).read);
  return ops::MaxPool(s, ops::Relu(s, y), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

Output Mlp(const Scope& s, const Output& x) {
  const Output a = ops::Relu(s, Dense(s, "a", x, 784, 64));
  return Dense(s, "c", ops::Relu(s, Dense(s, "b", a, 64, 64)), 64, 10);
}

Output Cnn(const Scope& s, const Output& x) {
  const Output image = ops::Reshape(s, x, {-1, 28, 28, 1});
  const Output y = Convolve(s, "b", Convolve(s, "a", image, 1, 4), 4, 8);
  const Output flat = ops::Reshape(s, y, {-1, 7 * 7 * 8});
  return Dense(s, "d", ops::Relu(s, Dense(s, "c", flat, 7 * 7 * 8, 32)), 32, 10);
}

int64_t MinorFaults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// The block of the training step, the only program that runs again and again. With one thread
// there is one order of nodes; with more the block is right for all orders that were met, which
// may let anything meet anything.
void ExpectSmallBlock(int threads) {
  const PlannedMemory memory = TotalPlannedMemory();
  EXPECT_EQ(memory.programs, 1);
  EXPECT_GT(memory.bound_bytes, 0);
  EXPECT_LE(memory.bound_bytes, memory.apart_bytes);
  const double most = threads < 0 ? 1.05 * static_cast<double>(memory.bound_bytes)
                                  : static_cast<double>(memory.apart_bytes);
  EXPECT_LE(static_cast<double>(memory.arena_bytes), most);
  testing::Test::RecordProperty("arena_bytes", static_cast<int>(memory.arena_bytes));
  testing::Test::RecordProperty("bound_bytes", static_cast<int>(memory.bound_bytes));
}

// Calls of malloc, pages that are touched for the first time, and memory that is not where it
// was in the step before.
void ExpectNothing(Model model, int threads) {
  constexpr int64_t kBatch = 16;
  Graph graph;
  const Scope s = graph.root();
  const Output x = Placeholder(s.WithOpName("x"), kFloat, {kBatch, 784});
  const Output y = Placeholder(s.WithOpName("y"), kFloat, {kBatch, 10});
  const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, model(s, x), y));
  const auto train = GradientDescent({.learning_rate = 0.01f})->Minimize(s, loss, nullptr);
  ASSERT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(s);
  ASSERT_TRUE(graph.status().ok()) << graph.status();
  auto session = Session::Create(graph, {.inter_op_threads = threads, .intra_op_threads = threads});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({init}).ok());
  const Output feeds[] = {x, y}, fetches[] = {loss};
  const auto step = session->MakeCallable(feeds, fetches, std::span(&*train, 1));
  ASSERT_TRUE(step.ok()) << step.status();
  Tensor images(kFloat, {kBatch, 784}), labels(kFloat, {kBatch, 10});
  for (int64_t i = 0; i < images.num_elements(); ++i) {
    images.data<float>()[i] = static_cast<float>(i * 7919 % 1000) / 1000;
  }
  for (int64_t i = 0; i < labels.num_elements(); ++i) {
    labels.data<float>()[i] = i % 10 == (i / 10) % 10 ? 1 : 0;
  }
  const Tensor values[] = {images, labels};
  std::vector<Tensor> results;
  // Costs are learnt and buffers grow to what is needed.
  const int warm_up = threads < 0 ? 3 : 100;
  for (int i = 0; i < warm_up; ++i) ASSERT_TRUE(step->Run(values, &results).ok());
  const float before_loss = results[0].scalar<float>();

  constexpr int kSteps = 20;
  Status status;
  // Steps that meet a new order of nodes are learnt from, some times in the life of a program.
  bool learns = true;
  for (int attempt = 0; attempt < 20 && learns; ++attempt) {
    const int64_t misses = TotalPlannedMemory().misses;
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(step->Run(values, &results).ok());
    g_ours = g_library = 0;
    g_counting = true;
    for (int i = 0; i < kSteps && status.ok(); ++i) status = step->Run(values, &results);
    g_counting = false;
    ASSERT_TRUE(status.ok()) << status;
    learns = TotalPlannedMemory().misses != misses;
    EXPECT_FALSE(learns && threads < 0) << "there is one order only";
  }
  EXPECT_LT(results[0].scalar<float>(), before_loss) << "it does not learn";
  // Code that runs for the first time, as when the processor was taken away while a lock was held,
  // is a page that is touched for the first time: a step that takes memory does so in every round.
  const int64_t misses = TotalPlannedMemory().misses;
  int64_t faults = 1;
  for (int round = 0; round < 10 && faults != 0; ++round) {
    const int64_t before = MinorFaults();
    for (int i = 0; i < kSteps && status.ok(); ++i) status = step->Run(values, &results);
    faults = MinorFaults() - before;
    ASSERT_TRUE(status.ok()) << status;
  }
  if (threads < 0) {
    EXPECT_EQ(faults, 0);
    EXPECT_EQ(TotalPlannedMemory().misses - misses, 0);
  }
  ExpectSmallBlock(threads);
  testing::Test::RecordProperty("library_calls_per_step",
                                static_cast<int>(g_library.load() / kSteps));
  if (threads < 0) {
    EXPECT_EQ(g_ours, 0);
  } else {
    // An interleaving may be deeper than any before; per step there is nothing.
    EXPECT_LT(g_ours, kSteps);
  }
}

class SteadyStateTest : public testing::TestWithParam<int> {
  void SetUp() override {
    void* frames[2];
    backtrace(frames, 2);  // takes memory once
  }
};

TEST_P(SteadyStateTest, ATrainingStepOfAPerceptronTakesNoMemory) { ExpectNothing(Mlp, GetParam()); }
TEST_P(SteadyStateTest, ATrainingStepOfAConvolutionalNetTakesNoMemory) {
  ExpectNothing(Cnn, GetParam());
}

TEST(MallocCounterTest, Counts) {
  g_ours = 0;
  g_counting = true;
  void* volatile block = std::malloc(100);
  g_counting = false;
  std::free(block);
  EXPECT_EQ(g_ours, 1);
}

// -1: the caller's thread alone.
INSTANTIATE_TEST_SUITE_P(Threads, SteadyStateTest, testing::Values(-1, 2));

}  // namespace
}  // namespace millrace
