// SPDX-License-Identifier: Apache-2.0
#include "placer/op_kinds.h"

#include <algorithm>
#include <cctype>

namespace millrace {

bool IsDatasetOp(const pb::OpDef& def) {
  if (def.output_arg_size() != 1 || def.output_arg(0).type() != pb::DT_VARIANT) return false;
  std::string_view name = def.name();
  if (name == "DatasetFromGraph") return true;
  const std::size_t version = name.find_last_not_of("0123456789");
  if (version != std::string_view::npos && version + 1 < name.size() && name[version] == 'V') {
    name = name.substr(0, version);
  }
  return name.ends_with("Dataset");
}

bool MayLeaveResource(std::string_view op) {
  static constexpr std::string_view kOps[] = {
      "ChooseFastestBranchDataset",
      "ExperimentalGroupByReducerDataset",
      "ExperimentalGroupByWindowDataset",
      "ExperimentalMapAndBatchDataset",
      "ExperimentalNumaMapAndBatchDataset",
      "ExperimentalParallelInterleaveDataset",
      "ExperimentalScanDataset",
      "ExperimentalTakeWhileDataset",
      "FilterDataset",
      "FlatMapDataset",
      "GeneratorDataset",
      "GroupByReducerDataset",
      "GroupByWindowDataset",
      "InterleaveDataset",
      "LegacyParallelInterleaveDatasetV2",
      "LoadDataset",
      "MapAndBatchDataset",
      "MapDataset",
      "ParallelFilterDataset",
      "ParallelInterleaveDataset",
      "ParallelInterleaveDatasetV2",
      "ParallelInterleaveDatasetV3",
      "ParallelInterleaveDatasetV4",
      "ParallelMapDataset",
      "ParallelMapDatasetV2",
      "PartitionedCall",
      "ReduceDataset",
      "SaveDataset",
      "ScanDataset",
      "SnapshotDatasetV2",
      "StatefulPartitionedCall",
      "TakeWhileDataset",
  };
  return std::binary_search(std::begin(kOps), std::end(kOps), op);
}

bool IsMetadataOp(std::string_view op) { return op == "Shape" || op == "Size" || op == "Rank"; }

}  // namespace millrace
