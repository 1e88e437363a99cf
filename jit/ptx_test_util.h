// SPDX-License-Identifier: Apache-2.0
// Programs for grids of threads, and what the compiler makes of them.
#ifndef JIT_PTX_TEST_UTIL_H_
#define JIT_PTX_TEST_UTIL_H_

#include <string>
#include <vector>

#include "jit/component_api.h"
#include "jit/fused_layout.h"
#include "jit/translated_program.h"
#include "ops/fused_program.h"

namespace millrace::jit {

// Of the library that was built; never null (the test fails otherwise).
const MrJitApi* Compiler();

struct PtxCase {
  std::string name;
  std::string text;  // as in the attribute "program"
  std::vector<DataType> inputs, outputs;
  std::vector<Spread> spreads;  // empty: all inputs change with each element
};

// Each op, for each type that it has, and longer chains.
std::vector<PtxCase> PtxCases();

FusedProgram ParseCase(const PtxCase& c);
// Whether exp, log, tanh or sigmoid of doubles is in it, which grids have their own of.
bool HasDoubleFunctions(const FusedProgram& program);
// The PTX, or "" and why there is none.
std::string MakePtx(const FusedProgram& program, const std::vector<DataType>& inputs,
                    const std::vector<Spread>& spreads, const std::string& arch, std::string* error,
                    int32_t reduction = kMrJitNoReduction);
// Of a case that must have one.
std::string PtxOf(const PtxCase& c, const std::string& arch, int32_t reduction = kMrJitNoReduction);

// Cases with one output that end in a reduction of rows.
struct ReductionCase {
  PtxCase map;
  std::string op;
  int32_t reduction;
};
std::vector<ReductionCase> ReductionCases();

}  // namespace millrace::jit

#endif  // JIT_PTX_TEST_UTIL_H_
