// SPDX-License-Identifier: Apache-2.0
// The ops on queues, in both forms: handles as resources (V2) and as references to strings.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/data_flow/queue.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/state/counted_update.h"
#include "kernels/state/variable.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

template <Queue::Order kOrder>
class QueueKernel : public HandleKernel<Queue> {
 public:
  explicit QueueKernel(KernelConstruction& c) : HandleKernel<Queue>(c) {
    options_.order = kOrder;
    options_.kind = c.def().name();
    if (options_.kind.ends_with("V2")) options_.kind.resize(options_.kind.size() - 2);
    options_.name = resource_name();
    options_.types = c.attr<std::vector<DataType>>("component_types");
    options_.shapes = c.attr<std::vector<PartialShape>>("shapes");
    options_.capacity = c.attr<int64_t>("capacity");
    options_.min_after_dequeue = c.attrs().GetOr<int64_t>("min_after_dequeue", 0);
    options_.seed = c.attrs().GetOr<int64_t>("seed", 0);
    options_.seed2 = c.attrs().GetOr<int64_t>("seed2", 0);
    if (kOrder == Queue::Order::kPriority) {  // the priority is not declared
      options_.types.insert(options_.types.begin(), kInt64);
      options_.shapes.insert(options_.shapes.begin(), PartialShape({}));
    }
    if (!options_.shapes.empty() && options_.shapes.size() != options_.types.size()) {
      c.SetError(
          errors::InvalidArgument("component_types and shapes must have as many entries, "
                                  "got ",
                                  options_.types.size(), " and ", options_.shapes.size()));
    }
    for (const PartialShape& shape : options_.shapes) {
      if (!shape.has_rank() || (kOrder != Queue::Order::kPadding && !shape.IsFullyDefined())) {
        c.SetError(
            errors::InvalidArgument("shapes must be fully defined, got ", shape.DebugString()));
      }
    }
    if (kOrder == Queue::Order::kPadding && options_.shapes.empty()) {
      c.SetError(errors::InvalidArgument("a padding queue needs the shapes of its components"));
    }
  }

 protected:
  StatusOr<RefPtr<Queue>> Make() override { return MakeRef<Queue>(options_); }

  Status CheckSame(const Queue& existing) const override {
    const Queue::Options& o = existing.options();
    const char* differs = o.order != options_.order         ? "order"
                          : o.capacity != options_.capacity ? "capacity"
                          : o.types != options_.types       ? "component types"
                          : !(o.shapes == options_.shapes)  ? "component shapes"
                                                            : nullptr;
    if (differs == nullptr) return OkStatus();
    return errors::InvalidArgument("Shared queue '", resource_name(), "' exists with other ",
                                   differs);
  }

 private:
  Queue::Options options_;
};

// Base of the ops that may have to wait.
class AsyncQueueKernel : public Kernel {
 public:
  explicit AsyncQueueKernel(KernelConstruction& c)
      : Kernel(c), ledger_(UpdateLedger::Of(c.device()->resource_manager())) {
    if (c.attr<int64_t>("timeout_ms") != -1) {
      c.SetError(errors::InvalidArgument("Timeout not supported yet."));
    }
  }
  bool IsAsync() const override { return true; }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }

 protected:
  // SyncReplicasOptimizer's queue, which every worker of a synchronous job knows by this name.
  static bool IsOfTokens(const Queue& queue) {
    return queue.options().name.ends_with("sync_token_q");
  }
  void CountTokens(const KernelContext& ctx, const Queue& queue, int64_t handed_out,
                   int64_t taken) const {
    UpdateLedger::Entry* const entry = ledger_->Find(LedgerKind::kTokens, queue.options().name);
    ledger_->CountTokens(entry, OriginOf(ctx), handed_out, taken);
  }

 private:
  const RefPtr<UpdateLedger> ledger_;
};

