// SPDX-License-Identifier: Apache-2.0
// Collectives of tensors that lie in this process.
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/float16.h"
#include "ranks/group_state.h"

namespace millrace {
namespace {

bool CanReduce(DataType dtype) {
  return dtype == kFloat || dtype == kDouble || dtype == kHalf || dtype == kBfloat16 ||
         dtype == kInt32 || dtype == kInt64;
}

bool HasFixedSize(DataType dtype) {
  return dtype != kString && dtype != kResource && dtype != kVariant && !IsRefType(dtype) &&
         DataTypeSize(dtype) > 0;
}

Status CheckReduced(ReduceOp op, std::span<const Tensor> values) {
  if (ReduceOpName(op) == "unknown") {
    return errors::InvalidArgument("there is no reduction ", static_cast<int>(op));
  }
  for (const Tensor& value : values) {
    if (!value.IsInitialized()) return errors::InvalidArgument("a tensor has no value");
    if (!CanReduce(value.dtype())) {
      return errors::InvalidArgument("values of ", DataTypeName(value.dtype()),
                                     " cannot be reduced: float, double, half, bfloat16, int32 and "
                                     "int64 can");
    }
    MR_RETURN_IF_ERROR(CheckMean(op, value.dtype()));
  }
  return OkStatus();
}

Status CheckMoved(std::span<const Tensor> values, bool by_rows) {
  for (const Tensor& value : values) {
    if (!value.IsInitialized()) return errors::InvalidArgument("a tensor has no value");
    if (!HasFixedSize(value.dtype())) {
      return errors::InvalidArgument("values of ", DataTypeName(value.dtype()),
                                     " do not travel between ranks: give them as bytes");
    }
    if (by_rows && value.rank() == 0) {
      return errors::InvalidArgument("a scalar has no rows: give it the shape [1]");
    }
  }
  return OkStatus();
}

RankCall CallOf(std::string_view kind, const Status& valid, std::span<const Tensor> values,
                std::string_view name, bool any_rows = false) {
  if (!valid.ok()) return RefusedCall(kind, valid);
  std::vector<std::string> texts;
  for (const Tensor& value : values) texts.push_back(DescribeValue(value, any_rows));
  return MakeCall(kind, texts, name);
}

int64_t BytesOf(std::span<const Tensor> values) {
  int64_t bytes = 0;
  for (const Tensor& value : values) bytes += static_cast<int64_t>(value.num_bytes());
  return bytes;
}

void AppendBytes(const Tensor& value, std::string* to) {
  if (value.num_bytes() > 0) {
    to->append(static_cast<const char*>(value.raw_data()), value.num_bytes());
  }
}
void AppendNumber(int64_t number, std::string* to) {
  to->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Reads what another rank has sent.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
  bool Number(int64_t* number) {
    std::string_view part;
    if (!Take(sizeof(*number), &part)) return false;
    std::memcpy(number, part.data(), sizeof(*number));
    return true;
  }
  bool Take(std::size_t size, std::string_view* part) {
    if (size > bytes_.size()) return false;
    *part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  // So many rows, each of so many bytes.
  bool Rows(int64_t rows, int64_t row_bytes, std::string_view* part) {
    if (rows < 0 || (row_bytes > 0 && rows > static_cast<int64_t>(bytes_.size()) / row_bytes)) {
      return false;
    }
    return Take(static_cast<std::size_t>(rows * row_bytes), part);
  }

 private:
  std::string_view bytes_;
};

Status Unreadable(int rank) {
  return errors::Internal("what rank ", rank, " of the group has sent is not what it said");
}

int64_t RowBytes(const Tensor& value) {
  int64_t bytes = static_cast<int64_t>(DataTypeSize(value.dtype()));
  for (int i = 1; i < value.rank(); ++i) bytes *= value.dim(i);
  return bytes;
}

// Parts, of so many rows in all, behind each other, each row shaped as those of `like`.
StatusOr<Tensor> Join(const Tensor& like, int64_t rows, std::span<const std::string_view> parts) {
  Dims dims(like.shape().dims().begin(), like.shape().dims().end());
  dims[0] = rows;
  MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
  MR_ASSIGN_OR_RETURN(Tensor all, Tensor::Allocate(like.dtype(), shape));
  auto* to = static_cast<char*>(all.raw_data());
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  return all;
}

template <typename T>
void Divide(Tensor* values, int64_t by) {
  for (T& value : values->flat<T>()) {
    if constexpr (std::is_same_v<T, double>) {
      value /= static_cast<double>(by);
    } else {
      value = static_cast<T>(static_cast<float>(value) / static_cast<float>(by));
    }
  }
}

void DivideBy(Tensor* values, int64_t by) {
  switch (values->dtype()) {
    case DataType::kFloat:
      return Divide<float>(values, by);
    case DataType::kDouble:
      return Divide<double>(values, by);
    case DataType::kHalf:
      return Divide<Half>(values, by);
    case DataType::kBfloat16:
      return Divide<BFloat16>(values, by);
    default:
      return;  // CheckMean lets no other through
  }
}

// The tensors of one type, behind each other, reduced and taken apart again.
Status ReducePackOf(GroupState& group, ReduceOp op, std::span<const Tensor> values,
                    std::span<const std::size_t> pack, std::vector<Tensor>* reduced)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(group.mu) {
  int64_t elements = 0;
  for (const std::size_t i : pack) elements += values[i].num_elements();
  MR_ASSIGN_OR_RETURN(Tensor flat, Tensor::Allocate(values[pack[0]].dtype(), Shape({elements})));
  auto* to = static_cast<char*>(flat.raw_data());
  for (const std::size_t i : pack) {
    if (values[i].num_bytes() == 0) continue;
    std::memcpy(to, values[i].raw_data(), values[i].num_bytes());
    to += values[i].num_bytes();
  }
  MR_ASSIGN_OR_RETURN(const Tensor all, group.Reduce(op, flat));
  int64_t at = 0;
  for (const std::size_t i : pack) {
    const int64_t end = at + values[i].num_elements();
    MR_ASSIGN_OR_RETURN(const Tensor part, all.TrySlice(at, end));
    MR_ASSIGN_OR_RETURN((*reduced)[i], part.Reshaped(values[i].shape()));
    at = end;
  }
  return OkStatus();
}

StatusOr<std::vector<Tensor>> ReduceAll(GroupState& group, std::string_view kind, ReduceOp op,
                                        std::span<const Tensor> values, const Status& valid,
                                        std::string_view name) {
  MutexLock lock(&group.mu);
  const std::string text = StrCat(kind, "(", ReduceOpName(op), ")");
  MR_RETURN_IF_ERROR(group.Agree(CallOf(text, valid, values, name)).status());
  const int64_t most = group.world->communication.bytes_per_pack;
  std::vector<Tensor> reduced(values.size());
  std::vector<bool> packed(values.size(), false);
  for (std::size_t first = 0; first < values.size(); ++first) {
    if (packed[first]) continue;
    std::vector<std::size_t> pack;
    int64_t bytes = 0;
    for (std::size_t i = first; i < values.size(); ++i) {
      if (packed[i] || values[i].dtype() != values[first].dtype()) continue;
      pack.push_back(i);
      packed[i] = true;
      bytes += static_cast<int64_t>(values[i].num_bytes());
      if (most > 0 && bytes > most) break;
    }
    MR_RETURN_IF_ERROR(ReducePackOf(group, op, values, pack, &reduced));
  }
  return reduced;
}

// Of each rank the numbers of rows of each value, then the values.
std::string PayloadOf(std::span<const Tensor> values) {
  std::string payload;
  for (const Tensor& value : values) AppendNumber(value.dim(0), &payload);
  for (const Tensor& value : values) AppendBytes(value, &payload);
  return payload;
}

StatusOr<std::vector<Tensor>> JoinPayloads(std::span<const Tensor> values,
                                           std::span<const std::string> payloads) {
  std::vector<std::vector<std::string_view>> parts(values.size());
  std::vector<int64_t> rows(values.size(), 0);
  for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
    PayloadReader reader(payloads[rank]);
    std::vector<int64_t> own(values.size());
    for (int64_t& count : own) {
      if (!reader.Number(&count)) return Unreadable(static_cast<int>(rank));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::string_view part;
      if (!reader.Rows(own[i], RowBytes(values[i]), &part) ||
          own[i] > std::numeric_limits<int64_t>::max() - rows[i]) {
        return Unreadable(static_cast<int>(rank));
      }
      rows[i] += own[i];
      parts[i].push_back(part);
    }
  }
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor joined, Join(values[i], rows[i], parts[i]));
    all.push_back(std::move(joined));
  }
  return all;
}

