// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/offline.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text/log_format.h"
#include "device/device_name.h"
#include "graph/dot.h"
#include "graph/graph_def_io.h"
#include "graph/lowering/lower_functions.h"
#include "graph/shape_refiner.h"
#include "placer/auto_place.h"
#include "planner/cluster_source.h"
#include "planner/explanations.h"
#include "planner/text_input.h"
#include "runtime/fake_accelerator.h"
#include "runtime/registries.h"

namespace millrace {
namespace {

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

Status PlaceNodes(const ClusterFlags& flags, const PlacerInput& input, DataflowGraph* graph,
                  PlacementLog* log) {
  if (flags.placer == "rules") return Place(graph, input, log);
  ShapeRefiner shapes;
  shapes.AddGraph(*graph).IgnoreError();  // what it learned before an error is right
  AutoPlacement result;
  MR_RETURN_IF_ERROR(AutoPlace(graph, input, GuessCosts(shapes), log, &result));
  std::fprintf(stderr, "a step is expected to take %.3g s (%s)\n", result.makespan_seconds,
               result.method.c_str());
  return OkStatus();
}

bool NamesACluster(const ClusterFlags& flags) {
  const StatusOr<ClusterJobs> jobs = ReadCluster(flags.cluster);
  return !jobs.ok() || !jobs->empty() || flags.placer != "rules" || !flags.without.empty();
}

// The first CPU of `task`.
std::string FirstCpu(const std::vector<PlacerDevice>& devices, const std::string& task) {
  for (const PlacerDevice& device : devices) {
    if (device.type == "CPU" && device.name.starts_with(task + "/")) return device.name;
  }
  return devices.empty() ? "" : devices.front().name;
}

// The text of PlacementLog::Summary for a graph that was placed elsewhere.
std::string Summarize(const DataflowGraph& graph) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const Node* node : graph.OpNodes()) ++counts[{node->assigned_device(), node->type()}];
  std::string text = "device  count  op\n";
  for (const auto& [key, count] : counts) {
    StrAppend(&text, key.first, "  ", count, "  ", key.second, "\n");
  }
  return text;
}

// As it is: the devices are those that its nodes name.
StatusOr<PlacedGraph> KeepPlaced(GraphSource source, const ClusterFlags& flags) {
  PlacedGraph placed;
  for (pb::NodeDef& node : *source.graph.mutable_node()) {
    MR_ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(node.device()));
    if (!name.replica) name.replica = 0;
    node.set_device(name.ToString());
  }
  placed.graph = std::make_unique<DataflowGraph>(&AllOps());
  MR_RETURN_IF_ERROR(ImportGraphDef({.internal_names = true, .devices_are_assigned = true},
                                    source.graph, placed.graph.get()));
  std::map<std::string, std::string> types;  // of devices
  ClusterJobs jobs;
  for (const Node* node : placed.graph->OpNodes()) {
    const StatusOr<DeviceName> name = DeviceName::Parse(node->assigned_device());
    if (!name.ok()) continue;
    types[node->assigned_device()] = *name->type;
    jobs[*name->job].insert(*name->task);
  }
  std::string master;
  if (!jobs.empty()) {
    MR_ASSIGN_OR_RETURN(master, FindMaster(flags.master, jobs));
  }
  // The session's own device may have no nodes.
  if (!master.empty()) types.emplace(StrCat(master, "/device:CPU:0"), "CPU");
  for (const auto& [device, type] : types) {
    placed.devices.push_back({device, type, device.starts_with(master + "/")});
  }
  placed.client_device = FirstCpu(placed.devices, master);
  placed.explanations = std::move(source.explanations);
  for (const Node* node : placed.graph->OpNodes()) {
    Explanation& known = placed.explanations[node->name()];
    if (known.rule != 0) continue;
    known.rule = static_cast<int>(ChoiceRule::kAlreadyAssigned);
    known.why = "it was placed before";
  }
  placed.summary = Summarize(*placed.graph);
  return placed;
}

