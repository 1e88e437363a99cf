// SPDX-License-Identifier: Apache-2.0
// The check that every source says under which licence it is.
#pragma once

#include <string_view>
#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// First line of every source: files are copied one by one, and tools look for it.
inline constexpr std::string_view kLicenceLine = "// SPDX-License-Identifier: Apache-2.0\n";

// Every source that does not begin with kLicenceLine.
std::vector<Violation> CheckLicence(const Tree& tree);

}  // namespace millrace::layers
