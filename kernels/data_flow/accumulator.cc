// SPDX-License-Identifier: Apache-2.0
#include "kernels/data_flow/accumulator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/state/variable.h"

namespace millrace {
namespace {

// More than a cluster has workers; whoever comes later is not remembered.
constexpr std::size_t kMostPushers = 4096;

// Steps come from clients, who may name any; there is none after the last.
constexpr int64_t kLastStep = std::numeric_limits<int64_t>::max();

// How far `step` is behind, at most the largest number.
int64_t StepsBehind(int64_t global_step, int64_t step) {
  return step < 0 && global_step > kLastStep + step ? kLastStep : global_step - step;
}

}  // namespace

Status Accumulator::Apply(int64_t local_step, std::span<const Tensor* const> gradient,
                          const StepOrigin& origin, std::string_view worker) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    if (!origin.task.empty()) NotePusher(origin.task, local_step);
    const StatusOr<Bringer*> bringer = FindBringer(worker, origin);
    if (!bringer.ok()) {
      Count(origin, UpdateFate::kFailed, -1);
      return bringer.status();
    }
    if (local_step < global_step_) {
      Count(origin, UpdateFate::kStale, StepsBehind(global_step_, local_step));
      return OkStatus();
    }
    const Held* const held = worker.empty() ? nullptr : FindHeld(worker, local_step);
    if (held != nullptr) {
      if (*bringer != nullptr && held->session != origin.session_number) {
        (*bringer)->is_second = true;
      }
      Count(origin, UpdateFate::kDuplicate, -1);
      return OkStatus();
    }
    const Status added = Add(gradient, count_ == 0);
    Count(origin, added.ok() ? UpdateFate::kHeld : UpdateFate::kFailed, added.ok() ? 0 : -1);
    MR_RETURN_IF_ERROR(added);
    ++count_;
    if (!worker.empty() && held_.size() < kMostPushers) {
      held_.push_back({std::string(worker), local_step, origin.session_number});
    }
    Serve(&finished);
  }
  for (auto& callback : finished) callback();
  return OkStatus();
}

const Accumulator::Held* Accumulator::FindHeld(std::string_view worker, int64_t local_step) const {
  const auto held = std::find_if(held_.begin(), held_.end(), [&](const Held& other) {
    return other.local_step == local_step && other.worker == worker;
  });
  return held == held_.end() ? nullptr : &*held;
}

// A worker that was started again has a later session, and nothing comes of the earlier one any
// more. Where something does, both live: one gradient of a step would be missing for good.
StatusOr<Accumulator::Bringer*> Accumulator::FindBringer(std::string_view worker,
                                                         const StepOrigin& origin) {
  if (worker.empty() || origin.session_number == 0) return static_cast<Bringer*>(nullptr);
  const auto session = [&origin] {
    return StrCat("session ", origin.session_name, " of ",
                  origin.task.empty() ? "an unknown task" : origin.task);
  };
  auto known = std::find_if(bringers_.begin(), bringers_.end(),
                            [worker](const Bringer& other) { return other.worker == worker; });
  if (known == bringers_.end()) {
    if (bringers_.size() >= kMostPushers) return static_cast<Bringer*>(nullptr);
    known = bringers_.insert(known, {std::string(worker), origin.session_number, session()});
  } else if (known->session < origin.session_number) {
    known->other = std::exchange(known->text, session());
    known->session = origin.session_number;
    known->is_second = false;
  } else if (known->session > origin.session_number) {
    return errors::FailedPrecondition(
        "two sessions bring gradients for accumulator '", options_.name, "' as the worker ", worker,
        ": ", session(), ", which this is, and the later ", known->text,
        ". Of each step one of them counts: give every worker a task of its own (worker_device of "
        "ReplicaDeviceSetter), or end the one that another was started for");
  }
  return &*known;
}

void Accumulator::AllowAgain(std::string_view worker) {
  MutexLock lock(&mu_);
  std::erase_if(held_, [worker](const Held& held) { return held.worker == worker; });
}

void Accumulator::NotePusher(std::string_view task, int64_t local_step) {
  auto pusher = std::find_if(pushers_.begin(), pushers_.end(),
                             [task](const Pusher& known) { return known.task == task; });
  if (pusher == pushers_.end()) {
    if (pushers_.size() >= kMostPushers) return;
    pusher = pushers_.insert(pusher, {std::string(task)});
  }
  pusher->local_step = local_step;
  pusher->nanos = SteadyNanos();
}

