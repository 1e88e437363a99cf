// SPDX-License-Identifier: Apache-2.0
#include "training/sharding/initial_rows.h"

#include <optional>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/attr_value.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

// Of Philox: floats that are made of one number of its counter, and how far apart the numbers of
// neighbours are where values are drawn again.
constexpr int64_t kGroup = 4, kReservedForGroup = 256;
constexpr int32_t kPhilox = 1;

struct Part {
  const Shape& whole;
  int64_t begin, rows;

  std::vector<int64_t> dims() const {
    std::vector<int64_t> own(whole.dims().begin(), whole.dims().end());
    own[0] = rows;
    return own;
  }
};

Tensor Numbers(const std::vector<int64_t>& values) {
  return Tensor::FromValues<int64_t>(values, Shape({static_cast<int64_t>(values.size())}));
}

std::optional<Tensor> ConstantOf(const Output& x) {
  if (x.op().type() != "Const") return std::nullopt;
  const AttrValue value = x.op().attr("value");
  const Tensor* const tensor = value.tensor();
  return tensor == nullptr ? std::nullopt : std::optional(*tensor);
}

bool HasControlInputs(const Operation& op) {
  for (const Edge* edge : op.node()->in_edges()) {
    if (edge->src->IsOp() && edge->IsControl()) return true;
  }
  return false;
}

// From the middle of the sequence: the group that has the part's first value, and those after it.
Output Drawn(const Scope& s, const Operation& op, const Part& part, std::source_location where) {
  const std::optional<Tensor> seed = ConstantOf(op.input(1));
  if (!seed || op.output(0).dtype() != kFloat) return Output();
  const int64_t width = part.whole.num_elements() / part.whole.dim(0);
  const int64_t first = part.begin * width, count = part.rows * width, before = first % kGroup;
  const bool is_truncated = op.type() == "StatelessTruncatedNormal";
  const auto skipped =
      static_cast<uint64_t>(first / kGroup * (is_truncated ? kReservedForGroup : 1));
  const auto at = ops::StatelessRandomGetKeyCounter(s, *seed, where);
  const Output counter =
      ops::AddV2(s, at.counter, Tensor::FromValues<uint64_t>({skipped, 0}), where);
  const Tensor dims = Numbers(before == 0 ? part.dims() : std::vector{before + count});
  const Tensor alg = Tensor::Scalar<int32_t>(kPhilox);
  const Output drawn =
      is_truncated ? ops::StatelessTruncatedNormalV2(s, dims, at.key, counter, alg, {}, where)
      : op.type() == "StatelessRandomNormal"
          ? ops::StatelessRandomNormalV2(s, dims, at.key, counter, alg, {}, where)
          : ops::StatelessRandomUniformV2(s, dims, at.key, counter, alg, {}, where);
  if (before == 0) return drawn;
  const Output own = ops::Slice(s, drawn, Numbers({before}), Numbers({count}), where);
  return ops::Reshape(s, own, Numbers(part.dims()), where);
}

Output Rows(const Scope& s, const Output& value, const Part& part, std::source_location where) {
  const auto shape = value.shape().AsShape();
  const Operation op = value.op();
  if (!shape || *shape != part.whole || HasControlInputs(op)) return Output();
  const std::string& type = op.type();
  if (type == "StatelessRandomUniform" || type == "StatelessRandomNormal" ||
      type == "StatelessTruncatedNormal") {
    return Drawn(s, op, part, where);
  }
  const bool is_sum = type == "Add" || type == "AddV2";
  if (type != "Fill" && type != "Mul" && !is_sum) return Output();
  const std::optional<Tensor> number = ConstantOf(op.input(1));
  if (!number || number->rank() != 0) return Output();
  if (type == "Fill") return ops::Fill(s, Numbers(part.dims()), *number, where);
  const Output rows = Rows(s, op.input(0), part, where);
  if (!rows.valid()) return Output();
  return is_sum ? ops::Add(s, rows, *number, where) : ops::Mul(s, rows, *number, where);
}

}  // namespace

Output InitialRows(const Scope& scope, const Output& value, const Shape& whole, int64_t begin,
                   int64_t rows, std::source_location where) {
  if (whole.rank() == 0 || whole.num_elements() == 0) return Output();
  return Rows(scope, value, {whole, begin, rows}, where);
}

}  // namespace millrace