StatusOr<PlacedGraph> PlaceSource(const GraphSource& source, const ClusterFlags& flags, bool chains,
                                  int* code) {
  *code = kWrongInput;
  PlacedGraph placed;
  placed.path = source.path;
  MR_ASSIGN_OR_RETURN(const PlacerInput input, MakePlacerInput(flags));
  placed.graph = std::make_unique<DataflowGraph>(&AllOps());
  MR_RETURN_IF_ERROR(
      ImportGraphDef({.internal_names = source.is_placed}, source.graph, placed.graph.get()));
  // As a session does: what the bodies of calls ask for counts.
  if (placed.graph->library() != nullptr) {
    MR_RETURN_IF_ERROR(LowerFunctions({}, nullptr, placed.graph.get()));
    placed.graph->FixSourceAndSink();
  }
  *code = kImpossible;
  PlacementLog& log = placed.log.emplace();
  MR_RETURN_IF_ERROR(PlaceNodes(flags, input, placed.graph.get(), &log));
  placed.devices = input.devices;
  for (const PlacerDevice& device : placed.devices) {
    if (device.is_local && device.type == "CPU" && placed.client_device.empty()) {
      placed.client_device = device.name;
    }
  }
  placed.explanations = Explain(log, chains);
  placed.summary = log.Summary();
  return placed;
}

}  // namespace

void AddGraphArgument(CLI::App* command, const char* name, std::string* path) {
  command
      ->add_option(name, *path,
                   "a GraphDef, MetaGraphDef or SavedModel, binary or text; the directory of a "
                   "saved model or of graph dumps; what --json wrote; - for standard input")
      ->required();
}

void AddClusterFlags(CLI::App* command, ClusterFlags* flags) {
  command->add_option("--cluster", flags->cluster,
                      "'ps:2,worker:3', 'ps|h:p;h:p,worker|h:p', or a file with the JSON of "
                      "TF_CONFIG or a ClusterDef, binary or text (default: the variable TF_CONFIG; "
                      "without it, a graph with all its devices stays as it is, and any other gets "
                      "one task of job localhost)");
  command->add_option("--master", flags->master,
                      "task at which the session is opened, '/job:worker/task:0' (default: the "
                      "first chief, master, worker or other task)");
  command->add_option("--cpus", flags->cpus, "CPU devices of each task")->capture_default_str();
  command->add_option("--gpus", flags->gpus, "GPU devices of each task that is no ps")
      ->capture_default_str();
  command->add_flag("--soft", flags->soft, "allow soft placement");
  command->add_flag_callback(
      "--fake_accelerator", &UseFakeAccelerator,
      "know the kernels of devices of type FAKE, a simulated accelerator, to "
      "try a graph that names them where there is no GPU");
  command->add_option("--without", flags->without,
                      "leave out the placement rules of these numbers, to see what they do");
  command
      ->add_option("--placer", flags->placer,
                   "rules: TensorFlow's; auto: where these leave a choice, what is expected to be "
                   "fastest")
      ->check(CLI::IsMember({"rules", "auto"}))
      ->capture_default_str();
  command->add_option("--tags", flags->tags,
                      "which graph of a saved model: the one with these tags, comma separated");
}

void AddRunFlags(CLI::App* command, RunFlags* flags) {
  command->add_option("--feed", flags->feeds, "tensors that are fed");
  command->add_option("--fetch", flags->fetches,
                      "tensors that are fetched; what these do not need is left out");
  command->add_option("--target", flags->targets, "nodes that are run");
  command->add_option("--shape", flags->shapes,
                      "shapes of fed tensors that the graph leaves open, 'x=64,784'");
}

StatusOr<RunRequest> ToRunRequest(const RunFlags& flags, std::string client_device) {
  RunRequest request{flags.feeds, flags.fetches, flags.targets, {}, std::move(client_device)};
  for (const std::string& text : flags.shapes) {
    const std::size_t equals = text.find('=');
    std::vector<int64_t> dims;
    bool good = equals != std::string::npos && equals > 0;
    const std::string_view list =
        good ? std::string_view(text).substr(equals + 1) : std::string_view();
    for (const std::string_view part : StrSplit(list, ',')) {
      if (list.empty()) break;  // a scalar
      int64_t size = -1;
      good = good && (part == "?" || (ParseInt64(part, &size) && size >= 0));
      dims.push_back(size);
    }
    if (!good) {
      return errors::InvalidArgument("'", text, "' is not a tensor and its shape, as x=64,784");
    }
    request.shapes[FullTensorName(text.substr(0, equals))] = PartialShape(dims);
  }
  return request;
}

