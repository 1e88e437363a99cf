// SPDX-License-Identifier: Apache-2.0
// `millrace why-waiting`: what the steps of a running cluster wait for.
#ifndef TOOLS_MILLRACE_WHY_WAITING_COMMAND_H_
#define TOOLS_MILLRACE_WHY_WAITING_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// As AddServerCommand. The exit code is 0 if the task answered, 1 if it did not.
void AddWhyWaitingCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_WHY_WAITING_COMMAND_H_
