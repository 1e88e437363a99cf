// SPDX-License-Identifier: Apache-2.0
// Barriers: elements whose components come one by one, by key, and are handed out when they
// are complete.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data_flow/queue.h"
#include "kernels/host_kernels.h"

namespace millrace {
namespace {

// Thread-safe; never blocks. Complete elements wait in a queue, the one whose key came first
// in front: (position, key, components).
class Barrier : public Resource {
 public:
  Barrier(std::string name, std::vector<DataType> types, std::vector<PartialShape> shapes)
      : name_(std::move(name)), types_(std::move(types)), shapes_(std::move(shapes)) {
    Queue::Options options;
    options.order = Queue::Order::kPriority;
    options.kind = "Barrier";
    options.name = name_;
    options.types = {kInt64, kString};
    options.types.insert(options.types.end(), types_.begin(), types_.end());
    ready_ = MakeRef<Queue>(std::move(options));
  }

  const std::string& name() const { return name_; }
  const std::vector<DataType>& types() const { return types_; }
  const std::vector<PartialShape>& shapes() const { return shapes_; }

  Status Insert(Allocator* allocator, int64_t component, const Tensor& keys, const Tensor& values) {
    MR_RETURN_IF_ERROR(CheckInsert(component, keys, values));
    std::vector<Queue::Element> complete;
    bool close = false;
    Status status;
    {
      MutexLock lock(&mu_);
      if (cancelled_) {
        return errors::Cancelled("Barrier ", name_, " is closed.  Pending enqueues cancelled: 1.  ",
                                 "Number of new insertions: ", NewKeys(keys),
                                 ".  Number of incomplete keys: ", incomplete_.size(), ".");
      }
      // All keys that one insertion brings have one place in the order.
      const std::size_t before = incomplete_.size() + complete.size();
      for (int64_t i = 0; status.ok() && i < keys.num_elements(); ++i) {
        status = InsertOne(allocator, component, keys.data<std::string>()[i], values, i, &complete);
      }
      if (incomplete_.size() + complete.size() != before) ++next_position_;
      close = closed_ && incomplete_.empty();
    }
    if (!complete.empty()) ready_->Enqueue(std::move(complete), nullptr, [](const Status&) {});
    if (close) ready_->Close(false);
    return status;
  }

  void Take(int64_t count, bool up_to, bool wait_for_incomplete, const Waiter& waiter,
            Queue::DequeueDone done) {
    bool closed;
    {
      MutexLock lock(&mu_);
      closed = closed_;
    }
    if (closed && up_to && !wait_for_incomplete) {
      if (const int64_t there = ready_->size(); there > 0) count = std::min(count, there);
    }
    ready_->Dequeue(count, up_to, waiter, std::move(done));
  }

  void Close(bool cancel_pending) {
    bool close;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      cancelled_ |= cancel_pending;
      if (cancel_pending) incomplete_.clear();
      close = incomplete_.empty();
    }
    if (close) ready_->Close(cancel_pending);
  }

  int64_t ready_size() const { return ready_->size(); }
  int64_t incomplete_size() const {
    MutexLock lock(&mu_);
    return static_cast<int64_t>(incomplete_.size());
  }
  std::string DebugString() const override {
    return StrCat("Barrier ", name_, ", ", ready_size(), " ready, ", incomplete_size(),
                  " incomplete");
  }
  void OnRemoved() override { ready_->OnRemoved(); }

 private:
  struct Incomplete {
    int64_t position;
    std::vector<Tensor> components;
    std::size_t missing;
  };

  Status CheckInsert(int64_t component, const Tensor& keys, const Tensor& values) const {
    if (component < 0 || component >= static_cast<int64_t>(types_.size())) {
      return errors::InvalidArgument("The component ID is out of range ", component, " > num_",
                                     "components (", types_.size(), ")");
    }
    if (values.dtype() != types_[component]) {
      return errors::InvalidArgument("component ", component, " is of type ",
                                     DataTypeName(types_[component]), ", not ",
                                     DataTypeName(values.dtype()));
    }
    if (keys.rank() != 1 || values.rank() < 1 || values.dim(0) != keys.dim(0)) {
      return errors::InvalidArgument("keys and values must have as many elements, got ",
                                     keys.shape().DebugString(), " and ",
                                     values.shape().DebugString());
    }
    if (keys.dim(0) > 0 && values.num_elements() == 0) {
      return errors::InvalidArgument("Tensors with no elements are not supported ", name_,
                                     ": received shape ", values.shape().DebugString());
    }
    const PartialShape element(values.shape().dims().subspan(1));
    if (!shapes_.empty() && !shapes_[component].IsCompatibleWith(element)) {
      return errors::InvalidArgument("Shape mismatch in tuple component ", component, ". Expected ",
                                     shapes_[component].DebugString(), ", got ",
                                     element.DebugString());
    }
    return OkStatus();
  }

