// What the subcommands that need no server work on: a graph from a file, and a cluster that
// exists only on paper.
#ifndef TOOLS_MILLRACE_OFFLINE_H_
#define TOOLS_MILLRACE_OFFLINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"
#include "proto/graph.pb.h"

namespace CLI {
class App;
}

namespace millrace {

struct OfflineFlags {
  std::string graph;    // a file, "-" for standard input
  std::string cluster;  // see ReadCluster
  std::string master;   // "/job:J/task:T"; "" for the first of chief, master, worker, any
  int cpus = 1, gpus = 0;
  bool soft = false;
  std::vector<int> without;  // numbers of placement rules
};

void AddOfflineFlags(CLI::App* command, OfflineFlags* flags);

// A GraphDef or a MetaGraphDef, binary or as text. NotFound if there is no such file,
// InvalidArgument if it is none of these.
StatusOr<pb::GraphDef> ReadGraph(const std::string& path);

// Every device of the cluster, with the kernels of this program. The cluster is "ps:2,worker:3"
// (numbers of tasks), "ps|h:p;h:p,worker|h:p", or a file with the JSON of TF_CONFIG or with the
// text of a ClusterDef. InvalidArgument if it is none of these, or has no such master.
StatusOr<PlacerInput> MakePlacerInput(const OfflineFlags& flags);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_OFFLINE_H_
