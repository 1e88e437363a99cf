// `millrace place`, `why` and `partition`: where the nodes of a graph go, why, and what is cut.
// None needs a server.
#ifndef TOOLS_MILLRACE_PLACEMENT_COMMAND_H_
#define TOOLS_MILLRACE_PLACEMENT_COMMAND_H_

#include <functional>

namespace CLI {
class App;
}

namespace millrace {

// Adds the subcommands. Once the command line is parsed, `*chosen` is what to run: it returns
// the exit code: 0, 1 if the graph cannot be placed or cut, 2 if a file or flag is wrong; the
// error is written to stderr.
void AddPlacementCommands(CLI::App* app, std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_PLACEMENT_COMMAND_H_
