// SPDX-License-Identifier: Apache-2.0
#include "jit/code_cache.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "base/component_file.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/options/engine_options.h"
#include "base/strings.h"
#include "jit/object_store.h"
#include "jit/translated_program.h"

namespace millrace::jit {
namespace {

constexpr char kLibraryName[] = "libmillrace_jit.so";
// Each takes some pages for good.
constexpr std::size_t kMostCodes = 4096;

std::atomic<CodeCache*> g_instead{nullptr};

std::string KeyOf(const FusedProgram& program, std::span<const DataType> types,
                  std::span<const Spread> spreads) {
  std::string key = FormatFusedProgram(program);
  for (std::size_t i = 0; i < types.size(); ++i) {
    StrAppend(&key, " ", DataTypeName(types[i]), "/", static_cast<int>(spreads[i]));
  }
  return key;
}

}  // namespace

JitOptions JitOptions::FromEnvironment() {
  ProcessOptions process = ProcessOptions::FromEnvironment();
  JitOptions options;
  options.enabled = process.jit;
  options.library = std::move(process.jit_library);
  options.cache_dir = std::move(process.jit_cache);
  return options;
}

std::string FindComponent(const JitOptions& options) {
  if (!options.library.empty()) {
    return access(options.library.c_str(), R_OK) == 0 ? options.library : "";
  }
  return FindComponentFile(kLibraryName, "jit");
}

CodeCache::CodeCache(JitOptions options) : options_(std::move(options)) {}

CodeCache::~CodeCache() { Stop(); }

CodeCache* CodeCache::Global() {
  static CodeCache* const cache = new CodeCache(JitOptions::FromEnvironment());
  CodeCache* const instead = g_instead.load(std::memory_order_acquire);
  return instead != nullptr ? instead : cache;
}

void CodeCache::ReplaceGlobalForTest(CodeCache* cache) {
  g_instead.store(cache, std::memory_order_release);
}

FusedCode* CodeCache::Find(const FusedProgram& program, std::span<const DataType> types,
                           std::span<const Spread> spreads) {
  if (!options_.enabled) return nullptr;
  std::string key = KeyOf(program, types, spreads);
  MutexLock lock(&mu_);
  if (const auto it = codes_.find(key); it != codes_.end()) return it->second.get();
  if (codes_.size() >= kMostCodes) return nullptr;
  auto code = std::make_unique<FusedCode>();
  code->key = key;
  code->program = program;
  code->input_types.assign(types.begin(), types.end());
  code->spreads.assign(spreads.begin(), spreads.end());
  return codes_.emplace(std::move(key), std::move(code)).first->second.get();
}

void CodeCache::Request(std::function<void()> job) {
  MutexLock lock(&mu_);
  if (stopping_) return;
  ++counts_.requested;
  queue_.push_back(std::move(job));
  if (running_) return;
  // The last one has said that it ends: it takes no time to wait for it.
  if (thread_.joinable()) thread_.join();
  running_ = true;
  thread_ = std::thread([this] { RunThread(); });
}

void CodeCache::RunThread() {
  pthread_setname_np(pthread_self(), "mr-jit");
  if (options_.nice > 0) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), options_.nice);
  }
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(&mu_);
      if (queue_.empty()) {
        running_ = false;
        idle_.SignalAll();
        return;
      }
      job = std::move(queue_.front());
      queue_.erase(queue_.begin());
    }
    job();
  }
}

void CodeCache::Make(FusedCode* code) {
  const MrJitApi* const api = LoadComponent();
  const char* error = "there is no compiler";
  std::string object;
  bool from_disk = false;
  if (api != nullptr) {
    const std::string key = StrCat(kMrJitVersion, "\n", api->target(), "\n", code->key);
    if (!options_.cache_dir.empty()) {
      if (std::optional<std::string> kept = ReadObject(options_.cache_dir, key)) {
        from_disk = api->load(kept->data(), kept->size(), &code->code) == nullptr;
      }
    }
    error = nullptr;
    if (!from_disk) {
      if (options_.before_compile) options_.before_compile();
      const auto take = [](void* arg, const char* data, std::size_t size) {
        static_cast<std::string*>(arg)->assign(data, size);
      };
      const TranslatedProgram translated(code->program, code->input_types, code->spreads);
      error = api->compile(&translated.program(), take, &object);
      StopAtExit(Kind::kCompiled);
      if (error == nullptr) error = api->load(object.data(), object.size(), &code->code);
      if (error == nullptr && !options_.cache_dir.empty()) {
        WriteObject(options_.cache_dir, key, object);
      }
      if (error != nullptr) MR_LOG(kWarning, "a fused loop stays interpreted: ", error);
    }
  }
  if (error == nullptr) code->ready.store(&code->code, std::memory_order_release);
  MutexLock lock(&mu_);
  ++(error != nullptr ? counts_.failed : from_disk ? counts_.read_from_disk : counts_.compiled);
}

struct CodeCache::GridJob {
  std::string key;
  FusedProgram program;
  std::vector<DataType> input_types;
  std::vector<Spread> spreads;
  int32_t reduction;
  std::shared_ptr<GridSlot> slot;
};