  int64_t NewKeys(const Tensor& keys) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    int64_t count = 0;
    for (const std::string& key : keys.flat<std::string>()) count += !incomplete_.contains(key);
    return count;
  }

  Status InsertOne(Allocator* allocator, int64_t component, const std::string& key,
                   const Tensor& values, int64_t row, std::vector<Queue::Element>* complete)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto it = incomplete_.find(key);
    if (it == incomplete_.end()) {
      if (closed_) {
        return errors::Cancelled("Barrier ", name_, " is closed, but attempted to insert a brand ",
                                 "new key: ", key, ". Pending inserts and takes: ", ready_size());
      }
      it = incomplete_
               .try_emplace(key, Incomplete{next_position_, std::vector<Tensor>(types_.size()),
                                            types_.size()})
               .first;
    }
    Incomplete& element = it->second;
    if (element.components[component].IsInitialized()) {
      return errors::InvalidArgument("Key ", key, " already has a value for component ", component,
                                     " in barrier ", name_);
    }
    MR_ASSIGN_OR_RETURN(element.components[component], CopyOfRow(allocator, values, row));
    if (--element.missing > 0) return OkStatus();
    Queue::Element whole = {Tensor::Scalar<int64_t>(element.position), Tensor::String(key)};
    for (Tensor& t : element.components) whole.push_back(std::move(t));
    complete->push_back(std::move(whole));
    incomplete_.erase(it);
    return OkStatus();
  }

  const std::string name_;
  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
  RefPtr<Queue> ready_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;  // closed, and what was pending is given up
  int64_t next_position_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::min();
  StringMap<Incomplete> incomplete_ ABSL_GUARDED_BY(mu_);
};

class BarrierKernel : public HandleKernel<Barrier> {
 public:
  explicit BarrierKernel(KernelConstruction& c)
      : HandleKernel<Barrier>(c),
        types_(c.attr<std::vector<DataType>>("component_types")),
        shapes_(c.attr<std::vector<PartialShape>>("shapes")) {
    if (c.attr<int64_t>("capacity") != -1) {
      c.SetError(errors::InvalidArgument("Barrier only accepts capacity=-1.  Feed the ",
                                         "inputs to your Barrier through a queue to enforce a ",
                                         "limited capacity."));
    }
    if (!shapes_.empty() && shapes_.size() != types_.size()) {
      c.SetError(errors::InvalidArgument("All of the component shapes must be specified"));
    }
  }

 protected:
  StatusOr<RefPtr<Barrier>> Make() override {
    return MakeRef<Barrier>(resource_name(), types_, shapes_);
  }
  Status CheckSame(const Barrier& existing) const override {
    if (existing.types() != types_) {
      return errors::InvalidArgument("Shared barrier '", resource_name(), "' has component types ",
                                     Names(existing.types()), " but requested component types were",
                                     " ", Names(types_));
    }
    if (existing.shapes() != shapes_) {
      return errors::InvalidArgument("Shared barrier '", resource_name(), "' has component shapes ",
                                     Texts(existing.shapes()), " but requested component shapes ",
                                     "were ", Texts(shapes_));
    }
    return OkStatus();
  }

 private:
  static std::string Names(const std::vector<DataType>& types) {
    std::string text;
    for (const DataType type : types) {
      text = StrCat(text, text.empty() ? "" : ", ", DataTypeName(type));
    }
    return text;
  }
  static std::string Texts(const std::vector<PartialShape>& shapes) {
    std::string text;
    for (const PartialShape& shape : shapes) {
      text = StrCat(text, text.empty() ? "" : ", ", shape.DebugString());
    }
    return StrCat("[", text, "]");
  }

  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
};