StatusOr<std::vector<Tensor>> GatherAll(GroupState& group, std::string_view kind,
                                        std::span<const Tensor> values, const Status& valid,
                                        std::string_view name) {
  MutexLock lock(&group.mu);
  RankCall call = CallOf(kind, valid, values, name, /*any_rows=*/true);
  const std::string payload = valid.ok() ? PayloadOf(values) : "";
  call.payload_bytes = static_cast<int64_t>(payload.size());
  MR_ASSIGN_OR_RETURN(const std::vector<RankCall> calls, group.Agree(call));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> payloads, group.Gather(payload, calls));
  return JoinPayloads(values, payloads);
}

StatusOr<std::vector<int64_t>> SplitsOf(const Tensor& value, std::span<const int64_t> splits,
                                        int size) {
  const int64_t rows = value.dim(0);
  if (splits.empty()) {
    if (rows % size == 0) return std::vector<int64_t>(static_cast<std::size_t>(size), rows / size);
    return errors::InvalidArgument(rows, " rows do not divide among ", size,
                                   " ranks: say how many each gets");
  }
  int64_t left = rows;
  for (const int64_t split : splits) {
    if (split < 0 || split > left) left = -1;
    if (left < 0) break;
    left -= split;
  }
  if (left == 0 && static_cast<int>(splits.size()) == size) {
    return std::vector<int64_t>(splits.begin(), splits.end());
  }
  return errors::InvalidArgument("the splits {", StrJoin(splits, ","), "} are not those of ", rows,
                                 " rows for ", size, " ranks");
}

