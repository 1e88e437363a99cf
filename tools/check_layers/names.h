// SPDX-License-Identifier: Apache-2.0
// The check that no two types have one name.
#pragma once

#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// Every type of a namespace with a name that another file has defined a type by, unnamed namespaces
// aside: a program that has both takes the members of one for those of the other, and no tool says
// so. Types within types are not looked at.
std::vector<Violation> CheckNames(const Tree& tree);

}  // namespace millrace::layers
