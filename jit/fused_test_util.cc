// SPDX-License-Identifier: Apache-2.0
#include "jit/fused_test_util.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/cancellation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "jit/fused_kernel.h"
#include "jit/instruction_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel_context.h"
#include "ops/all_ops.h"

namespace millrace::jit {
namespace {

Tensor DeepCopy(const Tensor& tensor) {
  Tensor copy(tensor.dtype(), tensor.shape());
  if (tensor.num_bytes() > 0) std::memcpy(copy.raw_data(), tensor.raw_data(), tensor.num_bytes());
  return copy;
}

StatusOr<std::vector<Tensor>> Step(Kernel* kernel, Device* device, std::vector<EdgeValue> in,
                                   const std::vector<DataType>& output_types) {
  StepEnv env;
  CancellationManager cancellation;
  env.cancellation = &cancellation;
  std::vector<EdgeValue> out(output_types.size());
  KernelContext ctx(kernel, device, &env, in, out, output_types);
  MR_RETURN_IF_ERROR(kernel->Compute(ctx));
  std::vector<Tensor> values;
  for (EdgeValue& value : out) values.push_back(std::move(value.value));
  return values;
}

std::vector<DataType> OutputTypes(const FusedProgram& program) {
  std::vector<DataType> types;
  for (const int32_t output : program.outputs) {
    types.push_back(program.instructions[output].result);
  }
  return types;
}

EdgeValue ValueOf(Tensor tensor) {
  EdgeValue value;
  value.value = std::move(tensor);
  value.kind = EdgeValue::Kind::kValue;
  return value;
}

template <typename T>
void Fill(std::mt19937& random, Tensor* tensor) {
  constexpr T kSpecial[] = {T(0),
                            -T(0),
                            std::numeric_limits<T>::infinity(),
                            -std::numeric_limits<T>::infinity(),
                            std::numeric_limits<T>::quiet_NaN(),
                            std::numeric_limits<T>::denorm_min(),
                            std::numeric_limits<T>::max(),
                            T(1),
                            T(88.8),
                            T(-103.9)};
  std::normal_distribution<T> normal(0, 2);
  for (T& x : std::span(tensor->data<T>(), static_cast<std::size_t>(tensor->num_elements()))) {
    x = random() % 16 == 0 ? kSpecial[random() % std::size(kSpecial)] : normal(random);
  }
}

// The same numbers rounded, and the type's own smallest and largest.
template <typename T>
void FillSmall(std::mt19937& random, Tensor* tensor) {
  const auto count = static_cast<std::size_t>(tensor->num_elements());
  Tensor floats(kFloat, tensor->shape());
  Fill<float>(random, &floats);
  const T kSpecial[] = {T::FromBits(1),
                        T::FromBits(0x8001),
                        T::FromBits(0x0080),
                        T::FromBits(0x03ff),
                        T::FromBits(0x0400),
                        T(65504),
                        T(-3e38f)};
  for (std::size_t i = 0; i < count; ++i) {
    tensor->data<T>()[i] =
        random() % 16 == 0 ? kSpecial[random() % std::size(kSpecial)] : T(floats.data<float>()[i]);
  }
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  if constexpr (!std::is_same_v<T, bool>) {
    using C = ComputeType<T>;
    if (std::isnan(static_cast<C>(a)) && std::isnan(static_cast<C>(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
std::string FirstDifference(const Tensor& a, const Tensor& b) {
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const T x = a.data<T>()[i], y = b.data<T>()[i];
    using C = ComputeType<T>;
    if (!SameBits(x, y)) {
      return StrCat("element ", i, ": ", static_cast<C>(x), " and ", static_cast<C>(y));
    }
  }
  return "";
}

}  // namespace

FusedRunner::FusedRunner(int threads) : pool_("fused-test", threads) {
  static_cast<void>(RegisterAllOps(ops_));
  RegisterFusedKernels(kernels_);
  device_ = NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool_, &resources_);
}

StatusOr<std::unique_ptr<Kernel>> FusedRunner::MakeKernel(const FusedProgram& program,
                                                          const std::vector<Tensor>& inputs) {
  std::vector<DataType> in_types;
  for (const Tensor& input : inputs) in_types.push_back(input.dtype());
  const std::vector<DataType> out_types = OutputTypes(program);
  AttrMap attrs;
  attrs.Set("Tin", in_types);
  attrs.Set("Tout", out_types);
  attrs.Set("program", FormatFusedProgram(program));
  std::vector<std::string> nodes;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) nodes.push_back(StrCat("node", i));
  attrs.Set("nodes", nodes);
  return kernels_.Create(device_.get(), ops_.Find("_Fused"), nodes[program.outputs.back()], attrs,
                         in_types, out_types);
}

StatusOr<std::vector<Tensor>> FusedRunner::Run(Kernel* kernel, const FusedProgram& program,
                                               const std::vector<Tensor>& inputs,
                                               bool last_reader) {
  std::vector<EdgeValue> in;
  for (const Tensor& input : inputs) in.push_back(ValueOf(last_reader ? DeepCopy(input) : input));
  return Step(kernel, device_.get(), std::move(in), OutputTypes(program));
}

StatusOr<std::vector<Tensor>> FusedRunner::RunUnfused(const FusedProgram& program,
                                                      const std::vector<Tensor>& inputs) {
  std::vector<Tensor> results;
  for (const FusedInstruction& instruction : program.instructions) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                        MakeInstructionKernel(instruction, "n", device_.get()));
    std::vector<EdgeValue> in;
    for (const int32_t arg : instruction.args) {
      in.push_back(ValueOf(arg >= 0 ? inputs[arg] : results[~arg]));
    }
    MR_ASSIGN_OR_RETURN(std::vector<Tensor> result,
                        Step(kernel.get(), device_.get(), std::move(in), {instruction.result}));
    results.push_back(std::move(result[0]));
  }
  std::vector<Tensor> outputs;
  for (const int32_t output : program.outputs) outputs.push_back(results[output]);
  return outputs;
}

StatusOr<Tensor> FusedRunner::Reduce(const std::string& op, const Tensor& input,
                                     const std::vector<int64_t>& axes) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                      MakeReductionKernel(op, input.dtype(), false, "n", device_.get()));
  const auto given = std::span<const int64_t>(axes);
  Tensor list = Tensor::FromValues<int64_t>(given, Shape({static_cast<int64_t>(axes.size())}));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values,
                      Step(kernel.get(), device_.get(), {ValueOf(input), ValueOf(std::move(list))},
                           {input.dtype()}));
  return values[0];
}

