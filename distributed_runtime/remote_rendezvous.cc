// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/remote_rendezvous.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/linked_cancellation.h"
#include "base/mutex.h"
#include "device/device_name.h"

namespace millrace {
namespace {

// One value that another task is asked for; its cancellation follows the step's.
class RemoteReceive : public LinkedCancellation {
 public:
  RemoteReceive(std::string key, Rendezvous::RecvDone done)
      : key(std::move(key)), done(std::move(done)) {}
  const std::string key;
  const Rendezvous::RecvDone done;
  // Links of the rendezvous' list, guarded by its lock.
  RemoteReceive *previous = nullptr, *next = nullptr;
};

class RemoteRendezvous : public Rendezvous {
 public:
  RemoteRendezvous(int64_t step_id, const std::string& task_prefix, const FindWorker& find,
                   RefPtr<Rendezvous> local)
      : step_id_(step_id), task_prefix_(task_prefix), find_(find), local_(std::move(local)) {}

  // What the step has within this task.
  const RefPtr<Rendezvous>& local() const { return local_; }

  Status Send(std::string_view key, Tensor value, bool is_dead) override {
    return local_->Send(key, std::move(value), is_dead);
  }

  void RecvAsync(std::string_view key, CancellationManager* cancellation, RecvDone done) override {
    if (IsLocal(key)) {
      local_->RecvAsync(key, cancellation, std::move(done));
      return;
    }
    StatusOr<std::shared_ptr<WorkerInterface>> worker = WorkerOf(key);
    if (!worker.ok()) {
      done(worker.status(), Tensor(), false);
      return;
    }
    Ask(*std::move(worker), std::string(key), cancellation, std::move(done));
  }

  void StartAbort(const Status& status) override {
    local_->StartAbort(status);
    std::vector<RefPtr<RemoteReceive>> receives;
    {
      MutexLock lock(&mu_);
      if (!aborted_.ok()) return;
      aborted_ = status;
      for (RemoteReceive* r = first_; r != nullptr; r = r->next) {
        receives.push_back(RefPtr<RemoteReceive>::Share(r));
      }
    }
    for (const auto& receive : receives) receive->get()->StartCancel(status);
  }

  void ListWaits(std::size_t limit, std::vector<std::string>* keys) const override {
    local_->ListWaits(limit, keys);
    MutexLock lock(&mu_);
    for (const RemoteReceive* r = first_; r != nullptr && keys->size() < limit; r = r->next) {
      keys->push_back(r->key);
    }
  }

 private:
  // The first part of a key is the source, the third one the destination.
  bool IsLocal(std::string_view key) const {
    const std::string_view source = key.substr(0, key.find(';'));
    if (source.empty() || source.starts_with(task_prefix_)) return true;
    const std::size_t second = key.find(';', source.size() + 1);
    return second != std::string_view::npos &&
           key.substr(second + 1).starts_with(StrCat(source, ";"));
  }

  StatusOr<std::shared_ptr<WorkerInterface>> WorkerOf(std::string_view key) const {
    const std::string_view source = key.substr(0, key.find(';'));
    const StatusOr<DeviceName> name = DeviceName::Parse(source);
    const std::string task = name.ok() ? TaskName(*name) : "";
    if (!task.empty() && find_ != nullptr) {
      if (std::shared_ptr<WorkerInterface> worker = find_(task)) return worker;
    }
    return errors::InvalidArgument("Invalid rendezvous key: ", key,
                                   ": the cluster has no task for the device '", source, "'");
  }

