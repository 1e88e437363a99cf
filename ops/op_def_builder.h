// SPDX-License-Identifier: Apache-2.0
// Op definitions as they are written in the *_ops.cc files: one row of text per op.
#ifndef OPS_OP_DEF_BUILDER_H_
#define OPS_OP_DEF_BUILDER_H_

#include <span>
#include <string_view>

#include "millrace/status.h"
#include "ops/op_registry.h"
#include "proto/op_def.pb.h"

namespace millrace {

enum OpFlags : unsigned {
  kPlain = 0,
  kStateful = 1,            // has state or effects: never folded, merged or duplicated
  kCommutative = 2,         // inputs 0 and 1 may change places
  kAggregate = 4,           // f(f(a, b), c) = f(a, b, c)
  kUninitializedInput = 8,  // takes variables that hold no value yet
  kDistributed = 16,        // talks to other tasks: may fail with Unavailable
  // No more in graphs from version 26 on: the op with the next number takes its place, XV2 that of
  // X.
  kReplaced = 32,
};

// One op.
//   arguments:  "x: float, y: T, zs: N * T, ws: Ts, v: Ref(T)", where T names an attribute
//               of kind type, N one of kind int and Ts one of kind list(type);
//               "s: shape_tensor(T)" has type T and says that it is a shape; "l: array(T)",
//               "d: dataset(Ts)", "d: dataset_of(T)", "d: dataset" (of anything),
//               "o: optional(Ts)", "r: ragged(T)" and "m: mutex_lock" are variants
//   attributes, separated by ';', in the order of the definition:
//               "T: type"   "T: {float, int32}"   "Ts: list(type) >= 1"   "N: int >= 2 = 3"
//               "s: string = 'x'"   "mode: {'a', 'b'} = 'a'"   "shape: shape = ?" or "= []"
//               "strides: list(int) = [1, 1]"   "f: func"   "on: bool = false"
//               "t: tensor = uint8[255, 0]"
//               and three names for long lists of types: numbers, reals, floats
struct OpSpec {
  const char* name;
  const char* inputs;
  const char* outputs;
  const char* attrs;
  ShapeFn shape_fn = nullptr;
  unsigned flags = kPlain;
  // "23: why": no more in graphs from that version on.
  const char* deprecation = nullptr;
};

// InvalidArgument, naming the op and the text that is wrong.
StatusOr<pb::OpDef> ParseOpSpec(const OpSpec& spec);

// Registers all; stops at the first error.
Status RegisterOps(OpRegistry& registry, std::span<const OpSpec> specs);

}  // namespace millrace

#endif  // OPS_OP_DEF_BUILDER_H_
