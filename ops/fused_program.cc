// SPDX-License-Identifier: Apache-2.0
#include "ops/fused_program.h"

#include <charconv>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

std::string_view Strip(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The next word; empty at the end.
std::string_view TakeWord(std::string_view* text) {
  *text = Strip(*text);
  const std::size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end);
  return word;
}

bool ReadNumber(std::string_view text, int limit, int32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 0 && *value < limit;
}

Status Bad(std::string_view what, std::string_view text) {
  return errors::InvalidArgument("not a fused program: ", what, " in \"", text, "\"");
}

int WantedArgs(FusedForm form) {  // -1: any number
  switch (form) {
    case FusedForm::kUnary:
    case FusedForm::kNot:
    case FusedForm::kCast:
      return 1;
    case FusedForm::kChoice:
    case FusedForm::kBroadcastChoice:
      return 3;
    case FusedForm::kSum:
      return -1;
    default:
      return 2;
  }
}

bool FitsOp(const FusedInstruction& in) {
  switch (FormOf(in.op)) {
    case FusedForm::kNot:
    case FusedForm::kLogic:
      return in.type == kBool && in.result == kBool;
    case FusedForm::kCompare:
      return in.type != kBool && in.result == kBool;
    case FusedForm::kCast:
      return true;
    default:
      return in.type != kBool && in.result == in.type;
  }
}

// "Cast:float>double" or "Mul:float".
Status ParseHead(std::string_view word, std::string_view text, FusedInstruction* in) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos || !FindFusedOp(word.substr(0, colon), &in->op)) {
    return Bad("unknown op", text);
  }
  std::string_view from = word.substr(colon + 1), to;
  if (const std::size_t arrow = from.find('>'); arrow != std::string_view::npos) {
    to = from.substr(arrow + 1);
    from = from.substr(0, arrow);
  }
  if (!DataTypeFromName(from, &in->type) || !IsFusedType(in->type)) return Bad("bad type", text);
  in->result = in->type;
  if (FormOf(in->op) == FusedForm::kCompare) in->result = kBool;
  if ((FormOf(in->op) == FusedForm::kCast) != !to.empty()) return Bad("bad type", text);
  if (!to.empty() && (!DataTypeFromName(to, &in->result) || !IsFusedType(in->result))) {
    return Bad("bad type", text);
  }
  return FitsOp(*in) ? OkStatus() : Bad("bad type", text);
}

Status ParseInstruction(std::string_view text, std::span<const DataType> inputs,
                        FusedProgram* program) {
  std::string_view rest = text;
  FusedInstruction in;
  MR_RETURN_IF_ERROR(ParseHead(TakeWord(&rest), text, &in));
  const int done = static_cast<int>(program->instructions.size());
  for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
    const bool is_input = word[0] == 'i';
    int32_t n = 0;
    if ((!is_input && word[0] != 't') ||
        !ReadNumber(word.substr(1), is_input ? static_cast<int>(inputs.size()) : done, &n)) {
      return Bad("bad operand", text);
    }
    const DataType is = is_input ? inputs[n] : program->instructions[n].result;
    if (is != OperandType(in, static_cast<int>(in.args.size()))) return Bad("bad type", text);
    in.args.push_back(is_input ? n : ~n);
    if (in.args.size() > kMaxFusedInputs) return Bad("too many operands", text);
  }
  const int wanted = WantedArgs(FormOf(in.op));
  if (in.args.empty() || (wanted >= 0 && wanted != static_cast<int>(in.args.size()))) {
    return Bad("wrong number of operands", text);
  }
  program->instructions.push_back(std::move(in));
  return OkStatus();
}

}  // namespace

bool FindFusedOp(std::string_view name, FusedOp* op) {
  for (int32_t i = 0; i < kNumFusedOps; ++i) {
    if (name == NameOf(static_cast<FusedOp>(i))) {
      *op = static_cast<FusedOp>(i);
      return true;
    }
  }
  return false;
}

bool IsFusedType(DataType dtype) {
  return dtype == kFloat || dtype == kDouble || dtype == kHalf || dtype == kBfloat16 ||
         dtype == kBool;
}

DataType OperandType(const FusedInstruction& in, int i) {
  const FusedForm form = FormOf(in.op);
  const bool chooses = form == FusedForm::kChoice || form == FusedForm::kBroadcastChoice;
  return chooses && i == 0 ? kBool : in.type;
}

std::string FormatFusedProgram(const FusedProgram& program) {
  std::string text;
  for (const FusedInstruction& in : program.instructions) {
    StrAppend(&text, text.empty() ? "" : "; ", NameOf(in.op), ":", DataTypeName(in.type));
    if (FormOf(in.op) == FusedForm::kCast) StrAppend(&text, ">", DataTypeName(in.result));
    for (const int32_t arg : in.args) {
      StrAppend(&text, arg >= 0 ? " i" : " t", arg >= 0 ? arg : ~arg);
    }
  }
  text += " >";
  for (const int32_t output : program.outputs) StrAppend(&text, " t", output);
  return text;
}

StatusOr<FusedProgram> ParseFusedProgram(std::string_view text, std::span<const DataType> inputs,
                                         std::span<const DataType> outputs) {
  FusedProgram program;
  for (const DataType dtype : inputs) {
    if (!IsFusedType(dtype)) return Bad("an input's type", text);
  }
  if (inputs.size() > kMaxFusedInputs) return Bad("too many inputs", text);
  const std::size_t end = text.rfind('>');
  if (end == std::string_view::npos) return Bad("no outputs", text);
  std::string_view rest = text.substr(0, end), results = text.substr(end + 1);
  while (!rest.empty()) {
    const std::size_t cut = std::min(rest.find(';'), rest.size());
    if (program.instructions.size() == kMaxFusedInstructions) return Bad("too much", text);
    MR_RETURN_IF_ERROR(ParseInstruction(Strip(rest.substr(0, cut)), inputs, &program));
    rest.remove_prefix(std::min(cut + 1, rest.size()));
  }
  const int count = static_cast<int>(program.instructions.size());
  for (std::string_view word = TakeWord(&results); !word.empty(); word = TakeWord(&results)) {
    int32_t n = 0;
    if (word[0] != 't' || !ReadNumber(word.substr(1), count, &n)) return Bad("bad output", text);
    const std::size_t i = program.outputs.size();
    if (i >= outputs.size() || outputs[i] != program.instructions[n].result) {
      return Bad("an output's type", text);
    }
    if (!program.outputs.empty() && n <= program.outputs.back()) return Bad("bad output", text);
    program.outputs.push_back(n);
  }
  if (program.outputs.size() != outputs.size() || outputs.empty()) return Bad("outputs", text);
  return program;
}

}  // namespace millrace
