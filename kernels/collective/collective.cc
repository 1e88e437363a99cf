// SPDX-License-Identifier: Apache-2.0
// Tensors that the members of a group reduce, gather and hand to each other. What happens
// between the members is in collective/.
#include "kernels/collective/collective.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/collective/collective_kernel.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

bool IsOp(const KernelConstruction& c, std::string_view name) {
  return std::string_view(c.def().name()).starts_with(name);
}

}  // namespace

CollectiveKernel::CollectiveKernel(KernelConstruction& c)
    : Kernel(c),
      keys_are_inputs_(std::string_view(c.def().name()).ends_with("V2")),
      role_(IsOp(c, "CollectiveReduce")      ? Role::kReduce
            : IsOp(c, "CollectiveGather")    ? Role::kGather
            : IsOp(c, "CollectiveBcastSend") ? Role::kSend
                                             : Role::kReceive) {
  constant_.node = name();
  constant_.dtype = c.attr<DataType>("T");
  constant_.timeout_seconds = c.attr<float>("timeout_seconds");
  constant_.is_source = role_ == Role::kSend;
  constant_.anew_each_step = keys_are_inputs_;
  constant_.kind = role_ == Role::kReduce   ? CollectiveKind::kReduce
                   : role_ == Role::kGather ? CollectiveKind::kGather
                                            : CollectiveKind::kBroadcast;
  if (!keys_are_inputs_) ReadKeys(c);
  if (role_ == Role::kReduce) ReadReduction(c);
}

Status CollectiveKernel::Compute(KernelContext&) { return CompletesAsynchronously(def().name()); }

void CollectiveKernel::ComputeAsync(KernelContext& ctx, DoneCallback done) {
  CollectiveExecutor* const executor = ctx.env().collective;
  if (executor == nullptr) {
    return done(errors::Internal("Failed to get CollectiveExecutor from OpKernelContext for Op ",
                                 name(), ": collectives run in steps of a session"));
  }
  CollectiveParams params = constant_;
  Status status = keys_are_inputs_ ? TakeKeys(ctx, &params) : OkStatus();
  if (status.ok()) status = FindShape(ctx, &params);
  if (!status.ok()) {
    executor->Abort(status);  // the other members need not wait
    return done(std::move(status));
  }
  if (auto known = FindResolved(*executor, params)) {
    return Run(ctx, *executor, std::move(known), done);
  }
  executor->ResolveAsync(
      params, *ctx.device(),
      [this, &ctx, executor, done](StatusOr<std::shared_ptr<const ResolvedCollective>> resolved) {
        if (!resolved.ok()) return done(resolved.status());
        if (!keys_are_inputs_) {
          MutexLock lock(&mu_);
          resolved_ = *resolved;
        }
        Run(ctx, *executor, *std::move(resolved), done);
      });
}

void CollectiveKernel::ReadKeys(KernelConstruction& c) {
  constant_.group_size = static_cast<int32_t>(c.attr<int64_t>("group_size"));
  constant_.group_key = static_cast<int32_t>(c.attr<int64_t>("group_key"));
  constant_.instance_key = static_cast<int32_t>(c.attr<int64_t>("instance_key"));
  if (role_ == Role::kSend || role_ == Role::kReceive) {
    const std::optional<Shape> shape = c.attr<PartialShape>("shape").AsShape();
    if (!shape) {
      c.SetError(errors::InvalidArgument("a broadcast needs a shape that is fully defined"));
      return;
    }
    constant_.shape = *shape;
  }
}

void CollectiveKernel::ReadReduction(KernelConstruction& c) {
  const std::string merge = c.attr<std::string>("merge_op");
  constant_.merge = merge == "Add"   ? MergeOp::kAdd
                    : merge == "Mul" ? MergeOp::kMul
                    : merge == "Min" ? MergeOp::kMin
                                     : MergeOp::kMax;
  constant_.final = c.attr<std::string>("final_op") == "Div" ? FinalOp::kDiv : FinalOp::kId;
  if (keys_are_inputs_) {
    // All that are negative mean the same.
    constant_.max_subdivs_per_device =
        static_cast<int>(std::max<int64_t>(-1, c.attr<int64_t>("max_subdivs_per_device")));
    return;
  }
  constant_.in_rank_order = c.attrs().GetOr<bool>("_in_rank_order", false);
  for (const int64_t offset : c.attr<std::vector<int64_t>>("subdiv_offsets")) {
    constant_.subdiv_offsets.push_back(static_cast<int32_t>(offset));
  }
}

