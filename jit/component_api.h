// SPDX-License-Identifier: Apache-2.0
// What the compiler, a shared library of its own that holds LLVM, offers to the program that
// loads it. Plain C types: the two may be built apart.
#ifndef JIT_COMPONENT_API_H_
#define JIT_COMPONENT_API_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// Changes with every change below or in the meaning of FusedOp's numbers.
inline constexpr int32_t kMrJitVersion = 5;
// The name of the one function that the library exports: MrJitGetApi.
inline constexpr char kMrJitEntry[] = "millrace_jit_api";

// Types of elements.
inline constexpr int32_t kMrJitFloat = 0;
inline constexpr int32_t kMrJitDouble = 1;
inline constexpr int32_t kMrJitBool = 2;
inline constexpr int32_t kMrJitHalf = 3;
inline constexpr int32_t kMrJitBfloat16 = 4;

// type, result: those of the operands and of the result. args[k] >= 0 is an input, else
// ~instruction.
struct MrJitInstruction {
  int32_t op, type, result, num_args;
  const int32_t* args;
};

// What grids make of each row of the one output, if it is not kMrJitNoReduction.
inline constexpr int32_t kMrJitNoReduction = 0;
inline constexpr int32_t kMrJitSum = 1;
inline constexpr int32_t kMrJitMean = 2;
inline constexpr int32_t kMrJitMax = 3;
inline constexpr int32_t kMrJitMin = 4;

// spreads: 0 one element, 1 a row, 2 each. outputs are instructions.
struct MrJitProgram {
  const MrJitInstruction* instructions;
  const int32_t *input_types, *input_spreads, *outputs;
  int32_t num_instructions, num_inputs, num_outputs;
  int32_t reduction;  // of floats or doubles; for grids only
};

// Elements [begin, begin + n) of the outputs; what repeats begins at element `row` of its input.
// An output may be an input that changes with each element.
typedef void (*MrJitFunction)(const void* const* in, void* const* out, int64_t begin, int64_t row,
                              int64_t n);

struct MrJitCode {
  MrJitFunction plain;
  // Stores past the caches; out[k] + begin must be at a multiple of 64 bytes.
  MrJitFunction streaming;
};

// Code for grids of threads is one function of this name (jit/emit_grid.h), to be launched with at
// most so many threads in a block.
inline constexpr char kMrJitGridEntry[] = "mr_fused_grid";
inline constexpr int32_t kMrJitGridBlock = 256;
// Threads that reduce a row together.
inline constexpr int32_t kMrJitTeam = 16;
// What thread `thread` of `threads` does; what repeats has `period` elements, not 0 if there is
// any. n: elements of each output. row: those of a value that become one element, 0 if nothing is
// reduced; then a thread does what a team would.
typedef void (*MrJitGridFunction)(const void* const* in, void* const* out, int64_t n,
                                  int64_t period, int64_t row, int64_t thread, int64_t threads);

// Functions that can fail return null, or the reason, which is constant or stays until the next
// call of the same thread. Thread-safe.
struct MrJitApi {
  // What objects are made by and for: they are of no use anywhere else.
  const char* (*target)();
  // Hands the object file to `take` before it returns.
  const char* (*compile)(const MrJitProgram* program,
                         void (*take)(void* arg, const char* data, size_t size), void* arg);
  // Code is never unloaded.
  const char* (*load)(const char* object, size_t size, MrJitCode* code);
  // Hands PTX to `take`, made for `arch` ("sm_75" or later; "sm_90") and what comes after it.
  const char* (*compile_ptx)(const MrJitProgram* program, const char* arch,
                             void (*take)(void* arg, const char* data, size_t size), void* arg);
  // The very code of which compile_ptx makes PTX, for this processor.
  const char* (*make_host_grid)(const MrJitProgram* program, MrJitGridFunction* function);
};

typedef const MrJitApi* (*MrJitGetApi)(int32_t version);  // null: another version
}

namespace millrace::jit {

// Bytes of an element in memory.
inline constexpr int32_t ElementSize(int32_t type) {
  constexpr int32_t kSizes[] = {4, 8, 1, 2, 2};
  return kSizes[type];
}

// How many neighbours a thread of a grid works on at once: 16 bytes of the largest type.
inline int32_t GridLanes(const MrJitProgram& program) {
  int32_t largest = 1;
  const auto add = [&largest](int32_t type) {
    if (ElementSize(type) > largest) largest = ElementSize(type);
  };
  for (int32_t i = 0; i < program.num_inputs; ++i) add(program.input_types[i]);
  for (int32_t k = 0; k < program.num_outputs; ++k) {
    add(program.instructions[program.outputs[k]].result);
  }
  return largest == 1 ? 4 : 16 / largest;  // four bools are enough for a thread
}

}  // namespace millrace::jit

#endif  // JIT_COMPONENT_API_H_
