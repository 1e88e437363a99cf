// SPDX-License-Identifier: Apache-2.0
// What PTX is made of fused programs, and that the code it is made of gives the bits of the CPU's
// kernels (functions of doubles: see grid_math_test). What is left unproven without a GPU is the
// choice of instructions by LLVM and the driver; that these are the exact ones can be read in the
// text.
#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jit/fused_test_util.h"
#include "jit/host_grid.h"
#include "jit/ptx_test_util.h"

namespace millrace::jit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// How often each instruction of PTX is there, by its name with all modifiers.
std::map<std::string, int> Instructions(const std::string& ptx) {
  std::map<std::string, int> counts;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    static const std::regex kForm(R"(^\s*(@!?%p\d+\s+)?([a-z][a-z0-9_.]*)\s.*;.*$)");
    std::smatch match;
    if (std::regex_match(line, match, kForm)) ++counts[match[2]];
  }
  return counts;
}

PtxCase FloatCase(const std::string& text, int inputs, std::vector<Spread> spreads = {}) {
  PtxCase c{"case", text, std::vector<DataType>(inputs, kFloat), {kFloat}, std::move(spreads)};
  if (c.spreads.empty()) c.spreads.assign(inputs, Spread::kEach);
  return c;
}

TEST(PtxTest, AKernelIsAnEntryForTheArchitectureAndLater) {
  const std::string ptx = PtxOf(FloatCase("Mul:float i0 i1 > t0", 2), "sm_75");
  EXPECT_THAT(ptx, HasSubstr(".visible .entry mr_fused_grid("));
  EXPECT_THAT(ptx, HasSubstr(".target sm_75"));
  EXPECT_THAT(ptx, HasSubstr(".version 6.3"));
  EXPECT_THAT(ptx, HasSubstr(".maxntid 256"));
  EXPECT_THAT(ptx, HasSubstr(".address_size 64"));
  EXPECT_THAT(ptx, Not(HasSubstr(".extern")));
  // Two inputs, an output, the number of elements, the period.
  std::set<std::string> params;
  const std::regex param(R"(\.param \.[a-z0-9]+ (\S*mr_fused_grid_param_\d+))");
  for (std::sregex_iterator i(ptx.begin(), ptx.end(), param), end; i != end; ++i) {
    params.insert((*i)[1]);
  }
  EXPECT_EQ(params.size(), 5u) << ptx;
  EXPECT_THAT(PtxOf(FloatCase("Mul:float i0 i1 > t0", 2), "sm_90a"), HasSubstr(".target sm_90a"));
}

TEST(PtxTest, AnUnknownArchitectureIsRefusedByName) {
  std::string error;
  const PtxCase c = FloatCase("Neg:float i0 > t0", 1);
  EXPECT_EQ(MakePtx(ParseCase(c), c.inputs, c.spreads, "sm_12", &error), "");
  EXPECT_THAT(error, HasSubstr("no PTX is made for sm_12, but for sm_75"));
}

TEST(PtxTest, ElementsAreMovedSixteenBytesAtATime) {
  auto counts = Instructions(PtxOf(FloatCase("Mul:float i0 i1 > t0", 2), "sm_75"));
  EXPECT_EQ(counts["ld.global.v4.f32"], 2);
  EXPECT_EQ(counts["st.global.v4.f32"], 1);
  EXPECT_EQ(counts["ld.global.f32"], 2) << "one by one where that may not be";
  EXPECT_EQ(counts["st.global.f32"], 1);
  EXPECT_EQ(counts["mul.rn.f32"], 4 + 1);
  const PtxCase wide{
      "", "Add:double i0 i1 > t0", {kDouble, kDouble}, {kDouble}, {Spread::kEach, Spread::kEach}};
  counts = Instructions(PtxOf(wide, "sm_75"));
  EXPECT_EQ(counts["ld.global.v2.f64"], 2);
  EXPECT_EQ(counts["st.global.v2.f64"], 1);
  for (const DataType type : {kHalf, kBfloat16}) {
    const PtxCase small{"",
                        StrCat("Mul:", DataTypeName(type), " i0 i1 > t0"),
                        {type, type},
                        {type},
                        {Spread::kEach, Spread::kEach}};
    counts = Instructions(PtxOf(small, "sm_75"));
    EXPECT_EQ(counts["ld.global.v4.u32"], 2) << "eight at once";
    EXPECT_EQ(counts["st.global.v4.u32"], 1);
    EXPECT_EQ(counts["ld.global.u16"] + counts["ld.global.b16"], 2) << "and one by one";
    EXPECT_EQ(counts["st.global.u16"] + counts["st.global.b16"], 1);
    EXPECT_EQ(counts["mul.rn.f32"], 8 + 1);
  }
  const PtxCase bools{"", "LogicalNot:bool i0 > t0", {kBool}, {kBool}, {Spread::kEach}};
  counts = Instructions(PtxOf(bools, "sm_75"));
  EXPECT_EQ(counts["ld.global.u32"], 1) << "four bools at once";
  EXPECT_EQ(counts["st.global.u32"], 1);
}

