// SPDX-License-Identifier: Apache-2.0
#include "millrace/distributed_values.h"

#include <algorithm>

#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/math.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

constexpr CopiesAre kKinds[] = {CopiesAre::kEqual, CopiesAre::kSum, CopiesAre::kMean};

// The collection that has a variable's copies of one kind.
std::string CollectionOf(const Variable& variable, CopiesAre are) {
  const char* kind = are == CopiesAre::kSum    ? "parts_of/"
                     : are == CopiesAre::kMean ? "opinions_of/"
                                               : "copies_of/";
  return StrCat(kind, variable.name());
}

struct Copies {
  CopiesAre are = CopiesAre::kEqual;
  std::vector<Variable> variables;
};

Copies Find(const Variable& variable) {
  const Scope root = RootScopeOf(variable.handle);
  for (const CopiesAre are : kKinds) {
    std::vector<Variable> copies = Variables(root, CollectionOf(variable, are));
    if (!copies.empty()) return {are, std::move(copies)};
  }
  return {};
}

Output ReadNow(const Scope& scope, const Variable& v, std::source_location where) {
  const Scope beside = scope.ColocateWith(v.handle);
  return v.is_resource() ? ops::ReadVariableOp(beside, v.handle, v.dtype(), where)
                         : ops::Identity(beside, v.handle, where);
}

bool CountsInIntegers(DataType dtype) { return dtype == kInt32 || dtype == kInt64; }

}  // namespace

Variable MakeReplicaVariable(const Scope& scope, std::string_view name, const Output& initial_value,
                             std::source_location where) {
  const Variable made =
      MakeVariable(scope, name, initial_value, {.trainable = false, .local = true}, where);
  if (!made.handle.valid()) return made;
  auto& collections = scope.graph()->collections;
  collections[kLocalVariables].pop_back();
  collections[kReplicaVariables].push_back(made.handle);
  return made;
}

void AddCopy(const Variable& variable, const Variable& copy, CopiesAre are) {
  variable.handle.op().graph()->collections[CollectionOf(variable, are)].push_back(copy.handle);
}

std::vector<Variable> CopiesOf(const Variable& variable) { return Find(variable).variables; }

Output WholeValue(const Scope& scope, const Variable& variable, std::source_location where) {
  const Copies copies = Find(variable);
  Expr whole(scope, ReadNow(scope, variable, where));
  if (copies.are == CopiesAre::kEqual) return whole;
  for (const Variable& copy : copies.variables) whole = whole + ReadNow(scope, copy, where);
  if (copies.are == CopiesAre::kSum) return whole;
  return whole / static_cast<float>(copies.variables.size() + 1);
}

Operation AssignWhole(const Scope& scope, const Variable& variable, const Input& value,
                      std::source_location where) {
  const Copies copies = Find(variable);
  if (copies.variables.empty()) return Assign(scope, variable, value, where);
  Input first = value, others = value;
  if (copies.are == CopiesAre::kSum) {
    const int32_t count = static_cast<int32_t>(copies.variables.size()) + 1;
    const Expr whole(scope, ops::Identity(scope, value, where));
    const Output divisor =
        ops::Cast(scope, Constant(scope, Tensor::Scalar<int32_t>(count)), variable.dtype());
    const Expr part(scope, CountsInIntegers(variable.dtype())
                               ? ops::FloorDiv(scope, whole, divisor, where)
                               : ops::RealDiv(scope, whole, divisor, where));
    others = part.output();
    first = CountsInIntegers(variable.dtype())
                ? (whole - (part * (Expr(scope, divisor) - 1))).output()
                : part.output();
  }
  std::vector<Operation> assigned = {Assign(scope, variable, first, where)};
  for (const Variable& copy : copies.variables) {
    assigned.push_back(Assign(scope, copy, others, where));
  }
  return Group(scope, assigned, where);
}

}  // namespace millrace
