// SPDX-License-Identifier: Apache-2.0
#include "jit/emit_row_reduction.h"

#include <limits>
#include <vector>

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include "jit/emit_types.h"

namespace millrace::jit {
namespace {

using llvm::Type;
using llvm::Value;

class RowReducer {
 public:
  explicit RowReducer(const RowReductionCode& code) : code_(code), b_(code.builder) {}

  void Emit() {
    llvm::LLVMContext& context = b_.getContext();
    const bool by_team = code_.target == GridTarget::kNvptx;
    Type* const type = ElementType(b_, code_.type);
    Value* const parts = by_team ? nullptr : b_.CreateAlloca(type, b_.getInt32(kMrJitTeam));
    Value* const lane = by_team ? b_.CreateAnd(code_.thread, I(kMrJitTeam - 1)) : nullptr;
    Value* const team = by_team ? b_.CreateUDiv(code_.thread, I(kMrJitTeam)) : code_.thread;
    Value* const teams = by_team ? b_.CreateUDiv(code_.threads, I(kMrJitTeam)) : code_.threads;
    Value* const whole = b_.CreateAnd(code_.row, I(~int64_t{kMrJitTeam - 1}));
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    auto* body = llvm::BasicBlock::Create(context, "of_row", code_.function);
    auto* store = llvm::BasicBlock::Create(context, "store", code_.function);
    auto* last = llvm::BasicBlock::Create(context, "stored", code_.function);
    auto* after = llvm::BasicBlock::Create(context, "after", code_.function);
    b_.CreateCondBr(b_.CreateICmpSLT(team, code_.n), body, after);
    b_.SetInsertPoint(body);
    llvm::PHINode* const r = b_.CreatePHI(b_.getInt64Ty(), 2, "r");
    Value* const base = b_.CreateMul(r, code_.row);
    Value* total = by_team ? TotalByTeam(lane, whole, base) : TotalByOne(parts, whole, base);
    total = Combine(Identity(), Accumulate({total, whole}, code_.row, 1, 1, base).total);
    if (code_.reduction == kMrJitMean) {
      total = b_.CreateFDiv(total, b_.CreateSIToFP(code_.row, type));
    }
    b_.CreateCondBr(by_team ? b_.CreateICmpEQ(lane, I(0)) : b_.getTrue(), store, last);
    b_.SetInsertPoint(store);
    code_.store(total, r);
    b_.CreateBr(last);
    b_.SetInsertPoint(last);
    Value* const next = b_.CreateAdd(r, teams);
    r->addIncoming(team, before);
    r->addIncoming(next, last);
    b_.CreateCondBr(b_.CreateICmpSLT(next, code_.n), body, after);
    b_.SetInsertPoint(after);
  }

 private:
  Value* I(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }

  Value* Identity() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double value = code_.reduction == kMrJitMax   ? -kInfinity
                         : code_.reduction == kMrJitMin ? kInfinity
                                                        : 0;
    return llvm::ConstantFP::get(ElementType(b_, code_.type), value);
  }

  // Extremes let a NaN through.
  Value* Combine(Value* a, Value* b) {
    if (code_.reduction == kMrJitSum || code_.reduction == kMrJitMean) {
      return b_.CreateFAdd(a, b);
    }
    Value* const wins =
        code_.reduction == kMrJitMax ? b_.CreateFCmpOGE(a, b) : b_.CreateFCmpOLE(a, b);
    return b_.CreateSelect(b_.CreateOr(wins, b_.CreateFCmpUNO(a, a)), a, b);
  }

  struct Partial {
    Value* total;
    Value* next;  // element of the row
  };
  // Adds elements from.next, from.next + stride ... below `to` of the row at `base`, `count` of
  // them in each turn of a loop, so that their loads wait for memory together.
  Partial Accumulate(const Partial& from, Value* to, int64_t stride, int count, Value* base) {
    llvm::LLVMContext& context = b_.getContext();
    auto* before = llvm::BasicBlock::Create(context, "before", code_.function);
    auto* body = llvm::BasicBlock::Create(context, "body", code_.function);
    auto* after = llvm::BasicBlock::Create(context, "after", code_.function);
    llvm::BasicBlock* const entry = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpSLT(from.next, to), before, after);
    b_.SetInsertPoint(before);
    Value* const first = code_.period != nullptr
                             ? b_.CreateURem(b_.CreateAdd(base, from.next), code_.period)
                             : nullptr;
    Value* const step = code_.period != nullptr ? b_.CreateURem(I(stride), code_.period) : nullptr;
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    llvm::PHINode* const i = b_.CreatePHI(b_.getInt64Ty(), 2, "i");
    llvm::PHINode* const total = b_.CreatePHI(from.total->getType(), 2, "total");
    llvm::PHINode* const row =
        code_.period != nullptr ? b_.CreatePHI(b_.getInt64Ty(), 2, "row") : nullptr;
    Value* sum = total;
    Value* place = row;
    for (int k = 0; k < count; ++k) {
      Value* const at = b_.CreateAdd(base, b_.CreateAdd(i, I(k * stride)));
      sum = Combine(sum, code_.element(at, place));
      if (code_.period != nullptr) place = AdvancePlace(b_, place, step, code_.period);
    }
    Value* const next = b_.CreateAdd(i, I(count * stride));
    llvm::BasicBlock* const latch = b_.GetInsertBlock();
    i->addIncoming(from.next, before);
    i->addIncoming(next, latch);
    total->addIncoming(from.total, before);
    total->addIncoming(sum, latch);
    if (code_.period != nullptr) {
      row->addIncoming(first, before);
      row->addIncoming(place, latch);
    }
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
    b_.SetInsertPoint(after);
    llvm::PHINode* const all = b_.CreatePHI(from.total->getType(), 2);
    all->addIncoming(from.total, entry);
    all->addIncoming(sum, latch);
    llvm::PHINode* const end = b_.CreatePHI(b_.getInt64Ty(), 2);
    end->addIncoming(from.next, entry);
    end->addIncoming(next, latch);
    return {all, end};
  }