TEST(PtxTest, WhatDoesNotChangeIsReadAndComputedOnce) {
  const auto counts = Instructions(PtxOf(FloatCase("Div:float i1 i2; Mul:float i0 t0 > t1", 3,
                                                   {Spread::kEach, Spread::kOnce, Spread::kOnce}),
                                         "sm_75"));
  EXPECT_EQ(counts.at("div.rn.f32"), 1);
  EXPECT_EQ(counts.at("ld.global.f32"), 2 + 1);
}

TEST(PtxTest, RowsAreFollowedWithoutDivisionsInTheLoop) {
  const std::string ptx =
      PtxOf(FloatCase("BiasAdd:float i0 i1 > t0", 2, {Spread::kEach, Spread::kRow}), "sm_75");
  const auto counts = Instructions(ptx);
  EXPECT_EQ(counts.at("rem.u64"), 4) << "two before each loop";
  EXPECT_EQ(counts.at("ld.global.v4.f32"), 2);
  int loops = 0;
  const std::regex branch(R"(bra\s+(\$L__BB\d+_\d+);)");
  for (std::sregex_iterator i(ptx.begin(), ptx.end(), branch), end; i != end; ++i) {
    const std::size_t label = ptx.find(StrCat("\n", (*i)[1].str(), ":"));
    const auto at = static_cast<std::size_t>(i->position());
    if (label > at) continue;
    EXPECT_THAT(ptx.substr(label, at - label), Not(HasSubstr("rem.")));
    ++loops;
  }
  EXPECT_EQ(loops, 2) << ptx;
}

TEST(PtxTest, EveryOperationRoundsAsIeee754Asks) {
  const std::set<std::string> kNever = {"mad.f32", "mad.f64", "ex2",   "lg2", "sin",
                                        "cos",     "tanh",    "rsqrt", "call"};
  for (const PtxCase& c : PtxCases()) {
    const std::string ptx = PtxOf(c, "sm_75");
    const bool may_join = HasDoubleFunctions(ParseCase(c));
    for (const auto& [name, count] : Instructions(ptx)) {
      SCOPED_TRACE(c.name + ": " + name);
      if (name.starts_with("fma")) {
        EXPECT_TRUE(may_join && name == "fma.rn.f64");
      }
      EXPECT_THAT(name, Not(HasSubstr("approx")));
      EXPECT_THAT(name, Not(HasSubstr("ftz")));
      EXPECT_THAT(name, Not(HasSubstr("full")));
      EXPECT_EQ(kNever.count(name.substr(0, name.find('.'))), 0u);
      const bool floating = name.ends_with(".f32") || name.ends_with(".f64");
      const std::string head = name.substr(0, name.find('.'));
      if (floating && (head == "add" || head == "sub" || head == "mul" || head == "div" ||
                       head == "sqrt" || head == "rcp")) {
        // Without it the assembler may join a product and a sum.
        EXPECT_THAT(name, HasSubstr(".rn."));
      }
    }
  }
}

struct Expected {
  const char* text;
  DataType in, out;
  std::map<std::string, int> per_element;
};

