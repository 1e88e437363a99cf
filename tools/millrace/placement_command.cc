#include "tools/millrace/placement_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "graph/dot.h"
#include "graph/graph_def_io.h"
#include "graph/shape_refiner.h"
#include "partitioner/partition.h"
#include "partitioner/verify.h"
#include "placer/auto_place.h"
#include "placer/placer.h"
#include "runtime/registries.h"
#include "session/feed_fetch.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using nlohmann::json;

// Exit codes.
constexpr int kDone = 0, kImpossible = 1, kWrongInput = 2;

struct Flags : OfflineFlags {
  std::string node;  // why
  std::string placer = "rules";
  bool full = false, as_json = false, text = false;
  std::string write, dot;                            // files
  std::vector<std::string> feeds, fetches, targets;  // partition
};

struct Placed {
  std::unique_ptr<DataflowGraph> graph;
  PlacerInput input;
  PlacementLog log;
};

int Complain(const char* command, const Status& status, int code) {
  std::fprintf(stderr, "millrace %s: %s\n", command, std::string(Message(status)).c_str());
  return code;
}

Status Load(const Flags& flags, Placed* placed) {
  MR_ASSIGN_OR_RETURN(const pb::GraphDef def, ReadGraph(flags.graph));
  MR_ASSIGN_OR_RETURN(placed->input, MakePlacerInput(flags));
  placed->graph = std::make_unique<DataflowGraph>(&AllOps());
  return ImportGraphDef({}, def, placed->graph.get());
}

// Guesses: a core of 10 GFlop/s that reads 10 GB/s, and links of 1 GB/s. A matrix product is
// counted, everything else costs what it writes.
CostModel GuessCosts(const ShapeRefiner& shapes) {
  constexpr double kPerNode = 1e-6, kFlops = 1e10, kBytes = 1e10, kGpuFactor = 20;
  CostModel costs;
  costs.output_bytes = [&shapes](const Node& node, int output) {
    return static_cast<double>(std::max<int64_t>(0, OutputBytes(node, output, shapes)));
  };
  costs.compute_seconds = [&shapes](const Node& node, std::string_view type) {
    double work = 0;
    for (int i = 0; i < node.num_outputs(); ++i) {
      work += static_cast<double>(std::max<int64_t>(0, OutputBytes(node, i, shapes))) / kBytes;
    }
    const Edge* const left = node.type() == "MatMul" ? node.input_edge(0) : nullptr;
    if (left != nullptr) {
      const int64_t in = OutputBytes(*left->src, left->src_output, shapes);
      const PartialShape out = shapes.shape(&node, 0);
      if (in > 0 && out.has_rank() && out.rank() == 2 && out.dim(1) > 0) {
        work += 2.0 * static_cast<double>(in) / 4 * static_cast<double>(out.dim(1)) / kFlops;
      }
    }
    return kPerNode + (type == "CPU" ? work : work / kGpuFactor);
  };
  return costs;
}