// Of a V2 op: "group_size", "group_key", "instance_key" follow the input, if there is one.
Status CollectiveKernel::TakeKeys(KernelContext& ctx, CollectiveParams* params) const {
  const int first = role_ == Role::kReceive ? 0 : 1;
  int32_t* const keys[] = {&params->group_size, &params->group_key, &params->instance_key};
  static constexpr const char* kNames[] = {"group_size", "group_key", "instance_key"};
  for (int i = 0; i < 3; ++i) {
    if (ctx.input(first + i).rank() != 0) {
      return errors::InvalidArgument("Unexpected dimensions on input ", kNames[i], ", got ",
                                     ctx.input(first + i).shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(const int64_t key, IntScalar(ctx.input(first + i), kNames[i]));
    *keys[i] = static_cast<int32_t>(key);
  }
  return OkStatus();
}

// Of the result.
Status CollectiveKernel::FindShape(KernelContext& ctx, CollectiveParams* params) const {
  if (role_ == Role::kReceive) {
    if (!keys_are_inputs_) return OkStatus();
    MR_ASSIGN_OR_RETURN(params->shape, ShapeFromTensor(ctx.input(3), "shape"));
    return OkStatus();
  }
  const Shape& in = ctx.input(0).shape();
  if (role_ == Role::kSend && !keys_are_inputs_ && in != params->shape) {
    return errors::Internal("Declared shape of op ", name(), ", ", params->shape.DebugString(),
                            ", does not match shape of input ", in.DebugString());
  }
  if (role_ != Role::kGather) {
    params->shape = in;
    return OkStatus();
  }
  if (in.rank() == 0) {
    return errors::InvalidArgument("input should have rank > 0, recieved ", in.DebugString());
  }
  if (params->group_size < 1) {
    return errors::InvalidArgument("group_size must be at least 1, got ", params->group_size);
  }
  if (in.dim(0) > INT64_MAX / params->group_size) {
    return errors::InvalidArgument("the parts of ", params->group_size,
                                   " members are too large together");
  }
  Dims dims(in.dims().begin(), in.dims().end());
  dims[0] *= params->group_size;
  MR_ASSIGN_OR_RETURN(params->shape, MakeShape(dims));
  return OkStatus();
}

std::shared_ptr<const ResolvedCollective> CollectiveKernel::FindResolved(
    const CollectiveExecutor& executor, const CollectiveParams& params) const {
  if (keys_are_inputs_) return nullptr;
  std::shared_ptr<const ResolvedCollective> known;
  {
    MutexLock lock(&mu_);
    known = resolved_;
  }
  if (known == nullptr || known->params.shape != params.shape || !executor.IsCurrent(*known)) {
    return nullptr;
  }
  return known;
}

void CollectiveKernel::Run(KernelContext& ctx, CollectiveExecutor& executor,
                           std::shared_ptr<const ResolvedCollective> resolved, DoneCallback done) {
  const CollectiveParams& params = resolved->params;
  const std::string key =
      StrCat(params.group_key, ":", params.instance_key, ":", ctx.frame_id(), ":", ctx.iteration());
  Exchange(ctx, executor, std::move(resolved), key, [this, done](const Status& status) {
    if (!status.ok()) {
      // The members compare notes again in the next step.
      MutexLock lock(&mu_);
      resolved_ = nullptr;
    }
    done(status);
  });
}

Tensor CollectiveKernel::Part(const KernelContext& ctx) const {
  return role_ == Role::kReceive ? Tensor() : ctx.locked_input(0);
}

StatusOr<Tensor*> CollectiveKernel::TakeOutput(KernelContext& ctx, const Shape& shape) const {
  if (role_ == Role::kReduce || role_ == Role::kSend) {
    return ctx.ForwardOrAllocateOutput({0}, 0, shape);
  }
  return ctx.AllocateOutput(0, shape);
}

namespace {

// Between values in host memory.
class HostCollective final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Exchange(KernelContext& ctx, CollectiveExecutor& executor,
                std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                std::function<void(const Status&)> done) override {
    const StatusOr<Tensor*> output = TakeOutput(ctx, resolved->params.shape);
    if (!output.ok()) {
      executor.Abort(output.status());
      return done(output.status());
    }
    executor.RunAsync(std::move(resolved), key, Part(ctx), **output, std::move(done));
  }
};

}  // namespace

void RegisterCollectiveKernels(KernelRegistry& r) {
  for (const char* op : {"CollectiveReduce", "CollectiveReduceV2", "CollectiveGather",
                         "CollectiveGatherV2", "CollectiveBcastSend", "CollectiveBcastSendV2",
                         "CollectiveBcastRecv", "CollectiveBcastRecvV2"}) {
    RegisterCpu<HostCollective>(r, op);
  }
}

}  // namespace millrace
