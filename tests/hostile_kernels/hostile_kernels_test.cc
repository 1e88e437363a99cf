// SPDX-License-Identifier: Apache-2.0
// Every kernel of the CPU, called with operands and attributes that are made to break it: empty
// ones of enormous axes, products of sizes that wrap, wrong ranks, indices out of range and twice,
// NaN, absurd numbers. It may refuse; it may not end the process, read or write what is not its
// own, or run for ever.
//
// Each op runs in a process of its own, within bounded memory. Everything follows from seeds:
//   MILLRACE_HOSTILE_CASES=N   cases per op (the default takes well under a minute)
//   MILLRACE_HOSTILE_SEED=N    another sequence
//   MILLRACE_HOSTILE_OP=NAME   one op alone; with MILLRACE_HOSTILE_CASE=SEED one case, here
// What was found is in kFound, and runs first.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/config.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "tests/hostile_kernels/guarded_memory.h"
#include "tests/hostile_kernels/hostile_case.h"

namespace millrace::testing {
namespace {

constexpr int kDefaultCases = 60;
constexpr rlim_t kMostMemory = rlim_t{3} << 30;  // address space of a child beyond its own
constexpr int kMostProcessorSeconds = 5;         // of one case
constexpr int kMostFaultsPerOp = 3;

struct Found {
  const char* op;
  uint64_t seed;
};
constexpr Found kFound[] = {
    {"BatchMatMul", 10910316219948389765u},           // ran for ever
    {"BatchMatMulV2", 9048215085915741344u},          // ran for ever
    {"BiasAddV1", 13458196095075907946u},             // ran for ever
    {"BiasAddGrad", 2581604854615097090u},            // ran for ever
    {"MutableDenseHashTable", 9620713090043957144u},  // read an operand that is not there
    {"TensorScatterMin", 12122958391027957939u},      // an axis of 2^31 became a negative one
    {"TensorScatterUpdate", 10770381892938230826u},   // the same
};

uint64_t NumberOf(const char* name, uint64_t standard) {
  const char* const value = std::getenv(name);
  return value == nullptr ? standard : std::strtoull(value, nullptr, 10);
}

// What a child says as it goes: shared with it.
struct Progress {
  uint64_t seed;
  int tried, ran, succeeded;
  bool faulty;
  char text[8192];
  char fault[512];
};

template <std::size_t kSize>
void Put(const std::string& text, char (&to)[kSize]) {
  std::snprintf(to, kSize, "%s", text.c_str());
}

HostileWorld* MakeWorld() {
  auto* ops = new OpRegistry;
  if (!RegisterAllOps(*ops).ok()) std::abort();
  auto* kernels = new KernelRegistry;
  RegisterAllKernels(*kernels);
  auto* world = new HostileWorld;
  world->ops = ops;
  world->kernels = kernels;
  world->device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, nullptr, new ResourceManager)
          .release();
  world->memory = new GuardedAllocator;
  return world;
}

uint64_t SeedOf(std::string_view op, uint64_t base, int index) {
  return (Hash64(op) ^ (base * 0x9e3779b97f4a7c15u)) + static_cast<uint64_t>(index) * 0x10001;
}

// One case here; false if there is none of this seed.
bool RunOne(const HostileWorld& world, const OpInfo& op, uint64_t seed, Progress* progress) {
  progress->seed = seed;
  Put(StrCat(op.def.name(), " while it was made"), progress->text);
  ++progress->tried;
  // Of the processor, so that others on the machine do not count.
  const itimerval limit{{0, 0}, {kMostProcessorSeconds, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
  HostileCase hostile;
  if (!MakeHostileCase(world, op, seed, &hostile)) return false;
  Put(hostile.text, progress->text);
  const Status status = RunHostileCase(world, hostile, [progress](const std::string& what) {
    progress->faulty = true;
    Put(what, progress->fault);
  });
  ++progress->ran;
  progress->succeeded += status.ok() ? 1 : 0;
  return true;
}

void LimitMemory() {
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
  rlimit limit{kMostMemory, kMostMemory};
  setrlimit(RLIMIT_AS, &limit);
#endif
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

std::string EndOf(int status) {
  if (WIFEXITED(status)) return StrCat("exited with ", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGPROF) return "took too long";
  return StrCat("was ended by signal ", signal, " (", strsignal(signal), ")");
}

class HostileKernelsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string folder = ::testing::TempDir() + "/hostile";
    std::filesystem::create_directories(folder);
    std::filesystem::current_path(folder);  // for what opens files by odd names
    SetLogLevel(LogLevel::kError);
    world_ = MakeWorld();
    progress_ = static_cast<Progress*>(
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }

  // The cases of `seeds`, in as many children as it takes.
  static void RunAll(const OpInfo& op, const std::vector<uint64_t>& seeds) {
    int faults = 0;
    for (std::size_t next = 0; next < seeds.size() && faults < kMostFaultsPerOp;) {
      *progress_ = Progress();
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        LimitMemory();
        for (std::size_t i = next; i < seeds.size(); ++i) {
          RunOne(*world_, op, seeds[i], progress_);
          if (progress_->faulty) _exit(3);
        }
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      next += static_cast<std::size_t>(progress_->tried);
      ran_ += progress_->ran;
      succeeded_ += progress_->succeeded;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      ++faults;
      ADD_FAILURE() << "{\"" << op.def.name() << "\", " << progress_->seed
                    << "u}: " << (progress_->faulty ? std::string(progress_->fault) : EndOf(status))
                    << "\n"
                    << progress_->text;
    }
  }

  static inline HostileWorld* world_ = nullptr;
  static inline Progress* progress_ = nullptr;
  static inline int64_t ran_ = 0, succeeded_ = 0;
};

TEST_F(HostileKernelsTest, WhatWasFoundStaysMended) {
  std::map<std::string, std::vector<uint64_t>> seeds;
  for (const Found& found : kFound) seeds[found.op].push_back(found.seed);
  for (const auto& [name, of_op] : seeds) {
    const OpInfo* const op = world_->ops->Find(name);
    ASSERT_NE(op, nullptr) << name;
    RunAll(*op, of_op);
  }
}

TEST_F(HostileKernelsTest, NoKernelEndsTheProcessOrTouchesWhatIsNotItsOwn) {
  const char* const only = std::getenv("MILLRACE_HOSTILE_OP");
  const uint64_t base = NumberOf("MILLRACE_HOSTILE_SEED", 1);
  const auto cases = static_cast<int>(NumberOf("MILLRACE_HOSTILE_CASES", kDefaultCases));
  int64_t ops = 0;
  for (const OpInfo* op : world_->ops->SortedOps()) {
    const std::string& name = op->def.name();
    if (only != nullptr && name != only) continue;
    if (WhyNotTried(*op) != nullptr) continue;
    if (only != nullptr && std::getenv("MILLRACE_HOSTILE_CASE") != nullptr) {
      RunOne(*world_, *op, NumberOf("MILLRACE_HOSTILE_CASE", 0), progress_);
      std::printf("%s\n", progress_->text);
      return;
    }
    ++ops;
    std::vector<uint64_t> seeds;
    for (int i = 0; i < cases; ++i) seeds.push_back(SeedOf(name, base, i));
    RunAll(*op, seeds);
  }
  std::printf("%lld cases of %lld ops, of which %lld gave a result\n", static_cast<long long>(ran_),
              static_cast<long long>(ops), static_cast<long long>(succeeded_));
  EXPECT_GT(ops, only != nullptr ? 0 : 500);
  EXPECT_GT(succeeded_ * 20, ran_) << "most cases are refused at once: they say nothing";
}

}  // namespace
}  // namespace millrace::testing
