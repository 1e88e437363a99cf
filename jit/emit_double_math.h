// SPDX-License-Identifier: Apache-2.0
// exp, log, tanh and the logistic function of doubles where there is no C library: the code of
// grids. Range reduction and polynomials, without branches, tables or calls; products and sums are
// joined (fma) only here and only where this says so, so that all targets give the same bits.
//
// Bounds in units in the last place, which grid_math_test holds against the C library's functions
// of long double: exp 0.7, log 0.8, tanh 1.5, sigmoid 2.5, and 1 where the result of exp is
// denormal. Infinities, NaN, zeros and denormals go where they should.
#ifndef JIT_EMIT_DOUBLE_MATH_H_
#define JIT_EMIT_DOUBLE_MATH_H_

#include <llvm/IR/IRBuilder.h>

namespace millrace::jit {

// Of one double, where the builder stands.
llvm::Value* EmitDoubleExp(llvm::IRBuilder<>& builder, llvm::Value* x);
llvm::Value* EmitDoubleLog(llvm::IRBuilder<>& builder, llvm::Value* x);
llvm::Value* EmitDoubleTanh(llvm::IRBuilder<>& builder, llvm::Value* x);
// 1 / (1 + e^-x); small values through e^x, so that they do not become 0 early.
llvm::Value* EmitDoubleSigmoid(llvm::IRBuilder<>& builder, llvm::Value* x);

}  // namespace millrace::jit

#endif  // JIT_EMIT_DOUBLE_MATH_H_
