#include "tools/millrace/offline.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "millrace/cluster.h"
#include "proto/cluster.pb.h"
#include "proto/meta_graph.pb.h"
#include "runtime/registries.h"
#include "tools/millrace/tf_config.h"

namespace millrace {
namespace {

using Jobs = std::map<std::string, std::set<int>>;

StatusOr<std::string> ReadAll(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return errors::NotFound("cannot read ", path);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return errors::NotFound("cannot read ", path);
  return bytes;
}

// Keeps the first error only.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = StrCat("line ", line + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <typename Message>
bool ParseText(const std::string& text, Message* message, std::string* error) {
  FirstError first;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&first);
  parser.SetRecursionLimit(100);
  const bool ok = parser.ParseFromString(text, message);
  if (error->empty()) *error = first.text();
  return ok;
}

bool LooksLikeText(const std::string& bytes) {
  for (const char c : bytes.substr(0, 4096)) {
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' && c != '\r') return false;
  }
  return true;
}

// A message of another kind often parses, as unknown fields.
bool HasNamedNodes(const pb::GraphDef& def) {
  return def.node_size() > 0 && !def.node(0).name().empty() && !def.node(0).op().empty();
}

std::optional<Jobs> ParseCounts(std::string_view text) {
  Jobs jobs;
  for (const std::string_view part : StrSplit(text, ',')) {
    const std::size_t colon = part.find(':');
    int64_t count = 0;
    if (colon == std::string_view::npos || colon == 0 ||
        !ParseInt64(part.substr(colon + 1), &count) || count < 1 || count > 100'000) {
      return std::nullopt;
    }
    for (int i = 0; i < count; ++i) jobs[std::string(part.substr(0, colon))].insert(i);
  }
  return jobs;
}

Jobs ToJobs(const ClusterSpec& cluster) {
  Jobs jobs;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [task, address] : tasks) jobs[job].insert(task);
  }
  return jobs;
}

StatusOr<Jobs> ReadJobs(const std::string& text) {
  if (text.empty()) return Jobs{{"localhost", {0}}};
  if (std::optional<Jobs> counts = ParseCounts(text)) return *counts;
  if (text.find('|') != std::string::npos) {
    MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Parse(text));
    return ToJobs(cluster);
  }
  StatusOr<std::string> file = ReadAll(text);
  if (!file.ok()) {
    return errors::InvalidArgument("'", text,
                                   "' is neither \"job:tasks,...\" nor \"job|host:port;...\" nor a "
                                   "file that can be read");
  }
  const std::size_t first = file->find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*file)[first] == '{') {
    MR_ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(*file));
    return ToJobs(config.cluster);
  }
  pb::ClusterDef def;
  std::string error;
  if (!ParseText(*file, &def, &error) || def.job().empty()) {
    return errors::InvalidArgument(
        text, " holds neither the JSON of TF_CONFIG nor a ClusterDef: ", error);
  }
  Jobs jobs;
  for (const pb::JobDef& job : def.job()) {
    for (const auto& [task, address] : job.tasks()) jobs[job.name()].insert(task);
  }
  return jobs;
}

// The task that a session would be opened at.
StatusOr<std::string> FindMaster(const std::string& wanted, const Jobs& jobs) {
  if (wanted.empty()) {
    for (const char* job : {"chief", "master", "worker"}) {
      const auto found = jobs.find(job);
      if (found != jobs.end()) return MakeTaskName(job, *found->second.begin());
    }
    return MakeTaskName(jobs.begin()->first, *jobs.begin()->second.begin());
  }
  MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(wanted));
  const auto found = name.job ? jobs.find(*name.job) : jobs.end();
  const int task = name.task.value_or(0);
  if (found == jobs.end() || found->second.count(task) == 0) {
    return errors::InvalidArgument("the cluster has no task ", wanted);
  }
  return MakeTaskName(*name.job, task);
}

}  // namespace

void AddOfflineFlags(CLI::App* command, OfflineFlags* flags) {
  command
      ->add_option("graph", flags->graph,
                   "file with a GraphDef or MetaGraphDef, binary or text; - for standard input")
      ->required();
  command->add_option("--cluster", flags->cluster,
                      "'ps:2,worker:3', 'ps|h:p;h:p,worker|h:p', or a file with the JSON of "
                      "TF_CONFIG or a ClusterDef as text (default: one task of job localhost)");
  command->add_option("--master", flags->master,
                      "task at which the session is opened, '/job:worker/task:0' (default: the "
                      "first chief, master, worker or other task)");
  command->add_option("--cpus", flags->cpus, "CPU devices of each task")->capture_default_str();
  command->add_option("--gpus", flags->gpus, "GPU devices of each task that is no ps")
      ->capture_default_str();
  command->add_flag("--soft", flags->soft, "allow soft placement");
  command->add_option("--without", flags->without,
                      "leave out the placement rules of these numbers, to see what they do");
}

StatusOr<pb::GraphDef> ReadGraph(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadAll(path));
  pb::GraphDef graph;
  pb::MetaGraphDef meta;
  std::string error;
  if (LooksLikeText(bytes)) {
    if (ParseText(bytes, &graph, &error)) return graph;
    std::string second;
    if (ParseText(bytes, &meta, &second) && meta.has_graph_def()) return meta.graph_def();
  }
  if (graph.ParseFromString(bytes) && HasNamedNodes(graph)) return graph;
  if (meta.ParseFromString(bytes) && HasNamedNodes(meta.graph_def())) return meta.graph_def();
  return errors::InvalidArgument(path, " holds neither a GraphDef nor a MetaGraphDef",
                                 error.empty() ? "" : StrCat("; as text: ", error));
}

StatusOr<PlacerInput> MakePlacerInput(const OfflineFlags& flags) {
  if (flags.cpus < 1 || flags.gpus < 0) {
    return errors::InvalidArgument("every task needs a CPU device");
  }
  MR_ASSIGN_OR_RETURN(const Jobs jobs, ReadJobs(flags.cluster));
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

}  // namespace millrace
