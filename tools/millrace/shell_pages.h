// SPDX-License-Identifier: Apache-2.0
// `millrace completion` and `millrace man`: what shells and manual readers are told of the flags.
#ifndef TOOLS_MILLRACE_SHELL_PAGES_H_
#define TOOLS_MILLRACE_SHELL_PAGES_H_

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace millrace {

// A script for bash: words by subcommand, files where a flag takes any value.
std::string BashCompletion(const CLI::App& app);
// A function for zsh, with a line about every flag.
std::string ZshCompletion(const CLI::App& app);
// The page millrace(1), with a section for every subcommand.
std::string ManPage(const CLI::App& app, const std::string& version);

// As AddServerCommand; the commands describe `app` as it is when they run.
void AddShellPagesCommands(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_SHELL_PAGES_H_
