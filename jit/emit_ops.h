// SPDX-License-Identifier: Apache-2.0
// What each op of a fused program computes, as LLVM's intermediate code: the one place that says it
// for all targets. Loops around it are those of a CPU (emit_ir.h) or of a grid of threads
// (emit_grid.h).
#ifndef JIT_EMIT_OPS_H_
#define JIT_EMIT_OPS_H_

#include <cstdint>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include "jit/component_api.h"
#include "ops/fused_op.h"

namespace millrace::jit {

// Who computes exp, log, tanh and sigmoid of doubles.
enum class DoubleFunctions {
  kLibrary,  // the C library, as in the kernels
  kOwn,      // emit_double_math.h; of one lane
};

// The result of one instruction for `lanes` elements (1: plain scalars), where the builder stands.
// No operation is reordered, joined or approximated: every target that rounds each of them as IEEE
// 754 asks gives the same bits. Operands and results are of ComputeType: results of 16-bit types
// are rounded to them where the op's own kernel rounds.
llvm::Value* EmitInstruction(llvm::IRBuilder<>& builder, int lanes, const MrJitInstruction& in,
                             const std::vector<llvm::Value*>& args, DoubleFunctions functions);

}  // namespace millrace::jit

#endif  // JIT_EMIT_OPS_H_
