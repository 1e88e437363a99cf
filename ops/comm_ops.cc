// What the runtime itself adds to graphs: arguments, sends and receives.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"_Arg", "", "output: T", "T: type; index: int >= 0", UnknownShape, kStateful},
    {"_DeviceArg", "", "output: T", "T: type; index: int >= 0", UnknownShape, kStateful},
    {"_DeviceRetval", "input: T", "", "T: type; index: int >= 0", NoOutputs, kStateful},
    // Elementwise nodes that a rewrite put together: ops/fused_program.h says what a program is.
    // `nodes` are the names that the instructions had as nodes.
    {"_Fused", "inputs: Tin", "outputs: Tout",
     "Tin: list(type) >= 1; Tout: list(type) >= 1; program: string; nodes: list(string) = []",
     UnknownShape},
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
