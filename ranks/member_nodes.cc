// SPDX-License-Identifier: Apache-2.0
#include "ranks/member_nodes.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "millrace/math.h"

namespace millrace {
namespace {

// A pack of gradients, unless options say another: bench/collectives measures steps by it. Far
// above what an exchange costs whatever its size, far below the gradients of models that take long.
constexpr int64_t kUsualPackBytes = int64_t{1} << 20;

Tensor Vector(std::span<const int64_t> values) {
  Tensor vector(kInt64, Shape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), vector.data<int64_t>());
  return vector;
}

int64_t BytesOf(const Output& value) {
  return value.shape().AsShape()->num_elements() *
         static_cast<int64_t>(DataTypeSize(value.dtype()));
}

std::string MergeOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return "Min";
    case ReduceOp::kMax:
      return "Max";
    case ReduceOp::kProduct:
      return "Mul";
    default:
      return "Add";
  }
}

}  // namespace

std::string_view ReduceOpName(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "mean", "min", "max", "product"};
  const auto i = static_cast<std::size_t>(op);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

Status CheckCommunication(const CommunicationOptions& options, std::string_view device) {
  if (options.bytes_per_pack < 0) {
    return errors::InvalidArgument("CommunicationOptions.bytes_per_pack is ",
                                   options.bytes_per_pack, ", and may not be negative");
  }
  if (!(options.timeout_seconds >= 0)) {
    return errors::InvalidArgument("CommunicationOptions.timeout_seconds is ",
                                   options.timeout_seconds, ", and may not be negative");
  }
  if (options.implementation == CommunicationImplementation::kNccl &&
      device.find("GPU") == std::string_view::npos) {
    return errors::InvalidArgument(
        "CommunicationOptions.implementation is NCCL, which needs a GPU of every rank, and this "
        "one takes part with ",
        device.empty() ? "/device:CPU:0" : device, ": name a GPU as the device, or choose AUTO or ",
        "RING");
  }
  return OkStatus();
}

Status CheckMean(ReduceOp op, DataType dtype) {
  if (op != ReduceOp::kMean || !IsInteger(dtype)) return OkStatus();
  return errors::InvalidArgument(
      "the mean of ", DataTypeName(dtype), " values would be rounded to ", DataTypeName(dtype),
      ": give them as float or double, or sum ", "them and divide as you mean it");
}

std::vector<int> PlacesOf(std::span<const std::string> tasks) {
  std::vector<int> ranks(tasks.size()), places(tasks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return tasks[static_cast<std::size_t>(a)] < tasks[static_cast<std::size_t>(b)];
  });
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    places[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
  }
  return places;
}

const char* CommunicationHint(CommunicationImplementation implementation) {
  switch (implementation) {
    case CommunicationImplementation::kRing:
      return "ring";
    case CommunicationImplementation::kNccl:
      return "nccl";
    default:
      return "auto";
  }
}

MemberNodes::Attrs MemberNodes::Member(const Scope& scope, std::source_location where,
                                       int64_t instance_key) {
  const int64_t end = group_.first_instance_key + group_.instance_keys;
  if (instance_key == 0 && next_instance_key_ >= end) {
    scope.RecordError(errors::ResourceExhausted("a group has ", group_.instance_keys,
                                                " collectives in graphs at most"),
                      where);
  }
  return {{"group_size", int64_t{group_.size}},
          {"group_key", group_.key},
          {"instance_key", instance_key != 0 ? instance_key : next_instance_key_++},
          {"communication_hint", std::string(CommunicationHint(communication_.implementation))},
          {"timeout_seconds", static_cast<float>(communication_.timeout_seconds)}};
}

Output MemberNodes::ReduceOne(const Scope& scope, ReduceOp op, const Output& value,
                              std::source_location where, int64_t instance_key) {
  Attrs attrs = Member(scope, where, instance_key);
  attrs.emplace_back("merge_op", MergeOpOf(op));
  // Where the sum is divided decides how often 16-bit floats are rounded: once, there.
  attrs.emplace_back("final_op", std::string(op == ReduceOp::kMean ? "Div" : "Id"));
  attrs.emplace_back("subdiv_offsets", std::vector<int64_t>{0});
  // The order of a ring depends on where in its pack a value lies.
  attrs.emplace_back("_in_rank_order", true);
  const std::vector<Input> inputs = {value};
  return Output(scope.AddOp("CollectiveReduce", inputs, std::move(attrs), where), 0);
}

void MemberNodes::Pack(const Scope& scope, ReduceOp op, std::span<const Output> values,
                       std::span<const std::size_t> pack, std::vector<Output>* sums,
                       std::source_location where) {
  if (pack.size() == 1) {
    (*sums)[pack[0]] = ReduceOne(scope, op, values[pack[0]], where);
    return;
  }
  std::vector<Input> flat;
  std::vector<int64_t> sizes;
  for (const std::size_t i : pack) {
    flat.emplace_back(ops::Reshape(scope, values[i], {-1}));
    sizes.push_back(values[i].shape().AsShape()->num_elements());
  }
  const Output sum = ReduceOne(scope, op, ops::ConcatV2(scope, flat, 0), where);
  const std::vector<Output> parts =
      ops::SplitV(scope, sum, Vector(sizes), 0, static_cast<int64_t>(sizes.size()));
  if (parts.size() != pack.size()) return;  // the graph's status says why
  for (std::size_t k = 0; k < pack.size(); ++k) {
    const Shape shape = *values[pack[k]].shape().AsShape();
    (*sums)[pack[k]] = ops::Reshape(scope, parts[k], Vector(shape.dims()));
  }
}