void Accumulator::DescribeTake(int64_t num_required, Wait* wait) const {
  constexpr std::size_t kMostNamed = 16;
  MutexLock lock(&mu_);
  wait->text = StrCat("accumulator '", options_.name, "' has ", count_, " of ", num_required,
                      " gradients for step ", global_step_);
  // Those that are behind, the one of which nothing has come for longest first.
  std::vector<const Pusher*> behind;
  for (const Pusher& pusher : pushers_) {
    if (pusher.local_step < global_step_) behind.push_back(&pusher);
  }
  std::sort(behind.begin(), behind.end(),
            [](const Pusher* a, const Pusher* b) { return a->nanos < b->nanos; });
  if (count_ < num_required && !behind.empty()) wait->peer = behind.front()->task;
  for (std::size_t i = 0; i < std::min(behind.size(), kMostNamed); ++i) {
    StrAppend(&wait->text, "; ", behind[i]->task, " last pushed step ", behind[i]->local_step, ", ",
              SecondsSince(behind[i]->nanos), " s ago");
  }
  for (const Pusher& pusher : pushers_) {
    if (pusher.local_step < global_step_ || pushers_.size() > kMostNamed) continue;
    StrAppend(&wait->text, "; ", pusher.task, " has pushed step ", pusher.local_step);
  }
  for (const Bringer& bringer : bringers_) {
    if (!bringer.is_second) continue;
    StrAppend(&wait->text, "; the worker ", bringer.worker, " has brought this step in ",
              bringer.other, " and again in ", bringer.text,
              ", which counts once: if both run, give each a task of its own");
  }
}

void Accumulator::Take(int64_t num_required, const Waiter& waiter, TakeDone done) {
  CancellationManager* const cancellation = waiter.cancellation;
  if (num_required < 1) {
    return done(
        errors::InvalidArgument("Argument num_required must be positive, got ", num_required), {});
  }
  Finished finished;
  bool cancelled = false;
  {
    MutexLock lock(&mu_);
    const int64_t id = next_id_++;
    CancellationManager::Token token = -1;
    if (cancellation != nullptr) {
      token = cancellation->NextToken();
      // The callback may outlive the attempt, but it only looks for an id.
      cancelled = !cancellation->RegisterCallback(
          token, [self = RefPtr<Accumulator>::Share(this), id] { self->Cancel(id); });
    }
    if (!cancelled) {
      attempts_.push_back({id, num_required, cancellation, token, std::move(done)});
      Serve(&finished);
      if (cancellation != nullptr && !attempts_.empty() && attempts_.back().id == id) {
        cancellation->Describe(
            token, [self = RefPtr<Accumulator>::Share(this), num_required,
                    wait = waiter.Begin(Wait::Kind::kAccumulator, options_.name)]() mutable {
              self->DescribeTake(num_required, &wait);
              return EncodeWait(wait);
            });
      }
    }
  }
  if (cancelled) return done(errors::Cancelled("TakeGrad operation was cancelled"), {});
  for (auto& callback : finished) callback();
}

void Accumulator::Serve(Finished* finished) {
  while (!attempts_.empty() && count_ >= attempts_.front().num_required) {
    Attempt attempt = std::move(attempts_.front());
    attempts_.pop_front();
    StatusOr<std::vector<Tensor>> average = TakeAverage(count_);
    Settle(average.ok() ? UpdateFate::kApplied : UpdateFate::kFailed);
    count_ = 0;
    held_.clear();
    for (Bringer& bringer : bringers_) bringer.is_second = false;
    if (global_step_ < kLastStep) ++global_step_;
    if (average.ok()) {
      Finish(std::move(attempt), OkStatus(), *std::move(average), finished);
    } else {
      Finish(std::move(attempt), average.status(), {}, finished);
    }
  }
}

void Accumulator::Finish(Attempt attempt, Status status, std::vector<Tensor> outputs,
                         Finished* finished) {
  finished->push_back([c = attempt.cancellation, token = attempt.token,
                       done = std::move(attempt.done), status = std::move(status),
                       outputs = std::move(outputs)]() mutable {
    // A cancellation that is under way may still call back; it will not find the attempt.
    if (c != nullptr) c->TryDeregisterCallback(token);
    done(status, std::move(outputs));
  });
}

