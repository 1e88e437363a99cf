// SPDX-License-Identifier: Apache-2.0
// A cluster of real processes on this machine: starts them, shows what they do, ends them.
#ifndef EXAMPLES_MNIST_LAUNCHER_H_
#define EXAMPLES_MNIST_LAUNCHER_H_

#include <string>
#include <vector>

#include "examples/mnist/flags.h"

namespace millrace::mnist {

// Runs --num_ps and --num_workers tasks of this program and returns the exit code: 0 if the
// job was done, 1 if a task failed (named), 130 after Ctrl-C. No process is left behind, even
// if this one is killed. `argv` are the arguments that every task gets too.
int LaunchLocalCluster(const Flags& flags, const std::vector<std::string>& argv);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_LAUNCHER_H_
