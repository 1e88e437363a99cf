// SPDX-License-Identifier: Apache-2.0
// A fused program as LLVM's intermediate code.
#ifndef JIT_EMIT_IR_H_
#define JIT_EMIT_IR_H_

#include <llvm/IR/Module.h>
#include "jit/component_api.h"

namespace millrace::jit {

inline constexpr char kPlainName[] = "mr_fused", kStreamingName[] = "mr_fused_streaming";

// Adds both functions to `module`. `lanes` elements are worked on at once, a power of two;
// what is left of them one by one. No operation may be reordered, joined or approximated.
void EmitFused(const MrJitProgram& program, int lanes, llvm::Module* module);

}  // namespace millrace::jit

#endif  // JIT_EMIT_IR_H_