class BarrierInsertKernel : public Kernel {
 public:
  explicit BarrierInsertKernel(KernelConstruction& c)
      : Kernel(c), component_(c.attr<int64_t>("component_index")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, LookupHandle<Barrier>(ctx, 0));
    return barrier->Insert(ctx.allocator(), component_, ctx.locked_input(1), ctx.locked_input(2));
  }

 private:
  const int64_t component_;
};

class BarrierTakeKernel : public Kernel {
 public:
  explicit BarrierTakeKernel(KernelConstruction& c)
      : Kernel(c),
        small_(c.attr<bool>("allow_small_batch")),
        wait_(c.attr<bool>("wait_for_incomplete")),
        types_(c.attr<std::vector<DataType>>("component_types")) {
    if (c.attr<int64_t>("timeout_ms") != -1) {
      c.SetError(errors::InvalidArgument("Timeout not supported yet."));
    }
  }
  bool IsAsync() const override { return true; }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<Barrier>> found = LookupHandle<Barrier>(ctx, 0);
    if (!found.ok()) return done(found.status());
    const StatusOr<int64_t> count = IntScalar(ctx.input(1), "num_elements");
    if (!count.ok()) return done(count.status());
    RefPtr<Barrier> barrier = *std::move(found);
    if (barrier->types() != types_) {
      return done(errors::InvalidArgument("the barrier's components have other types"));
    }
    if (*count < 0) {
      return done(errors::InvalidArgument("num_elements must not be negative, got ", *count));
    }
    Barrier* raw = barrier.get();
    raw->Take(*count, small_, wait_, Waiter(ctx),
              [&ctx, done, barrier = std::move(barrier)](Status status,
                                                         std::vector<Queue::Element> elements) {
                if (status.ok()) status = SetOutputs(ctx, *barrier, elements);
                done(std::move(status));
              });
  }

 private:
  static Status SetOutputs(KernelContext& ctx, const Barrier& barrier,
                           const std::vector<Queue::Element>& elements) {
    std::vector<Tensor> column(elements.size());
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      for (std::size_t k = 0; k < elements.size(); ++k) column[k] = elements[k][i];
      std::optional<Shape> shape;
      if (!column.empty()) {
        shape = column[0].shape();
      } else if (i >= 2 && !barrier.shapes().empty()) {
        shape = barrier.shapes()[i - 2].AsShape();
      }
      for (const Tensor& t : column) {
        if (t.shape() == *shape) continue;
        return errors::InvalidArgument("component ", i - 2,
                                       " has several shapes: ", shape->DebugString(), " and ",
                                       t.shape().DebugString());
      }
      const DataType dtype = i == 0 ? kInt64 : i == 1 ? kString : barrier.types()[i - 2];
      MR_ASSIGN_OR_RETURN(Tensor whole,
                          StackTensors(ctx.allocator(), dtype, shape.value_or(Shape()), column));
      ctx.SetOutput(i, std::move(whole));
    }
    return OkStatus();
  }

  const bool small_, wait_;
  const std::vector<DataType> types_;
};

class BarrierCloseKernel : public Kernel {
 public:
  explicit BarrierCloseKernel(KernelConstruction& c)
      : Kernel(c), cancel_(c.attr<bool>("cancel_pending_enqueues")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, LookupHandle<Barrier>(ctx, 0));
    barrier->Close(cancel_);
    return OkStatus();
  }

 private:
  const bool cancel_;
};

// BarrierReadySize and BarrierIncompleteSize.
class BarrierSizeKernel : public Kernel {
 public:
  explicit BarrierSizeKernel(KernelConstruction& c)
      : Kernel(c), ready_(c.def().name() == "BarrierReadySize") {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<Barrier> barrier, LookupHandle<Barrier>(ctx, 0));
    const int64_t size = ready_ ? barrier->ready_size() : barrier->incomplete_size();
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(size)));
    return OkStatus();
  }

 private:
  const bool ready_;
};

}  // namespace

void RegisterBarrierKernels(KernelRegistry& r) {
  RegisterCpu<BarrierKernel>(r, "Barrier");
  RegisterCpu<BarrierInsertKernel>(r, "BarrierInsertMany");
  RegisterCpu<BarrierTakeKernel>(r, "BarrierTakeMany");
  RegisterCpu<BarrierCloseKernel>(r, "BarrierClose");
  RegisterCpu<BarrierSizeKernel>(r, "BarrierReadySize");
  RegisterCpu<BarrierSizeKernel>(r, "BarrierIncompleteSize");
}

}  // namespace millrace
