// SPDX-License-Identifier: Apache-2.0
// Checks of op definitions themselves and of attribute values against them.
#ifndef OPS_OP_DEF_CHECK_H_
#define OPS_OP_DEF_CHECK_H_

#include <string_view>

#include "millrace/attr_value.h"
#include "millrace/status.h"
#include "proto/op_def.pb.h"

namespace millrace {

// Null if `def` declares no such attribute.
const pb::OpDef::AttrDef* FindAttrDef(const pb::OpDef& def, std::string_view name);

// InvalidArgument unless names follow the grammar, no name is used twice, every argument
// names attributes that exist and are of the right kind, and defaults fit their attributes.
Status CheckOpDef(const pb::OpDef& def);

// InvalidArgument unless `value` is of the declared kind, within minimum and allowed values.
Status CheckAttrValue(const pb::OpDef::AttrDef& attr, const AttrValue& value);

// "MatMul(a:T, b:T) -> product:T" as error messages show it.
std::string Signature(const pb::OpDef& def);

}  // namespace millrace

#endif  // OPS_OP_DEF_CHECK_H_
