// SPDX-License-Identifier: Apache-2.0
#include "kernels/data_flow/queue.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

uint64_t SeedOrRandom(const Queue::Options& o, int64_t seed) {
  return o.seed == 0 && o.seed2 == 0 ? RandomId() : static_cast<uint64_t>(seed);
}

void RunAll(std::vector<std::function<void()>>* finished) {
  for (auto& callback : *finished) callback();
}

}  // namespace

Queue::Queue(Options options)
    : options_(std::move(options)),
      random_(SeedOrRandom(options_, options_.seed), SeedOrRandom(options_, options_.seed2)) {}

std::string Queue::Named() const { return StrCat(options_.kind, " '", options_.name, "'"); }

std::string Queue::DebugString() const {
  MutexLock lock(&mu_);
  return StrCat(Named(), " capacity ", options_.capacity, ", ", elements_.size(), " elements",
                closed_ ? ", closed" : "");
}

bool Queue::closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

int64_t Queue::size() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(elements_.size());
}

Status Queue::CheckElement(const Element& components) const {
  if (components.size() != options_.types.size()) {
    return errors::InvalidArgument("Wrong number of components in tuple. Expected ",
                                   options_.types.size(), ", got ", components.size());
  }
  for (std::size_t i = 0; i < components.size(); ++i) {
    if (components[i].dtype() != options_.types[i]) {
      return errors::InvalidArgument("Type mismatch in tuple component ", i, ". Expected ",
                                     DataTypeName(options_.types[i]), ", got ",
                                     DataTypeName(components[i].dtype()));
    }
    if (!options_.shapes.empty() && !options_.shapes[i].IsCompatibleWith(components[i].shape())) {
      return errors::InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ",
                                     options_.shapes[i].DebugString(), ", got ",
                                     components[i].shape().DebugString());
    }
  }
  return OkStatus();
}

Status Queue::CheckBatch(const Element& components) const {
  if (components.size() != options_.types.size()) {
    return errors::InvalidArgument("Wrong number of components in tuple. Expected ",
                                   options_.types.size(), ", got ", components.size());
  }
  for (std::size_t i = 0; i < components.size(); ++i) {
    const Tensor& c = components[i];
    if (c.dtype() != options_.types[i]) {
      return errors::InvalidArgument("Type mismatch in tuple component ", i, ". Expected ",
                                     DataTypeName(options_.types[i]), ", got ",
                                     DataTypeName(c.dtype()));
    }
    if (c.rank() < 1 || c.dim(0) != components[0].dim(0)) {
      return errors::InvalidArgument("All input tensors must have the same size in the 0th ",
                                     "dimension. Component ", i, " has shape ",
                                     c.shape().DebugString());
    }
    if (!options_.shapes.empty() &&
        !options_.shapes[i].IsCompatibleWith(PartialShape(c.shape().dims().subspan(1)))) {
      PartialShape batch({c.dim(0)});
      for (int k = 0; k < options_.shapes[i].rank(); ++k) batch.AddDim(options_.shapes[i].dim(k));
      return errors::InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ",
                                     batch.DebugString(), ", got ", c.shape().DebugString());
    }
  }
  return OkStatus();
}

// With the queue locked. Clang takes the closure for the object that its annotation speaks of.
template <typename Describe>
std::string Described(const Queue& queue, const Describe& describe) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return describe(queue);
}

template <typename Attempt, typename Describe>
void Queue::NoteWaiting(std::deque<Attempt>* line, int64_t id, const Waiter& waiter, LastCall* last,
                        Describe describe) {
  if (line->empty() || line->back().id != id) return last->Note(waiter.node, waiter.task);
  line->back().node = waiter.node;
  line->back().task = waiter.task;
  if (waiter.cancellation == nullptr) return;
  waiter.cancellation->Describe(line->back().token,
                                [self = RefPtr<Queue>::Share(this), describe,
                                 wait = waiter.Begin(Wait::Kind::kQueue, options_.name)]() mutable {
                                  {
                                    MutexLock lock(&self->mu_);
                                    wait.text = Described(*self, describe);
                                  }
                                  return EncodeWait(wait);
                                });
}