Tensor RandomTensor(std::mt19937& random, DataType type, const Shape& shape) {
  Tensor tensor(type, shape);
  if (type == kFloat) Fill<float>(random, &tensor);
  if (type == kDouble) Fill<double>(random, &tensor);
  if (type == kHalf) FillSmall<Half>(random, &tensor);
  if (type == kBfloat16) FillSmall<BFloat16>(random, &tensor);
  if (type == kBool) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.data<bool>()[i] = random() % 2;
  }
  return tensor;
}

Tensor NumbersAround16BitFloats(DataType type) {
  std::vector<float> numbers;
  DispatchType(TypeList<Half, BFloat16>(), type, [&]<typename T>() {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto x = static_cast<float>(T::FromBits(static_cast<uint16_t>(bits)));
      const auto next = static_cast<float>(T::FromBits(static_cast<uint16_t>(bits + 1)));
      for (const float y : {x, x + (next - x) / 2}) {
        numbers.insert(numbers.end(),
                       {y, std::nextafter(y, INFINITY), std::nextafter(y, -INFINITY)});
      }
    }
  });
  const std::span<const float> all(numbers);
  return Tensor::FromValues<float>(all, Shape({static_cast<int64_t>(numbers.size())}));
}

Tensor RoundedTo(DataType type, const Tensor& floats) {
  Tensor rounded(type, floats.shape());
  DispatchType(TypeList<Half, BFloat16>(), type, [&]<typename T>() {
    for (int64_t i = 0; i < floats.num_elements(); ++i) {
      rounded.data<T>()[i] = T(floats.data<float>()[i]);
    }
  });
  return rounded;
}

