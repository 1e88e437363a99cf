// SPDX-License-Identifier: Apache-2.0
// What travels between devices in one run: predicted from static shapes, and counted.
#ifndef PLANNER_TRAFFIC_H_
#define PLANNER_TRAFFIC_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "planner/how_often.h"
#include "planner/prepared_run.h"
#include "proto/graph.pb.h"
#include "proto/step_stats.pb.h"

namespace millrace {

inline constexpr int64_t kUnbounded = -1;
inline constexpr char kClient[] = "client";

// Bytes of tensors, without what the protocols around them add.
struct ByteRange {
  int64_t least = 0, most = 0;  // most: kUnbounded if nothing is known
  bool IsExact() const { return least == most; }
  ByteRange& operator+=(const ByteRange& other);
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
// "96", "0 to 96", "at least 0".
std::string ToText(const ByteRange& range);

// The bytes of one value. Exact if the shape is static and the type of a fixed size; otherwise
// 0 to unbounded.
ByteRange BytesOf(DataType type, const PartialShape& shape);

// One send with its receive.
struct Transfer {
  std::string from, to;  // devices; kClient for the program that runs the session
  std::string tensor;    // "n:0" of the graph before it was cut; "^n" for a control edge
  DataType type = DataType::kInvalid;
  PartialShape shape;
  HowOften how_often = HowOften::kOnce;
  ByteRange bytes;    // of a step; exact only if the shape is static and it is sent once
  int64_t each = -1;  // bytes of each value that is sent, -1 if not known
  std::string why;    // why it is not exact; "" if it is
  std::string fetched_by_gather;  // a node of the other task that reads only rows of it; or ""
};

// In order of devices, then tensors. What the client feeds and fetches is at its device in
// this plan and so listed as a transfer from or to kClient.
std::vector<Transfer> PredictTransfers(const PlannedRun& run);

// Sums of transfers with the same ends.
struct TransferSum {
  std::string from, to;
  int tensors = 0, controls = 0;  // edges; control edges carry no bytes
  int not_exact = 0;              // tensors of which only bounds are known
  ByteRange bytes;
};
// By device, or with `by_task` by task, without what stays in one. In order of ends.
std::vector<TransferSum> SumTransfers(std::span<const Transfer> transfers, bool by_task);

// What a run with trace and partition graphs counted at its receives: exact ranges, in order
// of ends, by device as SumTransfers has them. Receives from the client are not counted.
// InvalidArgument if the graphs and the statistics do not belong together.
StatusOr<std::vector<TransferSum>> CountTransfers(const pb::StepStats& stats,
                                                  std::span<const pb::GraphDef> partition_graphs);

// "/job:ps/replica:0/task:0" of a device, and kClient of kClient.
std::string TaskPartOf(const std::string& device);

}  // namespace millrace

#endif  // PLANNER_TRAFFIC_H_
