// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_types.h"

namespace millrace::jit {
namespace {

using llvm::Constant;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;

// `element`, or as many of them as `value` has.
Type* Like(const Value* value, Type* element) {
  const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? element
                           : llvm::FixedVectorType::get(element, vector->getNumElements());
}

}  // namespace

Type* ElementType(llvm::IRBuilder<>& b, int32_t type) {
  if (type == kMrJitFloat) return b.getFloatTy();
  if (type == kMrJitDouble) return b.getDoubleTy();
  return type == kMrJitBool ? b.getInt8Ty() : b.getInt16Ty();
}

Type* ComputeType(llvm::IRBuilder<>& b, int32_t type) {
  if (type == kMrJitDouble) return b.getDoubleTy();
  return type == kMrJitBool ? b.getInt1Ty() : b.getFloatTy();
}

Value* FromMemory(llvm::IRBuilder<>& b, int32_t type, Value* value) {
  if (type == kMrJitBool) return b.CreateICmpNE(value, Constant::getNullValue(value->getType()));
  if (!IsSmallFloat(type)) return value;
  Type* const floats = Like(value, b.getFloatTy());
  if (type == kMrJitHalf) {
    return b.CreateFPExt(b.CreateBitCast(value, Like(value, b.getHalfTy())), floats);
  }
  return b.CreateBitCast(b.CreateShl(b.CreateZExt(value, Like(value, b.getInt32Ty())), 16), floats);
}

Value* ToMemory(llvm::IRBuilder<>& b, int32_t type, Value* value) {
  if (type == kMrJitBool) return b.CreateZExt(value, Like(value, b.getInt8Ty()));
  if (!IsSmallFloat(type)) return value;
  Type* const words = Like(value, b.getInt16Ty());
  if (type == kMrJitHalf) {
    return b.CreateBitCast(b.CreateFPTrunc(value, Like(value, b.getHalfTy())), words);
  }
  return b.CreateTrunc(b.CreateLShr(b.CreateBitCast(value, Like(value, b.getInt32Ty())), 16),
                       words);
}

Value* RoundTo(llvm::IRBuilder<>& b, int32_t type, Value* value) {
  if (type == kMrJitHalf) {
    return b.CreateFPExt(b.CreateFPTrunc(value, Like(value, b.getHalfTy())), value->getType());
  }
  if (type != kMrJitBfloat16) return value;
  // By integers, on every target: a processor's own instruction may drop denormals, and what has
  // none calls a library.
  Type* const words = Like(value, b.getInt32Ty());
  const auto constant = [&](uint32_t bits) { return ConstantInt::get(words, bits); };
  Value* const bits = b.CreateBitCast(value, words);
  Value* const last = b.CreateAnd(b.CreateLShr(bits, 16), constant(1));
  Value* const rounded = b.CreateAdd(bits, b.CreateAdd(last, constant(0x7fff)));
  Value* const quiet = b.CreateOr(bits, constant(0x400000));  // a NaN might become an infinity
  Value* const chosen = b.CreateSelect(b.CreateFCmpUNO(value, value), quiet, rounded);
  return b.CreateBitCast(b.CreateAnd(chosen, constant(0xffff0000)), value->getType());
}

}  // namespace millrace::jit
