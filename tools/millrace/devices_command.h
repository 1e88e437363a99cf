// SPDX-License-Identifier: Apache-2.0
// `millrace devices`: what this machine can compute on.
#ifndef TOOLS_MILLRACE_DEVICES_COMMAND_H_
#define TOOLS_MILLRACE_DEVICES_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// As AddServerCommand. With --require_gpu the exit code is 1 where there is none.
void AddDevicesCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_DEVICES_COMMAND_H_