void Accumulator::Cancel(int64_t id) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    const auto it = std::find_if(attempts_.begin(), attempts_.end(),
                                 [id](const Attempt& a) { return a.id == id; });
    if (it == attempts_.end()) return;  // served in the meantime
    Attempt attempt = std::move(*it);
    attempts_.erase(it);
    attempt.cancellation = nullptr;  // its callback is this one
    Finish(std::move(attempt), errors::Cancelled("TakeGrad operation was cancelled"), {},
           &finished);
    Serve(&finished);
  }
  for (auto& callback : finished) callback();
}

void Accumulator::OnRemoved() {
  Finished finished;
  {
    MutexLock lock(&mu_);
    for (Attempt& attempt : attempts_) {
      Finish(std::move(attempt),
             errors::Cancelled("TakeGrad operation was cancelled: accumulator ", options_.name,
                               " was removed"),
             {}, &finished);
    }
    attempts_.clear();
    Settle(UpdateFate::kCancelled);
  }
  for (auto& callback : finished) callback();
}

int64_t Accumulator::num_accumulated() const {
  MutexLock lock(&mu_);
  return count_;
}

void Accumulator::SetGlobalStep(int64_t step) {
  MutexLock lock(&mu_);
  if (step < global_step_) {
    MR_LOG(kWarning, "accumulator ", options_.name, " goes back from global step ", global_step_,
           " to ", step);
  }
  global_step_ = step;
}

std::string Accumulator::DebugString() const {
  MutexLock lock(&mu_);
  return StrCat(sparse() ? "sparse" : "dense", " accumulator '", options_.name, "', ", count_,
                " gradients, global step ", global_step_);
}

namespace {

// to[i] += from[i], or to[i] /= divisor.
void AddTo(const Tensor& from, int64_t from_at, Tensor* to, int64_t to_at, int64_t n) {
  DispatchType(NumberTypes(), to->dtype(), [&]<typename T>() {
    using C = ComputeType<T>;
    const T* in = from.data<T>() + from_at;
    T* out = to->data<T>() + to_at;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<T>(static_cast<C>(out[i]) + static_cast<C>(in[i]));
    }
  });
}

void DivideBy(int64_t divisor, Tensor* to, int64_t at, int64_t n) {
  DispatchType(NumberTypes(), to->dtype(), [&]<typename T>() {
    using C = ComputeType<T>;
    T* out = to->data<T>() + at;
    const C d = static_cast<C>(divisor);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(static_cast<C>(out[i]) / d);
  });
}

class DenseAccumulator : public Accumulator {
 public:
  using Accumulator::Accumulator;
  bool sparse() const override { return false; }

 protected:
  Status Add(std::span<const Tensor* const> gradient, bool first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) override {
    const Tensor& value = *gradient[0];
    if (value.dtype() != options_.dtype) {
      return errors::InvalidArgument("gradient must be of type ", DataTypeName(options_.dtype),
                                     ", got ", DataTypeName(value.dtype()));
    }
    if (!options_.shape.IsCompatibleWith(value.shape())) {
      return errors::InvalidArgument("Shape mismatch: accumulator ", options_.name, " expects ",
                                     options_.shape.DebugString(), ", got a gradient of shape ",
                                     value.shape().DebugString());
    }
    if (first) return AssignValue(allocator_, value, &sum_);
    if (!(value.shape() == sum_.shape())) {
      return errors::InvalidArgument("Shape mismatch: accumulated gradients have shape ",
                                     sum_.shape().DebugString(), ", got one of shape ",
                                     value.shape().DebugString());
    }
    MR_RETURN_IF_ERROR(MakeExclusive(allocator_, &sum_));
    AddTo(value, 0, &sum_, 0, value.num_elements());
    return OkStatus();
  }

  StatusOr<std::vector<Tensor>> TakeAverage(int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) override {
    Tensor sum = std::exchange(sum_, Tensor());
    if (options_.mean && count > 1) {
      MR_RETURN_IF_ERROR(MakeExclusive(allocator_, &sum));
      DivideBy(count, &sum, 0, sum.num_elements());
    }
    return std::vector<Tensor>{std::move(sum)};
  }

