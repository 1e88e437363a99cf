// SPDX-License-Identifier: Apache-2.0
// Updates of variables, in place.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/scatter_call.h"
#include "kernels/state/variable_plan.h"
#include "kernels/training/update_call.h"

namespace millrace::gpu {
namespace {

// --- Whole -----------------------------------------------------------------------------------

class AssignAddBody final : public Body {
 public:
  explicit AssignAddBody(KernelConstruction& c)
      : name_(c.def().name()),
        op_(name_.starts_with("AssignAdd") ? BinaryOp::kAdd : BinaryOp::kSub) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &variable = call.variables[0].value, &value = call.inputs[1];
    MR_RETURN_IF_ERROR(call.variables[0].is_reference
                           ? CheckReferenceUpdate(name_, variable.shape(), value.shape())
                           : CheckVariableUpdate(variable.shape(), value.shape()));
    BinaryParams p;
    p.op = op_;
    p.type = variable.dtype();
    p.a = variable.raw_data();
    p.b = value.raw_data();
    p.out = variable.raw_data();
    p.n = variable.num_elements();
    return ToStatus(loops.Binary(queue, p));
  }

 private:
  const std::string name_;
  const BinaryOp op_;
};

struct RuleEntry {
  UpdateRule rule;
  int slots;
  std::span<const char* const> scalars;  // the names of the op's inputs of the element type
};
template <typename Rule>
RuleEntry Entry(UpdateRule rule) {
  const std::span<const char* const> scalars = Rule::kScalars;
  return {rule, Rule::kSlots, scalars.first(scalars.size() - (rules::kCountsSteps<Rule> ? 1 : 0))};
}

// By the names of the ops on handles; those on references have no "Resource" in front.
const StringMap<RuleEntry>& Rules() {
  static const auto* const rules = new StringMap<RuleEntry>{
      {"ResourceApplyGradientDescent", Entry<rules::GradientDescent>(UpdateRule::kGradientDescent)},
      {"ResourceApplyMomentum", Entry<rules::Momentum>(UpdateRule::kMomentum)},
      {"ResourceApplyKerasMomentum", Entry<rules::KerasMomentum>(UpdateRule::kKerasMomentum)},
      {"ResourceApplyAdagrad", Entry<rules::Adagrad>(UpdateRule::kAdagrad)},
      {"ResourceApplyAdagradV2", Entry<rules::AdagradV2>(UpdateRule::kAdagradV2)},
      {"ResourceApplyAdadelta", Entry<rules::Adadelta>(UpdateRule::kAdadelta)},
      {"ResourceApplyRMSProp", Entry<rules::RmsProp>(UpdateRule::kRmsProp)},
      {"ResourceApplyCenteredRMSProp", Entry<rules::CenteredRmsProp>(UpdateRule::kCenteredRmsProp)},
      {"ResourceApplyAdam", Entry<rules::Adam>(UpdateRule::kAdam)},
      {"ResourceApplyAdaMax", Entry<rules::AdaMax>(UpdateRule::kAdaMax)},
      {"ResourceApplyAdamWithAmsgrad", Entry<rules::AdamWithAmsgrad>(UpdateRule::kAmsgrad)},
      {"ResourceApplyFtrl", Entry<rules::Ftrl>(UpdateRule::kFtrl)},
      {"ResourceApplyFtrlV2", Entry<rules::FtrlV2>(UpdateRule::kFtrlV2)},
      {"ResourceApplyProximalGradientDescent",
       Entry<rules::ProximalGradientDescent>(UpdateRule::kProximalGradientDescent)},
      {"ResourceApplyProximalAdagrad", Entry<rules::ProximalAdagrad>(UpdateRule::kProximalAdagrad)},
      {"ResourceApplyAdagradDA", Entry<rules::AdagradDA>(UpdateRule::kAdagradDA)},
  };
  return *rules;
}

// Of the rows that an input "indices" names: ResourceSparseApplyX for these ResourceApplyX.
constexpr std::string_view kSparse[] = {
    "Momentum", "KerasMomentum",   "Adagrad", "AdagradV2",       "Adadelta",
    "RMSProp",  "CenteredRMSProp", "Ftrl",    "ProximalAdagrad", "ProximalGradientDescent",
    "AdagradDA"};

// These came after references did.
bool HasReferenceForm(std::string_view op) {
  return !op.ends_with("KerasMomentum") && !op.ends_with("Amsgrad") &&
         !op.ends_with("SparseApplyAdagradV2");
}

const RuleEntry& RuleOf(std::string_view op) {
  std::string dense(op);
  if (const auto at = dense.find("Sparse"); at != std::string::npos) dense.erase(at, 6);
  if (!dense.starts_with("Resource")) dense.insert(0, "Resource");
  return Rules().find(dense)->second;
}

class UpdateBody final : public Body {
 public:
  explicit UpdateBody(KernelConstruction& c)
      : rule_(RuleOf(c.def().name())),
        flags_(UpdateFlagsOf(c)),
        indices_(FindInput(c, "indices")),
        step_(FindInput(c, "global_step")),
        gradient_(FindGradient(c)) {
    for (const char* name : rule_.scalars) scalars_.push_back(FindInput(c, name));
    if (gradient_ < 0 || std::count(scalars_.begin(), scalars_.end(), -1) > 0) {
      c.SetError(errors::Internal(c.def().name(), " lacks an input of the rule"));
    }
  }
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return indices_ < 0 ? 0 : loops.scatter_scratch_bytes(call.inputs[indices_].num_elements());
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &var = call.variables[0].value, &gradient = call.inputs[gradient_];
    UpdateParams p;
    for (int i = 0; i < rule_.slots; ++i) {
      const Tensor& slot = call.variables[1 + i].value;
      MR_RETURN_IF_ERROR(CheckShape(var, slot));
      p.slots[i] = slot.raw_data();
    }
    if (indices_ < 0) {
      MR_RETURN_IF_ERROR(CheckShape(var, gradient));
    } else {
      MR_RETURN_IF_ERROR(TakeRows(call, var, gradient, &p));
    }
    for (std::size_t i = 0; i < scalars_.size(); ++i) {
      const Tensor& scalar = call.inputs[scalars_[i]];
      if (scalar.rank() != 0) {
        return errors::InvalidArgument(rule_.scalars[i],
                                       " is not a scalar: ", scalar.shape().DebugString());
      }
      p.scalars[i] = scalar.raw_data();
    }
    if (step_ >= 0) {
      const Tensor& step = call.inputs[step_];
      if (step.rank() != 0) {
        return errors::InvalidArgument("global_step is not a scalar: ", step.shape().DebugString());
      }
      p.step = static_cast<const int64_t*>(step.raw_data());
    }
    p.rule = rule_.rule;
    p.type = var.dtype();
    p.var = var.raw_data();
    p.gradient = gradient.raw_data();
    p.n = gradient.num_elements();
    p.flags = flags_;
    if (p.n == 0) return OkStatus();
    return ToStatus(indices_ < 0 ? loops.Update(queue, p) : loops.SparseUpdate(queue, p));
  }

