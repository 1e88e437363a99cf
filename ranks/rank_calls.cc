// SPDX-License-Identifier: Apache-2.0
#include "ranks/rank_calls.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/errors.h"
#include "base/hash.h"
#include "base/strings.h"

namespace millrace {
namespace {

// The beginning of a call as it travels; the text follows.
struct Head {
  int64_t number;
  uint64_t signature;
  int64_t payload_bytes;
  int32_t refused;
  int32_t text_bytes;
};
constexpr std::size_t kTextBytes = kCallWords * sizeof(int32_t) - sizeof(Head);
// Values of a list that a text names.
constexpr std::size_t kMostValues = 12;
// Ranks that an error names.
constexpr std::size_t kMostRanks = 8;

std::string Join(const std::vector<std::string>& all) {
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kMostRanks); ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", all[i]);
  }
  if (all.size() > kMostRanks) StrAppend(&text, " and ", all.size() - kMostRanks, " more");
  return text;
}

}  // namespace

Tensor EncodeCall(const RankCall& call) {
  // Bounded: of one small size.
  Tensor words(kInt32, Shape({kCallWords}));
  auto* const to = static_cast<char*>(words.raw_data());
  std::memset(to, 0, words.num_bytes());
  const std::size_t size = std::min(call.text.size(), kTextBytes);
  const Head head{call.number, call.signature, call.payload_bytes, call.refused ? 1 : 0,
                  static_cast<int32_t>(size)};
  std::memcpy(to, &head, sizeof(head));
  std::memcpy(to + sizeof(head), call.text.data(), size);
  return words;
}

StatusOr<RankCall> DecodeCall(std::span<const int32_t> words) {
  if (words.size() != kCallWords) {
    return errors::InvalidArgument("a rank's call has ", words.size(), " words, not ", kCallWords);
  }
  const auto* const from = reinterpret_cast<const char*>(words.data());
  Head head;
  std::memcpy(&head, from, sizeof(head));
  if (head.number < 0 || head.payload_bytes < 0 || head.text_bytes < 0 ||
      static_cast<std::size_t>(head.text_bytes) > kTextBytes) {
    return errors::InvalidArgument(
        "a rank's call cannot be read: is another release running "
        "there?");
  }
  return RankCall{head.number, head.signature, head.payload_bytes, head.refused != 0,
                  std::string(from + sizeof(head), static_cast<std::size_t>(head.text_bytes))};
}

RankCall MakeCall(std::string_view kind, std::span<const std::string> values,
                  std::string_view name) {
  RankCall call;
  call.text = kind;
  if (!name.empty()) StrAppend(&call.text, " '", name, "'");
  std::string all = call.text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    StrAppend(&all, i == 0 ? " of " : ", ", values[i]);
    if (i < kMostValues) StrAppend(&call.text, i == 0 ? " of " : ", ", values[i]);
  }
  call.signature = Hash64(all);
  if (values.size() > kMostValues) {
    StrAppend(&call.text, " and ", values.size() - kMostValues, " more (", Hex16(call.signature),
              ")");
  }
  return call;
}

RankCall RefusedCall(std::string_view kind, const Status& why) {
  RankCall call;
  call.refused = true;
  call.text = StrCat(kind, ": ", Message(why));
  return call;
}

std::string DescribeValue(const Tensor& value, bool any_rows) {
  std::string dims;
  for (int i = 0; i < value.rank(); ++i) {
    StrAppend(&dims, i == 0 ? "" : ",", i == 0 && any_rows ? "?" : StrCat(value.dim(i)));
  }
  return StrCat(DataTypeName(value.dtype()), "[", dims, "]");
}

std::string DescribeValue(const Output& value, bool any_rows) {
  if (!value.valid()) return "nothing";
  PartialShape shape = value.shape();
  if (any_rows && shape.has_rank() && shape.rank() > 0) shape.SetDim(0, -1);
  return StrCat(DataTypeName(value.dtype()), shape.DebugString());
}

Status CompareCalls(std::span<const RankCall> calls, std::span<const std::string> ranks) {
  std::vector<std::string> refused;
  std::map<uint64_t, std::vector<std::size_t>> by_signature;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].refused)
      refused.push_back(StrCat(ranks[i], " cannot take part in ", calls[i].text));
    by_signature[calls[i].signature].push_back(i);
  }
  if (!refused.empty()) return errors::InvalidArgument(Join(refused));
  if (by_signature.size() <= 1) return OkStatus();
  const std::vector<std::size_t>* most = nullptr;
  for (const auto& [signature, those] : by_signature) {
    if (most == nullptr || those.size() > most->size() ||
        (those.size() == most->size() && those[0] < (*most)[0])) {
      most = &those;
    }
  }
  std::vector<std::string> others, right;
  for (const std::size_t i : *most) right.push_back(ranks[i]);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].signature == calls[most->front()].signature) continue;
    others.push_back(
        StrCat(ranks[i], " calls ", calls[i].text, " (its call ", calls[i].number, ")"));
  }
  const RankCall& call = calls[most->front()];
  return errors::InvalidArgument("ranks make different calls: ", Join(others), ", where ",
                                 Join(right), " call ", call.text, " (call ", call.number,
                                 "); all ranks must make the same calls in the same order");
}

}  // namespace millrace