class EnqueueKernel : public AsyncQueueKernel {
 public:
  explicit EnqueueKernel(KernelConstruction& c)
      : AsyncQueueKernel(c), many_(c.def().name().starts_with("QueueEnqueueMany")) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<Queue>> queue = LookupHandle<Queue>(ctx, 0);
    if (!queue.ok()) return done(queue.status());
    Queue::Element components;
    for (int i = 1; i < ctx.num_inputs(); ++i) components.push_back(ctx.locked_input(i));
    std::vector<Queue::Element> elements;
    if (many_) {
      if (Status s = (*queue)->CheckBatch(components); !s.ok()) return done(std::move(s));
      StatusOr<std::vector<Queue::Element>> split = Split(ctx, components);
      if (!split.ok()) return done(split.status());
      elements = *std::move(split);
    } else {
      if (Status s = (*queue)->CheckElement(components); !s.ok()) return done(std::move(s));
      elements.push_back(std::move(components));
    }
    if (!IsOfTokens(**queue)) {
      return (*queue)->Enqueue(std::move(elements), Waiter(ctx), done);
    }
    const auto count = static_cast<int64_t>(elements.size());
    (*queue)->Enqueue(std::move(elements), Waiter(ctx),
                      [this, &ctx, done, count, queue = *queue](Status status) {
                        if (status.ok()) CountTokens(ctx, *queue, count, 0);
                        done(std::move(status));
                      });
  }

 private:
  static bool HoldsNothing(const Queue::Element& batch) {
    return std::all_of(batch.begin(), batch.end(),
                       [](const Tensor& t) { return t.num_elements() == 0; });
  }
  // Elements of their own: one must not keep the whole batch in memory.
  static StatusOr<std::vector<Queue::Element>> Split(KernelContext& ctx,
                                                     const Queue::Element& batch) {
    // Each takes memory of its own, also where it holds nothing.
    constexpr int64_t kMostEmpty = int64_t{1} << 24;
    if (batch[0].dim(0) > kMostEmpty && HoldsNothing(batch)) {
      return errors::ResourceExhausted("a batch of ", batch[0].dim(0),
                                       " elements without values; at most ", kMostEmpty,
                                       " are possible");
    }
    std::vector<Queue::Element> elements(static_cast<std::size_t>(batch[0].dim(0)));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      for (const Tensor& component : batch) {
        const auto at = static_cast<int64_t>(i);
        MR_ASSIGN_OR_RETURN(
            Tensor copy,
            ctx.AllocateTemp(component.dtype(), Shape(component.shape().dims().subspan(1))));
        CopyElements(component.Slice(at, at + 1), &copy);
        elements[i].push_back(std::move(copy));
      }
    }
    return elements;
  }

  const bool many_;
};

// One output of a dequeue of several: component `index` of all elements, one above the other.
// Where an element is smaller than the output (padding queues), the rest stays zero.
class Stacker {
 public:
  Stacker(const Shape& element, Tensor* out) : element_(element), out_(out) {}

  void Add(int64_t row, const Tensor& from) {
    if (from.num_elements() == 0) return;
    Copy(0, row * element_.num_elements(), 0, from);
  }

 private:
  // Copies the part below the first `axis` axes, recursively down to whole runs.
  void Copy(int axis, int64_t to, int64_t at, const Tensor& from) {
    int64_t out_stride = 1, in_stride = 1;
    for (int i = axis + 1; i < element_.rank(); ++i) {
      out_stride *= element_.dim(i);
      in_stride *= from.dim(i);
    }
    if (axis >= element_.rank() - 1 || out_stride == in_stride) {
      const int64_t n = element_.rank() == 0 ? 1 : from.dim(axis) * in_stride;
      return CopyRange(from, at, out_, to, n);
    }
    for (int64_t i = 0; i < from.dim(axis); ++i) {
      Copy(axis + 1, to + i * out_stride, at + i * in_stride, from);
    }
  }

  const Shape& element_;
  Tensor* const out_;
};