StatusOr<PlacerInput> MakePlacerInput(const ClusterFlags& flags) {
  if (flags.cpus < 1 || flags.gpus < 0) {
    return errors::InvalidArgument("every task needs a CPU device");
  }
  MR_ASSIGN_OR_RETURN(ClusterJobs jobs, ReadCluster(flags.cluster));
  if (jobs.empty()) jobs["localhost"] = {0};
  MR_ASSIGN_OR_RETURN(const std::string master, FindMaster(flags.master, jobs));
  PlacerInput input;
  for (const auto& [job, tasks] : jobs) {
    for (const int task : tasks) {
      const std::string name = MakeTaskName(job, task);
      const auto add = [&](const char* type, int count) {
        for (int i = 0; i < count; ++i) {
          input.devices.push_back({StrCat(name, "/device:", type, ":", i), type, name == master});
        }
      };
      add("CPU", flags.cpus);
      if (job != "ps") add("GPU", flags.gpus);
    }
  }
  const KernelRegistry& kernels = AllKernels();
  input.kernel = [&kernels](const OpInfo& op, const AttrMap& attrs,
                            std::string_view type) -> std::optional<int> {
    const KernelDef* kernel = kernels.Find(op.def.name(), type, attrs);
    return kernel == nullptr ? std::nullopt : std::optional<int>(kernel->priority);
  };
  input.describe_kernels = [&kernels](std::string_view op) { return kernels.DescribeKernels(op); };
  input.allow_soft_placement = flags.soft;
  for (const int rule : flags.without) {
    if (rule < 2 || rule > 11) return errors::InvalidArgument("no rule ", rule, " can be left out");
    input.ignored_rules |= 1u << rule;
  }
  return input;
}

StatusOr<PlacedGraph> LoadPlaced(const std::string& path, const ClusterFlags& flags, bool chains,
                                 int* code) {
  *code = kWrongInput;
  MR_ASSIGN_OR_RETURN(GraphSource source, ReadGraphSource(path, flags.tags));
  return LoadPlaced(std::move(source), flags, chains, code);
}

StatusOr<PlacedGraph> LoadPlaced(GraphSource source, const ClusterFlags& flags, bool chains,
                                 int* code) {
  *code = kWrongInput;
  if (!source.is_placed || NamesACluster(flags)) return PlaceSource(source, flags, chains, code);
  std::string file = source.path;
  MR_ASSIGN_OR_RETURN(PlacedGraph placed, KeepPlaced(std::move(source), flags));
  placed.path = std::move(file);
  return placed;
}

int Complain(std::string_view command, const Status& status, int code) {
  WriteBesideLog(LogLevel::kError, StrCat("millrace ", command, ": ", Message(status), "\n"));
  return code;
}

Status CheckOutput(const std::string& path) {
  if (path.empty() || path == "-") return OkStatus();
  // Without O_TRUNC; a FIFO without a reader must not keep it waiting, and is no error yet.
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENXIO) return OkStatus();
  const bool is_new = fd < 0 && errno == ENOENT;
  if (is_new) fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
  if (fd < 0) {
    return errors::InvalidArgument("cannot write ", path, ": ", std::strerror(errno));
  }
  close(fd);
  if (is_new) unlink(path.c_str());
  return OkStatus();
}

int Write(std::string_view command, const std::string& path, const std::string& text) {
  if (path.empty() || path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kDone;
  }
  const Status status = WriteOutput(path, text);
  return status.ok() ? kDone : Complain(command, status, kWrongInput);
}

CLI::App* AddCommand(CLI::App* app, const char* name, const char* what, std::function<int()> run,
                     std::function<int()>* chosen) {
  CLI::App* const command = app->add_subcommand(name, what);
  command->callback([run = std::move(run), chosen] { *chosen = run; });
  return command;
}

}  // namespace millrace
