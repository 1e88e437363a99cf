// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other of a call before they exchange anything, and who is wrong where it
// differs.
#ifndef RANKS_RANK_CALLS_H_
#define RANKS_RANK_CALLS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

struct RankCall {
  int64_t number = 0;         // among the calls of this rank
  uint64_t signature = 0;     // of what must be the same everywhere
  int64_t payload_bytes = 0;  // of what this rank will gather; of ShouldStop what it was told
  bool refused = false;       // `text` is why the rank's arguments cannot be
  std::string text{};         // "AllReduce(sum) of float32[3,4]"
};

// Calls travel as so many numbers each; longer texts are cut.
inline constexpr int kCallWords = 256;
Tensor EncodeCall(const RankCall& call);
// InvalidArgument unless it is what EncodeCall makes.
StatusOr<RankCall> DecodeCall(std::span<const int32_t> words);

// A call whose signature is its text: the kind with its options ("Broadcast from rank 0"), the
// values, and the name unless it is "".
RankCall MakeCall(std::string_view kind, std::span<const std::string> values,
                  std::string_view name);
// Why a rank cannot take part, which all are told.
RankCall RefusedCall(std::string_view kind, const Status& why);

// "float32[3,4]"; with `any_rows` "float32[?,4]".
std::string DescribeValue(const Tensor& value, bool any_rows = false);
std::string DescribeValue(const Output& value, bool any_rows = false);

// OK if all ranks call the same. `calls` and `ranks` (as they are to be called) are of the members
// in their order. Most ranks are right, or the first ones where there are as many of the others.
Status CompareCalls(std::span<const RankCall> calls, std::span<const std::string> ranks);

}  // namespace millrace

#endif  // RANKS_RANK_CALLS_H_
