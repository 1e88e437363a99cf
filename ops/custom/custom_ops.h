// SPDX-License-Identifier: Apache-2.0
// The ops of loaded libraries (millrace/custom_op.h), for the registries to take in.
#ifndef OPS_CUSTOM_CUSTOM_OPS_H_
#define OPS_CUSTOM_CUSTOM_OPS_H_

#include <string>
#include <string_view>
#include <vector>

#include "millrace/custom_op.h"
#include "millrace/status.h"
#include "ops/attr_map.h"
#include "ops/op_registry.h"

namespace millrace {

// The attributes of a node, as libraries see them.
class AttrsOfNode final : public NodeAttrs {
 public:
  explicit AttrsOfNode(const AttrMap& attrs) : attrs_(attrs) {}
  const AttrValue* Find(std::string_view name) const override { return attrs_.Find(name); }

 private:
  const AttrMap& attrs_;
};

// Keeps the ops of one library for the registries, all or none. Errors as of LoadLibrary, naming
// `library`.
Status AddCustomOps(std::vector<CustomOp> ops, std::string_view library);

// All that were added. From the first call on none can be added. Thread-safe; valid for ever.
const std::vector<CustomOp>& CustomOpsOfProcess();
// One of them; null if there is none of this name. Seals as well.
const CustomOp* FindCustomOp(std::string_view name);
bool IsCustomOp(std::string_view op);

// Their definitions and shape functions. Beside the engine's own ops.
Status RegisterCustomOps(OpRegistry& registry);

}  // namespace millrace

#endif  // OPS_CUSTOM_CUSTOM_OPS_H_