Status PlaceGraph(const Flags& flags, Placed* placed) {
  if (flags.placer == "rules") return Place(placed->graph.get(), placed->input, &placed->log);
  ShapeRefiner shapes;
  shapes.AddGraph(*placed->graph).IgnoreError();  // what it learned before an error is right
  AutoPlacement result;
  MR_RETURN_IF_ERROR(
      AutoPlace(placed->graph.get(), placed->input, GuessCosts(shapes), &placed->log, &result));
  std::fprintf(stderr, "a step is expected to take %.3g s (%s)\n", result.makespan_seconds,
               result.method.c_str());
  return OkStatus();
}

Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return file ? OkStatus() : errors::InvalidArgument("cannot write ", path);
}

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Every message of the importer is kept, whatever bytes a name has.
std::string Dump(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

json ToJson(const PlacementLog::Decision& d) {
  json entry = {
      {"node", d.node}, {"op", d.op}, {"device", d.device}, {"rule", d.rule}, {"why", d.why}};
  if (!d.requested.empty()) entry["requested"] = d.requested;
  if (!d.origin.empty()) entry["origin"] = d.origin;
  return entry;
}

int RunPlace(const Flags& flags) {
  Placed placed;
  if (Status status = Load(flags, &placed); !status.ok()) {
    return Complain("place", status, kWrongInput);
  }
  if (Status status = PlaceGraph(flags, &placed); !status.ok()) {
    return Complain("place", status, kImpossible);
  }
  if (!flags.write.empty()) {
    pb::GraphDef def;
    Status status = ExportGraphDef(*placed.graph, {}, &def);
    if (status.ok()) status = WriteFile(flags.write, def.SerializeAsString());
    if (!status.ok()) return Complain("place", status, kWrongInput);
  }
  if (flags.as_json) {
    json nodes = json::array();
    for (const PlacementLog::Decision& decision : placed.log.Decisions()) {
      nodes.push_back(ToJson(decision));
    }
    Print(Dump({{"nodes", std::move(nodes)}}));
    return kDone;
  }
  Print(placed.log.Summary());
  Print("\n");
  if (flags.full) {
    Print(placed.log.ToText());
    return kDone;
  }
  for (const PlacementLog::Decision& d : placed.log.Decisions()) {
    Print(StrCat(d.device, "  ", d.node, " (", d.op, "): rule ", static_cast<int>(d.rule), "\n"));
  }
  return kDone;
}

int RunWhy(const Flags& flags) {
  Placed placed;
  if (Status status = Load(flags, &placed); !status.ok()) {
    return Complain("why", status, kWrongInput);
  }
  if (placed.graph->FindNode(flags.node) == nullptr) {
    return Complain("why", errors::NotFound("the graph has no node '", flags.node, "'"),
                    kWrongInput);
  }
  if (Status status = PlaceGraph(flags, &placed); !status.ok()) {
    return Complain("why", status, kImpossible);
  }
  if (flags.as_json) {
    for (const PlacementLog::Decision& decision : placed.log.Decisions()) {
      if (decision.node != flags.node) continue;
      json entry = ToJson(decision);
      entry["text"] = placed.log.ToText(flags.node);
      Print(Dump(entry));
    }
    return kDone;
  }
  Print(placed.log.ToText(flags.node));
  return kDone;
}

// ---- partition

struct Link {
  std::string from, to;
  int tensors = 0, unknown = 0;
  int64_t bytes = 0;
};

StatusOr<std::vector<Partition>> Cut(const Flags& flags, DataflowGraph* graph) {
  if (!flags.fetches.empty() || !flags.targets.empty()) {
    RunSignature signature;
    signature.feeds = flags.feeds;
    signature.fetches = flags.fetches;
    signature.targets = flags.targets;
    for (auto* names : {&signature.feeds, &signature.fetches}) {
      for (std::string& name : *names) {
        if (name.find(':') == std::string::npos) name += ":0";
      }
    }
    std::string client;  // any device of the master
    for (const Node* node : graph->OpNodes()) client = node->assigned_device();
    MR_ASSIGN_OR_RETURN(const PlacerInput input, MakePlacerInput(flags));
    for (const PlacerDevice& device : input.devices) {
      if (device.is_local && device.type == "CPU") {
        client = device.name;
        break;
      }
    }
    MR_RETURN_IF_ERROR(RewriteForRun(signature, {client, 1}, graph));
  }
  PartitionOptions options;
  options.node_to_location = [](const Node& node) {
    const StatusOr<DeviceName> device = DeviceName::Parse(node.assigned_device());
    return device.ok() ? TaskName(*device) : std::string();
  };
  int made = 0;
  options.new_name = [&made](std::string_view prefix) { return StrCat(prefix, "_S", made++); };
  MR_ASSIGN_OR_RETURN(std::vector<Partition> parts, PartitionGraph(*graph, options));
  MR_RETURN_IF_ERROR(VerifyPartitions(parts));
  return parts;
}

// Sums of what is sent; sizes are those of the whole graph, where shapes are known.
std::vector<Link> Links(const std::vector<Partition>& parts, const DataflowGraph& whole) {
  ShapeRefiner shapes;
  const bool have_shapes = shapes.AddGraph(whole).ok();
  std::map<std::pair<std::string, std::string>, Link> links;
  for (const Partition& part : parts) {
    for (const Node* node : part.graph->OpNodes()) {
      if (node->type() != "_Send" && node->type() != "_HostSend") continue;
      if (node->attrs().GetOr<bool>("client_terminated", false)) continue;
      const std::string to = node->attrs().GetOr<std::string>("recv_device", "");
      Link& link = links[{node->assigned_device(), to}];
      link.from = node->assigned_device();
      link.to = to;
      ++link.tensors;
      const Edge* value = node->input_edge(0);
      if (value == nullptr || value->src->name().find("/ctrl_S") != std::string::npos) continue;
      const Node* source = whole.FindNode(value->src->name());
      const int64_t bytes =
          source == nullptr || !have_shapes ? -1 : OutputBytes(*source, value->src_output, shapes);
      if (bytes < 0) {
        ++link.unknown;
      } else {
        link.bytes += bytes;
      }
    }
  }
  std::vector<Link> sorted;
  for (auto& [key, link] : links) sorted.push_back(std::move(link));
  return sorted;
}

void PrintParts(const Flags& flags, const std::vector<Partition>& parts,
                const std::vector<Link>& links) {
  for (const Partition& part : parts) {
    int sends = 0, receives = 0;
    const std::vector<Node*> nodes = part.graph->OpNodes();
    for (const Node* node : nodes) {
      sends += node->type() == "_Send" || node->type() == "_HostSend";
      receives += node->type() == "_Recv" || node->type() == "_HostRecv";
    }
    Print(StrCat(part.location, ": ", nodes.size(), " nodes, ", sends, " sends, ", receives,
                 " receives\n"));
    if (flags.text) Print(ToText(*part.graph));
  }
  for (const Link& link : links) {
    Print(StrCat(link.from, " -> ", link.to, ": ", link.tensors, " tensors, ", link.bytes,
                 " bytes a step",
                 link.unknown > 0 ? StrCat(" and ", link.unknown, " of unknown size") : "", "\n"));
  }
}

int RunPartition(const Flags& flags) {
  Placed placed;
  if (Status status = Load(flags, &placed); !status.ok()) {
    return Complain("partition", status, kWrongInput);
  }
  if (Status status = PlaceGraph(flags, &placed); !status.ok()) {
    return Complain("partition", status, kImpossible);
  }
  StatusOr<std::vector<Partition>> parts = Cut(flags, placed.graph.get());
  if (!parts.ok()) return Complain("partition", parts.status(), kImpossible);
  const std::vector<Link> links = Links(*parts, *placed.graph);
  if (!flags.dot.empty()) {
    const Status status = WriteFile(flags.dot, ToDot(*placed.graph, nullptr));
    if (!status.ok()) return Complain("partition", status, kWrongInput);
  }
  if (!flags.as_json) {
    PrintParts(flags, *parts, links);
    return kDone;
  }
  json all = {{"parts", json::array()}, {"links", json::array()}};
  for (const Partition& part : *parts) {
    json nodes = json::array();
    for (const Node* node : part.graph->OpNodes()) {
      nodes.push_back(
          {{"node", node->name()}, {"op", node->type()}, {"device", node->assigned_device()}});
    }
    all["parts"].push_back({{"task", part.location}, {"nodes", std::move(nodes)}});
  }
  for (const Link& link : links) {
    all["links"].push_back({{"from", link.from},
                            {"to", link.to},
                            {"tensors", link.tensors},
                            {"bytes", link.bytes},
                            {"unknown", link.unknown}});
  }
  Print(Dump(all));
  return kDone;
}

void AddPlacerOption(CLI::App* command, Flags* flags) {
  command
      ->add_option("--placer", flags->placer,
                   "rules: TensorFlow's; auto: where these leave a choice, what is expected to be "
                   "fastest")
      ->check(CLI::IsMember({"rules", "auto"}))
      ->capture_default_str();
}

CLI::App* AddCommand(CLI::App* app, const char* name, const char* what,
                     const std::shared_ptr<Flags>& flags, std::function<int()>* chosen,
                     int (*run)(const Flags&)) {
  CLI::App* const command = app->add_subcommand(name, what);
  command->callback([flags, chosen, run] { *chosen = [flags, run] { return run(*flags); }; });
  return command;
}

}  // namespace

