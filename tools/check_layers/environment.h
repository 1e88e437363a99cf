// SPDX-License-Identifier: Apache-2.0
// The check of who asks the environment.
#pragma once

#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// Every getenv, setenv, unsetenv and putenv of the product outside the list in environment.cc,
// which says why each file is on it; and every entry of that list that is not needed any more.
// Options of the engine are read in base/options/engine_options.cc and handed down: a variable that
// is read where it is needed holds for all tasks of a process, and nothing says that it is there.
std::vector<Violation> CheckEnvironment(const Tree& tree);

}  // namespace millrace::layers
