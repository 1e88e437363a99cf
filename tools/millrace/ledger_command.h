// SPDX-License-Identifier: Apache-2.0
// `millrace ledger`: what became of the updates of a running cluster.
#ifndef TOOLS_MILLRACE_LEDGER_COMMAND_H_
#define TOOLS_MILLRACE_LEDGER_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// As AddServerCommand. The exit code is 0 if all accounts balance, 3 if one does not, 1 if the task
// did not answer.
void AddLedgerCommand(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_LEDGER_COMMAND_H_
