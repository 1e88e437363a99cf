// SPDX-License-Identifier: Apache-2.0
#include "jit/fused_interpreter.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "jit/instruction_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"

namespace millrace::jit {
namespace {

constexpr int64_t kScratchBytes = 32 << 10;
constexpr int64_t kMaxBlock = 1024;

template <typename T>
void ChooseLoop(const bool* c, int64_t c_stride, const void* a_ptr, int64_t a_stride,
                const void* b_ptr, int64_t b_stride, void* out_ptr, int64_t n) {
  const T *a = static_cast<const T*>(a_ptr), *b = static_cast<const T*>(b_ptr);
  T* out = static_cast<T*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i * a_stride], y = b[i * b_stride];
    out[i] = c[i * c_stride] ? x : y;
  }
}

template <typename From, typename To>
void CastLoop(const void* in_ptr, void* out_ptr, int64_t n) {
  const From* in = static_cast<const From*>(in_ptr);
  To* out = static_cast<To*>(out_ptr);
  for (int64_t i = 0; i < n; ++i) {
    // 16-bit floats go through float, as in the kernel.
    const auto x = static_cast<ComputeType<From>>(in[i]);
    if constexpr (std::is_same_v<To, bool>) {
      out[i] = x != ComputeType<From>(0);
    } else {
      out[i] = static_cast<To>(static_cast<ComputeType<To>>(x));
    }
  }
}

using CastTypes = JoinTypes<FloatTypes, TypeList<bool>>;

InstructionLoop::Unary CastLoopOf(DataType from, DataType to) {
  InstructionLoop::Unary loop = nullptr;
  DispatchType(CastTypes(), from, [&]<typename From>() {
    DispatchType(CastTypes(), to, [&]<typename To>() { loop = &CastLoop<From, To>; });
  });
  return loop;
}

// Chosen values are only moved.
InstructionLoop::Choice ChooseLoopOf(DataType type) {
  if (type == kFloat) return &ChooseLoop<float>;
  return type == kDouble ? &ChooseLoop<double> : &ChooseLoop<uint16_t>;
}

int32_t SizeOf(DataType dtype) { return static_cast<int32_t>(DataTypeSize(dtype)); }

}  // namespace

StatusOr<InstructionLoop> FindLoop(const FusedInstruction& in) {
  InstructionLoop loop;
  switch (FormOf(in.op)) {
    case FusedForm::kChoice:
    case FusedForm::kBroadcastChoice:
      loop.choice = ChooseLoopOf(in.type);
      return loop;
    case FusedForm::kCast:
      loop.unary = CastLoopOf(in.type, in.result);
      return loop;
    default:
      return FindKernelLoop(in);
  }
}

FusedInterpreter::FusedInterpreter(const FusedProgram* program,
                                   std::span<const InstructionLoop> loops,
                                   std::span<const Spread> inputs) {
  const std::vector<Spread> spreads = SpreadsOfResults(*program, inputs);
  const int count = static_cast<int>(program->instructions.size());
  for (int i = 0; i < count; ++i) {
    const FusedInstruction& in = program->instructions[i];
    const auto output = std::find(program->outputs.begin(), program->outputs.end(), i);
    Step step{.loop = loops[i],
              .is_once = spreads[i] == Spread::kOnce,
              .is_sum = FormOf(in.op) == FusedForm::kSum,
              .is_last = i == count - 1,
              .number = i,
              .size = SizeOf(in.result),
              .place = 0,
              .output = output == program->outputs.end()
                            ? -1
                            : static_cast<int32_t>(output - program->outputs.begin()),
              .operands = {}};
    for (std::size_t k = 0; k < in.args.size(); ++k) {
      const int32_t arg = in.args[k];
      const Spread spread = arg >= 0 ? inputs[arg] : spreads[~arg];
      step.operands.push_back({.is_input = arg >= 0,
                               .spread = spread,
                               .from = arg >= 0 ? arg : ~arg,
                               .size = SizeOf(OperandType(in, static_cast<int>(k)))});
    }
    steps_.push_back(std::move(step));
  }
  GivePlaces(*program);
}