TEST(PtxTest, OpsBecomeTheInstructionsThatTheyAre) {
  const std::vector<Expected> table = {
      {"Abs:float i0 > t0", kFloat, kFloat, {{"abs.f32", 1}}},
      {"Abs:double i0 > t0", kDouble, kDouble, {{"abs.f64", 1}}},
      {"Neg:float i0 > t0", kFloat, kFloat, {{"neg.f32", 1}}},
      {"Sqrt:float i0 > t0", kFloat, kFloat, {{"sqrt.rn.f32", 1}}},
      {"Sqrt:double i0 > t0", kDouble, kDouble, {{"sqrt.rn.f64", 1}}},
      {"Rsqrt:float i0 > t0", kFloat, kFloat, {{"sqrt.rn.f32", 1}, {"rcp.rn.f32", 1}}},
      {"Reciprocal:double i0 > t0", kDouble, kDouble, {{"rcp.rn.f64", 1}}},
      {"Square:float i0 > t0", kFloat, kFloat, {{"mul.rn.f32", 1}}},
      {"Cast:float>double i0 > t0", kFloat, kDouble, {{"cvt.f64.f32", 1}}},
      {"Cast:double>float i0 > t0", kDouble, kFloat, {{"cvt.rn.f32.f64", 1}}},
      {"Div:float i0 i0 > t0", kFloat, kFloat, {{"div.rn.f32", 1}}},
      {"Div:double i0 i0 > t0", kDouble, kDouble, {{"div.rn.f64", 1}}},
      {"Cast:half>float i0 > t0", kHalf, kFloat, {{"cvt.f32.f16", 1}}},
      {"Cast:float>half i0 > t0", kFloat, kHalf, {{"cvt.rn.f16.f32", 1}}},
      {"Cast:double>half i0 > t0", kDouble, kHalf, {{"cvt.rn.f32.f64", 1}, {"cvt.rn.f16.f32", 1}}},
      {"Add:half i0 i0 > t0", kHalf, kHalf, {{"add.rn.f32", 1}, {"cvt.rn.f16.f32", 1}}},
      {"Add:bfloat16 i0 i0 > t0", kBfloat16, kBfloat16, {{"add.rn.f32", 1}}},
      {"Exp:float i0 > t0", kFloat, kFloat, {{"cvt.rzi.s32.f32", 1}}},
      {"Exp:double i0 > t0", kDouble, kDouble, {{"cvt.rzi.s32.f64", 1}, {"fma.rn.f64", 15}}},
      {"Log:double i0 > t0", kDouble, kDouble, {{"div.rn.f64", 1}, {"fma.rn.f64", 10}}},
      {"TanhGrad:float i0 i0 > t0", kFloat, kFloat, {{"mul.rn.f32", 2}, {"sub.rn.f32", 1}}},
  };
  for (const Expected& row : table) {
    const PtxCase c{row.text, row.text, {row.in}, {row.out}, {Spread::kEach}};
    const auto counts = Instructions(PtxOf(c, "sm_75"));
    const int lanes = 16 / static_cast<int>(std::max(DataTypeSize(row.in), DataTypeSize(row.out)));
    for (const auto& [name, count] : row.per_element) {
      const auto found = counts.find(name);
      ASSERT_NE(found, counts.end()) << row.text << " without " << name;
      EXPECT_EQ(found->second, count * (lanes + 1)) << row.text << ": " << name;
    }
  }
}

TEST(PtxTest, ATeamOfSixteenPutsItsPartialResultsTogetherInHalves) {
  for (const ReductionCase& c : ReductionCases()) {
    SCOPED_TRACE(c.map.name);
    const bool wide = c.map.outputs[0] == kDouble;
    const std::string ptx = PtxOf(c.map, "sm_75", c.reduction);
    std::vector<std::string> moves;
    const std::regex move(
        R"(shfl\.sync\.down\.b32\s+%r\d+(?:\|%p\d+)?, %r\d+, (\d+), (\d+), %r\d+;)");
    for (std::sregex_iterator i(ptx.begin(), ptx.end(), move), end; i != end; ++i) {
      EXPECT_EQ((*i)[2], "4127") << "segments of sixteen: 0x101f";
      moves.push_back((*i)[1]);
    }
    using Moves = std::vector<std::string>;
    EXPECT_EQ(moves,
              wide ? Moves({"8", "8", "4", "4", "2", "2", "1", "1"}) : Moves({"8", "4", "2", "1"}))
        << ptx;
    const auto counts = Instructions(ptx);
    EXPECT_EQ(counts.count(wide ? "div.rn.f64" : "div.rn.f32"), c.op == "Mean" ? 1u : 0u);
    for (const auto& [name, count] : counts) {
      EXPECT_THAT(name, Not(HasSubstr("approx")));
      EXPECT_THAT(name, Not(HasSubstr("fma")));
      EXPECT_THAT(name, Not(HasSubstr("atom")));
    }
  }
}

