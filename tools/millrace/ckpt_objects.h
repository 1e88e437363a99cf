// SPDX-License-Identifier: Apache-2.0
// The object graph of checkpoints whose tensors had names only.
#ifndef TOOLS_MILLRACE_CKPT_OBJECTS_H_
#define TOOLS_MILLRACE_CKPT_OBJECTS_H_

#include <map>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// Where a value lies in a tree of objects: "layer/kernel", and for what an optimizer keeps for it
// "layer/kernel/.OPTIMIZER_SLOT/optimizer/m".
//
// The key of the value at a path. InvalidArgument for a path with an empty name in it.
StatusOr<std::string> KeyOfPath(std::string_view path);
// A serialized TrackableObjectGraph with these values, and objects for the names on the ways to
// them. `names`: what variables were called, by their paths. InvalidArgument for slots of a
// variable that is not there, and as above.
StatusOr<std::string> ObjectGraphOf(const std::map<std::string, std::string>& names);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_CKPT_OBJECTS_H_
