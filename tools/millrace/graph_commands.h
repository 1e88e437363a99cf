// SPDX-License-Identifier: Apache-2.0
// The subcommands about graphs, which need no server. Each sets `*chosen` if it is the one that
// the command line names.
#ifndef TOOLS_MILLRACE_GRAPH_COMMANDS_H_
#define TOOLS_MILLRACE_GRAPH_COMMANDS_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

void AddPlaceCommand(CLI::App* app, std::function<int()>* chosen);      // where nodes go
void AddWhyCommand(CLI::App* app, std::function<int()>* chosen);        // why one is there
void AddPartitionCommand(CLI::App* app, std::function<int()>* chosen);  // what is cut
void AddDumpCommand(CLI::App* app, std::function<int()>* chosen);       // the graph, to look at
void AddDiffCommand(CLI::App* app, std::function<int()>* chosen);       // two of them compared
void AddPlanCommand(CLI::App* app, std::function<int()>* chosen);       // what that costs

}  // namespace millrace

#endif  // TOOLS_MILLRACE_GRAPH_COMMANDS_H_
