// SPDX-License-Identifier: Apache-2.0
// NCCL between GPUs, for collectives.
#ifndef KERNELS_CUDA_NCCL_LINK_H_
#define KERNELS_CUDA_NCCL_LINK_H_

#include <memory>

#include "device/cuda/driver/cuda_libraries.h"
#include "device/cuda/driver/cuda_machine.h"
#include "kernels/accelerator/collectives.h"

namespace millrace {

// A machine's end. How it works.
//
// All members must enqueue the same collectives of a communicator in the same order, which no
// executor promises. So each execution is agreed on first (CollectiveExecutor::AgreeAsync), when
// all members have their parts: the member of rank 0 says whether NCCL is used at all, in which
// communicator, and the number of the execution in it. Whoever hears it enqueues in the order of
// the numbers; as all parts are there, none waits for another collective. The first answer brings
// the unique id of a new communicator, which every member then joins.
//
// A machine is in one communicator at a time: kernels of two could wait for each other on two
// GPUs. Groups that come later take the way through host memory, as do groups with a member that
// has no NCCL, or two on one GPU.
//
// A communicator ends with the first error of an execution, and with every step that ends while
// something of it is under way: each member aborts its end, so that no kernel waits for ever, and
// tells rank 0 with its next words, which then makes a new one. The calls of NCCL are made by one
// thread at a time, which stays while something is under way and asks for errors that nobody
// else reports. Nothing of NCCL blocks (ncclConfig_t::blocking is 0).
using NcclSource = StatusOr<const NcclLibrary*> (*)();
std::shared_ptr<DeviceLink> NewNcclLink(CudaMachine* machine, NcclSource source = &GetNccl);

// That of the machine, for as long as somebody has it. An OpenLink.
std::shared_ptr<DeviceLink> OpenNcclLink(Accelerator* machine);

}  // namespace millrace

#endif  // KERNELS_CUDA_NCCL_LINK_H_
