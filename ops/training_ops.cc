// SPDX-License-Identifier: Apache-2.0
// The update rules of optimizers.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"ApplyAdaMax",
     "var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: T, "
     "grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyAdadelta",
     "var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyAdagrad", "var: Ref(T), accum: Ref(T), lr: T, grad: T", "out: Ref(T)",
     "T: numbers; use_locking: bool = false; update_slots: bool = true", UnchangedShape},
    {"ApplyAdagradDA",
     "var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T, "
     "lr: T, l1: T, l2: T, global_step: int64",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyAdagradV2", "var: Ref(T), accum: Ref(T), lr: T, epsilon: T, grad: T", "out: Ref(T)",
     "T: numbers; use_locking: bool = false; update_slots: bool = true", UnchangedShape},
    {"ApplyAdam",
     "var: Ref(T), m: Ref(T), v: Ref(T), beta1_power: T, beta2_power: T, lr: T, beta1: T, beta2: "
     "T, epsilon: T, grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false; use_nesterov: bool = false",
     UnchangedShape},
    {"ApplyCenteredRMSProp",
     "var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, "
     "grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyFtrl",
     "var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, lr_power: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false; multiply_linear_by_lr: bool = false",
     UnchangedShape},
    {"ApplyFtrlV2",
     "var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, lr: T, l1: T, l2: T, l2_shrinkage: T, "
     "lr_power: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false; multiply_linear_by_lr: bool = false",
     UnchangedShape},
    {"ApplyGradientDescent", "var: Ref(T), alpha: T, delta: T", "out: Ref(T)",
     "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyMomentum", "var: Ref(T), accum: Ref(T), lr: T, grad: T, momentum: T", "out: Ref(T)",
     "T: numbers; use_locking: bool = false; use_nesterov: bool = false", UnchangedShape},
    {"ApplyProximalAdagrad", "var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyProximalGradientDescent", "var: Ref(T), alpha: T, l1: T, l2: T, delta: T", "out: Ref(T)",
     "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ApplyRMSProp",
     "var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T",
     "out: Ref(T)", "T: numbers; use_locking: bool = false", UnchangedShape},
    {"ResourceApplyAdaMax",
     "var: resource, m: resource, v: resource, beta1_power: T, lr: T, beta1: T, beta2: T, epsilon: "
     "T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyAdadelta",
     "var: resource, accum: resource, accum_update: resource, lr: T, rho: T, epsilon: T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyAdagrad", "var: resource, accum: resource, lr: T, grad: T", "",
     "T: numbers; use_locking: bool = false; update_slots: bool = true", NoOutputs, kStateful},
    {"ResourceApplyAdagradDA",
     "var: resource, gradient_accumulator: resource, gradient_squared_accumulator: resource, grad: "
     "T, lr: T, l1: T, l2: T, global_step: int64",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyAdagradV2", "var: resource, accum: resource, lr: T, epsilon: T, grad: T", "",
     "T: numbers; use_locking: bool = false; update_slots: bool = true", NoOutputs, kStateful},
    {"ResourceApplyAdam",
     "var: resource, m: resource, v: resource, beta1_power: T, beta2_power: T, lr: T, beta1: T, "
     "beta2: T, epsilon: T, grad: T",
     "", "T: numbers; use_locking: bool = false; use_nesterov: bool = false", NoOutputs, kStateful},
    {"ResourceApplyAdamWithAmsgrad",
     "var: resource, m: resource, v: resource, vhat: resource, beta1_power: T, beta2_power: T, lr: "
     "T, beta1: T, beta2: T, epsilon: T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyCenteredRMSProp",
     "var: resource, mg: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, "
     "epsilon: T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyFtrl",
     "var: resource, accum: resource, linear: resource, grad: T, lr: T, l1: T, l2: T, lr_power: T",
     "", "T: numbers; use_locking: bool = false; multiply_linear_by_lr: bool = false", NoOutputs,
     kStateful},
    {"ResourceApplyFtrlV2",
     "var: resource, accum: resource, linear: resource, grad: T, lr: T, l1: T, l2: T, "
     "l2_shrinkage: T, lr_power: T",
     "", "T: numbers; use_locking: bool = false; multiply_linear_by_lr: bool = false", NoOutputs,
     kStateful},
    {"ResourceApplyGradientDescent", "var: resource, alpha: T, delta: T", "",
     "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyKerasMomentum", "var: resource, accum: resource, lr: T, grad: T, momentum: T",
     "", "T: numbers; use_locking: bool = false; use_nesterov: bool = false", NoOutputs, kStateful},
    {"ResourceApplyMomentum", "var: resource, accum: resource, lr: T, grad: T, momentum: T", "",
     "T: numbers; use_locking: bool = false; use_nesterov: bool = false", NoOutputs, kStateful},
    {"ResourceApplyProximalAdagrad", "var: resource, accum: resource, lr: T, l1: T, l2: T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyProximalGradientDescent", "var: resource, alpha: T, l1: T, l2: T, delta: T", "",
     "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceApplyRMSProp",
     "var: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, epsilon: T, grad: T",
     "", "T: numbers; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceSparseApplyAdagrad",
     "var: resource, accum: resource, lr: T, grad: T, indices: Tindices", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; update_slots: bool = true",
     NoOutputs, kStateful},
    {"ResourceSparseApplyAdagradDA",
     "var: resource, gradient_accumulator: resource, gradient_squared_accumulator: resource, grad: "
     "T, indices: Tindices, lr: T, l1: T, l2: T, global_step: int64",
     "", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceSparseApplyAdagradV2",
     "var: resource, accum: resource, lr: T, epsilon: T, grad: T, indices: Tindices", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; update_slots: bool = true",
     NoOutputs, kStateful},
    {"ResourceSparseApplyFtrl",
     "var: resource, accum: resource, linear: resource, grad: T, indices: Tindices, lr: T, l1: T, "
     "l2: T, lr_power: T",
     "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; multiply_linear_by_lr: bool "
     "= false",
     NoOutputs, kStateful},
    {"ResourceSparseApplyFtrlV2",
     "var: resource, accum: resource, linear: resource, grad: T, indices: Tindices, lr: T, l1: T, "
     "l2: T, l2_shrinkage: T, lr_power: T",
     "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; multiply_linear_by_lr: bool "
     "= false",
     NoOutputs, kStateful},
    {"ResourceSparseApplyKerasMomentum",
     "var: resource, accum: resource, lr: T, grad: T, indices: Tindices, momentum: T", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; use_nesterov: bool = false",
     NoOutputs, kStateful},
    {"ResourceSparseApplyMomentum",
     "var: resource, accum: resource, lr: T, grad: T, indices: Tindices, momentum: T", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; use_nesterov: bool = false",
     NoOutputs, kStateful},
    {"ResourceSparseApplyProximalAdagrad",
     "var: resource, accum: resource, lr: T, l1: T, l2: T, grad: T, indices: Tindices", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceSparseApplyProximalGradientDescent",
     "var: resource, alpha: T, l1: T, l2: T, grad: T, indices: Tindices", "",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    {"SparseApplyAdagrad", "var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices",
     "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; update_slots: bool = true",
     UnchangedShape},
    {"SparseApplyAdagradDA",
     "var: Ref(T), gradient_accumulator: Ref(T), gradient_squared_accumulator: Ref(T), grad: T, "
     "indices: Tindices, lr: T, l1: T, l2: T, global_step: int64",
     "out: Ref(T)", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false",
     UnchangedShape},
    {"SparseApplyFtrl",
     "var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T, "
     "lr_power: T",
     "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; multiply_linear_by_lr: bool "
     "= false",
     UnchangedShape},
    {"SparseApplyFtrlV2",
     "var: Ref(T), accum: Ref(T), linear: Ref(T), grad: T, indices: Tindices, lr: T, l1: T, l2: T, "
     "l2_shrinkage: T, lr_power: T",
     "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; multiply_linear_by_lr: bool "
     "= false",
     UnchangedShape},
    {"SparseApplyMomentum",
     "var: Ref(T), accum: Ref(T), lr: T, grad: T, indices: Tindices, momentum: T", "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; use_nesterov: bool = false",
     UnchangedShape},
    {"SparseApplyProximalAdagrad",
     "var: Ref(T), accum: Ref(T), lr: T, l1: T, l2: T, grad: T, indices: Tindices", "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"SparseApplyProximalGradientDescent",
     "var: Ref(T), alpha: T, l1: T, l2: T, grad: T, indices: Tindices", "out: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"SparseApplyRMSProp",
     "var: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, grad: T, "
     "indices: Tindices",
     "out: Ref(T)", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false",
     UnchangedShape},
    {"SparseApplyCenteredRMSProp",
     "var: Ref(T), mg: Ref(T), ms: Ref(T), mom: Ref(T), lr: T, rho: T, momentum: T, epsilon: T, "
     "grad: T, indices: Tindices",
     "out: Ref(T)", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false",
     UnchangedShape},
    {"SparseApplyAdadelta",
     "var: Ref(T), accum: Ref(T), accum_update: Ref(T), lr: T, rho: T, epsilon: T, grad: T, "
     "indices: Tindices",
     "out: Ref(T)", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false",
     UnchangedShape},
    {"ResourceSparseApplyRMSProp",
     "var: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, epsilon: T, grad: T, "
     "indices: Tindices",
     "", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceSparseApplyCenteredRMSProp",
     "var: resource, mg: resource, ms: resource, mom: resource, lr: T, rho: T, momentum: T, "
     "epsilon: T, grad: T, indices: Tindices",
     "", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    {"ResourceSparseApplyAdadelta",
     "var: resource, accum: resource, accum_update: resource, lr: T, rho: T, epsilon: T, grad: T, "
     "indices: Tindices",
     "", "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", NoOutputs, kStateful},
    // Turns of asynchronous workers (millrace/staleness_bound.h). Nodes wait for them.
    {"_StalenessCommit", "", "", "bound: int; shared_name: string; worker: string", NoOutputs,
     kStateful},
    {"_StalenessEnter", "", "", "bound: int; shared_name: string; worker: string", NoOutputs,
     kStateful},
    {"_StalenessFinish", "", "", "bound: int; shared_name: string; worker: string", NoOutputs,
     kStateful},
};

}  // namespace

Status RegisterTrainingOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
