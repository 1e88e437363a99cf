// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline/sharding.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"

namespace millrace {
namespace {

struct Part {
  int64_t workers, index;
};

// Shard, of which every worker must have an element.
Dataset NonEmptyShard(const Dataset& input, Part part) {
  const Dataset plain = input.Shard(part.workers, part.index, input.stage()->where);
  if (!plain.status().ok()) return plain;
  DatasetStage stage = *plain.stage();
  stage.add = [part](StagePlace& place) {
    return AddTypedOp(place, "ShardDataset", {{part.workers}, {part.index}},
                      {{"require_non_empty", true}});
  };
  stage.remake = [part](const std::vector<Dataset>& inputs) {
    return NonEmptyShard(inputs[0], part);
  };
  return NewDataset(std::move(stage));
}

bool ReadsFiles(const Dataset& dataset) {
  const DatasetStage& stage = *dataset.stage();
  if (stage.read_file != nullptr) return true;
  if (stage.inner != nullptr && ReadsFiles(*stage.inner)) return true;
  return std::any_of(stage.inputs.begin(), stage.inputs.end(), ReadsFiles);
}

// A shuffle of names comes after the shard: all workers must deal out the same order.
Dataset ShardNames(const Dataset& names, Part part) {
  const DatasetStage& stage = *names.stage();
  if (stage.op != "ShuffleDatasetV3") return NonEmptyShard(names, part);
  return stage.remake({ShardNames(stage.inputs[0], part)});
}

StatusOr<Dataset> ShardFiles(const Dataset& dataset, Part part) {
  const DatasetStage& stage = *dataset.stage();
  if (!stage.files.empty()) {
    const Tensor names = Tensor::FromValues<std::string>(
        stage.files, Shape({static_cast<int64_t>(stage.files.size())}));
    const auto read = [read_file = stage.read_file](const Scope&, std::span<const Output> file) {
      return read_file(file[0]);
    };
    return NonEmptyShard(Dataset::FromTensorSlices({names}, stage.where), part)
        .FlatMap(read, stage.where);
  }
  if (stage.inner != nullptr && ReadsFiles(*stage.inner)) {
    return stage.remake({ShardNames(stage.inputs[0], part)});
  }
  if (stage.gives_file_names) return NonEmptyShard(dataset, part);
  if (stage.inputs.empty()) {
    return errors::NotFound("Found an unshardable source dataset: ", stage.text);
  }
  if (stage.op == "AssertCardinalityDataset") return ShardFiles(stage.inputs[0], part);
  if (stage.remake == nullptr) {
    return errors::NotFound("Did not find a shardable source, walked to a stage which cannot be ",
                            "made again: ", stage.text);
  }
  std::vector<Dataset> inputs;
  for (const Dataset& input : stage.inputs) {
    MR_ASSIGN_OR_RETURN(Dataset sharded, ShardFiles(input, part));
    inputs.push_back(std::move(sharded));
  }
  return stage.remake(inputs);
}

Dataset ShardElements(const Dataset& dataset, Part part) {
  const DatasetStage& stage = *dataset.stage();
  if (stage.op != "PrefetchDataset") return NonEmptyShard(dataset, part);
  return stage.remake({ShardElements(stage.inputs[0], part)});
}

bool HasHint(const Dataset& dataset) {
  const DatasetStage& stage = *dataset.stage();
  return stage.is_shard_hint || std::any_of(stage.inputs.begin(), stage.inputs.end(), HasHint);
}

// The stages up to the hint are made again.
Dataset ShardHinted(const Dataset& dataset, Part part) {
  const DatasetStage& stage = *dataset.stage();
  if (stage.is_shard_hint) return NonEmptyShard(stage.inputs[0], part);
  if (!HasHint(dataset) || stage.remake == nullptr) return dataset;
  std::vector<Dataset> inputs;
  for (const Dataset& input : stage.inputs) inputs.push_back(ShardHinted(input, part));
  return stage.remake(inputs);
}

}  // namespace

StatusOr<ShardedDataset> ShardForWorker(const Dataset& dataset, AutoShard policy, int64_t workers,
                                        int64_t index) {
  MR_RETURN_IF_ERROR(dataset.status());
  if (workers < 1 || index < 0 || index >= workers) {
    return errors::InvalidArgument("there is no worker ", index, " of ", workers);
  }
  const bool is_hinted = policy == AutoShard::kHint && HasHint(dataset);
  if (policy == AutoShard::kOff || (workers == 1 && !is_hinted)) {
    return ShardedDataset{dataset, AutoShard::kOff, ""};
  }
  const Part part{workers, index};
  ShardedDataset result;
  if (policy == AutoShard::kHint) {
    if (!is_hinted) {
      return errors::NotFound("there is no Shard(kShardHint, kShardHint) in ",
                              dataset.DebugString(), ", which the policy kHint asks for");
    }
    result = {ShardHinted(dataset, part), AutoShard::kHint, ""};
  } else if (policy != AutoShard::kData) {
    StatusOr<Dataset> by_file = ShardFiles(dataset, part);
    if (by_file.ok()) {
      result = {*std::move(by_file), AutoShard::kFile, ""};
    } else if (policy == AutoShard::kFile || !errors::IsNotFound(by_file.status())) {
      return by_file.status();
    } else {
      result.reason = std::string(by_file.status().message());
    }
  }
  if (result.policy == AutoShard::kOff) {
    result.dataset = ShardElements(dataset, part);
    result.policy = AutoShard::kData;
  }
  MR_RETURN_IF_ERROR(result.dataset.status());
  result.dataset = result.dataset.WithOptions(dataset.options());
  return result;
}

std::vector<int64_t> BatchSizesForWorker(int64_t global_batch, std::span<const int64_t> replicas,
                                         int64_t index) {
  const auto workers = static_cast<int64_t>(replicas.size());
  if (global_batch < 1 || index < 0 || index >= workers ||
      std::any_of(replicas.begin(), replicas.end(), [](int64_t count) { return count < 1; })) {
    return {};
  }
  const auto own = replicas.begin() + index;
  const int64_t before = std::accumulate(replicas.begin(), own, int64_t{0});
  const int64_t parts = std::accumulate(own, replicas.end(), before);
  std::vector<int64_t> sizes(parts, global_batch / parts);
  for (int64_t i = 0; i < global_batch % parts; ++i) ++sizes[i];
  std::rotate(sizes.begin(), sizes.begin() + before, sizes.end());
  return sizes;
}

std::vector<int64_t> RecordsPerReplica(int64_t records, int64_t replicas) {
  std::vector<int64_t> dealt;
  if (replicas < 1) return dealt;
  const int64_t most = (records + replicas - 1) / replicas;
  for (int64_t left = std::max<int64_t>(records, 0); replicas-- > 0; left -= dealt.back()) {
    dealt.push_back(std::min(left, most));
  }
  return dealt;
}

}  // namespace millrace