void AddPlacementCommands(CLI::App* app, std::function<int()>* chosen) {
  auto place = std::make_shared<Flags>();
  CLI::App* command = AddCommand(app, "place", "say on which device every node of a graph goes",
                                 place, chosen, RunPlace);
  AddOfflineFlags(command, place.get());
  AddPlacerOption(command, place.get());
  command->add_flag("--full", place->full, "explain every node");
  command->add_flag("--json", place->as_json, "for programs");
  command->add_option("--write", place->write, "file for the graph with its devices");

  auto why = std::make_shared<Flags>();
  command = AddCommand(app, "why", "explain why a node is on its device", why, chosen, RunWhy);
  command->add_option("node", why->node, "name of the node")->required();
  AddOfflineFlags(command, why.get());
  AddPlacerOption(command, why.get());
  command->add_flag("--json", why->as_json, "for programs");

  auto partition = std::make_shared<Flags>();
  command =
      AddCommand(app, "partition", "cut a graph by task and say what has to be sent in each step",
                 partition, chosen, RunPartition);
  AddOfflineFlags(command, partition.get());
  AddPlacerOption(command, partition.get());
  command->add_option("--feed", partition->feeds, "tensors that are fed");
  command->add_option("--fetch", partition->fetches,
                      "tensors that are fetched; what these do not need is left out");
  command->add_option("--target", partition->targets, "nodes that are run");
  command->add_flag("--text", partition->text, "list the nodes of every part");
  command->add_flag("--json", partition->as_json, "for programs");
  command->add_option("--dot", partition->dot, "file for a picture in Graphviz's language");
}

}  // namespace millrace
