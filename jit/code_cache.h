// SPDX-License-Identifier: Apache-2.0
// Compiled loops of fused programs: one for each program and way in which its operands repeat,
// shared by all kernels of the process, made by a thread that does nothing else.
#ifndef JIT_CODE_CACHE_H_
#define JIT_CODE_CACHE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "jit/component_api.h"
#include "jit/fused_layout.h"
#include "jit/grid_loop.h"
#include "millrace/dtype.h"
#include "ops/fused_program.h"

namespace millrace::jit {

struct JitOptions {
  bool enabled = true;
  // The component with the compiler; "": libmillrace_jit.so beside the program, in ../lib beside
  // it, or where a build leaves it.
  std::string library{};
  // Where objects are kept between processes; "": nowhere.
  std::string cache_dir{};
  // A loop is worth compiling once it was interpreted for this many elements times instructions.
  int64_t least_work = int64_t{1} << 23;
  int nice = 19;  // of the compiling thread: whatever else there is to do comes first
  std::function<void()> before_compile{};  // on the compiling thread; for tests

  // MILLRACE_JIT=off, MILLRACE_JIT_LIBRARY, MILLRACE_JIT_CACHE.
  static JitOptions FromEnvironment();
};

struct JitCounts {
  int requested = 0, compiled = 0, read_from_disk = 0, failed = 0;
};

// One loop.
struct FusedCode {
  // Null until it is there. Whoever finds it calls it from then on.
  std::atomic<const MrJitCode*> ready{nullptr};
  std::atomic<int64_t> work{0};  // done by the interpreter so far

  std::string key;  // what it is, as text
  FusedProgram program;
  std::vector<DataType> input_types;
  std::vector<Spread> spreads;
  MrJitCode code{};
};

// Thread-safe. Code is kept until the cache is gone, and its memory for as long as the process.
class CodeCache {
 public:
  explicit CodeCache(JitOptions options);
  ~CodeCache();  // ends the thread; nobody may run code of the cache any more
  // Of the process, by the environment; never destroyed.
  static CodeCache* Global();
  // Null: the process's own again. Kernels made meanwhile must be gone before `cache` is.
  static void ReplaceGlobalForTest(CodeCache* cache);

  // The loop for this program; the same for equal ones. Null if nothing is ever compiled, or
  // if there are too many loops already.
  FusedCode* Find(const FusedProgram& program, std::span<const DataType> input_types,
                  std::span<const Spread> spreads);
  // Adds to the work done without compiled code; has it compiled when that is worth it. Never
  // waits for the compiler.
  void CountWork(FusedCode* code, int64_t work) {
    const int64_t before = code->work.fetch_add(work, std::memory_order_relaxed);
    if (before < options_.least_work && before + work >= options_.least_work) {
      Request([this, code] { Make(code); });
    }
  }

  // Has the same loop compiled for the slot's machine, which others run unfused meanwhile. What was
  // compiled before is only loaded. `reduction` of rows of the one output: kMrJitSum ...
  void RequestGrid(const FusedProgram& program, std::span<const DataType> input_types,
                   std::span<const Spread> spreads, int32_t reduction,
                   std::shared_ptr<GridSlot> slot);

  // Until all that was asked for is there, or has failed; false after 60 seconds.
  bool WaitUntilIdle();
  JitCounts counts();

 private:
  void Stop();  // ends the thread; nothing is compiled from then on
  enum class Kind { kLoaded, kCompiled, kGrid, kPtx };
  void StopAtExit(Kind kind);
  void Request(std::function<void()> job);
  void RunThread();
  void Make(FusedCode* code);
  struct GridJob;
  void MakeGrid(const GridJob& job);
  Status MakeImage(const GridJob& job, const std::string& arch, GridImage* image, bool* from_disk);
  Status MakeText(const GridJob& job, const MrJitProgram& program, const std::string& arch,
                  std::string* ptx, bool* from_disk);
  const MrJitApi* LoadComponent();  // null, told once, if there is none

  const JitOptions options_;
  Mutex mu_;
  CondVar idle_;
  std::map<std::string, std::unique_ptr<FusedCode>> codes_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  JitCounts counts_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
  // Of the thread only.
  std::map<std::string, std::string> ptx_;  // by architecture and program
  bool looked_for_component_ = false;
  const MrJitApi* api_ = nullptr;
};

// The path of the component, or "" if there is none where it is looked for.
std::string FindComponent(const JitOptions& options);

}  // namespace millrace::jit

#endif  // JIT_CODE_CACHE_H_
