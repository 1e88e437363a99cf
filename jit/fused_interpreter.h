// SPDX-License-Identifier: Apache-2.0
// Runs a fused program without compiling it: block by block, each instruction by the loop of the
// op's own kernel, with everything in between in the first-level cache.
#ifndef JIT_FUSED_INTERPRETER_H_
#define JIT_FUSED_INTERPRETER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jit/fused_layout.h"
#include "millrace/status.h"
#include "ops/fused_program.h"

namespace millrace::jit {

// The loop of one instruction, picked from the kernel of its op.
struct InstructionLoop {
  using Unary = void (*)(const void* in, void* out, int64_t n);
  using Binary = bool (*)(const void* a, int64_t a_stride, const void* b, int64_t b_stride,
                          void* out, int64_t n);
  using Choice = void (*)(const bool* c, int64_t c_stride, const void* a, int64_t a_stride,
                          const void* b, int64_t b_stride, void* out, int64_t n);
  Unary unary = nullptr;
  Binary binary = nullptr;  // also of AddN, for the first two and then each of the others
  Choice choice = nullptr;
};

// Unimplemented if the op has no kernel for the type.
StatusOr<InstructionLoop> FindLoop(const FusedInstruction& instruction);

// Immutable: used by many threads at once.
class FusedInterpreter {
 public:
  // `program` outlives the interpreter; loops[i] is that of instruction i.
  FusedInterpreter(const FusedProgram* program, std::span<const InstructionLoop> loops,
                   std::span<const Spread> inputs);

  // Elements [begin, begin + n) of the outputs; what repeats begins at `row`. `shared` has bit k
  // set if output k takes the place of an input.
  void Run(const void* const* in, void* const* out, int64_t begin, int64_t row, int64_t n,
           uint64_t shared) const;

 private:
  struct Operand {
    bool is_input;
    Spread spread;
    int32_t from;  // an input, or an instruction
    int32_t size;  // bytes of an element
  };
  struct Step {
    InstructionLoop loop;
    bool is_once, is_sum, is_last;
    int32_t number;  // of the instruction
    int32_t size;    // bytes of an element
    int32_t place;   // where in the scratch memory the result of a block is kept
    int32_t output;  // the output that it is, or -1
    std::vector<Operand> operands;
  };

  void GivePlaces(const FusedProgram& program);
  void RunStep(const Step& step, const void* const* in, const void* const* results, void* to,
               int64_t at, int64_t row, int64_t n) const;

  std::vector<Step> steps_;
  int64_t block_ = 0;  // elements
  int64_t place_bytes_ = 0;
};

}  // namespace millrace::jit

#endif  // JIT_FUSED_INTERPRETER_H_