 private:
  static Status CheckShape(const Tensor& var, const Tensor& other) {
    if (var.shape() == other.shape()) return OkStatus();
    return errors::InvalidArgument("var and its operands do not have the same shape",
                                   var.shape().DebugString(), " ", other.shape().DebugString());
  }

  Status TakeRows(const StreamCall& call, const Tensor& var, const Tensor& gradient,
                  UpdateParams* p) const {
    const Tensor& indices = call.inputs[indices_];
    MR_RETURN_IF_ERROR(CheckRowShapes(var, gradient, indices));
    p->index_type = indices.dtype();
    p->indices = indices.raw_data();
    p->count = indices.dim(0);
    p->rows = var.dim(0);
    for (int i = 1; i < var.rank(); ++i) p->inner *= var.dim(i);
    p->scratch = call.scratch.raw_data();
    p->scratch_bytes = call.scratch.num_elements();
    return OkStatus();
  }

  const RuleEntry& rule_;
  const rules::UpdateFlags flags_;
  const int indices_, step_, gradient_;  // -1 where there are none
  std::vector<int> scalars_;
};

// --- Rows ------------------------------------------------------------------------------------

class ResourceGatherBody final : public Body {
 public:
  explicit ResourceGatherBody(KernelConstruction& c)
      : batch_dims_(c.attrs().GetOr<int64_t>("batch_dims", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &params = call.variables[0].value, &indices = call.inputs[1];
    MR_ASSIGN_OR_RETURN(const GatherPlan plan,
                        PlanResourceGather(params.shape(), indices.shape(), batch_dims_));
    return GatherRows(loops, queue, params, indices, plan, call.outputs[0]);
  }

 private:
  const int64_t batch_dims_;
};

class ScatterBody final : public Body {
 public:
  explicit ScatterBody(KernelConstruction& c) : op_(ScatterOpOf(c.def().name())) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return loops.scatter_scratch_bytes(call.inputs[1].num_elements());
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &value = call.variables[0].value, &indices = call.inputs[1];
    const Tensor& updates = call.inputs[2];
    MR_RETURN_IF_ERROR(CheckRowScatter(value.shape(), indices.shape(), updates.shape()));
    if (value.num_elements() == 0) return OkStatus();
    return ScatterRows(call, loops, queue, op_, indices, 1, updates, value);
  }