 private:
  Tensor sum_ ABSL_GUARDED_BY(mu_);
};

class SparseAccumulator : public Accumulator {
 public:
  using Accumulator::Accumulator;
  bool sparse() const override { return true; }

 protected:
  Status Add(std::span<const Tensor* const> gradient, bool first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) override {
    const Tensor& indices = *gradient[0];
    const Tensor& values = *gradient[1];
    MR_RETURN_IF_ERROR(Check(indices, values, *gradient[2], first));
    const auto index = indices.flat<int64_t>();
    if (first) {
      indices_.assign(index.begin(), index.end());
      counts_.assign(index.size(), 1);
      return AssignValue(allocator_, values, &values_);
    }
    return Merge(index, values);
  }

  StatusOr<std::vector<Tensor>> TakeAverage(int64_t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) override {
    const auto rows = static_cast<int64_t>(indices_.size());
    Tensor values = std::exchange(values_, Tensor());
    if (options_.mean) {
      MR_RETURN_IF_ERROR(MakeExclusive(allocator_, &values));
      const int64_t row = rows == 0 ? 0 : values.num_elements() / rows;
      for (int64_t i = 0; i < rows; ++i) {
        if (counts_[i] > 1) DivideBy(counts_[i], &values, i * row, row);
      }
    }
    // Bounded: by the most axes that there are.
    Tensor shape(kInt64, Shape({values.rank()}));
    for (int i = 0; i < values.rank(); ++i) {
      const bool declared = options_.shape.has_rank() && i < options_.shape.rank();
      shape.data<int64_t>()[i] = i > 0 ? values.dim(i) : declared ? options_.shape.dim(0) : -1;
    }
    Tensor indices = Tensor::FromValues<int64_t>(std::span<const int64_t>(indices_), Shape({rows}));
    indices_.clear();
    counts_.clear();
    return std::vector<Tensor>{std::move(indices), std::move(values), std::move(shape)};
  }

