// SPDX-License-Identifier: Apache-2.0
// `millrace server`: one task of a cluster, until a signal ends it.
#ifndef TOOLS_MILLRACE_SERVER_COMMAND_H_
#define TOOLS_MILLRACE_SERVER_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// Adds the subcommand. Once the command line is parsed, `*chosen` is what to run: it returns
// the exit code, 0 after SIGTERM or SIGINT, 1 after an error, of which one line is written to
// stderr.
void AddServerCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_SERVER_COMMAND_H_
