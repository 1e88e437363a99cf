// SPDX-License-Identifier: Apache-2.0
// A fused program for a grid of threads, each of which takes every so-and-so-many-th group of
// neighbouring elements, so that threads beside each other touch memory beside each other.
#ifndef JIT_EMIT_GRID_H_
#define JIT_EMIT_GRID_H_

#include <llvm/IR/Module.h>
#include "jit/component_api.h"

namespace millrace::jit {

enum class GridTarget {
  // A kernel of NVPTX: void (input addresses..., output addresses..., i64 n, i64 period), and i64
  // row if it reduces.
  kNvptx,
  // MrJitGridFunction, with the thread's number and how many there are as parameters.
  kHost,
};

// Adds the function kMrJitGridEntry to `module`. The two targets differ in nothing but where
// addresses and the number of the thread come from. Groups are of GridLanes(program) elements,
// read and written at once, if all operands lie at multiples of that and rows hold whole groups,
// which the code finds out itself; else elements are worked on one by one. Functions of doubles are
// those of emit_double_math.h. A reduction takes each row in the order of the CPU's kernels: teams
// of kMrJitTeam threads of PTX, whose number is a multiple of that, or single threads of the host.
void EmitGrid(const MrJitProgram& program, GridTarget target, llvm::Module* module);

}  // namespace millrace::jit

#endif  // JIT_EMIT_GRID_H_
