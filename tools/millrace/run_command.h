// SPDX-License-Identifier: Apache-2.0
// `millrace run`: a job of several processes on this machine.
#ifndef TOOLS_MILLRACE_RUN_COMMAND_H_
#define TOOLS_MILLRACE_RUN_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace millrace {

void AddRunCommand(CLI::App* app, std::function<int()>* chosen);

// Takes away a "--" between the options of `run` and its program, which may stand there; one behind
// the program is the program's. Does nothing to other commands.
void DropRunSeparator(std::vector<char*>* argv);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_RUN_COMMAND_H_