// What each rank has for this one.
StatusOr<AllToAllResult> TakeOwn(const Tensor& value, std::span<const std::string> payloads,
                                 int rank) {
  std::vector<std::string_view> parts;
  AllToAllResult result;
  int64_t rows = 0;
  for (std::size_t from = 0; from < payloads.size(); ++from) {
    PayloadReader reader(payloads[from]);
    std::vector<int64_t> splits(payloads.size());
    for (int64_t& split : splits) {
      if (!reader.Number(&split)) return Unreadable(static_cast<int>(from));
    }
    std::string_view part;
    for (int to = 0; to <= rank; ++to) {
      if (!reader.Rows(splits[static_cast<std::size_t>(to)], RowBytes(value), &part)) {
        return Unreadable(static_cast<int>(from));
      }
    }
    const int64_t own = splits[static_cast<std::size_t>(rank)];
    if (own > std::numeric_limits<int64_t>::max() - rows) return Unreadable(static_cast<int>(from));
    rows += own;
    parts.push_back(part);
    result.received_splits.push_back(own);
  }
  MR_ASSIGN_OR_RETURN(result.value, Join(value, rows, parts));
  return result;
}

}  // namespace

StatusOr<Tensor> ProcessGroup::AllReduce(ReduceOp op, const Tensor& value, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> all, AllReduce(op, std::span(&value, 1), name));
  return all[0];
}

StatusOr<std::vector<Tensor>> ProcessGroup::AllReduce(ReduceOp op, std::span<const Tensor> values,
                                                      std::string_view name) {
  return ReduceAll(*state_, "AllReduce", op, values, CheckReduced(op, values), name);
}

StatusOr<TensorRows> ProcessGroup::AllReduce(ReduceOp op, const TensorRows& rows,
                                             std::string_view name) {
  const Tensor both[] = {rows.values, rows.indices};
  Status valid = CheckReduced(op, std::span(both, 1));
  if (valid.ok()) valid = CheckMoved(both, /*by_rows=*/true);
  if (valid.ok() && op != ReduceOp::kSum && op != ReduceOp::kMean) {
    valid = errors::InvalidArgument("rows are summed or averaged, and nothing else");
  }
  if (valid.ok() && ((rows.indices.dtype() != kInt32 && rows.indices.dtype() != kInt64) ||
                     rows.indices.rank() != 1 || rows.indices.dim(0) != rows.values.dim(0))) {
    valid = errors::InvalidArgument("rows ", DescribeValue(rows.values), " need as many indices, ",
                                    "int32 or int64, and have ", DescribeValue(rows.indices));
  }
  MR_ASSIGN_OR_RETURN(
      std::vector<Tensor> all,
      GatherAll(*state_, StrCat("AllReduce(", ReduceOpName(op), ") of rows"), both, valid, name));
  if (op == ReduceOp::kMean) DivideBy(&all[0], size());
  return TensorRows{all[0], all[1]};
}

