// SPDX-License-Identifier: Apache-2.0
// Graphs, in whatever form somebody has one.
#ifndef PLANNER_GRAPH_SOURCE_H_
#define PLANNER_GRAPH_SOURCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/string_map.h"
#include "millrace/status.h"
#include "proto/graph.pb.h"

namespace millrace {

// What was written down of a decision of the placer.
struct Explanation {
  int rule = 0;           // ChoiceRule, 0 if unknown
  std::string why;        // the rule in words
  std::string requested;  // the device that was asked for
  std::string origin;     // file and line, if known
  std::string chain;      // everything about the node, in lines; "" if it was not kept
};

struct GraphSource {
  pb::GraphDef graph;
  std::string path;                     // the file that was read in the end
  bool is_placed = false;               // every node names one device of one task
  StringMap<Explanation> explanations;  // by node; of stored plans and dumps only
};

// `path` is one of
//   a file ("-": standard input) with a GraphDef, MetaGraphDef or SavedModel, binary or text;
//   the JSON that `millrace place` and `dump` write;
//   the directory of a saved model;
//   a directory of graph dumps (docs/dumps.md): of a server or program with one session, of a
//   session (its last placed graph), or of a run (what it needs of it).
// Of a saved model, the graph with exactly these tags, comma separated; "" if it has only one.
// NotFound if there is no such file, tags or dump, InvalidArgument if it is none of these or not
// clear which is meant.
StatusOr<GraphSource> ReadGraphSource(const std::string& path, std::string_view tags);

}  // namespace millrace

#endif  // PLANNER_GRAPH_SOURCE_H_
