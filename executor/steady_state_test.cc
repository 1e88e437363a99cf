// SPDX-License-Identifier: Apache-2.0
// A warm step asks malloc for nothing.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "executor/executor.h"
#include "executor/test_graph.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> g_allocations{0};
void* Counted(std::size_t size, std::size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(size)
                : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) std::abort();
  return p;
}
}  // namespace

void* operator new(std::size_t size) { return Counted(size, 1); }
void* operator new[](std::size_t size) { return Counted(size, 1); }
void* operator new(std::size_t size, std::align_val_t a) {
  return Counted(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return Counted(size, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace millrace {
namespace {

class SteadyStateTest : public testing::TestWithParam<int> {};

TEST_P(SteadyStateTest, AWarmStepAllocatesNothing) {
  test::TestGraph t;
  Node* value = t.Add("Value", {}, test::TestGraph::Attr("value", 1.0f));
  std::vector<Node*> values(8, value);
  for (int i = 0; i < 100; ++i) {
    Node*& v = values[i % 8];
    v = t.Add("Sum", {v, values[(i + 3) % 8]}, test::TestGraph::Attr("expensive", i % 2 == 0));
    if (i % 5 == 0) v = t.Add("Now", {v});
    if (i % 7 == 0) v = t.Add("InPlace", {v});
    t.Control(v, t.Add("NoOp"));
  }
  auto compiled = t.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ThreadPool pool("test", GetParam());
  CancellationManager cancellation;
  StepEnv env;
  env.cancellation = &cancellation;
  ExecutorArgs args;
  args.env = &env;
  args.pool = &pool;
  const Executor executor(compiled->get());
  // Buffers and queues grow to what the worst interleaving needs.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(executor.Run(args).ok());
  const int64_t before = g_allocations.load();
  ASSERT_GT(before, 0) << "the counter does not count";
  constexpr int kSteps = 50;
  for (int i = 0; i < kSteps; ++i) ASSERT_TRUE(executor.Run(args).ok());
  const int64_t allocated = g_allocations.load() - before;
  if (GetParam() == 0) {
    EXPECT_EQ(allocated, 0);
  } else {
    // A thread may meet an interleaving deeper than any before; per step there is nothing.
    EXPECT_LT(allocated, kSteps);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SteadyStateTest, testing::Values(0, 2));

}  // namespace
}  // namespace millrace