void Queue::Enqueue(std::vector<Element> elements, const Waiter& waiter, EnqueueDone done) {
  CancellationManager* const cancellation = waiter.cancellation;
  Finished finished;
  Status refused;
  {
    MutexLock lock(&mu_);
    const int64_t id = next_id_++;
    CancellationManager::Token token = -1;
    if (closed_) {
      refused = errors::Cancelled(Named(), " is closed.");
    } else if (cancellation != nullptr) {
      token = cancellation->NextToken();
      // The callback may outlive the attempt, but it only looks for an id.
      if (!cancellation->RegisterCallback(
              token, [self = RefPtr<Queue>::Share(this), id] { self->CancelEnqueue(id); })) {
        refused = errors::Cancelled("Enqueue operation was cancelled");
      }
    }
    if (refused.ok()) {
      enqueues_.push_back({id, std::move(elements), 0, cancellation, token, std::move(done)});
      Serve(&finished);
      NoteWaiting(&enqueues_, id, waiter, &last_enqueue_,
                  [](const Queue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue.mu_) {
                    return StrCat("an enqueue: ", queue.Named(), " is full (",
                                  queue.elements_.size(), " of ", queue.options_.capacity,
                                  " elements), ", queue.last_dequeue_.ToString("dequeue"));
                  });
    }
  }
  if (!refused.ok()) return done(std::move(refused));
  RunAll(&finished);
}

void Queue::Dequeue(int64_t count, bool up_to, const Waiter& waiter, DequeueDone done) {
  CancellationManager* const cancellation = waiter.cancellation;
  Finished finished;
  Status refused;
  {
    MutexLock lock(&mu_);
    const int64_t id = next_id_++;
    CancellationManager::Token token = -1;
    if (cancellation != nullptr) {
      token = cancellation->NextToken();
      if (!cancellation->RegisterCallback(
              token, [self = RefPtr<Queue>::Share(this), id] { self->CancelDequeue(id); })) {
        refused = errors::Cancelled("Dequeue operation was cancelled");
      }
    }
    if (refused.ok()) {
      dequeues_.push_back({id,
                           static_cast<std::size_t>(std::max<int64_t>(count, 0)),
                           up_to,
                           {},
                           cancellation,
                           token,
                           std::move(done)});
      Serve(&finished);
      NoteWaiting(&dequeues_, id, waiter, &last_dequeue_,
                  [count](const Queue& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(queue.mu_) {
                    // What the first in line has taken is still there.
                    const std::size_t there =
                        queue.elements_.size() +
                        (queue.dequeues_.empty() ? 0 : queue.dequeues_.front().taken.size());
                    return StrCat("a dequeue: ", queue.Named(), " has ", there, " of ", count,
                                  count == 1 ? " element" : " elements", ", ",
                                  queue.last_enqueue_.ToString("enqueue"), ", ",
                                  queue.last_dequeue_.ToString("dequeue"));
                  });
    }
  }
  if (!refused.ok()) return done(std::move(refused), {});
  RunAll(&finished);
}

void Queue::Close(bool cancel_pending_enqueues) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    if (cancel_pending_enqueues) {
      for (EnqueueAttempt& attempt : enqueues_) {
        Finish(std::move(attempt), errors::Cancelled("Enqueue operation was cancelled"), &finished);
      }
      enqueues_.clear();
    }
    Serve(&finished);
  }
  RunAll(&finished);
}

void Queue::OnRemoved() {
  Finished finished;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    for (EnqueueAttempt& attempt : enqueues_) {
      Finish(std::move(attempt), errors::Cancelled(Named(), " was removed"), &finished);
    }
    enqueues_.clear();
    for (DequeueAttempt& attempt : dequeues_) {
      attempt.taken.clear();
      Finish(std::move(attempt), errors::Cancelled(Named(), " was removed"), &finished);
    }
    dequeues_.clear();
  }
  RunAll(&finished);
}

void Queue::CancelEnqueue(int64_t id) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    const auto it = std::find_if(enqueues_.begin(), enqueues_.end(),
                                 [id](const EnqueueAttempt& a) { return a.id == id; });
    if (it == enqueues_.end()) return;  // served in the meantime
    EnqueueAttempt attempt = std::move(*it);
    enqueues_.erase(it);
    attempt.cancellation = nullptr;  // its callback is this one
    Finish(std::move(attempt), errors::Cancelled("Enqueue operation was cancelled"), &finished);
    Serve(&finished);
  }
  RunAll(&finished);
}

void Queue::CancelDequeue(int64_t id) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    const auto it = std::find_if(dequeues_.begin(), dequeues_.end(),
                                 [id](const DequeueAttempt& a) { return a.id == id; });
    if (it == dequeues_.end()) return;
    DequeueAttempt attempt = std::move(*it);
    dequeues_.erase(it);
    attempt.cancellation = nullptr;
    Restore(std::exchange(attempt.taken, {}));
    Finish(std::move(attempt), errors::Cancelled("Dequeue operation was cancelled"), &finished);
    Serve(&finished);
  }
  RunAll(&finished);
}