  void Ask(std::shared_ptr<WorkerInterface> worker, const std::string& key,
           CancellationManager* cancellation, RecvDone done) {
    auto receive = MakeRef<RemoteReceive>(key, std::move(done));
    Status aborted;
    {
      MutexLock lock(&mu_);
      aborted = aborted_;
      if (aborted.ok()) {
        receive->next = first_;
        if (first_ != nullptr) first_->previous = receive.get();
        first_ = receive.get();
      }
    }
    if (!aborted.ok()) {
      receive->done(aborted, Tensor(), false);
      return;
    }
    receive->Link(cancellation);
    const CallOptions options{kNoDeadline, receive->get()};
    WorkerInterface* const asked = worker.get();
    asked->RecvTensorAsync(
        options, step_id_, key,
        [receive, self = RefPtr<RemoteRendezvous>::Share(this), kept = std::move(worker)](
            const Status& status, const Tensor& value, bool is_dead) {
          self->Received(receive.get(), status, value, is_dead);
        });
  }

  void Received(RemoteReceive* receive, const Status& status, const Tensor& value, bool is_dead) {
    Status aborted;
    {
      MutexLock lock(&mu_);
      (receive->previous != nullptr ? receive->previous->next : first_) = receive->next;
      if (receive->next != nullptr) receive->next->previous = receive->previous;
      aborted = aborted_;
    }
    receive->Unlink();
    if (status.ok() || !receive->get()->IsCancelled()) {
      receive->done(status, value, is_dead);
    } else if (!aborted.ok()) {
      receive->done(aborted, Tensor(), false);
    } else {
      receive->done(MarkDerived(errors::Cancelled("RecvAsync is cancelled")), Tensor(), false);
    }
  }

  const int64_t step_id_;
  const std::string& task_prefix_;  // "/job:J/replica:R/task:T/", the manager's
  const FindWorker& find_;          // the manager's
  const RefPtr<Rendezvous> local_;
  mutable Mutex mu_;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  RemoteReceive* first_ ABSL_GUARDED_BY(mu_) = nullptr;  // those that wait for an answer
};

class RemoteRendezvousManager : public RendezvousManager {
 public:
  RemoteRendezvousManager(std::string task, FindWorker find)
      : task_prefix_(StrCat(task, "/")), find_(std::move(find)) {}

  RefPtr<Rendezvous> Find(int64_t step_id) override {
    MutexLock lock(&mu_);
    const bool is_new = !steps_.contains(step_id);
    Entry& entry = FindEntry(step_id);
    if (!std::exchange(entry.begun, true) && !is_new) --num_unknown_;
    return entry.rendezvous;
  }

  StatusOr<RefPtr<Rendezvous>> FindForPeer(int64_t step_id) override {
    MutexLock lock(&mu_);
    const auto it = steps_.find(step_id);
    const bool is_known = it != steps_.end();
    if (!is_known && num_unknown_ >= kMostUnknown) {
      return errors::ResourceExhausted(
          "peers wait for values of ", num_unknown_, " steps that were not begun at ", task_prefix_,
          ", the most that are kept; step ", step_id, " has to wait elsewhere");
    }
    Entry& entry = FindEntry(step_id);
    if (!is_known) ++num_unknown_;
    ++entry.requests;
    // A peer asks for what is here, whatever it calls this task.
    return RefPtr<Rendezvous>(entry.rendezvous->local());
  }

  void PeerDone(int64_t step_id, const Rendezvous* found) override {
    RefPtr<RemoteRendezvous> forgotten;  // destroyed without the lock
    MutexLock lock(&mu_);
    const auto it = steps_.find(step_id);
    // Cleaned up meanwhile, and perhaps asked for again.
    if (it == steps_.end() || it->second.rendezvous->local().get() != found) return;
    if (--it->second.requests > 0 || it->second.begun) return;
    forgotten = std::move(it->second.rendezvous);
    steps_.erase(it);
    --num_unknown_;
  }

  void Cleanup(int64_t step_id) override {
    RefPtr<RemoteRendezvous> rendezvous;
    {
      MutexLock lock(&mu_);
      const auto it = steps_.find(step_id);
      if (it == steps_.end()) return;
      if (!it->second.begun) --num_unknown_;
      rendezvous = std::move(it->second.rendezvous);
      steps_.erase(it);
    }
    rendezvous->StartAbort(errors::Aborted("Cleanup ", step_id));
  }