 private:
  const ScatterOp op_;
};

class ScatterNdVariableBody final : public Body {
 public:
  explicit ScatterNdVariableBody(KernelConstruction& c) : op_(ScatterOpOf(c.def().name())) {}
  int64_t ScratchBytes(const StreamCall& call, const Loops& loops) const override {
    return ScatterNdScratchBytes(loops, call.inputs[1], call.inputs[2]);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &value = call.variables[0].value, &indices = call.inputs[1];
    const Tensor& updates = call.inputs[2];
    MR_ASSIGN_OR_RETURN(const int depth,
                        VariableSliceDepth(value.shape(), indices.shape(), updates.shape()));
    return ScatterRows(call, loops, queue, op_, indices, depth, updates, value);
  }

 private:
  const ScatterOp op_;
};

}  // namespace

// The ops on handles, and those on references as far as there are any.
void AddVariableBodies(std::vector<BodyDef>* bodies) {
  const std::vector<DataType> indices = {kInt32, kInt64};
  const std::vector<DataType> numbers = {kFloat, kDouble, kHalf, kBfloat16, kInt64, kInt32};
  for (const char* end : {"Add", "Sub"}) {
    bodies->push_back({StrCat("Assign", end, "VariableOp"),
                       {{"dtype", FloatAndInt64Types()}},
                       &MakeBody<AssignAddBody>});
    bodies->push_back(
        {StrCat("Assign", end), {{"T", FloatAndInt64Types()}}, &MakeBody<AssignAddBody>});
  }
  for (const auto& [name, rule] : Rules()) {
    bodies->push_back({name, {{"T", FloatTypes()}}, &MakeBody<UpdateBody>});
    if (HasReferenceForm(name)) {
      bodies->push_back({name.substr(std::string_view("Resource").size()),
                         {{"T", FloatTypes()}},
                         &MakeBody<UpdateBody>});
    }
  }
  for (const std::string_view name : kSparse) {
    for (const char* prefix : {"Resource", ""}) {
      const std::string op = StrCat(prefix, "SparseApply", name);
      if (*prefix == '\0' && !HasReferenceForm(op)) continue;
      bodies->push_back({op, {{"T", FloatTypes()}, {"Tindices", indices}}, &MakeBody<UpdateBody>});
    }
  }
  bodies->push_back({"ResourceGather",
                     {{"dtype", MovableTypes()}, {"Tindices", indices}},
                     &MakeBody<ResourceGatherBody>});
  for (const char* end : {"Add", "Sub", "Mul", "Div", "Min", "Max", "Update"}) {
    bodies->push_back({StrCat("ResourceScatter", end),
                       {{"dtype", numbers}, {"Tindices", indices}},
                       &MakeBody<ScatterBody>});
    bodies->push_back(
        {StrCat("Scatter", end), {{"T", numbers}, {"Tindices", indices}}, &MakeBody<ScatterBody>});
  }
  for (const char* prefix : {"Resource", ""}) {
    for (const char* end : {"Add", "Sub", "Update"}) {
      bodies->push_back({StrCat(prefix, "ScatterNd", end),
                         {{"T", numbers}, {"Tindices", indices}},
                         &MakeBody<ScatterNdVariableBody>});
    }
  }
}

}  // namespace millrace::gpu
