// SPDX-License-Identifier: Apache-2.0
// The subcommands that look at a cluster while it runs.
#ifndef TOOLS_MILLRACE_OBSERVE_COMMANDS_H_
#define TOOLS_MILLRACE_OBSERVE_COMMANDS_H_

#include <chrono>
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
// is an error as well. "no answer within 3 s", DeadlineExceeded, of who says nothing for that long.
StatusOr<std::string> ReadPageOf(const std::string& address, const std::string& path,
                                 std::chrono::nanoseconds limit);

// --timeout: how long the answer of one task may take. A task that was stopped, or whose host is
// gone, costs that much and no more, as all are asked at the same time.
inline constexpr double kAnswerSeconds = 3;
void AddTimeoutFlag(CLI::App* command, double* seconds);
std::chrono::nanoseconds Nanoseconds(double seconds);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_OBSERVE_COMMANDS_H_
