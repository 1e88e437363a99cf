// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/licence.h"

namespace millrace::layers {

std::vector<Violation> CheckLicence(const Tree& tree) {
  std::vector<Violation> violations;
  for (const auto& [path, text] : tree) {
    if (text.starts_with(kLicenceLine)) continue;
    violations.push_back({path, 1,
                          path + " does not begin with its licence: put " +
                              std::string(kLicenceLine.substr(0, kLicenceLine.size() - 1)) +
                              " into its first line"});
  }
  return violations;
}

}  // namespace millrace::layers
