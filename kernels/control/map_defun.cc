// SPDX-License-Identifier: Apache-2.0
// MapDefun: a function called once for each row of its arguments, the results as rows.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "kernels/common/element_copy.h"
#include "kernels/control/functional.h"
#include "kernels/function_runner.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// One execution. It ends when the last of its references is given back: each call of the function
// has one, and so has each thread that makes calls.
class RowCalls {
 public:
  RowCalls(KernelContext& ctx, const RunnableFunction& function, int num_args,
           std::vector<PartialShape> shapes, DoneCallback done)
      : ctx_(ctx),
        function_(function),
        num_args_(num_args),
        rows_(ctx.input(0).dim(0)),
        done_(done),
        shapes_(std::move(shapes)),
        outputs_(shapes_.size(), nullptr) {}

  // Outputs whose shape is known; others are made when the first row is there.
  Status AllocateOutputs() {
    MutexLock lock(&mu_);
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].IsFullyDefined()) {
        MR_RETURN_IF_ERROR(Allocate(i, Shape(shapes_[i].dims())));
      } else if (rows_ == 0) {
        return errors::Internal("Missing ", i, "-th output from ", ctx_.node_name(),
                                ": there is no row to tell its shape; set output_shapes");
      }
    }
    return OkStatus();
  }

  // Calls the function for all rows, in several threads; `this` is deleted in the end. A call does
  // not wait within its thread, so that rows may wait for each other.
  void Start() {
    ThreadPool* const pool = ctx_.env().inter_op_pool;
    const int64_t threads = std::clamp<int64_t>(pool == nullptr ? 1 : pool->num_threads(), 1,
                                                std::max<int64_t>(rows_, 1));
    references_.store(threads, std::memory_order_relaxed);
    for (int64_t i = 1; i < threads; ++i) {
      pool->Schedule([this] { CallRows(); });
    }
    CallRows();
  }

 private:
  struct Row {
    RowCalls* calls;
    int64_t number;
    std::vector<Tensor> args, results;
  };

  void CallRows() {
    while (!stopped_.load(std::memory_order_relaxed)) {
      const int64_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= rows_) break;
      CancellationManager* const cancellation = ctx_.cancellation();
      if (cancellation != nullptr && cancellation->IsCancelled()) {
        Stop(errors::Cancelled("the step was cancelled"));
        break;
      }
      auto row = std::make_unique<Row>();
      row->calls = this;
      row->number = number;
      Status status = SetArguments(row.get());
      if (!status.ok()) {
        Stop(std::move(status));
        break;
      }
      row->results.resize(function_.result_types().size());
      references_.fetch_add(1, std::memory_order_relaxed);
      Row* const called = row.release();
      ctx_.env().functions->RunAsync(function_, FunctionCall::In(ctx_.env(), ctx_.node_name()),
                                     called->args, called->results, {&EndRow, called});
    }
    Release();
  }

  Status SetArguments(Row* row) const {
    for (int i = 0; i < ctx_.num_inputs(); ++i) {
      if (i < num_args_) {
        MR_ASSIGN_OR_RETURN(Tensor arg, CopyOfRow(ctx_.allocator(), ctx_.input(i), row->number));
        row->args.push_back(std::move(arg));
      } else {
        row->args.push_back(ctx_.input(i));
      }
    }
    return OkStatus();
  }

  static void EndRow(void* arg, Status status) {
    const std::unique_ptr<Row> row(static_cast<Row*>(arg));
    RowCalls* const calls = row->calls;
    if (status.ok()) status = calls->Keep(*row);
    if (!status.ok()) calls->Stop(std::move(status));
    calls->Release();
  }

  // Copies the results to where they belong.
  Status Keep(const Row& row) {
    for (std::size_t i = 0; i < row.results.size(); ++i) {
      const Tensor& result = row.results[i];
      Tensor* output;
      {
        MutexLock lock(&mu_);
        if (!shapes_[i].IsCompatibleWith(result.shape())) {
          return errors::InvalidArgument(
              "Mismatch in function retval shape, ", result.shape().DebugString(),
              ", and expected output shape, ", shapes_[i].DebugString(), ".");
        }
        if (outputs_[i] == nullptr) {
          MR_RETURN_IF_ERROR(Allocate(i, result.shape()));
          shapes_[i] = result.shape();
        }
        output = outputs_[i];
      }
      const int64_t count = result.num_elements();
      CopyRange(result, 0, output, row.number * count, count);
    }
    return OkStatus();
  }

  Status Allocate(std::size_t i, Shape shape) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    shape.InsertDim(0, rows_);
    if (!shape.is_valid()) {
      return errors::InvalidArgument("output ", i, " of ", ctx_.node_name(), " would have shape ",
                                     shape.DebugString(), ", which is too large");
    }
    MR_ASSIGN_OR_RETURN(outputs_[i], ctx_.AllocateOutput(static_cast<int>(i), shape));
    return OkStatus();
  }

  // No more calls are begun. That others were ended by an error is not what went wrong.
  void Stop(Status status) {
    stopped_.store(true, std::memory_order_relaxed);
    MutexLock lock(&mu_);
    if (status_.ok() || (errors::IsCancelled(status_) && !errors::IsCancelled(status))) {
      status_ = std::move(status);
    }
  }

  void Release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    Status status;
    {
      MutexLock lock(&mu_);
      status = std::move(status_);
    }
    const DoneCallback done = done_;
    delete this;
    done(std::move(status));
  }

  KernelContext& ctx_;
  const RunnableFunction& function_;
  const int num_args_;
  const int64_t rows_;
  const DoneCallback done_;
  std::atomic<int64_t> next_{0}, references_{0};
  std::atomic<bool> stopped_{false};
  Mutex mu_;
  std::vector<PartialShape> shapes_ ABSL_GUARDED_BY(mu_);  // of a row of each output
  std::vector<Tensor*> outputs_ ABSL_GUARDED_BY(mu_);      // null: its shape is not known yet
  Status status_ ABSL_GUARDED_BY(mu_);
};

