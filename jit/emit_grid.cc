// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_grid.h"

#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include "jit/emit_ops.h"
#include "jit/emit_row_reduction.h"
#include "jit/emit_types.h"

namespace millrace::jit {
namespace {

using llvm::Type;
using llvm::Value;

// Addresses of NVPTX's global memory; for x86 an address as any other.
constexpr unsigned kGlobal = 1;

class GridEmitter {
 public:
  GridEmitter(const MrJitProgram& program, GridTarget target, llvm::Module* module)
      : program_(program), target_(target), module_(module), b_(module->getContext()) {}

  void Emit() {
    if (target_ == GridTarget::kNvptx) {
      BeginKernel();
    } else {
      BeginHostFunction();
    }
    for (int32_t i = 0; i < program_.num_inputs; ++i) has_rows_ |= program_.input_spreads[i] == 1;
    EmitOnce();
    if (program_.reduction != kMrJitNoReduction) {
      EmitReduction();
    } else {
      EmitEach();
    }
    b_.CreateRetVoid();
  }

 private:
  void EmitEach() {
    const int lanes = GridLanes(program_);
    Value* const whole =
        b_.CreateSelect(MayGroup(lanes), b_.CreateAnd(n_, b_.getInt64(~uint64_t(lanes - 1))),
                        b_.getInt64(0), "whole");
    Value* const wide = b_.getInt64(static_cast<uint64_t>(lanes));
    Loop(b_.CreateMul(thread_, wide), whole, b_.CreateMul(threads_, wide), lanes);
    Loop(b_.CreateAdd(whole, thread_), n_, threads_, 1);
  }