 private:
  Status Check(const Tensor& indices, const Tensor& values, const Tensor& shape, bool first) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (values.dtype() != options_.dtype) {
      return errors::InvalidArgument("gradient must be of type ", DataTypeName(options_.dtype),
                                     ", got ", DataTypeName(values.dtype()));
    }
    if (indices.rank() != 1) {
      return errors::InvalidArgument("Input indices should be vector but received shape: ",
                                     indices.shape().DebugString());
    }
    if (values.rank() < 1) return errors::InvalidArgument("Values cannot be 0-dimensional.");
    if (values.dim(0) != indices.dim(0)) {
      return errors::InvalidArgument("Expected ", indices.dim(0), " non-empty input values, got ",
                                     values.dim(0));
    }
    MR_RETURN_IF_ERROR(CheckGiven(indices, values, shape));
    return first ? CheckDeclared(values) : CheckAlike(values);
  }

  static Status Mismatch(std::string_view what, int dim, int64_t want, int64_t got) {
    return errors::InvalidArgument("Shape mismatch: expected ", what, " dim ", dim, " to be ", want,
                                   ", got ", got);
  }

  // What the accumulator declares are the leading sizes: `shape`, if it is given, and the indices
  // have to fit them. A scalar declares nothing: SyncReplicasOptimizer makes its accumulators so.
  Status CheckGiven(const Tensor& indices, const Tensor& values, const Tensor& shape) const {
    const auto given = shape.flat<int64_t>();
    const auto rank = static_cast<int>(given.size());
    const int declared = options_.shape.has_rank() ? options_.shape.rank() : 0;
    if (rank > 0 && declared > rank) {
      return errors::InvalidArgument("Shape mismatch: expected shape rank at least ", declared,
                                     ", got ", rank);
    }
    for (int i = 0; rank > 0 && i < declared; ++i) {
      const int64_t want = options_.shape.dim(i);
      if (want >= 0 && want != given[i]) return Mismatch("shape", i, want, given[i]);
    }
    for (int i = 1; i < std::min(rank, values.rank()); ++i) {
      if (given[i] != values.dim(i)) return Mismatch("values", i, given[i], values.dim(i));
    }
    int64_t limit = declared > 0 ? options_.shape.dim(0) : -1;
    if (limit < 0 && rank > 0) limit = given[0];
    for (int64_t i = 0; i < indices.num_elements(); ++i) {
      const int64_t at = indices.data<int64_t>()[i];
      if (at >= 0 && (limit < 0 || at < limit)) continue;
      return errors::InvalidArgument("Shape mismatch: index of slice ", i,
                                     " exceeded limits of shape; index is ", at, " exceeded ",
                                     limit);
    }
    return OkStatus();
  }

  Status CheckDeclared(const Tensor& values) const {
    const int declared = options_.shape.has_rank() ? options_.shape.rank() : 0;
    if (declared > values.rank()) {
      return errors::InvalidArgument("Shape mismatch: expected values rank at least ", declared,
                                     ", got ", values.rank());
    }
    for (int i = 1; i < declared; ++i) {
      const int64_t want = options_.shape.dim(i);
      if (want >= 0 && want != values.dim(i)) return Mismatch("values", i, want, values.dim(i));
    }
    return OkStatus();
  }

  // As what has been accumulated already.
  Status CheckAlike(const Tensor& values) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (values.rank() != values_.rank()) {
      return errors::InvalidArgument("Shape mismatch: expected values rank ", values_.rank(),
                                     ", got ", values.rank());
    }
    for (int i = 1; i < values.rank(); ++i) {
      if (values.dim(i) != values_.dim(i)) {
        return Mismatch("values", i, values_.dim(i), values.dim(i));
      }
    }
    return OkStatus();
  }

  // Both lists of rows are ascending; equal ones are added.
  Status Merge(std::span<const int64_t> index, const Tensor& values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    struct Row {
      int64_t mine, theirs;  // -1: not there
    };
    std::vector<Row> plan;
    std::size_t a = 0, b = 0;
    while (a < indices_.size() || b < index.size()) {
      const bool from_a = b == index.size() || (a < indices_.size() && indices_[a] <= index[b]);
      const bool from_b = a == indices_.size() || (b < index.size() && index[b] <= indices_[a]);
      plan.push_back(
          {from_a ? static_cast<int64_t>(a) : -1, from_b ? static_cast<int64_t>(b) : -1});
      a += from_a;
      b += from_b;
    }
    Shape shape = values.shape();
    shape.SetDim(0, static_cast<int64_t>(plan.size()));
    MR_ASSIGN_OR_RETURN(Tensor merged, Tensor::Allocate(allocator_, options_.dtype, shape));
    const int64_t row = plan.empty() ? 0 : merged.num_elements() / shape.dim(0);
    const std::size_t bytes = static_cast<std::size_t>(row) * DataTypeSize(options_.dtype);
    std::vector<int64_t> new_indices, new_counts;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const Row& r = plan[i];
      const Tensor& base = r.mine >= 0 ? values_ : values;
      const int64_t from = r.mine >= 0 ? r.mine : r.theirs;
      if (bytes > 0) {
        std::memcpy(static_cast<char*>(merged.raw_data()) + i * bytes,
                    static_cast<const char*>(base.raw_data()) + from * bytes, bytes);
      }
      if (r.mine >= 0 && r.theirs >= 0) {
        AddTo(values, r.theirs * row, &merged, static_cast<int64_t>(i) * row, row);
      }
      new_indices.push_back(r.mine >= 0 ? indices_[r.mine] : index[r.theirs]);
      new_counts.push_back((r.mine >= 0 ? counts_[r.mine] : 0) + (r.theirs >= 0 ? 1 : 0));
    }
    indices_ = std::move(new_indices);
    counts_ = std::move(new_counts);
    values_ = std::move(merged);
    return OkStatus();
  }

  std::vector<int64_t> indices_ ABSL_GUARDED_BY(mu_), counts_ ABSL_GUARDED_BY(mu_);
  Tensor values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

RefPtr<Accumulator> NewDenseAccumulator(Accumulator::Options options, Allocator* allocator) {
  return MakeRef<DenseAccumulator>(std::move(options), allocator);
}

RefPtr<Accumulator> NewSparseAccumulator(Accumulator::Options options, Allocator* allocator) {
  return MakeRef<SparseAccumulator>(std::move(options), allocator);
}

}  // namespace millrace