// Places are used again once a result has been read for the last time.
void FusedInterpreter::GivePlaces(const FusedProgram& program) {
  const int count = static_cast<int>(steps_.size());
  std::vector<int> last(count);
  for (int i = 0; i < count; ++i) {
    last[i] = steps_[i].output >= 0 ? count : i;  // outputs are copied at the end of a block
    for (const Operand& operand : steps_[i].operands) {
      if (!operand.is_input) last[operand.from] = std::max(last[operand.from], i);
    }
  }
  std::vector<int> free;
  int places = 0, size = 1;
  for (int i = 0; i < count; ++i) {
    if (free.empty()) free.push_back(places++);
    steps_[i].place = free.back();
    free.pop_back();
    size = std::max(size, steps_[i].size);
    for (int k = 0; k <= i; ++k) {
      // Not before the step is done: a loop may read an operand after it wrote a result.
      if (last[k] == i && k <= i) free.push_back(steps_[k].place);
    }
  }
  block_ =
      std::clamp<int64_t>(kScratchBytes / (int64_t{places} * size) & ~int64_t{63}, 64, kMaxBlock);
  place_bytes_ = block_ * size;
}

void FusedInterpreter::RunStep(const Step& step, const void* const* in, const void* const* results,
                               void* to, int64_t at, int64_t row, int64_t n) const {
  const auto data = [&](const Operand& operand) -> const void* {
    if (!operand.is_input) return results[operand.from];
    const int64_t skip = operand.spread == Spread::kOnce  ? 0
                         : operand.spread == Spread::kRow ? row
                                                          : at;
    return static_cast<const char*>(in[operand.from]) + skip * operand.size;
  };
  const auto stride = [&](const Operand& operand) -> int64_t {
    return operand.spread == Spread::kOnce && !step.is_once ? 0 : 1;
  };
  const Operand* const x = step.operands.data();
  if (step.loop.choice != nullptr) {
    step.loop.choice(static_cast<const bool*>(data(x[0])), stride(x[0]), data(x[1]), stride(x[1]),
                     data(x[2]), stride(x[2]), to, n);
  } else if (step.is_sum) {
    if (step.operands.size() == 1) std::memcpy(to, data(x[0]), n * step.size);
    for (std::size_t k = 1; k < step.operands.size(); ++k) {
      const void* const first = k == 1 ? data(x[0]) : to;
      step.loop.binary(first, 1, data(x[k]), 1, to, n);
    }
  } else if (step.loop.binary != nullptr) {
    step.loop.binary(data(x[0]), stride(x[0]), data(x[1]), stride(x[1]), to, n);
  } else {
    step.loop.unary(data(x[0]), to, n);
  }
}

void FusedInterpreter::Run(const void* const* in, void* const* out, int64_t begin, int64_t row,
                           int64_t n, uint64_t shared) const {
  alignas(64) char scratch[kScratchBytes];
  alignas(8) char single[kMaxFusedInstructions * 8];
  const void* results[kMaxFusedInstructions];
  for (const Step& step : steps_) {
    if (!step.is_once) continue;
    void* const to = single + step.number * 8;
    RunStep(step, in, results, to, 0, 0, 1);
    results[step.number] = to;
  }
  for (int64_t done = 0; done < n; done += block_) {
    const int64_t count = std::min(block_, n - done), at = begin + done;
    const auto place = [&](const Step& step) -> void* {
      return static_cast<char*>(out[step.output]) + at * step.size;
    };
    for (const Step& step : steps_) {
      if (step.is_once) continue;
      // An output in the place of an input is written when nobody reads that any more; the last
      // step reads what it overwrites just before it does, unless it is a sum of many.
      const bool direct = step.output >= 0 && (shared == 0 || (step.is_last && !step.is_sum));
      void* const to = direct ? place(step) : scratch + step.place * place_bytes_;
      RunStep(step, in, results, to, at, row + done, count);
      results[step.number] = to;
    }
    if (shared == 0) continue;
    for (const Step& step : steps_) {
      if (step.is_once || step.output < 0) continue;
      void* const to = place(step);
      if (results[step.number] != to) std::memcpy(to, results[step.number], count * step.size);
    }
  }
}

}  // namespace millrace::jit