std::vector<Output> MemberNodes::Reduce(const Scope& scope, ReduceOp op,
                                        std::span<const Output> values, std::source_location where,
                                        std::vector<ReducePack>* packs) {
  std::vector<Output> sums(values.size());
  for (const Output& value : values) {
    if (!value.valid() || value.shape().IsFullyDefined()) continue;
    scope.RecordError(
        errors::InvalidArgument(value.name(), " of shape ", value.shape().DebugString(),
                                " cannot be summed over workers: its shape must be known"),
        where);
    return sums;
  }
  // The last first, as gradients are made, and each type by itself: a pack is reduced once its
  // members are there, while those of the next are still computed.
  const int64_t most =
      communication_.bytes_per_pack > 0 ? communication_.bytes_per_pack : kUsualPackBytes;
  std::vector<bool> packed(values.size(), false);
  int made = 0;
  for (std::size_t first = values.size(); first-- > 0;) {
    if (packed[first] || !values[first].valid()) continue;
    std::vector<std::size_t> pack;
    ReducePack what{values[first].dtype(), *values[first].shape().AsShape(), next_instance_key_,
                    op};
    int64_t bytes = 0, elements = 0;
    for (std::size_t i = first + 1; i-- > 0;) {
      if (packed[i] || !values[i].valid() || values[i].dtype() != what.dtype) continue;
      pack.push_back(i);
      packed[i] = true;
      elements += values[i].shape().AsShape()->num_elements();
      bytes += BytesOf(values[i]);
      if (bytes > most) break;
    }
    Pack(scope, op, values, pack, &sums, where);
    if (pack.size() > 1) what.shape = Shape({elements});
    if (packs != nullptr) packs->push_back(what);
    ++made;
  }
  MR_LOG(kDebug, "collective all_reduce: ", values.size(), " tensors in ", made, " packs, group ",
         "size ", group_.size);
  return sums;
}

Output MemberNodes::GatherEqual(const Scope& scope, const Output& value,
                                std::source_location where) {
  Attrs attrs = Member(scope, where);
  attrs.emplace_back("shape", PartialShape());
  const std::vector<Input> inputs = {value};
  return Output(scope.AddOp("CollectiveGather", inputs, std::move(attrs), where), 0);
}

// With rows beyond the value's own up to the most that any has (at least one, for there is nothing
// to send of none), which are left out again. `rows_of_all`: a row for each worker, whose column i
// is of this value.
Output MemberNodes::GatherRows(const Scope& scope, const Output& value, const Output& rows_of_all,
                               int i, std::source_location where) {
  const int rank = value.shape().rank();
  const Expr rows(scope, ops::StridedSlice(scope, rows_of_all, {0, i}, {group_.size, i + 1}, {1, 1},
                                           {.shrink_axis_mask = 2}));
  const Expr most = rows.ReduceMax().Max(1);
  const Expr own(scope, ops::GatherV2(scope, ops::Shape(scope, value), 0, 0));
  const Expr missing = most - own;
  // [[0, missing], [0, 0], ...]
  const Output padding = ops::Reshape(
      scope,
      ops::ConcatV2(scope,
                    {Tensor::FromValues<int32_t>({0}), missing.ExpandDims(0).output(),
                     Tensor::FromValues<int32_t>(
                         std::vector<int32_t>(static_cast<std::size_t>(2 * rank - 2), 0),
                         Shape({2 * rank - 2}))},
                    0),
      {rank, 2});
  const Output all = GatherEqual(scope, ops::Pad(scope, value, padding), where);
  std::vector<Input> parts;
  for (int member = 0; member < group_.size; ++member) {
    const int place = group_.place(member);
    const Expr begin = most * place;
    const Expr count(scope, ops::GatherV2(scope, rows, place, 0));
    parts.emplace_back(
        ops::StridedSlice(scope, all, begin.ExpandDims(0), (begin + count).ExpandDims(0), {1}));
  }
  PartialShape shape = value.shape();
  shape.SetDim(0, -1);
  return ops::EnsureShape(scope, ops::ConcatV2(scope, parts, 0), shape);
}

std::vector<Output> MemberNodes::Gather(const Scope& scope, std::span<const Output> values,
                                        std::source_location where) {
  std::vector<Output> gathered(values.size());
  std::vector<Input> rows;
  std::vector<std::size_t> present;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].valid()) continue;
    const PartialShape shape = values[i].shape();
    if (!shape.has_rank() || shape.rank() == 0) {
      scope.RecordError(errors::InvalidArgument(values[i].name(), " of shape ", shape.DebugString(),
                                                " cannot be gathered over workers: it has no axis"),
                        where);
      return gathered;
    }
    present.push_back(i);
    rows.emplace_back(ops::GatherV2(scope, ops::Shape(scope, values[i]), 0, 0));
  }
  if (present.empty()) return gathered;
  const Output rows_of_all =
      GatherEqual(scope, ops::ExpandDims(scope, ops::Pack(scope, rows), 0), where);
  for (std::size_t k = 0; k < present.size(); ++k) {
    gathered[present[k]] =
        GatherRows(scope, values[present[k]], rows_of_all, static_cast<int>(k), where);
  }
  return gathered;
}

Output MemberNodes::Broadcast(const Scope& scope, const Output& value, int root,
                              std::source_location where) {
  if (!value.valid()) return value;
  Attrs attrs = Member(scope, where);
  attrs.emplace_back("shape", value.shape());
  if (group_.rank == root) {
    const std::vector<Input> inputs = {value};
    return Output(scope.AddOp("CollectiveBcastSend", inputs, std::move(attrs), where), 0);
  }
  attrs.emplace_back("T", value.dtype());
  return Output(scope.AddOp("CollectiveBcastRecv", {}, std::move(attrs), where), 0);
}

}  // namespace millrace