// A cancellation that is under way may still call back; it will not find the attempt.
void Queue::Finish(EnqueueAttempt attempt, Status status, Finished* finished) {
  finished->push_back([c = attempt.cancellation, token = attempt.token,
                       done = std::move(attempt.done), status = std::move(status)] {
    if (c != nullptr) c->TryDeregisterCallback(token);
    done(status);
  });
}

void Queue::Finish(DequeueAttempt attempt, Status status, Finished* finished) {
  finished->push_back([c = attempt.cancellation, token = attempt.token,
                       done = std::move(attempt.done), status = std::move(status),
                       taken = std::move(attempt.taken)]() mutable {
    if (c != nullptr) c->TryDeregisterCallback(token);
    done(status, std::move(taken));
  });
}

void Queue::Serve(Finished* finished) {
  // Each side may unblock the other until neither moves.
  bool moved = true;
  while (moved) {
    moved = ServeEnqueues(finished);
    moved |= ServeDequeues(finished);
  }
}

bool Queue::ServeEnqueues(Finished* finished) {
  bool moved = false;
  while (!enqueues_.empty()) {
    EnqueueAttempt& attempt = enqueues_.front();
    while (attempt.next < attempt.elements.size() &&
           (options_.capacity < 0 || static_cast<int64_t>(elements_.size()) < options_.capacity)) {
      Put(std::move(attempt.elements[attempt.next++]));
      moved = true;
    }
    if (attempt.next < attempt.elements.size()) break;
    if (!attempt.node.empty()) last_enqueue_.Note(attempt.node, attempt.task);
    Finish(std::move(attempt), OkStatus(), finished);
    enqueues_.pop_front();
    moved = true;
  }
  return moved;
}

bool Queue::ServeDequeues(Finished* finished) {
  bool moved = false;
  while (!dequeues_.empty()) {
    DequeueAttempt& attempt = dequeues_.front();
    const bool complete = closed_ && enqueues_.empty();  // nothing will be added
    const auto kept =
        static_cast<std::size_t>(complete ? 0 : std::max<int64_t>(0, options_.min_after_dequeue));
    // What a priority queue gives at once is sorted as a whole, so it waits until all of it is
    // there; more than the queue holds can only be taken in parts.
    if (options_.order == Order::kPriority && !complete && elements_.size() < attempt.count &&
        (options_.capacity < 0 || static_cast<int64_t>(attempt.count) <= options_.capacity)) {
      break;
    }
    while (attempt.taken.size() < attempt.count && elements_.size() > kept) {
      attempt.taken.push_back(Take());
      moved = true;
    }
    if (attempt.taken.size() == attempt.count ||
        (complete && attempt.up_to && !attempt.taken.empty())) {
      if (!attempt.node.empty()) last_dequeue_.Note(attempt.node, attempt.task);
      Finish(std::move(attempt), OkStatus(), finished);
    } else if (complete) {
      Restore(std::exchange(attempt.taken, {}));
      Status status = errors::OutOfRange(
          Named(), " is closed and has insufficient elements ", "(requested ", attempt.count, ", ",
          options_.kind == "Barrier" ? "total" : "current", " size ", elements_.size(), ")");
      Finish(std::move(attempt), std::move(status), finished);
    } else {
      break;
    }
    dequeues_.pop_front();
    moved = true;
  }
  return moved;
}

void Queue::Put(Element element) {
  if (options_.order != Order::kPriority) {
    elements_.push_back(std::move(element));
    return;
  }
  const auto at = std::upper_bound(
      elements_.begin(), elements_.end(), element[0].scalar<int64_t>(),
      [](int64_t priority, const Element& e) { return priority < e[0].scalar<int64_t>(); });
  elements_.insert(at, std::move(element));
}

Queue::Element Queue::Take() {
  if (options_.order == Order::kRandom) {
    std::swap(elements_[NextRandom() % elements_.size()], elements_.back());
    Element element = std::move(elements_.back());
    elements_.pop_back();
    return element;
  }
  Element element = std::move(elements_.front());
  elements_.pop_front();
  return element;
}

void Queue::Restore(std::vector<Element> taken) {
  elements_.insert(elements_.begin(), std::make_move_iterator(taken.begin()),
                   std::make_move_iterator(taken.end()));
}

uint32_t Queue::NextRandom() {
  if (random_used_ == 4) {
    random_words_ = random_();
    random_used_ = 0;
  }
  return random_words_[random_used_++];
}

}  // namespace millrace