void CodeCache::RequestGrid(const FusedProgram& program, std::span<const DataType> types,
                            std::span<const Spread> spreads, int32_t reduction,
                            std::shared_ptr<GridSlot> slot) {
  if (!options_.enabled) return slot->GiveUp();
  auto job = std::make_shared<GridJob>();
  job->key = StrCat(KeyOf(program, types, spreads), " reduce ", reduction);
  job->program = program;
  job->input_types.assign(types.begin(), types.end());
  job->spreads.assign(spreads.begin(), spreads.end());
  job->reduction = reduction;
  job->slot = std::move(slot);
  Request([this, job = std::move(job)] { MakeGrid(*job); });
}

void CodeCache::MakeGrid(const GridJob& job) {
  if (options_.before_compile) options_.before_compile();
  GridImage image;
  bool from_disk = false;
  const StatusOr<std::string> arch = job.slot->backend().ArchOf(job.slot->machine());
  Status status = arch.ok() ? MakeImage(job, *arch, &image, &from_disk) : arch.status();
  if (status.ok()) status = job.slot->Load(image);
  if (!status.ok()) {
    MR_LOG(kInfo, "a fused loop is run op by op on an accelerator: ", status.ToString());
    job.slot->GiveUp();
  }
  MutexLock lock(&mu_);
  ++(!status.ok() ? counts_.failed : from_disk ? counts_.read_from_disk : counts_.compiled);
}

Status CodeCache::MakeImage(const GridJob& job, const std::string& arch, GridImage* image,
                            bool* from_disk) {
  const MrJitApi* const api = LoadComponent();
  if (api == nullptr) return errors::Unavailable("there is no compiler");
  const TranslatedProgram translated(job.program, job.input_types, job.spreads, job.reduction);
  image->reduces = job.reduction != kMrJitNoReduction;
  image->lanes = GridLanes(translated.program());
  image->num_inputs = translated.program().num_inputs;
  image->num_outputs = translated.program().num_outputs;
  if (!arch.empty()) {
    return MakeText(job, translated.program(), arch, &image->ptx, from_disk);
  }
  const char* const error = api->make_host_grid(&translated.program(), &image->function);
  StopAtExit(Kind::kGrid);
  return error == nullptr ? OkStatus() : errors::Unimplemented(error);
}

Status CodeCache::MakeText(const GridJob& job, const MrJitProgram& program, const std::string& arch,
                           std::string* ptx, bool* from_disk) {
  const std::string key =
      StrCat(kMrJitVersion, "\n", api_->target(), "\nptx ", arch, "\n", job.key);
  if (const auto known = ptx_.find(key); known != ptx_.end()) {
    *ptx = known->second;
    return OkStatus();
  }
  if (!options_.cache_dir.empty()) {
    if (std::optional<std::string> kept = ReadObject(options_.cache_dir, key)) {
      *ptx = *std::move(kept);
      *from_disk = true;
    }
  }
  if (!*from_disk) {
    const auto take = [](void* arg, const char* data, std::size_t size) {
      static_cast<std::string*>(arg)->assign(data, size);
    };
    const char* const error = api_->compile_ptx(&program, arch.c_str(), take, ptx);
    StopAtExit(Kind::kPtx);
    if (error != nullptr) {
      return errors::Unimplemented(error);
    }
    if (!options_.cache_dir.empty()) WriteObject(options_.cache_dir, key, *ptx);
  }
  if (ptx_.size() < kMostCodes) ptx_[key] = *ptx;
  return OkStatus();
}

const MrJitApi* CodeCache::LoadComponent() {
  if (std::exchange(looked_for_component_, true)) return api_;
  const std::string path = FindComponent(options_);
  if (path.empty()) {
    MR_LOG(kInfo, "fused loops are interpreted: there is no ", kLibraryName,
           options_.library.empty() ? " beside the program" : StrCat(" at ", options_.library));
    return nullptr;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    MR_LOG(kWarning, "fused loops are interpreted: ", dlerror());
    return nullptr;
  }
  const auto get = reinterpret_cast<MrJitGetApi>(dlsym(library, kMrJitEntry));
  if (get != nullptr) api_ = get(kMrJitVersion);
  if (api_ == nullptr) {
    MR_LOG(kWarning, "fused loops are interpreted: ", path, " is of another version");
    return nullptr;
  }
  static_cast<void>(api_->target());
  StopAtExit(Kind::kLoaded);
  return api_;
}

// What LLVM destroys when the process ends must not be destroyed under the thread that is in it.
// That runs in the reverse order of its making, and LLVM makes a part when it first compiles for a
// target: what is registered after that runs before.
void CodeCache::StopAtExit(Kind kind) {
  static std::array<std::atomic<bool>, 4> registered{};
  if (this != Global() || registered[static_cast<std::size_t>(kind)].exchange(true)) return;
  std::atexit([] { Global()->Stop(); });
}

void CodeCache::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    queue_.clear();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

bool CodeCache::WaitUntilIdle() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  MutexLock lock(&mu_);
  while (running_) {
    if (!idle_.WaitUntil(&mu_, until)) return !running_;
  }
  return true;
}

JitCounts CodeCache::counts() {
  MutexLock lock(&mu_);
  return counts_;
}

}  // namespace millrace::jit
