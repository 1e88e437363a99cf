// SPDX-License-Identifier: Apache-2.0
// The kind of an attribute value, in the words of op definitions.
#ifndef OPS_ATTR_KIND_H_
#define OPS_ATTR_KIND_H_

#include <string_view>

#include "millrace/attr_value.h"

namespace millrace {

// "string", "int", "list(type)" and so on; "list()" for an empty list, "nothing" if unset.
std::string_view AttrKind(const AttrValue& value);

}  // namespace millrace

#endif  // OPS_ATTR_KIND_H_