class DequeueKernel : public AsyncQueueKernel {
 public:
  explicit DequeueKernel(KernelConstruction& c)
      : AsyncQueueKernel(c),
        one_(c.def().name() == "QueueDequeue" || c.def().name() == "QueueDequeueV2"),
        up_to_(c.def().name().starts_with("QueueDequeueUpTo")),
        types_(c.output_types().begin(), c.output_types().end()) {}

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<Queue>> found = LookupHandle<Queue>(ctx, 0);
    if (!found.ok()) return done(found.status());
    RefPtr<Queue> queue = *std::move(found);
    if (queue->options().types != types_) {
      return done(errors::InvalidArgument("the outputs of ", name(),
                                          " do not have the types of the queue's components"));
    }
    int64_t count = 1;
    if (!one_) {
      const Tensor& n = ctx.input(1);
      if (n.num_elements() != 1) {
        return done(errors::InvalidArgument("n must be a scalar, got ", n.shape().DebugString()));
      }
      count = n.scalar<int32_t>();
      if (count < 0) {
        return done(errors::InvalidArgument(def().name(), " '", name(), "' requested ", count,
                                            " < 0 elements"));
      }
      if (queue->options().shapes.empty()) {
        return done(errors::InvalidArgument(queue->options().kind,
                                            "'s DequeueMany and DequeueUpTo require the components "
                                            "to have specified shapes."));
      }
    }
    Queue* raw = queue.get();
    raw->Dequeue(count, up_to_, Waiter(ctx),
                 [this, &ctx, done, queue = std::move(queue)](
                     Status status, std::vector<Queue::Element> elements) {
                   if (status.ok() && IsOfTokens(*queue)) {
                     CountTokens(ctx, *queue, 0, static_cast<int64_t>(elements.size()));
                   }
                   if (status.ok()) status = SetOutputs(ctx, queue->options(), &elements);
                   done(std::move(status));
                 });
  }

 private:
  Status SetOutputs(KernelContext& ctx, const Queue::Options& options,
                    std::vector<Queue::Element>* elements) const {
    if (one_) {
      Queue::Element& element = elements->front();
      for (int i = 0; i < num_outputs(); ++i) ctx.SetOutput(i, std::move(element[i]));
      return OkStatus();
    }
    for (int i = 0; i < num_outputs(); ++i) {
      MR_RETURN_IF_ERROR(Stack(ctx, options.shapes[i], *elements, i));
    }
    return OkStatus();
  }

  static Status Stack(KernelContext& ctx, const PartialShape& declared,
                      const std::vector<Queue::Element>& elements, int i) {
    Shape element;  // the largest size of each axis
    for (int axis = 0; axis < declared.rank(); ++axis) {
      int64_t size = std::max<int64_t>(0, declared.dim(axis));
      for (const Queue::Element& e : elements) size = std::max(size, e[i].dim(axis));
      element.AddDim(size);
    }
    Shape batch = element;
    batch.InsertDim(0, static_cast<int64_t>(elements.size()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, batch));
    if (!declared.IsFullyDefined() && IsMemcpyable(out->dtype()) && out->num_elements() > 0) {
      std::memset(out->raw_data(), 0, out->num_bytes());
    }
    Stacker stacker(element, out);
    for (std::size_t row = 0; row < elements.size(); ++row) {
      stacker.Add(static_cast<int64_t>(row), elements[row][i]);
    }
    return OkStatus();
  }

  const bool one_, up_to_;
  const std::vector<DataType> types_;
};

class QueueCloseKernel : public Kernel {
 public:
  explicit QueueCloseKernel(KernelConstruction& c)
      : Kernel(c), cancel_(c.attr<bool>("cancel_pending_enqueues")) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, LookupHandle<Queue>(ctx, 0));
    queue->Close(cancel_);
    return OkStatus();
  }

 private:
  const bool cancel_;
};

class QueueSizeKernel : public Kernel {
 public:
  explicit QueueSizeKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, LookupHandle<Queue>(ctx, 0));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<int32_t>()[0] = static_cast<int32_t>(queue->size());
    return OkStatus();
  }
};

class QueueIsClosedKernel : public Kernel {
 public:
  explicit QueueIsClosedKernel(KernelConstruction& c) : Kernel(c) {}
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, LookupHandle<Queue>(ctx, 0));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<bool>()[0] = queue->closed();
    return OkStatus();
  }
};

}  // namespace

void RegisterQueueKernels(KernelRegistry& registry) {
  for (const char* version : {"", "V2"}) {
    const auto add = [&](const char* op, KernelFactory factory) {
      registry.Register(KernelDef(StrCat(op, version)), factory);
    };
    add("FIFOQueue", MakeKernel<QueueKernel<Queue::Order::kFifo>>);
    add("PaddingFIFOQueue", MakeKernel<QueueKernel<Queue::Order::kPadding>>);
    add("RandomShuffleQueue", MakeKernel<QueueKernel<Queue::Order::kRandom>>);
    add("PriorityQueue", MakeKernel<QueueKernel<Queue::Order::kPriority>>);
    add("QueueEnqueue", MakeKernel<EnqueueKernel>);
    add("QueueEnqueueMany", MakeKernel<EnqueueKernel>);
    add("QueueDequeue", MakeKernel<DequeueKernel>);
    add("QueueDequeueMany", MakeKernel<DequeueKernel>);
    add("QueueDequeueUpTo", MakeKernel<DequeueKernel>);
    add("QueueClose", MakeKernel<QueueCloseKernel>);
    add("QueueSize", MakeKernel<QueueSizeKernel>);
  }
  registry.Register(KernelDef("QueueIsClosed"), MakeKernel<QueueIsClosedKernel>);
  registry.Register(KernelDef("QueueIsClosedV2"), MakeKernel<QueueIsClosedKernel>);
}

}  // namespace millrace
