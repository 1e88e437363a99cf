// SPDX-License-Identifier: Apache-2.0
// A compiled graph as one list of instructions, in the order in which a single thread runs
// them: no counters, no queue, values in registers that are used again and again.
#ifndef EXECUTOR_ENGINE_SEQUENTIAL_PROGRAM_H_
#define EXECUTOR_ENGINE_SEQUENTIAL_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/compiled_graph.h"

namespace millrace {

struct SeqOp {
  enum class Kind : uint8_t {
    kCompute,   // a kernel, on the registers
    kScalar,    // a kernel that may find scalars, for which it has a function
    kIsolated,  // a kernel, on values of its own: it may keep or steal them, or wants references
    kArg,       // the value of an argument of the call
    kRetval,    // hands its input to a result of the call
    kMove,      // Enter, Exit, NextIteration: hands its input to other registers
    kMark,      // nothing to compute, but it may be dead
    kSwitch,
    kMerge,
    kLoopMerge,  // the value is in its register already
    kLoopBegin,
    kLoopEnd,
    kLong,  // as kCompute, of a kernel that may take long: others can see that it runs
  };

  Kernel* kernel = nullptr;
  const DataType* output_types = nullptr;
  uint64_t last_reader = 0;  // as in KernelValues
  int32_t node = 0;          // of loops: the number of nodes
  int32_t registers = 0;     // begin of the inputs', then the outputs' registers; of a loop: which
  int32_t clears = 0;        // begin of the registers that nobody reads after this
  int32_t moves = 0;  // begin of the registers that a kMove writes; of others: which function
                      // of a kScalar, argument of a kArg, result of a kRetval
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  int32_t num_clears = 0;
  int32_t num_kept = 0;  // of the clears, the first ones: their buffers are for the next scalar
  int32_t num_moves = 0;
  Kind kind = Kind::kCompute;
};

struct SeqLoop {
  int32_t begin = 0;                             // its kLoopBegin
  int32_t node = 0;                              // one of its nodes
  std::vector<int32_t> enter_slots, next_slots;  // merge slots that Enters and NextIterations fill
  std::vector<int32_t> constant_enters, exits;   // nodes
};

// Immutable.
struct SequentialProgram {
  // Null if one thread could not run the graph from one end to the other: it has asynchronous
  // nodes, or loops that are not wired as a while loop is.
  static std::unique_ptr<const SequentialProgram> Make(const CompiledGraph& graph);

  std::vector<SeqOp> ops;
  std::vector<int32_t> registers, clears, moves;  // of all ops
  std::vector<ScalarFn> scalars;
  std::vector<SeqLoop> loops;
  std::vector<int32_t> loop_of_frame;  // by static frame; -1: the root
  std::vector<int32_t> merge_slots;    // by node: the first slot of a merge, else -1
  // Constants: node and the register that holds its value between steps.
  std::vector<std::pair<int32_t, int32_t>> constants;
  int32_t num_registers = 0;
  int32_t num_merge_slots = 0;
  int32_t max_isolated = 0;  // inputs and outputs of one isolated kernel
  bool may_be_dead = false;
};

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_SEQUENTIAL_PROGRAM_H_
