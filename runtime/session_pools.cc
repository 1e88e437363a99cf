// SPDX-License-Identifier: Apache-2.0
#include "runtime/session_pools.h"

#include <map>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "session/inter_op_pools.h"

namespace millrace {
namespace {

constexpr int kMaxThreads = 4096;
constexpr char kInterOp[] = "mr-inter";

// All pools of the process.
struct Pools {
  Mutex mu;
  std::map<std::pair<std::string, int>, ThreadPool*> shared ABSL_GUARDED_BY(mu);
  std::map<std::string, ThreadPool*> named ABSL_GUARDED_BY(mu);
  std::multimap<int, ThreadPool*> idle ABSL_GUARDED_BY(mu);  // by threads
};
Pools& AllPools() {
  static auto* const pools = new Pools;
  return *pools;
}

Status CheckThreads(int threads) {
  if (threads <= kMaxThreads) return OkStatus();
  return errors::InvalidArgument("a session may ask for ", kMaxThreads, " threads, not ", threads);
}

StatusOr<ThreadPool*> NamedPool(const std::string& name, int threads) {
  Pools& all = AllPools();
  MutexLock lock(&all.mu);
  ThreadPool*& pool = all.named[name];
  if (pool == nullptr) pool = new ThreadPool(StrCat(kInterOp, "-", name), threads);
  if (pool->num_threads() == threads) return pool;
  return errors::InvalidArgument("the thread pool '", name, "' exists with ", pool->num_threads(),
                                 " threads; a session cannot have it with ", threads);
}

ThreadPool* TakeOwnPool(int threads) {
  Pools& all = AllPools();
  MutexLock lock(&all.mu);
  const auto it = all.idle.find(threads);
  if (it == all.idle.end()) return new ThreadPool(kInterOp, threads);
  ThreadPool* const pool = it->second;
  all.idle.erase(it);
  return pool;
}

}  // namespace

ThreadPool* SharedPool(const char* name, int threads) {
  threads = ThreadsOrCores(threads);
  Pools& all = AllPools();
  MutexLock lock(&all.mu);
  ThreadPool*& pool = all.shared[{name, threads}];
  if (pool == nullptr) pool = new ThreadPool(name, threads);
  return pool;
}

StatusOr<SessionPools> SessionPools::Make(const pb::ConfigProto& config) {
  const int threads = config.inter_op_parallelism_threads();
  MR_RETURN_IF_ERROR(CheckThreads(threads));
  SessionPools made;
  for (const pb::ThreadPoolOptionProto& wanted : config.session_inter_op_thread_pool()) {
    MR_RETURN_IF_ERROR(CheckThreads(wanted.num_threads()));
    const int n = ThreadsOrCores(wanted.num_threads() == 0 ? threads : wanted.num_threads());
    if (!wanted.global_name().empty()) {
      MR_ASSIGN_OR_RETURN(ThreadPool * pool, NamedPool(wanted.global_name(), n));
      made.pools_.push_back(pool);
    } else {
      made.own_.push_back(TakeOwnPool(n));
      made.pools_.push_back(made.own_.back());
    }
  }
  if (!made.pools_.empty()) return made;
  if (config.use_per_session_threads()) {
    made.own_.push_back(TakeOwnPool(ThreadsOrCores(threads)));
    made.pools_ = made.own_;
  } else {
    made.pools_.push_back(SharedPool(kInterOp, threads));
  }
  return made;
}

SessionPools::~SessionPools() {
  Pools& all = AllPools();
  MutexLock lock(&all.mu);
  for (ThreadPool* pool : own_) all.idle.emplace(pool->num_threads(), pool);
}

}  // namespace millrace
