// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline/pieces.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/sharding.h"
#include "data/pipeline/stage.h"
#include "millrace/math.h"

namespace millrace {
namespace {

using Elements = std::span<const Output>;

// Where pieces of a batch begin and end, two int32 vectors, by the number of its rows.
using Cut = std::function<std::pair<Output, Output>(const Scope& scope, const Output& rows)>;

Tensor Vector(std::span<const int64_t> values) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return Tensor::FromValues<int32_t>(narrow, Shape({static_cast<int64_t>(narrow.size())}));
}

// Some of `all` equal pieces.
Cut EqualPieces(std::vector<int64_t> wanted, int64_t all) {
  return [wanted = std::move(wanted), all](const Scope& s, const Output& rows) {
    const int32_t count = static_cast<int32_t>(all);
    const Expr chunk(s, ops::FloorDiv(s, Expr(s, rows) + (count - 1), count));
    const Expr begins(s, ops::Mul(s, Vector(wanted), chunk));
    return std::make_pair(begins.Min(rows).output(), (begins + chunk).Min(rows).output());
  };
}

// Pieces of these sizes, as far as there are rows; all of them, empty ones too, of a whole batch.
Cut PiecesOfSizes(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> ends(sizes.size()), begins;
  std::partial_sum(sizes.begin(), sizes.end(), ends.begin());
  for (std::size_t i = 0; i < sizes.size(); ++i) begins.push_back(ends[i] - sizes[i]);
  return [begins, ends](const Scope& s, const Output& rows) {
    const Expr begin(s, Constant(s, Vector(begins))), end(s, Constant(s, Vector(ends)));
    const Expr used = (begin < rows).Cast(kInt32).Sum();
    const Expr is_whole = Expr(s, rows) >= static_cast<int32_t>(ends.back());
    const Expr count = is_whole.Select(static_cast<int32_t>(ends.size()), used);
    const auto first = [&](const Expr& v) {
      return ops::StridedSlice(s, v.Min(rows), {0}, count.ExpandDims(0), {1});
    };
    return std::make_pair(first(begin), first(end));
  };
}

Dataset CutBatches(const Dataset& batches, const Cut& cut) {
  const std::source_location where = batches.stage()->where;
  const auto pieces = [cut, where](const Scope& s, Elements batch) {
    const Output rows = ops::GatherV2(s, ops::Shape(s, batch[0]), 0, 0);
    const auto [begins, ends] = cut(s, rows);
    // Each as a vector of one number, which a slice takes.
    const auto column = [&](const Output& v) { return ops::Reshape(s, v, {-1, 1}); };
    const Dataset bounds = Dataset::FromOutputSlices({column(begins), column(ends)}, where);
    const Dataset whole = Dataset::FromOutputs({batch.begin(), batch.end()}, where);
    const auto slice = [](const Scope& scope, Elements parts) {
      const std::size_t components = parts.size() - 2;
      std::vector<Output> rows_of;
      for (std::size_t i = 0; i < components; ++i) {
        rows_of.push_back(
            ops::StridedSlice(scope, parts[i], parts[components], parts[components + 1], {1}));
      }
      return rows_of;
    };
    return Dataset::Zip({whole.Repeat(-1, where), bounds}, where).Map(slice, {}, where);
  };
  return batches.FlatMap(pieces, where);
}

// Of the batches that the elements are; 0 if it is not known.
int64_t BatchSizeOf(const Dataset& dataset) {
  constexpr std::array kKeepBatches = {"AssertCardinalityDataset",
                                       "CacheDatasetV2",
                                       "FilterDataset",
                                       "IgnoreErrorsDataset",
                                       "PrefetchDataset",
                                       "RepeatDataset",
                                       "ShardDataset",
                                       "ShuffleDatasetV3",
                                       "SkipDataset",
                                       "TakeDataset"};
  const DatasetStage& stage = *dataset.stage();
  if (stage.batch_size > 0) return stage.batch_size;
  const bool keeps =
      std::find(kKeepBatches.begin(), kKeepBatches.end(), stage.op) != kKeepBatches.end();
  return keeps && !stage.inputs.empty() ? BatchSizeOf(stage.inputs[0]) : 0;
}

// Gives shuffles that have no seed one, in the order in which the pipeline is walked.
class Orders {
 public:
  explicit Orders(int64_t seed) : next_(seed) {}

  Dataset Fix(const Dataset& dataset) {
    const DatasetStage& stage = *dataset.stage();
    if (const auto known = fixed_.find(&stage); known != fixed_.end()) return known->second;
    std::vector<Dataset> inputs;
    bool is_changed = false;
    for (const Dataset& input : stage.inputs) {
      inputs.push_back(Fix(input));
      is_changed = is_changed || inputs.back().stage() != input.stage();
    }
    Dataset result = dataset;
    if (stage.seeded != nullptr) {
      result = stage.seeded(inputs, next_++);
    } else if (is_changed && stage.remake != nullptr) {
      result = stage.remake(inputs);
    }
    fixed_.emplace(&stage, result);
    return result;
  }

