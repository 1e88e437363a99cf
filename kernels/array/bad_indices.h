// SPDX-License-Identifier: Apache-2.0
// What happens to indices that point nowhere: the attribute bad_indices_policy of gathers and
// scatters by full index.
#ifndef KERNELS_ARRAY_BAD_INDICES_H_
#define KERNELS_ARRAY_BAD_INDICES_H_

#include <string>

#include "base/errors.h"
#include "kernels/kernel.h"

namespace millrace {

// True if they are left out: a gather gives zeros for them, a scatter does nothing. Else they are
// errors, as without the attribute. Records an error in `c` for a policy that is not known.
inline bool IgnoresBadIndices(KernelConstruction& c) {
  const std::string policy = c.attrs().GetOr<std::string>("bad_indices_policy", "");
  if (policy == "IGNORE") return true;
  if (!policy.empty() && policy != "DEFAULT" && policy != "ERROR") {
    c.SetError(errors::InvalidArgument("bad_indices_policy must be DEFAULT, ERROR, IGNORE or ",
                                       "empty, not '", policy, "'"));
  }
  return false;
}

}  // namespace millrace

#endif  // KERNELS_ARRAY_BAD_INDICES_H_