TEST(PtxTest, EqualProgramsGiveEqualText) {
  for (const PtxCase& c : PtxCases()) EXPECT_EQ(PtxOf(c, "sm_80"), PtxOf(c, "sm_80"));
}

// The program's parts, one after the other: the CPU's kernels but for functions of doubles, of
// which a grid has its own.
StatusOr<std::vector<Tensor>> RunParts(FusedRunner* runner, const FusedProgram& program,
                                       const std::vector<Tensor>& inputs) {
  std::vector<Tensor> results;
  for (const FusedInstruction& in : program.instructions) {
    FusedProgram part{.instructions = {in}, .outputs = {0}};
    std::vector<Tensor> args;
    for (std::size_t k = 0; k < in.args.size(); ++k) {
      args.push_back(in.args[k] >= 0 ? inputs[in.args[k]] : results[~in.args[k]]);
      part.instructions[0].args[k] = static_cast<int32_t>(k);
    }
    if (HasDoubleFunctions(part)) {
      const FusedLayout layout = MakeFusedLayout(part, std::vector<Shape>{args[0].shape()});
      results.push_back(HostGrid(part, {kDouble}, layout).Run(args, 1, 0, false)[0]);
      continue;
    }
    auto values = runner->RunUnfused(part, args);
    if (!values.ok()) return values.status();
    results.push_back((*values)[0]);
  }
  std::vector<Tensor> outputs;
  for (const int32_t output : program.outputs) outputs.push_back(results[output]);
  return outputs;
}

TEST(GridTest, RandomProgramsGiveTheBitsOfTheCpuKernels) {
  const std::vector<Shape> shapes = {Shape({}),      Shape({1}),      Shape({7}),
                                     Shape({64}),    Shape({3, 5}),   Shape({17, 33}),
                                     Shape({30, 8}), Shape({9, 12}),  Shape({2, 3, 4, 5}),
                                     Shape({1000}),  Shape({130, 10})};
  FusedRunner runner(0);
  int ran = 0, grouped = 0, rows = 0, functions = 0;
  for (int seed = 0; seed < 160; ++seed) {
    std::mt19937 random(5000 + seed);
    const RandomCase c = MakeRandomCase(random, shapes[seed % shapes.size()]);
    SCOPED_TRACE(StrCat("seed ", seed, ": ", FormatFusedProgram(c.program)));
    std::vector<Shape> input_shapes;
    std::vector<DataType> types;
    for (const Tensor& input : c.inputs) {
      input_shapes.push_back(input.shape());
      types.push_back(input.dtype());
    }
    const FusedLayout layout = MakeFusedLayout(c.program, input_shapes);
    if (!layout.is_one_loop) continue;
    HostGrid grid(c.program, types, layout);
    ASSERT_EQ(grid.error(), "");
    const auto expected = RunParts(&runner, c.program, c.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const int shift : {0, 1}) {
      for (const int64_t threads : {1, 3, 64}) {
        for (const bool in_place : {false, true}) {
          ASSERT_EQ(Difference(grid.Run(c.inputs, threads, shift, in_place), *expected), "")
              << threads << " threads, moved by " << shift << (in_place ? ", in place" : "");
        }
      }
    }
    ++ran;
    grouped += layout.count >= 8 && (layout.period % 8 == 0);
    rows += layout.period != 0;
    functions += HasDoubleFunctions(c.program);
  }
  EXPECT_GT(ran, 60);
  EXPECT_GT(grouped, 30);
  EXPECT_GT(rows, 5);
  EXPECT_GT(functions, 5);
}