StatusOr<Tensor> ProcessGroup::AllGather(const Tensor& value, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> all, AllGather(std::span(&value, 1), name));
  return all[0];
}

StatusOr<std::vector<Tensor>> ProcessGroup::AllGather(std::span<const Tensor> values,
                                                      std::string_view name) {
  return GatherAll(*state_, "AllGather", values, CheckMoved(values, /*by_rows=*/true), name);
}

StatusOr<Tensor> ProcessGroup::ReduceScatter(ReduceOp op, const Tensor& value,
                                             std::string_view name) {
  Status valid = CheckReduced(op, std::span(&value, 1));
  if (valid.ok()) valid = CheckMoved(std::span(&value, 1), /*by_rows=*/true);
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> all,
                      ReduceAll(*state_, "ReduceScatter", op, std::span(&value, 1), valid, name));
  const int64_t rows = value.dim(0), part = rows / size(), more = rows % size();
  const int64_t begin = rank() * part + std::min<int64_t>(rank(), more);
  return all[0].TrySlice(begin, begin + part + (rank() < more ? 1 : 0));
}

StatusOr<AllToAllResult> ProcessGroup::AllToAll(const Tensor& value,
                                                std::span<const int64_t> splits,
                                                std::string_view name) {
  Status valid = CheckMoved(std::span(&value, 1), /*by_rows=*/true);
  std::string payload;
  if (valid.ok()) {
    const StatusOr<std::vector<int64_t>> parts = SplitsOf(value, splits, size());
    valid = parts.status();
    if (parts.ok()) {
      for (const int64_t part : *parts) AppendNumber(part, &payload);
      AppendBytes(value, &payload);
    }
  }
  MutexLock lock(&state_->mu);
  RankCall call = CallOf("AllToAll", valid, std::span(&value, 1), name, /*any_rows=*/true);
  call.payload_bytes = static_cast<int64_t>(payload.size());
  MR_ASSIGN_OR_RETURN(const std::vector<RankCall> calls, state_->Agree(call));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> payloads, state_->Gather(payload, calls));
  return TakeOwn(value, payloads, rank());
}

StatusOr<Tensor> ProcessGroup::Broadcast(const Tensor& value, int root, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> all, Broadcast(std::span(&value, 1), root, name));
  return all[0];
}

StatusOr<std::vector<Tensor>> ProcessGroup::Broadcast(std::span<const Tensor> values, int root,
                                                      std::string_view name) {
  Status valid = CheckMoved(values, /*by_rows=*/false);
  if (valid.ok() && (root < 0 || root >= size())) {
    valid = errors::InvalidArgument("there is no rank ", root, " among ", size());
  }
  MutexLock lock(&state_->mu);
  MR_RETURN_IF_ERROR(
      state_->Agree(CallOf(StrCat("Broadcast from rank ", root), valid, values, name)).status());
  // Bits of one rank and zeros of all others: their sum is those bits, whatever they stand for.
  const int64_t bytes = BytesOf(values);
  MR_ASSIGN_OR_RETURN(Tensor words,
                      Tensor::Allocate(kInt32, Shape({bytes / 4 + (bytes % 4 != 0)})));
  if (words.num_bytes() > 0) std::memset(words.raw_data(), 0, words.num_bytes());
  if (rank() == root && words.num_bytes() > 0) {
    std::string payload;
    for (const Tensor& value : values) AppendBytes(value, &payload);
    std::memcpy(words.raw_data(), payload.data(), payload.size());
  }
  MR_ASSIGN_OR_RETURN(const Tensor sum, state_->Reduce(ReduceOp::kSum, words));
  const auto* from = static_cast<const char*>(sum.raw_data());
  std::vector<Tensor> all;
  for (const Tensor& value : values) {
    MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Allocate(value.dtype(), value.shape()));
    if (copy.num_bytes() > 0) std::memcpy(copy.raw_data(), from, copy.num_bytes());
    from += copy.num_bytes();
    all.push_back(std::move(copy));
  }
  return all;
}

}  // namespace millrace