  void CleanupAll(const Status& status) override {
    absl::flat_hash_map<int64_t, Entry> steps;
    {
      MutexLock lock(&mu_);
      steps.swap(steps_);
      num_unknown_ = 0;
    }
    for (const auto& [step_id, entry] : steps) entry.rendezvous->StartAbort(status);
  }

 private:
  struct Entry {
    RefPtr<RemoteRendezvous> rendezvous;
    bool begun = false;  // here
    int requests = 0;    // of peers, that have not ended
  };
  // Far more than a cluster has under way; some 50 MB.
  static constexpr int kMostUnknown = 65536;

  Entry& FindEntry(int64_t step_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Entry& entry = steps_[step_id];
    if (!entry.rendezvous) {
      entry.rendezvous =
          MakeRef<RemoteRendezvous>(step_id, task_prefix_, find_, NewLocalRendezvous());
    }
    return entry;
  }

  const std::string task_prefix_;
  const FindWorker find_;
  Mutex mu_;
  absl::flat_hash_map<int64_t, Entry> steps_ ABSL_GUARDED_BY(mu_);
  int num_unknown_ ABSL_GUARDED_BY(mu_) = 0;  // steps that only peers have asked for
};

class RenamedRendezvousManager : public RendezvousManager {
 public:
  RenamedRendezvousManager(std::string task, FindWorker find, RendezvousManager* own)
      : task_prefix_(StrCat(task, "/")), find_(std::move(find)), own_(own) {}

  RefPtr<Rendezvous> Find(int64_t step_id) override {
    MutexLock lock(&mu_);
    RefPtr<RemoteRendezvous>& found = steps_[step_id];
    if (!found) {
      // A step that was begun is given to every peer.
      RefPtr<Rendezvous> local = own_->Find(step_id);
      if (StatusOr<RefPtr<Rendezvous>> shared = own_->FindForPeer(step_id); shared.ok()) {
        local = *std::move(shared);
        own_->PeerDone(step_id, local.get());
      }
      found = MakeRef<RemoteRendezvous>(step_id, task_prefix_, find_, std::move(local));
    }
    return found;
  }

  void Cleanup(int64_t step_id) override {
    RefPtr<RemoteRendezvous> rendezvous;
    {
      MutexLock lock(&mu_);
      const auto it = steps_.find(step_id);
      if (it == steps_.end()) return;
      rendezvous = std::move(it->second);
      steps_.erase(it);
    }
    rendezvous->StartAbort(errors::Aborted("Cleanup ", step_id));
    own_->Cleanup(step_id);
  }

  void CleanupAll(const Status& status) override {
    absl::flat_hash_map<int64_t, RefPtr<RemoteRendezvous>> steps;
    {
      MutexLock lock(&mu_);
      steps.swap(steps_);
    }
    for (const auto& [step_id, rendezvous] : steps) {
      rendezvous->StartAbort(status);
      own_->Cleanup(step_id);
    }
  }

 private:
  const std::string task_prefix_;
  const FindWorker find_;
  RendezvousManager* const own_;
  Mutex mu_;
  absl::flat_hash_map<int64_t, RefPtr<RemoteRendezvous>> steps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<RendezvousManager> NewRenamedRendezvousManager(std::string task, FindWorker find,
                                                               RendezvousManager* own) {
  return std::make_unique<RenamedRendezvousManager>(std::move(task), std::move(find), own);
}

std::unique_ptr<RendezvousManager> NewRemoteRendezvousManager(std::string task,
                                                              WorkerCache* workers) {
  FindWorker find;
  if (workers != nullptr) {
    find = [workers](std::string_view name) {
      // The cache owns it.
      return std::shared_ptr<WorkerInterface>(std::shared_ptr<void>(), workers->GetWorker(name));
    };
  }
  return std::make_unique<RemoteRendezvousManager>(std::move(task), std::move(find));
}

}  // namespace millrace
