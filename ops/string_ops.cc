// Text.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"StringJoin", "inputs: N * string", "output: string", "N: int >= 0; separator: string = ''",
     StringJoinShape},
};

}  // namespace

Status RegisterStringOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
