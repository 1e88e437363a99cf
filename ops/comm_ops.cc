#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"_Arg", "", "output: T", "T: type; index: int >= 0", nullptr, kStateful},
    {"_DeviceArg", "", "output: T", "T: type; index: int >= 0", nullptr, kStateful},
    {"_DeviceRetval", "input: T", "", "T: type; index: int >= 0", nullptr, kStateful},
    {"_HostRecv", "", "tensor: tensor_type",
     "tensor_type: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     nullptr, kStateful | kDistributed},
    {"_HostSend", "tensor: T", "",
     "T: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     nullptr, kStateful},
    {"_Recv", "", "tensor: tensor_type",
     "tensor_type: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     nullptr, kStateful | kDistributed},
    {"_Retval", "input: T", "", "T: type; index: int >= 0", nullptr, kStateful},
    {"_Send", "tensor: T", "",
     "T: type; tensor_name: string; send_device: string; send_device_incarnation: int; "
     "recv_device: string; client_terminated: bool = false",
     nullptr, kStateful},
};

}  // namespace

Status RegisterCommOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
