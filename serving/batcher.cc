// SPDX-License-Identifier: Apache-2.0
#include "serving/batcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// The rows that all tensors have; 0 if there are no tensors or they do not agree.
int64_t RowsOf(std::span<const Tensor> tensors) {
  int64_t rows = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.rank() == 0 || (rows != 0 && tensor.dim(0) != rows)) return 0;
    rows = tensor.dim(0);
  }
  return rows;
}

// Alike but for the number of rows.
bool FitTogether(std::span<const Tensor> a, std::span<const Tensor> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.dtype() == y.dtype() && x.rank() == y.rank() &&
           std::equal(x.shape().dims().begin() + 1, x.shape().dims().end(),
                      y.shape().dims().begin() + 1);
  });
}

// Copies the rows of `from` to those of `to` that begin with `row`.
void PutRows(const Tensor& from, int64_t row, Tensor* to) {
  if (from.num_elements() == 0) return;
  const int64_t first = row * (from.num_elements() / from.dim(0));
  if (from.dtype() == kString) {
    const auto texts = from.flat<std::string>();
    std::copy(texts.begin(), texts.end(), to->flat<std::string>().begin() + first);
  } else {
    std::memcpy(static_cast<char*>(to->raw_data()) +
                    static_cast<std::size_t>(first) * DataTypeSize(from.dtype()),
                from.raw_data(), from.num_bytes());
  }
}

bool CanJoin(const Tensor& tensor) {
  return tensor.dtype() == kString || IsMemcpyable(tensor.dtype());
}

}  // namespace

Batcher::Batcher(Step step, bool joins, const BatchingOptions& options, ThreadPool* pool)
    : step_(std::move(step)), joins_(joins), options_(options), pool_(pool) {}

Batcher::~Batcher() {
  MutexLock lock(&mu_);
  while (working_ > 0) idle_.Wait(&mu_);
}

void Batcher::Submit(std::vector<Tensor> inputs, Deadline deadline, Done done) {
  const bool joins = joins_ && std::all_of(inputs.begin(), inputs.end(), CanJoin);
  const int64_t rows = joins ? RowsOf(inputs) : 0;
  {
    MutexLock lock(&mu_);
    const bool is_full = static_cast<int64_t>(waiting_.size()) >= options_.max_waiting;
    if (!is_full) {
      waiting_.push_back({std::move(inputs), rows, deadline, std::exchange(done, nullptr)});
      if (working_ >= std::max(1, options_.steps_at_once)) return;
      ++working_;
    }
  }
  if (done == nullptr) return pool_->Schedule([this] { Work(); });
  done(errors::ResourceExhausted("the model is asked more than it can answer: ",
                                 options_.max_waiting, " calls are waiting"),
       {});
}

void Batcher::Work() {
  for (;;) {
    std::vector<Call> batch = TakeBatch();
    if (batch.empty()) return;
    Run(&batch);
  }
}

std::vector<Batcher::Call> Batcher::TakeBatch() {
  MutexLock lock(&mu_);
  std::vector<Call> batch;
  int64_t rows = 0;
  while (!waiting_.empty()) {
    Call& next = waiting_.front();
    if (!batch.empty() && (next.rows == 0 || rows + next.rows > options_.max_rows ||
                           !FitTogether(batch[0].inputs, next.inputs))) {
      break;
    }
    rows += next.rows;
    batch.push_back(std::move(next));
    waiting_.pop_front();
    if (batch[0].rows == 0) break;
  }
  if (batch.empty() && --working_ == 0) idle_.SignalAll();
  return batch;
}

void Batcher::Run(std::vector<Call>* batch) {
  const auto late = std::stable_partition(batch->begin(), batch->end(), [](const Call& call) {
    return SteadyClock::now() < call.deadline;
  });
  for (auto call = late; call != batch->end(); ++call) {
    call->done(errors::DeadlineExceeded("the call waited for the model beyond its deadline"), {});
  }
  batch->erase(late, batch->end());
  if (batch->size() > 1 && RunJoined(batch)) return;
  for (Call& call : *batch) RunAlone(&call);
}

void Batcher::RunAlone(Call* call) {
  std::vector<Tensor> outputs;
  const Status status = step_(call->inputs, &outputs);
  call->done(status, std::move(outputs));
}

bool Batcher::RunJoined(std::vector<Call>* batch) {
  int64_t rows = 0;
  for (const Call& call : *batch) rows += call.rows;
  std::vector<Tensor> inputs, outputs;
  for (std::size_t i = 0; i < batch->front().inputs.size(); ++i) {
    Shape shape = batch->front().inputs[i].shape();
    shape.SetDim(0, rows);
    StatusOr<Tensor> joined = Tensor::Allocate(batch->front().inputs[i].dtype(), shape);
    if (!joined.ok()) return false;
    int64_t row = 0;
    for (const Call& call : *batch) {
      PutRows(call.inputs[i], row, &*joined);
      row += call.rows;
    }
    inputs.push_back(*std::move(joined));
  }
  if (!step_(inputs, &outputs).ok() || RowsOf(outputs) != rows) return false;
  int64_t row = 0;
  for (Call& call : *batch) {
    std::vector<Tensor> part;
    for (const Tensor& output : outputs) part.push_back(output.Slice(row, row + call.rows));
    row += call.rows;
    call.done(OkStatus(), std::move(part));
  }
  return true;
}

}  // namespace millrace
