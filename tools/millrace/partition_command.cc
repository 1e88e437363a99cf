// SPDX-License-Identifier: Apache-2.0
// `millrace partition`.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/strings.h"
#include "graph/dot.h"
#include "planner/traffic.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

struct Flags : ClusterFlags, RunFlags {
  std::string graph, dot;
  bool as_json = false, text = false;
};

std::string ToText(const Flags& flags, const PlannedRun& run,
                   const std::vector<TransferSum>& links) {
  std::string text;
  for (const Partition& part : run.task_parts) {
    int sends = 0, receives = 0;
    const std::vector<Node*> nodes = part.graph->OpNodes();
    for (const Node* node : nodes) {
      sends += node->type() == "_Send" || node->type() == "_HostSend";
      receives += node->type() == "_Recv" || node->type() == "_HostRecv";
    }
    StrAppend(&text, part.location, ": ", nodes.size(), " nodes, ", sends, " sends, ", receives,
              " receives\n");
    if (flags.text) text += ToText(*part.graph);
  }
  for (const TransferSum& link : links) {
    StrAppend(&text, link.from, " -> ", link.to, ": ", link.tensors, " tensors, ",
              ToText(link.bytes), " bytes a step");
    if (link.not_exact > 0) StrAppend(&text, " (", link.not_exact, " not exact)");
    if (link.controls > 0) StrAppend(&text, ", ", link.controls, " control edges");
    text += "\n";
  }
  return text;
}

std::string ToJson(const PlannedRun& run, const std::vector<TransferSum>& links) {
  Json all = {{"parts", Json::array()}, {"links", Json::array()}};
  for (const Partition& part : run.task_parts) {
    Json nodes = Json::array();
    for (const Node* node : part.graph->OpNodes()) {
      nodes.push_back(
          {{"node", node->name()}, {"op", node->type()}, {"device", node->assigned_device()}});
    }
    all["parts"].push_back({{"task", part.location}, {"nodes", std::move(nodes)}});
  }
  for (const TransferSum& link : links) {
    all["links"].push_back({{"from", link.from},
                            {"to", link.to},
                            {"tensors", link.tensors},
                            {"controls", link.controls},
                            {"bytes", link.bytes.least},
                            {"unknown", link.not_exact}});
  }
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int Run(const Flags& flags) {
  int code = kDone;
  const StatusOr<PlacedGraph> placed = LoadPlaced(flags.graph, flags, /*chains=*/false, &code);
  if (!placed.ok()) return Complain("partition", placed.status(), code);
  const StatusOr<RunRequest> request = ToRunRequest(flags, placed->client_device);
  if (!request.ok()) return Complain("partition", request.status(), kWrongInput);
  const StatusOr<PlannedRun> run = PrepareRun(*placed->graph, *request);
  if (!run.ok()) return Complain("partition", run.status(), kImpossible);
  if (!flags.dot.empty()) {
    code = Write("partition", flags.dot, ToDot(*run->typed_graph, &run->shapes));
    if (code != kDone) return code;
  }
  std::vector<Transfer> transfers = PredictTransfers(*run);
  std::erase_if(transfers, [](const Transfer& transfer) {
    return transfer.from == kClient || transfer.to == kClient;
  });
  const std::vector<TransferSum> links = SumTransfers(transfers, /*by_task=*/false);
  return Write("partition", "", flags.as_json ? ToJson(*run, links) : ToText(flags, *run, links));
}

}  // namespace

void AddPartitionCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "partition", "cut a graph by task and say what has to be sent in each step",
      [flags] { return Run(*flags); }, chosen);
  AddGraphArgument(command, "graph", &flags->graph);
  AddClusterFlags(command, flags.get());
  AddRunFlags(command, flags.get());
  command->add_flag("--text", flags->text, "list the nodes of every part");
  command->add_flag("--json", flags->as_json, "for programs");
  command->add_option("--dot", flags->dot, "file for a picture in Graphviz's language");
}

}  // namespace millrace