TEST(GridTest, ReductionsGiveTheBitsOfTheCpuKernels) {
  const std::vector<Shape> shapes = {Shape({3, 2}),    Shape({5, 15}),    Shape({9, 16}),
                                     Shape({7, 17}),   Shape({40, 100}),  Shape({6, 63}),
                                     Shape({2, 1000}), Shape({3, 4, 28}), Shape({1000, 65})};
  FusedRunner runner(0);
  for (const ReductionCase& c : ReductionCases()) {
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(StrCat(c.map.name, " ", shape.DebugString()));
      const FusedProgram program = ParseCase(c.map);
      std::mt19937 random(static_cast<unsigned>(shape.num_elements()));
      std::vector<Tensor> inputs;
      std::vector<Shape> input_shapes;
      for (std::size_t i = 0; i < c.map.inputs.size(); ++i) {
        const Shape of = c.map.spreads[i] == Spread::kOnce  ? Shape({})
                         : c.map.spreads[i] == Spread::kRow ? Shape({shape.dim(shape.rank() - 1)})
                                                            : shape;
        inputs.push_back(RandomTensor(random, c.map.inputs[i], of));
        input_shapes.push_back(of);
      }
      const FusedLayout layout = MakeFusedLayout(program, input_shapes);
      ASSERT_TRUE(layout.is_one_loop);
      // Of three axes the last two, so that what repeats does so within a row.
      std::vector<int64_t> axes;
      for (int axis = 1; axis < shape.rank(); ++axis) axes.push_back(axis);
      const std::optional<FusedRows> rows = FindFusedRows(shape, axes, false);
      ASSERT_TRUE(rows.has_value());
      HostGrid grid(program, c.map.inputs, layout, c.reduction);
      ASSERT_EQ(grid.error(), "");
      const auto mapped = runner.RunUnfused(program, inputs);
      ASSERT_TRUE(mapped.ok()) << mapped.status();
      const auto expected = runner.Reduce(c.op, (*mapped)[0], axes);
      ASSERT_TRUE(expected.ok()) << expected.status();
      for (const int64_t threads : {1, 5}) {
        EXPECT_EQ(Difference({grid.Reduce(inputs, threads, *rows)}, {*expected}), "");
      }
    }
  }
}

TEST(GridTest, EachNumberIsRoundedToTheNearestOf16Bits) {
  for (const DataType type : {kHalf, kBfloat16}) {
    const Tensor numbers = NumbersAround16BitFloats(type);
    const PtxCase c{"",
                    StrCat("Cast:float>", DataTypeName(type), " i0 > t0"),
                    {kFloat},
                    {type},
                    {Spread::kEach}};
    const FusedProgram program = ParseCase(c);
    const FusedLayout layout = MakeFusedLayout(program, std::vector<Shape>{numbers.shape()});
    HostGrid grid(program, c.inputs, layout);
    ASSERT_EQ(grid.error(), "");
    EXPECT_EQ(Difference(grid.Run({numbers}, 32, 0, false), {RoundedTo(type, numbers)}), "");
  }
}

TEST(GridTest, EachOpGivesTheBitsOfItsKernel) {
  FusedRunner runner(0);
  for (const PtxCase& c : PtxCases()) {
    SCOPED_TRACE(c.name);
    const FusedProgram program = ParseCase(c);
    if (HasDoubleFunctions(program)) continue;  // grid_math_test
    std::mt19937 random(7);
    std::vector<Tensor> inputs;
    std::vector<Shape> input_shapes;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      const Shape shape = c.spreads[i] == Spread::kOnce  ? Shape({})
                          : c.spreads[i] == Spread::kRow ? Shape({8})
                                                         : Shape({250, 8});
      inputs.push_back(RandomTensor(random, c.inputs[i], shape));
      input_shapes.push_back(shape);
    }
    // Of a choice all shapes agree; a bias has two axes beside it: both hold here.
    const FusedLayout layout = MakeFusedLayout(program, input_shapes);
    const bool is_bias = FormOf(program.instructions[0].op) == FusedForm::kBias;
    if (is_bias && c.spreads[1] != Spread::kRow) continue;  // the case bias_relu has it
    ASSERT_TRUE(layout.is_one_loop);
    HostGrid grid(program, c.inputs, layout);
    ASSERT_EQ(grid.error(), "");
    const auto expected = runner.RunUnfused(program, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Difference(grid.Run(inputs, 32, 0, false), *expected), "");
  }
}

}  // namespace
}  // namespace millrace::jit
