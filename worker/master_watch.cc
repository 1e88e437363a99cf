#include "worker/master_watch.h"

#include <algorithm>
#include <map>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "kernels/background.h"

namespace millrace {

// Outlives the watch by the callbacks that may be running.
struct MasterWatch::State : std::enable_shared_from_this<MasterWatch::State> {
  struct Master {
    Deadline last_sign;
    bool asked = false;
  };

  State(const WorkerEnv& e, std::chrono::milliseconds l, List list_masters, Lost tell)
      : env(e), limit(l), list(std::move(list_masters)), lost(std::move(tell)) {}

  std::chrono::milliseconds pause() const {
    return std::max(limit / 3, std::chrono::milliseconds(1));
  }

  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    timer = DeadlineTimer::Global().Schedule(DeadlineAfter(pause()),
                                             [self = shared_from_this()] { self->Look(); });
  }

  // On the thread of the timer.
  void Look() {
    std::vector<std::pair<MasterId, WorkerInterface*>> to_ask;
    {
      MutexLock lock(&mu);
      timer = DeadlineTimer::kNone;
      if (stopped) return;
      const std::vector<MasterId> listed = list();
      std::erase_if(masters, [&](const auto& entry) {
        return std::find(listed.begin(), listed.end(), entry.first) == listed.end();
      });
      const Deadline now = SteadyClock::now();
      for (const MasterId& id : listed) {
        Master& master = masters.try_emplace(id, Master{now}).first->second;
        WorkerInterface* const worker = env.workers->GetWorker(id.first);
        if (worker == nullptr || now - master.last_sign >= limit) {
          Tell(id, errors::Aborted("the master ", id.first, " has not answered for ",
                                   limit.count() / 1000.0, " s"));
        } else if (!master.asked) {
          master.asked = true;
          to_ask.emplace_back(id, worker);
        }
      }
      if (masters.empty()) return;  // Wake begins again
      Schedule();
    }
    for (const auto& [id, worker] : to_ask) Ask(id, worker);
  }

  void Ask(const MasterId& id, WorkerInterface* worker) {
    auto devices = std::make_shared<std::vector<pb::DeviceAttributes>>();
    worker->GetStatusAsync({.deadline = DeadlineAfter(pause())}, devices.get(),
                           [self = shared_from_this(), id, devices](const Status& status) {
                             self->Answered(id, status, *devices);
                           });
  }

  void Answered(const MasterId& id, const Status& status,
                const std::vector<pb::DeviceAttributes>& devices) {
    const bool is_same = std::any_of(devices.begin(), devices.end(), [&](const auto& device) {
      return static_cast<int64_t>(device.incarnation()) == id.second;
    });
    MutexLock lock(&mu);
    const auto it = masters.find(id);
    if (stopped || it == masters.end()) return;
    it->second.asked = false;
    if (!status.ok()) return;
    it->second.last_sign = SteadyClock::now();
    if (!is_same) Tell(id, errors::Aborted("the master ", id.first, " has restarted"));
  }

  // Closing a session frees what it has: not on the timer's thread, nor under the lock.
  void Tell(const MasterId& id, const Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ++telling;
    const Status begun = RunInBackground(env.devices.front(), [self = shared_from_this(), id, why] {
      self->lost(id, why);
      MutexLock lock(&self->mu);
      if (--self->telling == 0) self->none_telling.SignalAll();
    });
    if (begun.ok()) {
      masters.erase(id);
      return;
    }
    MR_LOG(kWarning, "sessions of ", id.first, " stay until the next look: ", Message(begun));
    if (--telling == 0) none_telling.SignalAll();
  }

  const WorkerEnv& env;
  const std::chrono::milliseconds limit;
  const List list;
  const Lost lost;
  Mutex mu;
  CondVar none_telling;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  int telling ABSL_GUARDED_BY(mu) = 0;
  std::map<MasterId, Master> masters ABSL_GUARDED_BY(mu);
  DeadlineTimer::Token timer ABSL_GUARDED_BY(mu) = DeadlineTimer::kNone;
};

MasterWatch::MasterWatch(const WorkerEnv& env, std::chrono::milliseconds limit, List list,
                         Lost lost)
    : state_(std::make_shared<State>(env, limit, std::move(list), std::move(lost))) {}

MasterWatch::~MasterWatch() {
  MutexLock lock(&state_->mu);
  state_->stopped = true;
  DeadlineTimer::Global().Cancel(state_->timer);
  while (state_->telling > 0) state_->none_telling.Wait(&state_->mu);
}

void MasterWatch::Wake() {
  MutexLock lock(&state_->mu);
  if (!state_->stopped && state_->timer == DeadlineTimer::kNone) state_->Schedule();
}

}  // namespace millrace
