// SPDX-License-Identifier: Apache-2.0
// Parks values that nobody has asked for yet and receivers whose value has not come yet.
#include <deque>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

struct Parcel {
  Tensor value;
  bool is_dead = false;
};

struct Waiter {
  Rendezvous::RecvDone done;
  CancellationManager* cancellation = nullptr;
  CancellationManager::Token token = 0;

  // The manager may go away as soon as `done` was called, so the callback leaves it first.
  // If a cancellation is running right now the callback runs, and finds no waiter.
  void Finish(const Status& status, const Tensor& value, bool is_dead) {
    if (cancellation != nullptr) cancellation->TryDeregisterCallback(token);
    done(status, value, is_dead);
  }
};

// At most one of the two is not empty.
struct Channel {
  std::deque<Parcel> parcels;
  std::deque<Waiter> waiters;
  bool empty() const { return parcels.empty() && waiters.empty(); }
};

// Lock order: mu_, then the cancellation manager's. No callback runs under mu_.
class LocalRendezvous : public Rendezvous {
 public:
  ~LocalRendezvous() override { StartAbort(errors::Cancelled("the rendezvous was deleted")); }

  Status Send(std::string_view key, Tensor value, bool is_dead) override {
    Waiter waiter;
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return status_;
      auto it = channels_.find(key);
      if (it == channels_.end() || it->second.waiters.empty()) {
        if (it == channels_.end()) it = channels_.try_emplace(std::string(key)).first;
        it->second.parcels.push_back({std::move(value), is_dead});
        return OkStatus();
      }
      waiter = std::move(it->second.waiters.front());
      it->second.waiters.pop_front();
      if (it->second.empty()) channels_.erase(it);
    }
    waiter.Finish(OkStatus(), value, is_dead);
    return OkStatus();
  }

  void RecvAsync(std::string_view key, CancellationManager* cancellation, RecvDone done) override {
    Parcel parcel;
    Status status;
    {
      MutexLock lock(&mu_);
      status = status_;
      if (status.ok()) {
        auto it = channels_.find(key);
        if (it == channels_.end() || it->second.parcels.empty()) {
          if (Wait(key, cancellation, &done)) return;
          status = errors::Cancelled("RecvAsync is cancelled");
        } else {
          parcel = std::move(it->second.parcels.front());
          it->second.parcels.pop_front();
          if (it->second.empty()) channels_.erase(it);
        }
      }
    }
    done(status, parcel.value, parcel.is_dead);
  }

  void StartAbort(const Status& status) override {
    StringMap<Channel> channels;
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return;
      status_ = status.ok() ? errors::Internal("rendezvous aborted without a reason") : status;
      channels.swap(channels_);
    }
    for (auto& [key, channel] : channels) {
      for (Waiter& waiter : channel.waiters) waiter.Finish(status, Tensor(), false);
    }
  }

  void ListWaits(std::size_t limit, std::vector<std::string>* keys) const override {
    MutexLock lock(&mu_);
    for (const auto& [key, channel] : channels_) {
      if (keys->size() >= limit) return;
      if (!channel.waiters.empty()) keys->push_back(key);
    }
  }

 private:
  // False, with `done` untouched, if the cancellation has begun.
  bool Wait(std::string_view key, CancellationManager* cancellation, RecvDone* done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Waiter waiter;
    if (cancellation != nullptr) {
      waiter.cancellation = cancellation;
      waiter.token = cancellation->NextToken();
      auto self = RefPtr<LocalRendezvous>::Share(this);
      if (!cancellation->RegisterCallback(
              waiter.token, [self, key = std::string(key), cancellation, token = waiter.token] {
                self->CancelWaiter(key, cancellation, token);
              })) {
        return false;
      }
    }
    waiter.done = std::move(*done);
    auto it = channels_.find(key);
    if (it == channels_.end()) it = channels_.try_emplace(std::string(key)).first;
    it->second.waiters.push_back(std::move(waiter));
    return true;
  }

  void CancelWaiter(std::string_view key, CancellationManager* cancellation,
                    CancellationManager::Token token) {
    RecvDone done;
    {
      MutexLock lock(&mu_);
      auto it = channels_.find(key);
      if (it == channels_.end()) return;
      auto& waiters = it->second.waiters;
      for (auto w = waiters.begin(); w != waiters.end(); ++w) {
        if (w->cancellation != cancellation || w->token != token) continue;
        done = std::move(w->done);
        waiters.erase(w);
        break;
      }
      if (it->second.empty()) channels_.erase(it);
    }
    if (done) done(errors::Cancelled("RecvAsync is cancelled"), Tensor(), false);
  }

  mutable Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
  StringMap<Channel> channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

RefPtr<Rendezvous> NewLocalRendezvous() { return MakeRef<LocalRendezvous>(); }

}  // namespace millrace
