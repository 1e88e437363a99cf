// SPDX-License-Identifier: Apache-2.0
// Text.
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// 64 bits of each row.
Status FingerprintShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape({data.has_rank() ? data.dim(0) : -1, 8}));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"Fingerprint", "data: T, method: string", "fingerprint: uint8", "T: type", FingerprintShape},
    {"AsString", "input: T", "output: string",
     "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
     "complex64, complex128, bool, variant, string}; precision: int = -1; scientific: bool = "
     "false; shortest: bool = false; width: int = -1; fill: string = ''",
     UnchangedShape},
    {"StringJoin", "inputs: N * string", "output: string", "N: int >= 0; separator: string = ''",
     StringJoinShape},
    {"StaticRegexFullMatch", "input: string", "output: bool", "pattern: string", UnchangedShape},
};

}  // namespace

Status RegisterStringOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
