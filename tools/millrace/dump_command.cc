// SPDX-License-Identifier: Apache-2.0
// `millrace dump`: a placed graph as text, a picture, a page or JSON.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "graph/dot.h"
#include "graph/graph_def_io.h"
#include "graph/shape_refiner.h"
#include "planner/html.h"
#include "planner/plan_json.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags : ClusterFlags {
  std::string graph, output, format = "text", title;
  bool as_json = false;
};

int Run(const Flags& flags) {
  int code = kDone;
  const std::string format = flags.as_json ? "json" : flags.format;
  const StatusOr<PlacedGraph> placed = LoadPlaced(flags.graph, flags, /*chains=*/true, &code);
  if (!placed.ok()) return Complain("dump", placed.status(), code);
  const DataflowGraph& graph = *placed->graph;
  if (format == "text") return Write("dump", flags.output, ToText(graph));
  if (format == "json") {
    pb::GraphDef def;
    const Status exported = ExportGraphDef(graph, {}, &def);
    if (!exported.ok()) return Complain("dump", exported, kWrongInput);
    return Write("dump", flags.output, PlanToJson(def, placed->explanations, /*with_chains=*/true));
  }
  ShapeRefiner shapes;
  shapes.AddGraph(graph).IgnoreError();  // what it learned before an error is right
  if (format == "dot") return Write("dump", flags.output, ToDot(graph, &shapes));
  const std::string title = flags.title.empty() ? placed->path : flags.title;
  return Write("dump", flags.output, ToHtml(title, graph, shapes, placed->explanations));
}

}  // namespace

void AddDumpCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "dump", "show a graph with its devices", [flags] { return Run(*flags); }, chosen);
  AddGraphArgument(command, "graph", &flags->graph);
  AddClusterFlags(command, flags.get());
  command
      ->add_option("--format", flags->format,
                   "text: a line for each node; dot: for Graphviz; html: a page for any browser; "
                   "json: the plan with its reasons, which every command here reads again")
      ->check(CLI::IsMember({"text", "dot", "html", "json"}))
      ->capture_default_str();
  command->add_flag("--json", flags->as_json, "the same as --format json");
  command->add_option("-o,--output", flags->output, "file (default: standard output)");
  command->add_option("--title", flags->title, "of the page (default: the file of the graph)");
}

}  // namespace millrace
