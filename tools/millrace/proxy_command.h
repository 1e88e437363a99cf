// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_MILLRACE_PROXY_COMMAND_H_
#define TOOLS_MILLRACE_PROXY_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// Adds the subcommand `proxy`; `*chosen` is then what to run, as in graph_commands.h.
void AddProxyCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_PROXY_COMMAND_H_
