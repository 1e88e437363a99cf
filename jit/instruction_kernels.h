// SPDX-License-Identifier: Apache-2.0
// The kernels that the instructions of fused programs had as nodes: their loops serve the
// interpreter, and they themselves run where there is no loop over all.
#ifndef JIT_INSTRUCTION_KERNELS_H_
#define JIT_INSTRUCTION_KERNELS_H_

#include <memory>
#include <string_view>

#include "jit/fused_interpreter.h"
#include "kernels/kernel.h"
#include "millrace/status.h"
#include "ops/fused_program.h"

namespace millrace::jit {

// The attributes that the node had which the instruction was made of.
AttrMap AttrsOf(const FusedInstruction& instruction);

// Of the CPU. NotFound if the op has no kernel for these types.
StatusOr<std::unique_ptr<Kernel>> MakeInstructionKernel(const FusedInstruction& instruction,
                                                        std::string_view node_name, Device* device);

// The loop within such a kernel, of an op that is neither a choice nor a conversion.
StatusOr<InstructionLoop> FindKernelLoop(const FusedInstruction& instruction);

// The kernel of Sum, Mean, Max or Min for elements of `type` and axes of int64.
StatusOr<std::unique_ptr<Kernel>> MakeReductionKernel(std::string_view op, DataType type,
                                                      bool keep_dims, std::string_view node_name,
                                                      Device* device);

}  // namespace millrace::jit

#endif  // JIT_INSTRUCTION_KERNELS_H_