class MapDefunKernel final : public Kernel {
 public:
  explicit MapDefunKernel(KernelConstruction& c)
      : Kernel(c),
        num_args_(static_cast<int>(c.attr<std::vector<DataType>>("Targuments").size())),
        types_(c.output_types().begin(), c.output_types().end()),
        shapes_(c.attr<std::vector<PartialShape>>("output_shapes")),
        function_(c.attr<FunctionName>("f"), /*on_one_device=*/true) {
    if (shapes_.size() != types_.size()) {
      c.SetError(errors::InvalidArgument("Length of output_shapes and output_types must match."));
    }
  }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    Status fits = CheckArguments(ctx);
    if (!fits.ok()) return done(std::move(fits));
    const StatusOr<const RunnableFunction*> function = function_.Get(ctx);
    if (!function.ok()) return done(function.status());
    fits = CheckFunction(**function, ctx.num_inputs());
    if (!fits.ok()) return done(std::move(fits));
    auto calls = std::make_unique<RowCalls>(ctx, **function, num_args_, shapes_, done);
    Status allocated = calls->AllocateOutputs();
    if (!allocated.ok()) return done(std::move(allocated));
    calls.release()->Start();
  }

 private:
  Status CheckArguments(const KernelContext& ctx) const {
    for (int i = 0; i < num_args_; ++i) {
      const Shape& shape = ctx.input(i).shape();
      if (shape.rank() == 0) {
        return errors::InvalidArgument("All inputs must have rank at least 1. Input ", i,
                                       " has a rank of 0.");
      }
      if (shape.dim(0) != ctx.input(0).dim(0)) {
        return errors::InvalidArgument("All inputs must have the same dimension 0. Input ", i,
                                       " has leading dimension ", shape.dim(0),
                                       ", while all previous inputs have leading dimension ",
                                       ctx.input(0).dim(0));
      }
    }
    return OkStatus();
  }

  Status CheckFunction(const RunnableFunction& function, int num_inputs) const {
    if (static_cast<int>(function.arg_types().size()) != num_inputs) {
      return errors::InvalidArgument("Mismatch in number of function inputs. Function ",
                                     function.name(), " takes ", function.arg_types().size(),
                                     ", but is given ", num_inputs);
    }
    const std::vector<DataType>& given = function.result_types();
    if (given.size() != types_.size()) {
      return errors::InvalidArgument("Mismatch in number of function outputs. Function ",
                                     function.name(), " gives ", given.size(), ", but ", name(),
                                     " has ", types_.size());
    }
    const auto differ = std::mismatch(given.begin(), given.end(), types_.begin());
    if (differ.first == given.end()) return OkStatus();
    return errors::InvalidArgument(
        "Mismatch in function return type and expected output type for output: ",
        differ.first - given.begin(), ". Function ", function.name(), " gives ",
        DataTypeName(*differ.first), ", output_types has ", DataTypeName(*differ.second));
  }

  const int num_args_;
  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
  const LazyFunction function_;
};

}  // namespace

void RegisterMapDefunKernel(KernelRegistry& registry) {
  registry.Register(KernelDef("MapDefun"), MakeKernel<MapDefunKernel>);
}

}  // namespace millrace
