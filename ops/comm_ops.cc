// SPDX-License-Identifier: Apache-2.0
// Collectives, and what the runtime itself adds to graphs: arguments, sends and receives.
#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// One part from each member.
Status CollectiveGatherShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRankAtLeast(0, 1));
  if (!in.has_rank()) return UnknownShape(c);
  Dims dims(in.dims().begin(), in.dims().end());
  const StatusOr<int64_t> size = c.attr<int64_t>("group_size");
  dims[0] =
      size.ok() && dims[0] >= 0 && *size > 0 && dims[0] <= INT64_MAX / *size ? dims[0] * *size : -1;
  c.set_output(0, PartialShape(dims));
  return OkStatus();
}

Status CollectiveBcastRecvV2Shape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(3));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"CollectiveBcastRecv", "", "data: T",
     "T: {bool, float, half, double, int32, int64}; group_size: int; group_key: int; "
     "instance_key: int; shape: shape; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0",
     ShapeFromAttr, kStateful | kDistributed},
    {"CollectiveBcastRecvV2",
     "group_size: int32, group_key: int32, instance_key: int32, shape: Tshape", "data: T",
     "T: {bool, float, half, double, int32, int64}; Tshape: {int32, int64} = int32; "
     "communication_hint: string = 'auto'; timeout_seconds: float = 0",
     CollectiveBcastRecvV2Shape, kStateful | kDistributed},
    {"CollectiveBcastSend", "input: T", "data: T",
     "T: {bool, float, half, double, int32, int64}; group_size: int; group_key: int; "
     "instance_key: int; shape: shape; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0",
     ShapeFromAttr, kStateful | kDistributed},
    {"CollectiveBcastSendV2", "input: T, group_size: int32, group_key: int32, instance_key: int32",
     "data: T",
     "T: {bool, float, half, double, int32, int64}; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0",
     UnchangedShape, kStateful | kDistributed},
    {"CollectiveGather", "input: T", "data: T",
     "T: {float, half, double, int32, int64}; group_size: int; group_key: int; "
     "instance_key: int; shape: shape; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0",
     CollectiveGatherShape, kStateful | kDistributed},
    {"CollectiveGatherV2",
     "input: T, group_size: int32, group_key: int32, instance_key: int32, "
     "ordering_token: Nordering_token * resource",
     "data: T",
     "T: {float, half, double, int32, int64}; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0; is_stateless: bool = false; Nordering_token: int >= 0 = 0",
     CollectiveGatherShape, kStateful | kDistributed},
    {"CollectiveReduce", "input: T", "data: T",
     "T: {bfloat16, float, half, double, int32, int64}; group_size: int; group_key: int; "
     "instance_key: int; merge_op: {'Min', 'Max', 'Mul', 'Add'}; final_op: {'Id', 'Div'}; "
     "subdiv_offsets: list(int); wait_for: list(int) = []; communication_hint: string = 'auto'; "
     "timeout_seconds: float = 0",
     UnchangedShape, kStateful | kDistributed},
    {"CollectiveReduceV2",
     "input: T, group_size: int32, group_key: int32, instance_key: int32, "
     "ordering_token: Nordering_token * resource",
     "data: T",
     "T: {bfloat16, float, half, double, int32, int64}; "
     "merge_op: {'Min', 'Max', 'Mul', 'Add'}; final_op: {'Id', 'Div'}; "
     "communication_hint: string = 'auto'; timeout_seconds: float = 0; "
     "is_stateless: bool = false; Nordering_token: int >= 0 = 0; "
     "max_subdivs_per_device: int = -1",
     UnchangedShape, kStateful | kDistributed},
    {"_Arg", "", "output: T", "T: type; index: int >= 0", UnknownShape, kStateful},
    {"_DeviceArg", "", "output: T", "T: type; index: int >= 0", UnknownShape, kStateful},
    {"_DeviceRetval", "input: T", "", "T: type; index: int >= 0", NoOutputs, kStateful},
    // Elementwise nodes that a rewrite put together: ops/fused_program.h says what a program is.
    // `nodes` are the names that the instructions had as nodes; `reduce`, unless empty, is the
    // reduction that the only output goes through, over `axes`.
    {"_Fused", "inputs: Tin", "outputs: Tout",
     "Tin: list(type) >= 1; Tout: list(type) >= 1; program: string; nodes: list(string) = []; "
     "reduce: string = ''; axes: list(int) = []; keep_dims: bool = false",
     UnknownShape},
    // A product with what a rewrite found behind it: a bias, and an activation or "".
    {"_FusedConv2D", "input: T, filter: T, bias: T", "output: T",
     "T: {half, bfloat16, float, double}; strides: list(int); use_cudnn_on_gpu: bool = true; "
     "padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; data_format: "
     "{'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1, 1, 1, 1]; activation: string = ''; "
     "nodes: list(string) = []",
     Conv2DShape},
    {"_FusedMatMul", "a: T, b: T, bias: T", "product: T",
     "transpose_a: bool = false; transpose_b: bool = false; T: {half, bfloat16, float, double}; "
     "activation: string = ''; nodes: list(string) = []; grad_a: bool = false; grad_b: bool = "
     "false",
     MatMulShape},
    {"_HostRecv", "", "tensor: tensor_type",
     "tensor_type: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     UnknownShape, kStateful | kDistributed},
    {"_HostSend", "tensor: T", "",
     "T: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     NoOutputs, kStateful},
    {"_Recv", "", "tensor: tensor_type",
     "tensor_type: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     UnknownShape, kStateful | kDistributed},
    {"_Retval", "input: T", "", "T: type; index: int >= 0", NoOutputs, kStateful},
    {"_Send", "tensor: T", "",
     "T: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     NoOutputs, kStateful},
};

}  // namespace

Status RegisterCommOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
