// SPDX-License-Identifier: Apache-2.0
// What the subcommands that need no server work on: a graph from a file, and a cluster that
// exists only on paper.
#ifndef TOOLS_MILLRACE_OFFLINE_H_
#define TOOLS_MILLRACE_OFFLINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"
#include "planner/graph_source.h"
#include "planner/prepared_run.h"

namespace CLI {
class App;
}

namespace millrace {

// Exit codes. (`millrace --help` tells them.)
inline constexpr int kDone = 0, kImpossible = 1, kWrongInput = 2, kDifferent = 3;

struct ClusterFlags {
  std::string cluster;  // see ReadCluster
  std::string master;   // "/job:J/task:T"; "" for the first of chief, master, worker, any
  int cpus = 1, gpus = 0;
  bool soft = false;
  std::vector<int> without;  // numbers of placement rules
  std::string placer = "rules";
  std::string tags;  // of a saved model
};
void AddClusterFlags(CLI::App* command, ClusterFlags* flags);
// A required argument for ReadGraphSource.
void AddGraphArgument(CLI::App* command, const char* name, std::string* path);

// What is run.
struct RunFlags {
  std::vector<std::string> feeds, fetches, targets;
  std::vector<std::string> shapes;  // "x=64,784"; ? is unknown
};
void AddRunFlags(CLI::App* command, RunFlags* flags);
// InvalidArgument for a shape that is none.
StatusOr<RunRequest> ToRunRequest(const RunFlags& flags, std::string client_device);

// A graph with a device for every node, and why.
struct PlacedGraph {
  std::unique_ptr<DataflowGraph> graph;
  std::string path;  // of the file
  std::vector<PlacerDevice> devices;
  std::string client_device;  // the first CPU of the task at which the session is opened
  StringMap<Explanation> explanations;
  std::optional<PlacementLog> log;  // if it was placed here
  std::string summary;              // devices, ops and counts as a table
};

// Reads `path` and places it on the cluster, with `chains` in the explanations if asked for. A
// graph that has a device for every node stays as it is if no cluster is named; then the
// explanations are those that were stored with it.
// `*code` is kWrongInput or kImpossible if the status is not OK.
StatusOr<PlacedGraph> LoadPlaced(const std::string& path, const ClusterFlags& flags, bool chains,
                                 int* code);
// The same for a graph that was read before.
StatusOr<PlacedGraph> LoadPlaced(GraphSource source, const ClusterFlags& flags, bool chains,
                                 int* code);

// Every device of the cluster, with the kernels of this program. InvalidArgument if there is no
// such cluster or master.
StatusOr<PlacerInput> MakePlacerInput(const ClusterFlags& flags);

// For all commands: the complaint of one, and its output ("" is standard output).
int Complain(std::string_view command, const Status& status, int code);
int Write(std::string_view command, const std::string& path, const std::string& text);
// Before work whose result Write is to write: InvalidArgument, as it would say then, if it cannot.
// What is in the file stays, and a file that is not there is not made.
Status CheckOutput(const std::string& path);

// A subcommand that runs `run`.
CLI::App* AddCommand(CLI::App* app, const char* name, const char* what, std::function<int()> run,
                     std::function<int()>* chosen);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_OFFLINE_H_
