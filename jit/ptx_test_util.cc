// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx_test_util.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/strings.h"
#include "gtest/gtest.h"

namespace millrace::jit {
namespace {

// One instruction, whose operands are all inputs.
PtxCase OneOp(FusedOp op, DataType type, DataType result) {
  FusedProgram program;
  FusedInstruction in{.op = op, .type = type, .result = result, .args = {}};
  const FusedForm form = FormOf(op);
  const bool one = form == FusedForm::kUnary || form == FusedForm::kNot || form == FusedForm::kCast;
  const bool three =
      form == FusedForm::kChoice || form == FusedForm::kBroadcastChoice || form == FusedForm::kSum;
  PtxCase c;
  for (int i = 0; i < (one ? 1 : three ? 3 : 2); ++i) {
    in.args.push_back(i);
    c.inputs.push_back(OperandType(in, i));
  }
  program.instructions = {in};
  program.outputs = {0};
  c.name = StrCat(NameOf(op), "_", DataTypeName(type), "_", DataTypeName(result));
  c.text = FormatFusedProgram(program);
  c.outputs = {result};
  return c;
}

}  // namespace

const MrJitApi* Compiler() {
  static const MrJitApi* const api = []() -> const MrJitApi* {
    void* const library = dlopen("jit/libmillrace_jit.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      ADD_FAILURE() << dlerror();
      std::exit(1);
    }
    return reinterpret_cast<MrJitGetApi>(dlsym(library, kMrJitEntry))(kMrJitVersion);
  }();
  return api;
}

std::vector<PtxCase> PtxCases() {
  std::vector<PtxCase> cases;
  for (int32_t i = 0; i < kNumFusedOps; ++i) {
    const auto op = static_cast<FusedOp>(i);
    const FusedForm form = FormOf(op);
    if (form == FusedForm::kNot || form == FusedForm::kLogic) {
      cases.push_back(OneOp(op, kBool, kBool));
    } else if (form == FusedForm::kCast) {
      constexpr DataType kAll[] = {kFloat, kDouble, kHalf, kBfloat16, kBool};
      for (const DataType from : kAll) {
        for (const DataType to : kAll) cases.push_back(OneOp(op, from, to));
      }
    } else {
      for (const DataType type : {kFloat, kDouble, kHalf, kBfloat16}) {
        cases.push_back(OneOp(op, type, form == FusedForm::kCompare ? kBool : type));
      }
    }
  }
  cases.push_back({"gelu_like",
                   "Mul:float i0 i0; Mul:float t0 i0; Mul:float t1 i1; Add:float i0 t2; "
                   "Tanh:float t3; Mul:float t4 i0 > t5",
                   {kFloat, kFloat},
                   {kFloat},
                   {Spread::kEach, Spread::kOnce}});
  cases.push_back({"bias_relu",
                   "BiasAdd:float i0 i1; Relu:float t0 > t1",
                   {kFloat, kFloat},
                   {kFloat},
                   {Spread::kEach, Spread::kRow}});
  cases.push_back({"once_is_computed_once",
                   "Exp:float i1; Mul:float i0 t0 > t1",
                   {kFloat, kFloat},
                   {kFloat},
                   {Spread::kEach, Spread::kOnce}});
  // Weights kept as floats, gradients that arrive as halves, a scale for them all.
  cases.push_back({"mixed_precision",
                   "Cast:half>float i1; Mul:float t0 i2; Mul:float t1 t1; Sub:float i0 t2; "
                   "Cast:float>half t3; Relu:half t4; Cast:half>bfloat16 t5; AddN:bfloat16 t6 i3 "
                   "i3 > t3 t5 t7",
                   {kFloat, kHalf, kFloat, kBfloat16},
                   {kFloat, kHalf, kBfloat16},
                   {Spread::kEach, Spread::kEach, Spread::kOnce, Spread::kEach}});
  cases.push_back({"half_bias_tanh",
                   "BiasAdd:half i0 i1; Tanh:half t0; Mul:half t1 i2 > t2",
                   {kHalf, kHalf, kHalf},
                   {kHalf},
                   {Spread::kEach, Spread::kRow, Spread::kOnce}});
  cases.push_back({"bfloat16_choice",
                   "Greater:bfloat16 i0 i1; SelectV2:bfloat16 t0 i0 i1; SquaredDifference:bfloat16 "
                   "t1 i1; LogicalNot:bool t0 > t2 t3",
                   {kBfloat16, kBfloat16},
                   {kBfloat16, kBool},
                   {}});
  cases.push_back({"three_types",
                   "Greater:float i0 i1; Cast:float>double i0; Mul:double t1 i2; "
                   "SelectV2:double t0 t2 i2; Cast:double>float t3 > t0 t3 t4",
                   {kFloat, kFloat, kDouble},
                   {kBool, kDouble, kFloat},
                   {}});
  cases.push_back({"adam_like",
                   "Mul:float i0 i3; Square:float i1; Mul:float t1 i4; Mul:float i2 i5; "
                   "Add:float t2 t3; Sqrt:float t4; Add:float t5 i6; Div:float t0 t6 > t4 t7",
                   {kFloat, kFloat, kFloat, kFloat, kFloat, kFloat, kFloat},
                   {kFloat, kFloat},
                   {Spread::kEach, Spread::kEach, Spread::kEach, Spread::kOnce, Spread::kOnce,
                    Spread::kOnce, Spread::kOnce}});
  for (PtxCase& c : cases) {
    if (c.spreads.empty()) c.spreads.assign(c.inputs.size(), Spread::kEach);
  }
  return cases;
}

FusedProgram ParseCase(const PtxCase& c) {
  const auto program = ParseFusedProgram(c.text, c.inputs, c.outputs);
  EXPECT_TRUE(program.ok()) << c.name << ": " << program.status();
  return program.ok() ? *program : FusedProgram();
}

bool HasDoubleFunctions(const FusedProgram& program) {
  return std::any_of(
      program.instructions.begin(), program.instructions.end(), [](const FusedInstruction& in) {
        const bool is_function = in.op == FusedOp::kExp || in.op == FusedOp::kLog ||
                                 in.op == FusedOp::kTanh || in.op == FusedOp::kSigmoid;
        return is_function && in.type == kDouble;
      });
}

std::string MakePtx(const FusedProgram& program, const std::vector<DataType>& inputs,
                    const std::vector<Spread>& spreads, const std::string& arch, std::string* error,
                    int32_t reduction) {
  const TranslatedProgram translated(program, inputs, spreads, reduction);
  std::string text;
  const auto take = [](void* arg, const char* data, std::size_t size) {
    static_cast<std::string*>(arg)->assign(data, size);
  };
  const char* const problem =
      Compiler()->compile_ptx(&translated.program(), arch.c_str(), take, &text);
  if (problem != nullptr) *error = problem;
  return text;
}

std::vector<ReductionCase> ReductionCases() {
  std::vector<ReductionCase> cases;
  const std::pair<const char*, int32_t> kOps[] = {
      {"Sum", kMrJitSum}, {"Mean", kMrJitMean}, {"Max", kMrJitMax}, {"Min", kMrJitMin}};
  for (const auto& [op, reduction] : kOps) {
    for (const DataType type : {kFloat, kDouble}) {
      const std::string t(DataTypeName(type));
      cases.push_back({{StrCat(op, "_squares_", t),
                        StrCat("Square:", t, " i0 > t0"),
                        {type},
                        {type},
                        {Spread::kEach}},
                       op,
                       reduction});
      cases.push_back({{StrCat(op, "_scaled_rows_", t),
                        StrCat("Sub:", t, " i0 i1; Mul:", t, " t0 i2; Cast:half>",
                               "float i3; Cast:float>", t, " t2; Add:", t, " t1 t3 > t4"),
                        {type, type, type, kHalf},
                        {type},
                        {Spread::kEach, Spread::kRow, Spread::kOnce, Spread::kEach}},
                       op,
                       reduction});
    }
  }
  return cases;
}

std::string PtxOf(const PtxCase& c, const std::string& arch, int32_t reduction) {
  std::string error;
  std::string text = MakePtx(ParseCase(c), c.inputs, c.spreads, arch, &error, reduction);
  EXPECT_EQ(error, "") << c.name;
  return text;
}

}  // namespace millrace::jit
