// SPDX-License-Identifier: Apache-2.0
// How the operands of a fused program lie towards each other for given shapes.
#ifndef JIT_FUSED_LAYOUT_H_
#define JIT_FUSED_LAYOUT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "millrace/shape.h"
#include "ops/fused_program.h"

namespace millrace::jit {

// How often an operand, or a result, changes along the elements of the outputs. Ordered: a result
// is of the largest kind among its operands.
enum class Spread : int8_t {
  kOnce,  // one element
  kRow,   // repeats with a period, which all of this kind share
  kEach,
};

// The loop over all elements at once, if there is one.
struct FusedLayout {
  std::vector<Shape> inputs;  // what the rest was made for
  // False if a shape is wrong, or if operands are repeated in other ways: then the instructions
  // have to be run one by one. The rest is then not set.
  bool is_one_loop = false;
  int64_t count = 0;            // elements of each output
  int64_t period = 0;           // of rows; 0 if there are none
  std::vector<Spread> spreads;  // of the inputs
  std::vector<Shape> output_shapes;
  // For each output inputs whose memory it may take over, repeated to fill the array; -1: none.
  std::vector<std::array<int, 4>> candidates;
};

FusedLayout MakeFusedLayout(const FusedProgram& program, std::span<const Shape> inputs);

// Of the results, given the inputs'.
std::vector<Spread> SpreadsOfResults(const FusedProgram& program, std::span<const Spread> inputs);

// A rough number of nanoseconds for one element of one instruction.
double CostOf(const FusedInstruction& instruction);

// A value whose last axes are reduced: `rows` of `row` neighbours each become an element of `out`.
struct FusedRows {
  int64_t rows = 0, row = 0;
  Shape out;
};
// Nothing if other axes are reduced, if an axis is not there or comes twice, or if there is nothing
// to reduce.
std::optional<FusedRows> FindFusedRows(const Shape& shape, std::span<const int64_t> axes,
                                       bool keep_dims);

}  // namespace millrace::jit

#endif  // JIT_FUSED_LAYOUT_H_
