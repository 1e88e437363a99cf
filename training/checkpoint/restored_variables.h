// SPDX-License-Identifier: Apache-2.0
// What a saver restores whose nodes were made elsewhere.
#ifndef TRAINING_CHECKPOINT_RESTORED_VARIABLES_H_
#define TRAINING_CHECKPOINT_RESTORED_VARIABLES_H_

#include <vector>

#include "millrace/graph.h"
#include "millrace/saver.h"

namespace millrace {

// The variables that a restore op gives values to, by the names under which it reads them; those
// about which the nodes do not say it are left out.
std::vector<SavedVariable> VariablesRestoredBy(const Operation& restore);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_RESTORED_VARIABLES_H_
