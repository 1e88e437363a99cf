// SPDX-License-Identifier: Apache-2.0
// The subcommands that look at a cluster while it runs.
#ifndef TOOLS_MILLRACE_OBSERVE_COMMANDS_H_
#define TOOLS_MILLRACE_OBSERVE_COMMANDS_H_

#include <functional>
#include <string>

#include "millrace/status.h"

namespace CLI {
class App;
}

namespace millrace {

// Each adds its subcommand; `*chosen` is then what to run, as in graph_commands.h.
void AddPageCommand(CLI::App* app, std::function<int()>* chosen);
void AddTopCommand(CLI::App* app, std::function<int()>* chosen);
void AddTraceCommands(CLI::App* app, std::function<int()>* chosen);  // trace, profile, doctor

// "host:port" of "grpc://host:port". InvalidArgument for anything else.
StatusOr<std::string> AddressOf(const std::string& target);
// One page of the task at an address, its body. What the page says of itself, such as "Not found",
// is an error as well.
StatusOr<std::string> ReadPageOf(const std::string& address, const std::string& path);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_OBSERVE_COMMANDS_H_