  // The partial result of one thread of a team, over elements below `whole`.
  Value* PartOf(Value* lane, Value* whole, Value* base) {
    constexpr int kTogether = 4;
    const Partial most =
        Accumulate({Identity(), lane}, b_.CreateSub(whole, I((kTogether - 1) * kMrJitTeam)),
                   kMrJitTeam, kTogether, base);
    return Accumulate(most, whole, kMrJitTeam, 1, base).total;
  }

  // The value of the thread `distance` further in the team.
  Value* FromNeighbour(Value* value, int distance) {
    // Only the team's threads need be here: others may have no row left.
    Value* const mask = b_.CreateTrunc(
        b_.CreateSelect(b_.CreateICmpEQ(b_.CreateAnd(code_.thread, I(kMrJitTeam)), I(0)), I(0xffff),
                        I(0xffff0000)),
        b_.getInt32Ty());
    // Segments of sixteen threads, each to its end.
    Value* const clamp = b_.getInt32(((32 - kMrJitTeam) << 8) | 0x1f);
    const auto move = [&](Value* word) {
      return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_down_i32, {},
                                {mask, word, b_.getInt32(static_cast<uint32_t>(distance)), clamp});
    };
    if (code_.type == kMrJitFloat) {
      return b_.CreateBitCast(move(b_.CreateBitCast(value, b_.getInt32Ty())), b_.getFloatTy());
    }
    Value* const bits = b_.CreateBitCast(value, b_.getInt64Ty());
    Value* const low = move(b_.CreateTrunc(bits, b_.getInt32Ty()));
    Value* const high = move(b_.CreateTrunc(b_.CreateLShr(bits, 32), b_.getInt32Ty()));
    Value* const both = b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()),
                                    b_.CreateShl(b_.CreateZExt(high, b_.getInt64Ty()), 32));
    return b_.CreateBitCast(both, b_.getDoubleTy());
  }

  Value* TotalByTeam(Value* lane, Value* whole, Value* base) {
    Value* part = PartOf(lane, whole, base);
    for (int width = kMrJitTeam / 2; width > 0; width /= 2) {
      part = Combine(part, FromNeighbour(part, width));
    }
    return part;
  }

  // One thread does what each of a team would, one after the other.
  Value* TotalByOne(Value* parts, Value* whole, Value* base) {
    Type* const type = ElementType(b_, code_.type);
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "lane", code_.function);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "lanes", code_.function);
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    llvm::PHINode* const lane = b_.CreatePHI(b_.getInt64Ty(), 2, "lane");
    b_.CreateStore(PartOf(lane, whole, base), b_.CreateGEP(type, parts, lane));
    Value* const next = b_.CreateAdd(lane, I(1));
    lane->addIncoming(I(0), before);
    lane->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, I(kMrJitTeam)), body, after);
    b_.SetInsertPoint(after);
    std::vector<Value*> part;
    for (int k = 0; k < kMrJitTeam; ++k) {
      part.push_back(
          b_.CreateLoad(type, b_.CreateConstGEP1_64(type, parts, static_cast<uint64_t>(k))));
    }
    for (int width = kMrJitTeam / 2; width > 0; width /= 2) {
      for (int k = 0; k < width; ++k) part[k] = Combine(part[k], part[k + width]);
    }
    return part[0];
  }

  const RowReductionCode& code_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

void EmitRowReduction(const RowReductionCode& code) { RowReducer(code).Emit(); }

Value* AdvancePlace(llvm::IRBuilder<>& b, Value* place, Value* step, Value* period) {
  Value* const beyond = b.CreateAdd(place, step);
  return b.CreateSelect(b.CreateICmpUGE(beyond, period), b.CreateSub(beyond, period), beyond);
}

}  // namespace millrace::jit
