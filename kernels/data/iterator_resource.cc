// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/iterator_resource.h"

#include <chrono>

#include "base/exceptions.h"
#include "base/log.h"
#include "kernels/data/stage_times.h"
#include "kernels/data/waiting.h"

namespace millrace {
namespace {

constexpr char kEnd[] = "End of sequence";
// Waits that are worth a line.
constexpr std::chrono::seconds kLongWait{5};

}  // namespace

Status IteratorResource::Start(DatasetPtr dataset, DatasetPtr timed) {
  if (dataset->types() != types_) {
    return errors::InvalidArgument("Number or types of components do not match between the ",
                                   "iterator and the data set that it is made from");
  }
  auto walk = std::make_shared<Walk>();
  walk->blocks = dataset->blocks();
  MR_ASSIGN_OR_RETURN(walk->iterator, dataset->NewIterator());
  walk->dataset = timed != nullptr ? std::move(timed) : std::move(dataset);
  // The old walk ends without the lock.
  MutexLock lock(&mu_);
  walk_.swap(walk);
  return OkStatus();
}

Status IteratorResource::NotStarted() {
  return errors::FailedPrecondition(
      "GetNext() failed because the iterator has not been initialized. Ensure that you have "
      "run the initializer operation for this iterator before getting the next element.");
}

bool IteratorResource::IsEnd(const Status& status) {
  return status.code() == StatusCode::kOutOfRange && status.message() == kEnd;
}

Status IteratorResource::Step(Walk* walk, const DatasetCall& call, DatasetElement* element) {
  Status status;
  if (!walk->ended) {
    status = Guarded([&] { return walk->iterator->Next(call, element, &walk->ended); });
  }
  if (++walk->elements == walk->next_look) Look(walk);
  if (status.ok() && walk->ended) status = errors::OutOfRange(kEnd);
  MutexLock lock(&walk->mu);
  walk->busy = false;
  walk->idle.Signal();
  return status;
}

void IteratorResource::Look(Walk* walk) {
  walk->next_look *= 2;
  if (said_.load(std::memory_order_relaxed)) return;
  const std::string line = SlowestStage(*walk->dataset, kLongWait);
  if (line.empty() || said_.exchange(true)) return;
  MR_LOG(kInfo, line);
}

Status IteratorResource::Next(const DatasetCall& call, DatasetElement* element) {
  const std::shared_ptr<Walk> current = walk();
  if (current == nullptr) return NotStarted();
  Walk& walk = *current;
  MR_RETURN_IF_ERROR(LockWhen(&walk.mu, &walk.idle, call.cancellation, [&walk] {
    AssertLocked(&walk.mu);
    return !walk.busy;
  }));
  AssertLocked(&walk.mu);
  walk.busy = true;
  walk.mu.Unlock();
  return Step(&walk, call, element);
}

bool IteratorResource::TryNext(const DatasetCall& call, DatasetElement* element, Status* status) {
  const std::shared_ptr<Walk> current = walk();
  if (current == nullptr) {
    *status = NotStarted();
    return true;
  }
  {
    MutexLock lock(&current->mu);
    if (current->busy) return false;
    if (current->blocks && !current->ended && !current->iterator->Ready()) return false;
    current->busy = true;
  }
  *status = Step(current.get(), call, element);
  return true;
}

}  // namespace millrace
