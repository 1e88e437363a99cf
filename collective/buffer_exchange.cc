// SPDX-License-Identifier: Apache-2.0
#include "collective/buffer_exchange.h"

#include <utility>

#include "base/errors.h"

namespace millrace {

void BufferExchange::Provide(const std::string& key, Tensor data, CancellationManager* cancellation,
                             Provided done) {
  auto pending = MakeRef<PendingProvided>(std::move(done));
  pending->Watch(cancellation, [key](const Provided& give_up) {
    give_up(errors::Cancelled("nobody had taken the buffer ", key, " when the step ended"));
  });
  Entry met;
  Status status;
  {
    MutexLock lock(&mu_);
    status = aborted_;
    if (status.ok()) {
      Entry& entry = entries_[key];
      if (entry.provider.get() != nullptr && !entry.provider->claimed()) {
        status = errors::Internal("the collective's buffer ", key,
                                  " was provided twice: two collectives of one step have the same "
                                  "keys");
      } else if (entry.taker.get() != nullptr && entry.taker->Claim()) {
        met = std::move(entry);
        used_ = true;
        entries_.erase(key);
      } else {
        entry.data = std::move(data);
        entry.provider = std::move(pending);
        return;
      }
    }
  }
  if (!pending->Claim()) {
    // Given up just now: the taker, if there was one, learns it from the abort that follows.
    if (met.taker.get() != nullptr) {
      met.taker->Finish(MarkDerived(errors::Cancelled("the step ended before ", key, " came")),
                        Tensor());
    }
    return;
  }
  if (!status.ok()) return pending->Finish(status);
  Meet(key, data, met.num_bytes, pending.get(), met.taker.get());
}

void BufferExchange::Take(const std::string& key, int64_t num_bytes,
                          CancellationManager* cancellation, Taken done) {
  auto pending = MakeRef<PendingTaken>(std::move(done));
  pending->Watch(cancellation, [key](const Taken& give_up) {
    give_up(errors::Cancelled("the buffer ", key, " had not come when the step ended"), Tensor());
  });
  Entry met;
  Status status;
  {
    MutexLock lock(&mu_);
    status = aborted_;
    if (status.ok()) {
      Entry& entry = entries_[key];
      if (entry.taker.get() != nullptr && !entry.taker->claimed()) {
        status = errors::Internal("the collective's buffer ", key, " was asked for twice");
      } else if (entry.provider.get() != nullptr && entry.provider->Claim()) {
        met = std::move(entry);
        used_ = true;
        entries_.erase(key);
      } else {
        entry.taker = std::move(pending);
        entry.num_bytes = num_bytes;
        return;
      }
    }
  }
  if (!pending->Claim()) {
    if (met.provider.get() != nullptr) {
      met.provider->Finish(MarkDerived(errors::Cancelled("the step ended before ", key, " went")));
    }
    return;
  }
  if (!status.ok()) return pending->Finish(status, Tensor());
  Meet(key, met.data, num_bytes, met.provider.get(), pending.get());
}

void BufferExchange::Meet(const std::string& key, const Tensor& data, int64_t num_bytes,
                          PendingProvided* provider, PendingTaken* taker) {
  Status status;
  if (num_bytes >= 0 && static_cast<int64_t>(data.num_bytes()) != num_bytes) {
    status = errors::Internal("Tensor Size Mismatch: the collective's buffer ", key, " has ",
                              data.num_bytes(), " bytes, and ", num_bytes, " were expected");
  }
  // The taker may use the last reference to the tensor, and ends the step's wait for it.
  const Tensor held = data;
  taker->Finish(status, status.ok() ? held : Tensor());
  provider->Finish(status);
}

void BufferExchange::StartAbort(const Status& status) {
  StringMap<Entry> entries;
  {
    MutexLock lock(&mu_);
    if (!aborted_.ok()) return;
    aborted_ = status.ok() ? errors::Internal("a collective was aborted without a reason") : status;
    entries.swap(entries_);
  }
  const Status reason = aborted();
  for (auto& [key, entry] : entries) {
    if (entry.provider.get() != nullptr && entry.provider->Claim()) entry.provider->Finish(reason);
    if (entry.taker.get() != nullptr && entry.taker->Claim()) {
      entry.taker->Finish(reason, Tensor());
    }
  }
}

bool BufferExchange::used() const {
  MutexLock lock(&mu_);
  return used_;
}

bool BufferExchange::idle() const {
  MutexLock lock(&mu_);
  for (const auto& [key, entry] : entries_) {
    if (entry.provider.get() != nullptr && !entry.provider->claimed()) return false;
    if (entry.taker.get() != nullptr && !entry.taker->claimed()) return false;
  }
  return true;
}

Status BufferExchange::aborted() const {
  MutexLock lock(&mu_);
  return aborted_;
}

}  // namespace millrace
