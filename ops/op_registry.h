// SPDX-License-Identifier: Apache-2.0
// What the engine knows of each op: its definition (TensorFlow's, message for message),
// its shape function and its flags.
#ifndef OPS_OP_REGISTRY_H_
#define OPS_OP_REGISTRY_H_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "millrace/status.h"
#include "ops/attr_map.h"
#include "proto/op_def.pb.h"

namespace millrace {

class InferenceContext;  // ops/shape_inference.h
using ShapeFn = Status (*)(InferenceContext& c);

struct OpInfo {
  pb::OpDef def;
  ShapeFn shape_fn = nullptr;  // null: every output unknown
};

// An object, not a singleton: a test registers only what it needs. Filled once, then
// read-only and safe to share between threads.
class OpRegistry {
 public:
  // AlreadyExists if the name is taken, InvalidArgument if the definition is not valid.
  Status Register(OpInfo info);
  // Null if unknown.
  const OpInfo* Find(std::string_view name) const;
  // NotFound "Op type not registered 'X' in binary running on <host>" plus the nearest name.
  StatusOr<const OpInfo*> Lookup(std::string_view name) const;
  std::vector<const OpInfo*> SortedOps() const;

 private:
  StringMap<std::unique_ptr<OpInfo>> ops_;
};

// Expands the signature of `def` for a node's attributes: one type per input and output
// tensor, references as reference types. InvalidArgument if an attribute is missing or bad.
Status ExpandTypes(const pb::OpDef& def, const AttrMap& attrs, std::vector<DataType>* inputs,
                   std::vector<DataType>* outputs);
// [begin, end) of the tensors that the argument `name` stands for.
Status ArgRange(const pb::OpDef& def, const AttrMap& attrs, std::string_view name, bool is_input,
                int* begin, int* end);
// Adds the defaults of `def` that `attrs` lacks; removes attributes equal to their default.
void AddDefaultAttrs(const pb::OpDef& def, AttrMap* attrs);
void StripDefaultAttrs(const pb::OpDef& def, AttrMap* attrs);
// Every declared attribute present, of its kind, within minimum and allowed values. Unknown
// attributes are allowed (forward compatibility).
Status ValidateAttrs(const pb::OpDef& def, const AttrMap& attrs);

// AttrValue <-> its message.
StatusOr<AttrValue> AttrFromProto(const pb::AttrValue& proto);
void AttrToProto(const AttrValue& value, pb::AttrValue* proto);

}  // namespace millrace

#endif  // OPS_OP_REGISTRY_H_