 private:
  int64_t next_;
  std::map<const DatasetStage*, Dataset> fixed_;
};

int64_t NumReplicas(const WorkerPart& part) {
  return std::accumulate(part.replicas.begin(), part.replicas.end(), int64_t{0});
}

// Of the equal pieces of a batch those of this worker's replicas.
std::vector<int64_t> DealtPieces(const WorkerPart& part) {
  const auto own = part.replicas.begin() + part.index;
  std::vector<int64_t> dealt;
  for (int64_t r = 0; r < *own; ++r) {
    int64_t before = 0;
    for (auto of = part.replicas.begin(); of != part.replicas.end(); ++of) {
      if (part.takes_neighbours) {
        before += of < own ? *of : 0;
      } else {
        before += std::min(*of, of < own ? r + 1 : r);
      }
    }
    dealt.push_back(part.takes_neighbours ? before + r : before);
  }
  return dealt;
}

Status CheckBatches(const Dataset& batches, const WorkerPart& part) {
  MR_RETURN_IF_ERROR(batches.status());
  for (const PartialShape& shape : batches.shapes()) {
    if (shape.has_rank() && shape.rank() > 0) continue;
    return errors::InvalidArgument(
        "Call the `batch` method on the input Dataset in order to be able to split your input "
        "across ",
        NumReplicas(part), " replicas. (A component of an element of ", batches.DebugString(),
        " is of shape ", shape.DebugString(), ": it has no axis of samples)");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Pieces> PiecesForWorker(const Dataset& batches, AutoShard policy, const WorkerPart& part,
                                 int64_t order_seed) {
  MR_RETURN_IF_ERROR(CheckBatches(batches, part));
  const auto workers = static_cast<int64_t>(part.replicas.size());
  MR_ASSIGN_OR_RETURN(const ShardedDataset read,
                      ShardForWorker(batches, policy, workers, part.index));
  Pieces pieces;
  pieces.policy = read.policy;
  pieces.reason = read.reason;
  const int64_t all = NumReplicas(part);
  if (read.policy == AutoShard::kData || workers == 1) {
    // What was dealt out element by element is dealt out within each batch instead.
    const bool by_itself = workers == 1;
    const Dataset whole = by_itself ? read.dataset : batches;
    const bool fixes = !by_itself && order_seed != 0;
    pieces.dataset = CutBatches(fixes ? Orders(order_seed).Fix(whole) : whole,
                                EqualPieces(DealtPieces(part), all));
    pieces.steps = whole.cardinality();
  } else {
    const int64_t size = BatchSizeOf(batches);
    std::vector<int64_t> each(static_cast<std::size_t>(all));
    std::iota(each.begin(), each.end(), 0);
    const std::vector<int64_t> sizes = BatchSizesForWorker(size, part.replicas, part.index);
    pieces.dataset =
        CutBatches(read.dataset, sizes.empty() ? EqualPieces(each, all) : PiecesOfSizes(sizes));
    if (read.dataset.cardinality() == Dataset::kInfinite) pieces.steps = Dataset::kInfinite;
  }
  MR_RETURN_IF_ERROR(pieces.dataset.status());
  return pieces;
}

Dataset WithEmptyBatches(const Dataset& batches) {
  if (!batches.status().ok()) return batches;
  const std::source_location where = batches.stage()->where;
  const auto flag = [&](float value) { return Tensor::Scalar<float>(value); };
  const Dataset marked =
      Dataset::Zip({batches, Dataset::FromTensors({flag(1)}, where).Repeat(-1, where)}, where);
  if (batches.cardinality() == Dataset::kInfinite) return marked;
  std::vector<Tensor> empty;
  for (std::size_t i = 0; i < batches.dtypes().size(); ++i) {
    const PartialShape& shape = batches.shapes()[i];
    if (!shape.has_rank() || shape.rank() == 0) {
      return FailedDataset(
          errors::InvalidArgument("component ", i, " of an element of ", batches.DebugString(),
                                  " is of shape ", shape.DebugString(), ", which is no batch's"),
          where);
    }
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    for (int64_t& dim : dims) dim = dim < 0 ? 1 : dim;
    dims[0] = 0;
    StatusOr<Tensor> none = Tensor::Allocate(batches.dtypes()[i], Shape(dims));
    if (!none.ok()) return FailedDataset(none.status(), where);
    empty.push_back(*std::move(none));
  }
  empty.push_back(flag(0));
  return marked.Concatenate(Dataset::FromTensors(std::move(empty), where).Repeat(-1, where), where);
}

}  // namespace millrace