RandomCase MakeRandomCase(std::mt19937& random, const Shape& shape) {
  const auto below = [&](std::size_t n) { return static_cast<int32_t>(random() % n); };
  RandomCase made;
  const int32_t row_from = shape.rank() == 0 ? 0 : below(static_cast<std::size_t>(shape.rank()));
  Dims row_dims(shape.dims().begin() + row_from, shape.dims().end());
  const Shape row = *MakeShape(row_dims);
  std::vector<DataType> types;
  // What may be read: inputs of each type first, then results. `whole`: of the full shape.
  struct Readable {
    int32_t arg;
    DataType type;
    bool whole;
  };
  std::vector<Readable> readable;
  const auto add_input = [&](DataType type, const Shape& of) {
    Tensor tensor = RandomTensor(random, type, of);
    readable.push_back({static_cast<int32_t>(made.inputs.size()), type, of == shape});
    made.inputs.push_back(std::move(tensor));
  };
  for (const DataType type : {kFloat, kDouble, kHalf, kBfloat16, kBool}) {
    add_input(type, shape);
    add_input(type, below(3) == 0 ? row : below(2) == 0 ? Shape({}) : shape);
  }
  const auto choose = [&](DataType type, bool whole) {
    std::vector<Readable> fit;
    for (const Readable& r : readable) {
      if (r.type == type && (r.whole || !whole)) fit.push_back(r);
    }
    // Mostly something recent, so that programs are deep.
    const std::size_t from = fit.size() > 3 && below(3) != 0 ? fit.size() - 3 : 0;
    return fit[from + static_cast<std::size_t>(below(fit.size() - from))];
  };
  const int32_t length = 1 + below(14);
  for (int32_t i = 0; i < length; ++i) {
    FusedInstruction in;
    in.op = static_cast<FusedOp>(below(kNumFusedOps));
    const FusedForm form = FormOf(in.op);
    constexpr DataType kNumbers[] = {kFloat, kFloat, kFloat, kDouble, kHalf, kBfloat16, kBfloat16};
    in.type = kNumbers[below(std::size(kNumbers))];
    if (form == FusedForm::kNot || form == FusedForm::kLogic) in.type = kBool;
    in.result = form == FusedForm::kCompare ? kBool : in.type;
    if (form == FusedForm::kCast) {
      constexpr DataType kTypes[] = {kFloat, kDouble, kHalf, kBfloat16, kBool};
      in.type = kTypes[below(std::size(kTypes))];
      in.result = kTypes[below(std::size(kTypes))];
    }
    if (form == FusedForm::kBias && shape.rank() < 2) continue;
    const bool alike = form == FusedForm::kSame || form == FusedForm::kChoice ||
                       form == FusedForm::kSum || form == FusedForm::kBias;
    const bool one =
        form == FusedForm::kUnary || form == FusedForm::kNot || form == FusedForm::kCast;
    const bool three = form == FusedForm::kChoice || form == FusedForm::kBroadcastChoice;
    const int32_t args = one ? 1 : three ? 3 : form == FusedForm::kSum ? 1 + below(5) : 2;
    bool whole = false;
    for (int32_t k = 0; k < args; ++k) {
      if (form == FusedForm::kBias && k == 1) {
        add_input(in.type, Shape({shape.dim(shape.rank() - 1)}));
        in.args.push_back(readable.back().arg);
        continue;
      }
      const Readable r = choose(OperandType(in, k), alike);
      whole |= r.whole;
      in.args.push_back(r.arg);
    }
    readable.push_back({~static_cast<int32_t>(made.program.instructions.size()), in.result, whole});
    made.program.instructions.push_back(std::move(in));
  }
  for (const Readable& r : readable) {
    // The last one of the full shape, and some others.
    if (r.arg < 0 && r.whole && below(4) == 0) made.program.outputs.push_back(~r.arg);
  }
  constexpr DataType kLast[] = {kFloat, kFloat, kFloat, kHalf, kBfloat16};
  const DataType type = kLast[below(std::size(kLast))];
  FusedInstruction last{.op = FusedOp::kAddV2, .type = type, .result = type, .args = {}};
  last.args = {choose(type, true).arg, choose(type, false).arg};
  made.program.outputs.push_back(static_cast<int32_t>(made.program.instructions.size()));
  made.program.instructions.push_back(std::move(last));
  return made;
}

std::string Difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return "another number of outputs";
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (a[k].dtype() != b[k].dtype() || !(a[k].shape() == b[k].shape())) {
      return StrCat("output ", k, " is of another type or shape");
    }
    std::string difference = "no type of a fused program";
    DispatchType(JoinTypes<FloatTypes, TypeList<bool>>(), a[k].dtype(),
                 [&]<typename T>() { difference = FirstDifference<T>(a[k], b[k]); });
    if (!difference.empty()) return StrCat("output ", k, ", ", difference);
  }
  return "";
}

}  // namespace millrace::jit
