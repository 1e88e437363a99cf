// SPDX-License-Identifier: Apache-2.0
// Splits are shards of the data set, one for each call of a function that goes through its shard in
// a loop, with an iterator of its own. A call that is made again begins its shard anew, and only
// the sums of a call that ended come back.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/control_flow.h"
#include "millrace/data.h"
#include "millrace/evaluator.h"
#include "millrace/ops.h"
#include "millrace/variables.h"

namespace millrace {
namespace {

constexpr int kSplitsPerWorker = 4;

Status Check(const Dataset& dataset, const SplitSums& sums, const SplitOptions& options) {
  MR_RETURN_IF_ERROR(dataset.status());
  if (!sums) return errors::InvalidArgument("an evaluation in splits needs sums to compute");
  if (options.num_splits < 0) {
    return errors::InvalidArgument("num_splits must not be negative, but is ", options.num_splits);
  }
  const std::string text = dataset.DebugString();
  if (dataset.cardinality() == Dataset::kInfinite) {
    return errors::InvalidArgument("the data set ", text,
                                   " has no end: it cannot be evaluated as a whole");
  }
  if (text.find("Shuffle(") != std::string::npos) {
    return errors::InvalidArgument("the data set ", text,
                                   " has another order in each walk, so that splits of it may have "
                                   "one element twice: leave the shuffle out");
  }
  if (dataset.shapes().empty() || !dataset.shapes()[0].has_rank()) {
    return errors::InvalidArgument("the rank of the first component of the data set ", text,
                                   " is not known, whose rows are counted");
  }
  return OkStatus();
}

// Sums and counts of one split, for as long as the iterator has elements.
class SplitLoop {
 public:
  SplitLoop(const Dataset& dataset, const SplitSums& sums) : dataset_(dataset), sums_(sums) {}

  FunctionParts Build(const Scope& worker, int num_splits) const {
    const Output split = Placeholder(worker, kInt64, PartialShape(Shape({})));
    const Output all = dataset_.AddTo(worker);
    if (!all.valid()) return {};
    const Output shard = ops::ShardDataset(worker, all, Tensor::Scalar<int64_t>(num_splits), split,
                                           dataset_.dtypes(), dataset_.shapes());
    const Output iterator = ops::AnonymousIteratorV3(worker, dataset_.dtypes(), dataset_.shapes());
    const Operation begun = ops::MakeIterator(worker, shard, iterator);
    const Scope after = worker.WithControlDependencies({begun});
    // How many sums there are the first element tells: nothing is added to a scalar of no shape.
    const Output none = ops::PlaceholderWithDefault(worker, Tensor::Scalar(0.0), PartialShape());
    const Output zero = Constant(worker, Tensor::Scalar<int64_t>(0));
    const std::vector<Output> ended = WhileLoop(
        worker, {Next(after, iterator), none, zero, zero},
        [](const Scope& s, std::span<const Output> v) { return ops::OptionalHasValue(s, v[0]); },
        [&](const Scope& s, std::span<const Output> v) { return Add(s, iterator, v); });
    if (ended.empty()) return {};
    return {{split}, {ended[1], ended[2], ended[3]}, {}};
  }

 private:
  Output Next(const Scope& scope, const Output& iterator) const {
    return ops::IteratorGetNextAsOptional(scope, iterator, dataset_.dtypes(), dataset_.shapes());
  }

  std::vector<Output> Add(const Scope& s, const Output& iterator,
                          std::span<const Output> variables) const {
    const std::vector<Output> element =
        ops::OptionalGetValue(s, variables[0], dataset_.dtypes(), dataset_.shapes());
    std::vector<Input> numbers;
    for (const Output& sum : sums_(s, element)) {
      numbers.emplace_back(
          ops::Reshape(s, ops::Cast(s, sum, kDouble), Tensor::FromValues<int32_t>({})));
    }
    if (element.empty() || numbers.empty()) {
      s.RecordError(errors::InvalidArgument("an evaluation in splits was given no sums"),
                    std::source_location::current());
      return {};
    }
    const Output one = Constant(s, Tensor::Scalar<int64_t>(1));
    const Output rows =
        dataset_.shapes()[0].rank() == 0
            ? one
            : ops::Cast(s, ops::GatherV2(s, ops::Shape(s, element[0]), 0, 0), kInt64);
    return {Next(s, iterator), ops::Add(s, variables[1], ops::Pack(s, numbers)),
            ops::Add(s, variables[2], rows), ops::Add(s, variables[3], one)};
  }

  const Dataset& dataset_;
  const SplitSums& sums_;
};

}  // namespace

struct SplitEvaluator::Impl {
  ClusterCoordinator& coordinator;
  const int num_splits;
  WorkerFunction function{};

  // Of one split.
  static Status AddTo(SplitResult* all, std::span<const Tensor> part) {
    MR_ASSIGN_OR_RETURN(const auto sums, part[0].TryFlat<double>());
    MR_ASSIGN_OR_RETURN(const int64_t examples, part[1].TryScalar<int64_t>());
    MR_ASSIGN_OR_RETURN(const int64_t elements, part[2].TryScalar<int64_t>());
    if (elements == 0) return OkStatus();  // no sums either
    all->sums.resize(std::max(all->sums.size(), sums.size()));
    for (std::size_t i = 0; i < sums.size(); ++i) all->sums[i] += sums[i];
    all->examples += examples;
    all->elements += elements;
    return OkStatus();
  }
};

SplitEvaluator::SplitEvaluator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SplitEvaluator::~SplitEvaluator() = default;

StatusOr<std::unique_ptr<SplitEvaluator>> SplitEvaluator::Create(ClusterCoordinator& coordinator,
                                                                 const Dataset& dataset,
                                                                 const SplitSums& sums,
                                                                 const SplitOptions& options) {
  MR_RETURN_IF_ERROR(Check(dataset, sums, options));
  const int num_splits =
      options.num_splits > 0 ? options.num_splits : kSplitsPerWorker * coordinator.num_workers();
  std::unique_ptr<Impl> impl(new Impl{coordinator, num_splits});
  MR_ASSIGN_OR_RETURN(impl->function,
                      coordinator.AddFunction(options.name, [&](const Scope& worker) {
                        return SplitLoop(dataset, sums).Build(worker, num_splits);
                      }));
  return std::unique_ptr<SplitEvaluator>(new SplitEvaluator(std::move(impl)));
}

StatusOr<SplitResult> SplitEvaluator::Evaluate() {
  std::vector<RemoteValue> parts;
  for (int split = 0; split < impl_->num_splits; ++split) {
    const Tensor number = Tensor::Scalar<int64_t>(split);
    MR_ASSIGN_OR_RETURN(parts.emplace_back(),
                        impl_->coordinator.Schedule(impl_->function, std::span(&number, 1)));
  }
  MR_RETURN_IF_ERROR(impl_->coordinator.Join());
  MR_ASSIGN_OR_RETURN(const std::vector<std::vector<Tensor>> results,
                      impl_->coordinator.Fetch(parts));
  SplitResult all;
  all.num_splits = impl_->num_splits;
  for (const std::vector<Tensor>& part : results) MR_RETURN_IF_ERROR(Impl::AddTo(&all, part));
  return all;
}

}  // namespace millrace
