// SPDX-License-Identifier: Apache-2.0
// A fused program in the terms of the compiler component.
#ifndef JIT_TRANSLATED_PROGRAM_H_
#define JIT_TRANSLATED_PROGRAM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "jit/component_api.h"
#include "jit/fused_layout.h"
#include "ops/fused_program.h"

namespace millrace::jit {

// Refers to `program`, which outlives it.
class TranslatedProgram {
 public:
  TranslatedProgram(const FusedProgram& program, std::span<const DataType> input_types,
                    std::span<const Spread> spreads, int32_t reduction = kMrJitNoReduction) {
    for (const FusedInstruction& in : program.instructions) {
      instructions_.push_back({.op = static_cast<int32_t>(in.op),
                               .type = TypeCode(in.type),
                               .result = TypeCode(in.result),
                               .num_args = static_cast<int32_t>(in.args.size()),
                               .args = in.args.data()});
    }
    for (const DataType type : input_types) types_.push_back(TypeCode(type));
    for (const Spread spread : spreads) spreads_.push_back(static_cast<int32_t>(spread));
    program_ = {.instructions = instructions_.data(),
                .input_types = types_.data(),
                .input_spreads = spreads_.data(),
                .outputs = program.outputs.data(),
                .num_instructions = static_cast<int32_t>(instructions_.size()),
                .num_inputs = static_cast<int32_t>(types_.size()),
                .num_outputs = static_cast<int32_t>(program.outputs.size()),
                .reduction = reduction};
  }
  TranslatedProgram(const TranslatedProgram&) = delete;
  TranslatedProgram& operator=(const TranslatedProgram&) = delete;

  const MrJitProgram& program() const { return program_; }

 private:
  static int32_t TypeCode(DataType type) {
    switch (type) {
      case kFloat:
        return kMrJitFloat;
      case kDouble:
        return kMrJitDouble;
      case kHalf:
        return kMrJitHalf;
      case kBfloat16:
        return kMrJitBfloat16;
      default:
        return kMrJitBool;
    }
  }

  std::vector<MrJitInstruction> instructions_;
  std::vector<int32_t> types_, spreads_;
  MrJitProgram program_;
};

}  // namespace millrace::jit

#endif  // JIT_TRANSLATED_PROGRAM_H_
