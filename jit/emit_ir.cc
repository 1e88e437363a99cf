// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_ir.h"

#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/TargetParser/Triple.h>
#include "jit/emit_ops.h"
#include "jit/emit_types.h"

namespace millrace::jit {
namespace {

using llvm::Type;
using llvm::Value;

// The function: what is the same for all elements, a loop over vectors, a loop over the rest.
class FunctionEmitter {
 public:
  FunctionEmitter(const MrJitProgram& program, int lanes, bool streaming, llvm::Module* module)
      : program_(program),
        lanes_(lanes),
        streaming_(streaming),
        module_(module),
        b_(module->getContext()) {}

  void Emit(const char* name) {
    Type* const pointer = b_.getPtrTy();
    Type* const number = b_.getInt64Ty();
    auto* type =
        llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, number, number, number}, false);
    auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
    f->addFnAttr(llvm::Attribute::NoUnwind);
    function_ = f;
    auto* entry = llvm::BasicBlock::Create(module_->getContext(), "entry", f);
    b_.SetInsertPoint(entry);
    begin_ = f->getArg(2);
    row_ = f->getArg(3);
    Value* const n = f->getArg(4);
    LoadPointers(f->getArg(0), program_.num_inputs, &in_);
    LoadPointers(f->getArg(1), program_.num_outputs, &out_);
    EmitOnce();
    Value* const whole = b_.CreateAnd(n, b_.getInt64(~static_cast<uint64_t>(lanes_ - 1)));
    Loop(b_.getInt64(0), whole, lanes_);
    Loop(whole, n, 1);
    if (streaming_) Fence();
    b_.CreateRetVoid();
  }

 private:
  void LoadPointers(Value* from, int32_t count, std::vector<Value*>* to) {
    for (int32_t i = 0; i < count; ++i) {
      to->push_back(b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), from, i)));
    }
  }

  bool IsOnce(int32_t arg) const {
    return arg >= 0 ? program_.input_spreads[arg] == 0 : once_[~arg] != nullptr;
  }

  Value* LoadOne(int32_t input) {
    const int32_t type = program_.input_types[input];
    return FromMemory(b_, type, b_.CreateLoad(ElementType(b_, type), in_[input]));
  }

  // What does not change from element to element.
  void EmitOnce() {
    once_inputs_.resize(program_.num_inputs);
    once_.resize(program_.num_instructions);
    for (int32_t i = 0; i < program_.num_inputs; ++i) {
      if (program_.input_spreads[i] == 0) once_inputs_[i] = LoadOne(i);
    }
    for (int32_t i = 0; i < program_.num_instructions; ++i) {
      const MrJitInstruction& in = program_.instructions[i];
      std::vector<Value*> args;
      for (int32_t k = 0; k < in.num_args && IsOnce(in.args[k]); ++k) {
        args.push_back(in.args[k] >= 0 ? once_inputs_[in.args[k]] : once_[~in.args[k]]);
      }
      if (static_cast<int32_t>(args.size()) == in.num_args)
        once_[i] = EmitInstruction(b_, 1, in, args, DoubleFunctions::kLibrary);
    }
  }

  Value* Load(int32_t input, Value* at, int lanes) {
    const int32_t type = program_.input_types[input];
    const bool is_row = program_.input_spreads[input] == 1;
    Type* element = ElementType(b_, type);
    Value* const index = b_.CreateAdd(at, is_row ? row_ : begin_);
    Value* const pointer = b_.CreateGEP(element, in_[input], index);
    Type* const wide = lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
    Value* const value =
        b_.CreateAlignedLoad(wide, pointer, llvm::Align(static_cast<uint64_t>(ElementSize(type))));
    return FromMemory(b_, type, value);
  }

  void Store(int32_t output, Value* value, Value* at, int lanes) {
    const int32_t type = program_.instructions[program_.outputs[output]].result;
    value = ToMemory(b_, type, value);
    Value* const pointer =
        b_.CreateGEP(ElementType(b_, type), out_[output], b_.CreateAdd(at, begin_));
    const auto bytes = static_cast<uint64_t>(ElementSize(type) * lanes);
    const bool past_caches = streaming_ && lanes > 1 && bytes >= 16;
    const uint64_t align = past_caches ? std::min<uint64_t>(bytes, 64) : ElementSize(type);
    llvm::StoreInst* const store = b_.CreateAlignedStore(value, pointer, llvm::Align(align));
    if (past_caches) {
      auto* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
      store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                         llvm::MDNode::get(module_->getContext(), {one}));
    }
  }

  Value* Splat(Value* value, int lanes) {
    return lanes == 1 ? value : b_.CreateVectorSplat(lanes, value);
  }

  // All inputs are read before anything is written: an output may lie where an input does.
  void Body(Value* at, int lanes) {
    std::vector<Value*> inputs(program_.num_inputs), results(program_.num_instructions);
    for (int32_t i = 0; i < program_.num_inputs; ++i) {
      inputs[i] = once_inputs_[i] ? Splat(once_inputs_[i], lanes) : Load(i, at, lanes);
    }
    for (int32_t i = 0; i < program_.num_instructions; ++i) {
      const MrJitInstruction& in = program_.instructions[i];
      std::vector<Value*> args;
      for (int32_t k = 0; k < in.num_args; ++k) {
        args.push_back(in.args[k] >= 0 ? inputs[in.args[k]] : results[~in.args[k]]);
      }
      results[i] = once_[i] ? Splat(once_[i], lanes)
                            : EmitInstruction(b_, lanes, in, args, DoubleFunctions::kLibrary);
    }
    for (int32_t k = 0; k < program_.num_outputs; ++k) {
      Store(k, results[program_.outputs[k]], at, lanes);
    }
  }

  void Loop(Value* from, Value* to, int lanes) {
    llvm::LLVMContext& context = module_->getContext();
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    auto* body = llvm::BasicBlock::Create(context, "body", function_);
    auto* after = llvm::BasicBlock::Create(context, "after", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(from, to), body, after);
    b_.SetInsertPoint(body);
    llvm::PHINode* const at = b_.CreatePHI(b_.getInt64Ty(), 2);
    at->addIncoming(from, before);
    Body(at, lanes);
    Value* const next = b_.CreateAdd(at, b_.getInt64(static_cast<uint64_t>(lanes)));
    at->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
    b_.SetInsertPoint(after);
  }

  // Such stores are seen by other threads in no order, until a fence.
  void Fence() {
    if (llvm::Triple(module_->getTargetTriple()).isX86()) {
      b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
    } else {
      b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
    }
  }

  const MrJitProgram& program_;
  const int lanes_;
  const bool streaming_;
  llvm::Module* const module_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  Value *begin_ = nullptr, *row_ = nullptr;
  std::vector<Value*> in_, out_;
  std::vector<Value*> once_inputs_, once_;  // null: changes
};

}  // namespace

void EmitFused(const MrJitProgram& program, int lanes, llvm::Module* module) {
  FunctionEmitter(program, lanes, false, module).Emit(kPlainName);
  FunctionEmitter(program, lanes, true, module).Emit(kStreamingName);
}

}  // namespace millrace::jit
