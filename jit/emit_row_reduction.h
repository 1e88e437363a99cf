// SPDX-License-Identifier: Apache-2.0
// Rows of a fused program's output that become one element each, within the code of a grid.
//
// The order is that of the CPU's kernels (kernels/math/reduction.cc), so that results are the same
// bits: sixteen partial results of every sixteenth element each, which are then put together in
// halves, and at last the elements behind the last whole sixteen, one after the other.
#ifndef JIT_EMIT_ROW_REDUCTION_H_
#define JIT_EMIT_ROW_REDUCTION_H_

#include <cstdint>
#include <functional>

#include <llvm/IR/IRBuilder.h>
#include "jit/component_api.h"
#include "jit/emit_grid.h"

namespace millrace::jit {

struct RowReductionCode {
  llvm::IRBuilder<>& builder;
  llvm::Function* function = nullptr;
  // For PTX each of a team's kMrJitTeam threads has a partial result; a thread of the host makes
  // all of them.
  GridTarget target = GridTarget::kHost;
  int32_t reduction = kMrJitSum;
  int32_t type = kMrJitFloat;  // or kMrJitDouble
  // i64: rows; elements of one; elements of what repeats, null if nothing does; the thread's number
  // and how many there are, for PTX a multiple of kMrJitTeam.
  llvm::Value *n = nullptr, *row = nullptr, *period = nullptr, *thread = nullptr,
              *threads = nullptr;
  // Emits element `at` of what is reduced, which is at `place` of what repeats.
  std::function<llvm::Value*(llvm::Value* at, llvm::Value* place)> element{};
  // Emits the store of element `at` of the output.
  std::function<void(llvm::Value* value, llvm::Value* at)> store{};
};

// Where the builder stands, which then stands behind it.
void EmitRowReduction(const RowReductionCode& code);

// A place in what repeats, `step` < `period` elements on.
llvm::Value* AdvancePlace(llvm::IRBuilder<>& builder, llvm::Value* place, llvm::Value* step,
                          llvm::Value* period);

}  // namespace millrace::jit

#endif  // JIT_EMIT_ROW_REDUCTION_H_
