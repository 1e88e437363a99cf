// SPDX-License-Identifier: Apache-2.0
// What a _Fused node computes: elementwise ops one after the other, as text in its attribute
// "program". Written by the rewrite that puts nodes together, read by the kernel.
//
//   Mul:float i0 i1; Less:float t0 i2; SelectV2:float t1 t0 i0; Cast:float>double t2 > t2 t3
//
// Each instruction is an op, the type of its operands (of the chosen ones for Select; a
// conversion names both types) and its operands: i<n> is input n of the node, t<n> the result of
// instruction n. What stands behind the last ">" are the results that are outputs, in ascending
// order.
#ifndef OPS_FUSED_PROGRAM_H_
#define OPS_FUSED_PROGRAM_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/status.h"
#include "ops/fused_op.h"

namespace millrace {

struct FusedInstruction {
  FusedOp op = FusedOp::kAbs;
  DataType type = kFloat;    // a floating one or, for LogicalX and Cast, bool
  DataType result = kFloat;  // bool of comparisons
  // n >= 0: input n of the node; n < 0: the result of instruction ~n.
  std::vector<int32_t> args;
};

struct FusedProgram {
  std::vector<FusedInstruction> instructions;
  std::vector<int32_t> outputs;  // instructions, ascending
};

// More than a kernel takes.
inline constexpr int kMaxFusedInstructions = 64;
inline constexpr int kMaxFusedInputs = 32;

// False if no such op is fused.
bool FindFusedOp(std::string_view name, FusedOp* op);
// Types that take part.
bool IsFusedType(DataType dtype);
// The type of operand `i` of an instruction.
DataType OperandType(const FusedInstruction& instruction, int i);

std::string FormatFusedProgram(const FusedProgram& program);
// InvalidArgument, saying where, if the text is none, if an operand is not there before it is
// read, or if types do not fit each other or the node's inputs and outputs.
StatusOr<FusedProgram> ParseFusedProgram(std::string_view text, std::span<const DataType> inputs,
                                         std::span<const DataType> outputs);

}  // namespace millrace

#endif  // OPS_FUSED_PROGRAM_H_