  void Begin(llvm::ArrayRef<Type*> parameters) {
    function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), parameters, false),
                                       llvm::Function::ExternalLinkage, kMrJitGridEntry, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_->getContext(), "entry", function_));
  }

  void BeginKernel() {
    std::vector<Type*> parameters(program_.num_inputs + program_.num_outputs, b_.getPtrTy(kGlobal));
    const bool reduces = program_.reduction != kMrJitNoReduction;
    parameters.insert(parameters.end(), reduces ? 3 : 2, b_.getInt64Ty());
    Begin(parameters);
    Annotate("kernel", 1);
    Annotate("maxntidx", kMrJitGridBlock);
    unsigned next = 0;
    for (int32_t i = 0; i < program_.num_inputs; ++i) in_.push_back(function_->getArg(next++));
    for (int32_t k = 0; k < program_.num_outputs; ++k) out_.push_back(function_->getArg(next++));
    n_ = function_->getArg(next++);
    period_ = function_->getArg(next++);
    if (reduces) row_ = function_->getArg(next);
    Value* const block = Special(llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x);
    thread_ =
        b_.CreateAdd(b_.CreateMul(Special(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x), block),
                     Special(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x), "thread");
    threads_ =
        b_.CreateMul(Special(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x), block, "threads");
  }

  Value* Special(llvm::Intrinsic::ID id) {
    return b_.CreateZExt(b_.CreateIntrinsic(id, {}, {}), b_.getInt64Ty());
  }

  void Annotate(const char* what, int value) {
    llvm::LLVMContext& context = module_->getContext();
    module_->getOrInsertNamedMetadata("nvvm.annotations")
        ->addOperand(llvm::MDNode::get(
            context, {llvm::ValueAsMetadata::get(function_), llvm::MDString::get(context, what),
                      llvm::ConstantAsMetadata::get(b_.getInt32(static_cast<uint32_t>(value)))}));
  }

  void BeginHostFunction() {
    Type* const pointer = b_.getPtrTy();
    Type* const number = b_.getInt64Ty();
    Begin({pointer, pointer, number, number, number, number, number});
    LoadAddresses(function_->getArg(0), program_.num_inputs, &in_);
    LoadAddresses(function_->getArg(1), program_.num_outputs, &out_);
    n_ = function_->getArg(2);
    period_ = function_->getArg(3);
    row_ = function_->getArg(4);
    thread_ = function_->getArg(5);
    threads_ = function_->getArg(6);
  }

  void LoadAddresses(Value* from, int32_t count, std::vector<Value*>* to) {
    Type* const address = b_.getPtrTy(kGlobal);
    for (int32_t i = 0; i < count; ++i) {
      to->push_back(b_.CreateLoad(address, b_.CreateConstGEP1_64(address, from, i)));
    }
  }

  int32_t OutputType(int32_t k) const { return program_.instructions[program_.outputs[k]].result; }

  // Whether each group lies in one piece everywhere.
  Value* MayGroup(int lanes) {
    Value* odd = b_.getInt64(0);
    const auto add = [&](Value* address, int32_t type) {
      const auto bytes = static_cast<uint64_t>(lanes * ElementSize(type));
      odd = b_.CreateOr(
          odd, b_.CreateAnd(b_.CreatePtrToInt(address, b_.getInt64Ty()), b_.getInt64(bytes - 1)));
    };
    for (int32_t i = 0; i < program_.num_inputs; ++i) {
      if (program_.input_spreads[i] != 0) add(in_[i], program_.input_types[i]);
    }
    for (int32_t k = 0; k < program_.num_outputs; ++k) add(out_[k], OutputType(k));
    if (has_rows_) {
      odd = b_.CreateOr(odd, b_.CreateAnd(period_, b_.getInt64(static_cast<uint64_t>(lanes - 1))));
    }
    return b_.CreateICmpEQ(odd, b_.getInt64(0));
  }

  // What does not change from element to element.
  void EmitOnce() {
    once_inputs_.resize(program_.num_inputs);
    once_.resize(program_.num_instructions);
    for (int32_t i = 0; i < program_.num_inputs; ++i) {
      if (program_.input_spreads[i] == 0) once_inputs_[i] = Load(i, b_.getInt64(0), 1)[0];
    }
    for (int32_t i = 0; i < program_.num_instructions; ++i) {
      const MrJitInstruction& in = program_.instructions[i];
      std::vector<Value*> args;
      for (int32_t k = 0; k < in.num_args; ++k) {
        const int32_t arg = in.args[k];
        Value* const value = arg >= 0 ? once_inputs_[arg] : once_[~arg];
        if (value == nullptr) break;
        args.push_back(value);
      }
      if (static_cast<int32_t>(args.size()) == in.num_args) {
        once_[i] = EmitInstruction(b_, 1, in, args, DoubleFunctions::kOwn);
      }
    }
  }

  // What elements of fewer than 32 bits are moved in: one number, or words of 32 bits.
  struct Packing {
    unsigned bits, words, per_word;
    Type* type;  // of all
    Type* word;
  };
  Packing PackingOf(int32_t type, int lanes) {
    Packing p;
    p.bits = 8 * static_cast<unsigned>(ElementSize(type));
    const unsigned total = p.bits * static_cast<unsigned>(lanes);
    p.words = total <= 32 ? 1 : total / 32;
    p.per_word = static_cast<unsigned>(lanes) / p.words;
    p.word = b_.getIntNTy(total / p.words);
    p.type = p.words == 1 ? p.word : llvm::FixedVectorType::get(p.word, p.words);
    return p;
  }
  static bool IsPacked(int32_t type) { return ElementSize(type) < 4; }

  // Elements [at, at + lanes) of an input.
  std::vector<Value*> Load(int32_t input, Value* at, int lanes) {
    const int32_t type = program_.input_types[input];
    Type* const element = ElementType(b_, type);
    Value* const address = b_.CreateGEP(element, in_[input], at);
    const llvm::Align align(static_cast<uint64_t>(ElementSize(type) * lanes));
    std::vector<Value*> values;
    if (IsPacked(type)) {
      const Packing p = PackingOf(type, lanes);
      Value* const group = b_.CreateAlignedLoad(p.type, address, align);
      for (unsigned lane = 0; lane < static_cast<unsigned>(lanes); ++lane) {
        Value* const word =
            p.words == 1 ? group : b_.CreateExtractElement(group, uint64_t{lane / p.per_word});
        Value* const part = b_.CreateLShr(word, uint64_t{lane % p.per_word * p.bits});
        values.push_back(FromMemory(b_, type, b_.CreateTrunc(part, element)));
      }
      return values;
    }
    if (lanes == 1) return {b_.CreateAlignedLoad(element, address, align)};
    Value* const group =
        b_.CreateAlignedLoad(llvm::FixedVectorType::get(element, lanes), address, align);
    for (int lane = 0; lane < lanes; ++lane) {
      values.push_back(b_.CreateExtractElement(group, static_cast<uint64_t>(lane)));
    }
    return values;
  }

  // Of elements of fewer than 32 bits.
  Value* Pack(int32_t type, const std::vector<Value*>& values) {
    const Packing p = PackingOf(type, static_cast<int>(values.size()));
    Value* group = llvm::PoisonValue::get(p.type);
    for (unsigned w = 0; w < p.words; ++w) {
      Value* word = llvm::ConstantInt::get(p.word, 0);
      for (unsigned i = 0; i < p.per_word; ++i) {
        Value* const bits = ToMemory(b_, type, values[w * p.per_word + i]);
        word = b_.CreateOr(word, b_.CreateShl(b_.CreateZExt(bits, p.word), uint64_t{i * p.bits}));
      }
      group = p.words == 1 ? word : b_.CreateInsertElement(group, word, uint64_t{w});
    }
    return group;
  }

  void Store(int32_t output, const std::vector<Value*>& values, Value* at) {
    const int32_t type = OutputType(output);
    Type* const element = ElementType(b_, type);
    const auto lanes = static_cast<int>(values.size());
    Value* group = nullptr;
    if (IsPacked(type)) {
      group = Pack(type, values);
    } else if (lanes == 1) {
      group = values[0];
    } else {
      group = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, lanes));
      for (int lane = 0; lane < lanes; ++lane) {
        group = b_.CreateInsertElement(group, values[lane], static_cast<uint64_t>(lane));
      }
    }
    b_.CreateAlignedStore(group, b_.CreateGEP(element, out_[output], at),
                          llvm::Align(static_cast<uint64_t>(ElementSize(type) * lanes)));
  }

  // What all instructions give for elements [at, at + lanes), which are those from `row` on of what
  // repeats.
  std::vector<std::vector<Value*>> Results(Value* at, Value* row, int lanes) {
    std::vector<std::vector<Value*>> inputs(program_.num_inputs),
        results(program_.num_instructions);
    for (int32_t i = 0; i < program_.num_inputs; ++i) {
      const int32_t spread = program_.input_spreads[i];
      inputs[i] = spread == 0 ? std::vector<Value*>(lanes, once_inputs_[i])
                              : Load(i, spread == 1 ? row : at, lanes);
    }
    for (int32_t i = 0; i < program_.num_instructions; ++i) {
      const MrJitInstruction& in = program_.instructions[i];
      for (int lane = 0; lane < lanes; ++lane) {
        std::vector<Value*> args;
        for (int32_t k = 0; k < in.num_args; ++k) {
          const int32_t arg = in.args[k];
          args.push_back(arg >= 0 ? inputs[arg][lane] : results[~arg][lane]);
        }
        results[i].push_back(once_[i] ? once_[i]
                                      : EmitInstruction(b_, 1, in, args, DoubleFunctions::kOwn));
      }
    }
    return results;
  }

  // All inputs are read before anything is written, and nobody else touches these elements: an
  // output may lie where an input does that changes with each element.
  void Body(Value* at, Value* row, int lanes) {
    const auto results = Results(at, row, lanes);
    for (int32_t k = 0; k < program_.num_outputs; ++k) Store(k, results[program_.outputs[k]], at);
  }

  // A place in the row goes along with the place in the whole: no division in the loop.
  void Loop(Value* from, Value* to, Value* step, int lanes) {
    llvm::LLVMContext& context = module_->getContext();
    auto* before = llvm::BasicBlock::Create(context, "before", function_);
    auto* body = llvm::BasicBlock::Create(context, "body", function_);
    auto* after = llvm::BasicBlock::Create(context, "after", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(from, to), before, after);
    b_.SetInsertPoint(before);
    Value* const first_row = has_rows_ ? b_.CreateURem(from, period_) : nullptr;
    Value* const row_step = has_rows_ ? b_.CreateURem(step, period_) : nullptr;
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    llvm::PHINode* const at = b_.CreatePHI(b_.getInt64Ty(), 2, "at");
    llvm::PHINode* const row = has_rows_ ? b_.CreatePHI(b_.getInt64Ty(), 2, "row") : nullptr;
    Body(at, row, lanes);
    Value* const next = b_.CreateAdd(at, step);
    at->addIncoming(from, before);
    at->addIncoming(next, b_.GetInsertBlock());
    if (row != nullptr) {
      Value* const moved = AdvancePlace(b_, row, row_step, period_);
      row->addIncoming(first_row, before);
      row->addIncoming(moved, b_.GetInsertBlock());
    }
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
    b_.SetInsertPoint(after);
  }

  void EmitReduction() {
    RowReductionCode code{.builder = b_,
                          .function = function_,
                          .target = target_,
                          .reduction = program_.reduction,
                          .type = OutputType(0),
                          .n = n_,
                          .row = row_,
                          .period = has_rows_ ? period_ : nullptr,
                          .thread = thread_,
                          .threads = threads_};
    code.element = [this](Value* at, Value* place) {
      return Results(at, place, 1)[program_.outputs[0]][0];
    };
    code.store = [this](Value* value, Value* at) { Store(0, {value}, at); };
    EmitRowReduction(code);
  }

  const MrJitProgram& program_;
  const GridTarget target_;
  llvm::Module* const module_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  bool has_rows_ = false;
  std::vector<Value*> in_, out_;
  Value *n_ = nullptr, *period_ = nullptr, *row_ = nullptr;  // row_: of what is reduced
  Value *thread_ = nullptr, *threads_ = nullptr;
  std::vector<Value*> once_inputs_, once_;  // null: changes
};

}  // namespace

void EmitGrid(const MrJitProgram& program, GridTarget target, llvm::Module* module) {
  GridEmitter(program, target, module).Emit();
}

}  // namespace millrace::jit
