// SPDX-License-Identifier: Apache-2.0
// Elements of each type, as they lie in memory and as programs compute with them. In memory a bool
// is a byte and a 16-bit float two bytes; between instructions a bool is an i1, and a half or a
// bfloat16 the float of the same value, which arithmetic on them goes through anyway.
#ifndef JIT_EMIT_TYPES_H_
#define JIT_EMIT_TYPES_H_

#include <cstdint>

#include <llvm/IR/IRBuilder.h>
#include "jit/component_api.h"

namespace millrace::jit {

inline bool IsSmallFloat(int32_t type) { return type == kMrJitHalf || type == kMrJitBfloat16; }

// What one element is loaded and stored as: float, double, i8 or i16.
llvm::Type* ElementType(llvm::IRBuilder<>& builder, int32_t type);
// What programs compute with: float, double or i1.
llvm::Type* ComputeType(llvm::IRBuilder<>& builder, int32_t type);

// From the one to the other and back, for a scalar or a vector of either. What goes to memory must
// be a value that the type has: see RoundTo.
llvm::Value* FromMemory(llvm::IRBuilder<>& builder, int32_t type, llvm::Value* value);
llvm::Value* ToMemory(llvm::IRBuilder<>& builder, int32_t type, llvm::Value* value);

// A float (or a vector of them) rounded to the nearest value that `type` has, to the even one of
// two, with denormals and infinities; a NaN stays one. As it is for types that are no 16-bit
// floats.
llvm::Value* RoundTo(llvm::IRBuilder<>& builder, int32_t type, llvm::Value* value);

}  // namespace millrace::jit

#endif  // JIT_EMIT_TYPES_H_
