// SPDX-License-Identifier: Apache-2.0
#include "master/dump/graph_dump.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/device_name.h"
#include "graph/dot.h"
#include "graph/graph_def_io.h"
#include "graph/shape_refiner.h"
#include "io/filesystem.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestTarget = 40;
constexpr char kManifest[] = "manifest.json";

// "0002_placed".
std::string Numbered(int64_t number, std::string_view what) {
  char digits[24];
  std::snprintf(digits, sizeof(digits), "%04lld_", static_cast<long long>(number));
  return StrCat(digits, what);
}

std::string ForFileName(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return name;
}

// "/job:ps/replica:0/task:0/device:CPU:1" is "ps_0_CPU_1", its task "ps_0".
std::string PlaceForFileName(std::string_view device) {
  const StatusOr<DeviceName> name = DeviceName::Parse(device);
  if (!name.ok() || !name->job || !name->task) return ForFileName(device);
  std::string text = *name->job;
  if (name->replica.value_or(0) != 0) StrAppend(&text, "_r", *name->replica);
  StrAppend(&text, "_", *name->task);
  if (name->type && name->id) StrAppend(&text, "_", *name->type, "_", *name->id);
  return ForFileName(text);
}

std::string TaskPart(std::string_view device) {
  return std::string(device.substr(0, device.find("/device:")));
}

// All nodes of a part are at one place.
std::string PlaceOf(const pb::GraphDef& part) {
  return part.node_size() == 0 ? "" : part.node(0).device();
}

std::string RunFolder(const RunSignature& signature) {
  std::string text;
  for (const auto& name : signature.feeds) StrAppend(&text, "feed ", name, "\n");
  for (const auto& name : signature.fetches) StrAppend(&text, "fetch ", name, "\n");
  for (const auto& name : signature.targets) StrAppend(&text, "target ", name, "\n");
  for (const auto& [from, to] : signature.connections) StrAppend(&text, from, " ", to, "\n");
  if (signature.partial) text += "partial\n";
  std::string_view name;
  if (!signature.fetches.empty()) name = signature.fetches.front();
  if (!signature.targets.empty()) name = signature.targets.front();
  return StrCat("run_", ForFileName(name.substr(0, kLongestTarget)), "_",
                Hex16(Hash64(text)).substr(0, 8));
}

int64_t NumEdges(const pb::GraphDef& graph) {
  int64_t edges = 0;
  for (const pb::NodeDef& node : graph.node()) edges += node.input_size();
  return edges;
}

StatusOr<std::unique_ptr<DataflowGraph>> Read(const pb::GraphDef& graph, const OpRegistry* ops) {
  auto read = std::make_unique<DataflowGraph>(ops);
  const Status status = ImportGraphDef({.internal_names = true}, graph, read.get());
  if (!status.ok()) return status;
  return read;
}

// Bytes of a tensor in a part of a graph whose tensors have these sizes; -1 if unknown.
int64_t SizeOf(const StringMap<int64_t>& sizes, const Node& node, int output) {
  // What the client feeds is known by the name of what it replaces.
  const std::string name = node.attrs().GetOr<bool>("client_terminated", false)
                               ? node.attrs().GetOr<std::string>("tensor_name", "")
                               : StrCat(node.name(), ":", output);
  if (const auto it = sizes.find(name); it != sizes.end()) return it->second;
  ShapeRefiner shapes;  // for the constant that the partitioner sends for a control edge
  if (node.num_inputs() > 0 || !shapes.AddNode(&node).ok()) return -1;
  return OutputBytes(node, output, shapes);
}

}  // namespace

// ---- GraphDumper

StatusOr<std::unique_ptr<GraphDumper>> GraphDumper::Open(std::string dir, const OpRegistry* ops) {
  const Status made = PosixFileSystem()->CreateDirectories(dir);
  if (!made.ok()) return Annotate(made, StrCat(" (the folder ", dir, " for graph dumps)"));
  return std::unique_ptr<GraphDumper>(new GraphDumper(std::move(dir), ops));
}

std::shared_ptr<SessionDump> GraphDumper::NewSession() {
  MutexLock lock(&mu_);
  std::string folder;
  do {
    folder = JoinPath(dir_, StrCat("session_", ++last_session_));
  } while (PosixFileSystem()->FileExists(folder));
  return std::make_shared<SessionDump>(std::move(folder), ops_);
}

// ---- SessionDump

SessionDump::SessionDump(std::string folder, const OpRegistry* ops)
    : folder_(std::move(folder)), ops_(ops) {
  MutexLock lock(&mu_);
  Keep(PosixFileSystem()->CreateDirectories(folder_));
  if (status_.ok()) MR_LOG(kInfo, "the graphs of a session go to ", folder_);
}

void SessionDump::AddOriginal(int64_t version, const pb::GraphDef& graph) {
  MutexLock lock(&mu_);
  const std::string stage = version == 0 ? "original" : "extension";
  const std::string name = Numbered(2 * version + 1, stage);
  if (version == 0) {
    WriteGraph(name, {.stage = stage}, graph);
  } else {  // its inputs may be elsewhere: no picture of its own
    Write(name + ".pbtxt", {.stage = stage, .nodes = graph.node_size(), .edges = NumEdges(graph)},
          GraphText(graph));
  }
  WriteManifest();
}

void SessionDump::AddPlaced(int64_t version, const DataflowGraph& graph,
                            const StringMap<uint64_t>& incarnations, std::string_view why) {
  MutexLock lock(&mu_);
  incarnations_ = NumberIncarnations(incarnations);
  devices_.clear();
  for (const auto& [device, incarnation] : incarnations) devices_.push_back(device);
  std::sort(devices_.begin(), devices_.end());
  ShapeRefiner shapes;
  shapes.AddGraph(graph).IgnoreError();  // what it learned before an error is right
  sizes_.clear();
  for (const Node* node : graph.OpNodes()) {
    for (int i = 0; i < node->num_outputs(); ++i) {
      const int64_t bytes = OutputBytes(*node, i, shapes);
      if (bytes >= 0) sizes_[StrCat(node->name(), ":", i)] = bytes;
    }
  }
  pb::GraphDef def;
  Keep(ExportGraphDef(graph, {}, &def));
  const std::string name = Numbered(2 * version + 2, "placed");
  WriteGraph(name, {.stage = "placed"}, def);
  Write(name + ".txt", {.stage = "placed"}, why);
  WriteManifest();
}

std::shared_ptr<RunDump> SessionDump::AddRun(const RunSignature& signature,
                                             const DataflowGraph& pruned,
                                             std::span<const Partition> parts) {
  MutexLock lock(&mu_);
  std::shared_ptr<RunDump> run(
      new RunDump(shared_from_this(), RunFolder(signature), CanonicalNames(pruned, incarnations_)));
  Keep(PosixFileSystem()->CreateDirectories(JoinPath(folder_, run->folder_)));
  runs_[run->folder_] = signature;
  std::vector<pb::GraphDef> graphs(1 + parts.size());  // the pruned one first
  Keep(ExportGraphDef(pruned, {}, &graphs[0]));
  for (size_t i = 0; i < parts.size(); ++i) {
    Keep(ExportGraphDef(*parts[i].graph, {}, &graphs[i + 1]));
  }
  run->names_.Apply(graphs);
  const std::string name = StrCat(run->folder_, "/", Numbered(run->next_file_++, "pruned"));
  WriteGraph(name, {.stage = "pruned", .run = run->folder_}, graphs[0]);
  WriteParts(run.get(), "partition", std::span(graphs).subspan(1));
  WriteManifest();
  return run;
}

void RunDump::AddDeviceParts(std::vector<pb::GraphDef> parts) {
  if (parts.empty()) {
    taken_.store(false);
    return;
  }
  MutexLock lock(&session_->mu_);
  names_.Apply(parts);
  session_->WriteParts(this, "device", parts);
  session_->WriteManifest();
}

std::string SessionDump::PlacementFile(int64_t version) const {
  return JoinPath(folder_, Numbered(2 * version + 2, "placed.txt"));
}

Status SessionDump::status() const {
  MutexLock lock(&mu_);
  return status_;
}

void SessionDump::Keep(Status status) {
  if (status.ok() || !status_.ok()) return;
  status_ = Annotate(status, StrCat(" (the graph dumps in ", folder_, " end here)"));
  MR_LOG(kWarning, Message(status_), "; the session goes on");
}

void SessionDump::Write(const std::string& path, const File& file, std::string_view content) {
  if (!status_.ok()) return;
  Keep(PosixFileSystem()->WriteFileAtomically(JoinPath(folder_, path), content));
  if (status_.ok()) files_[path] = file;
}

void SessionDump::WriteGraph(const std::string& name, const File& file, const pb::GraphDef& graph) {
  File known = file;
  known.nodes = graph.node_size();
  known.edges = NumEdges(graph);
  Write(name + ".pbtxt", known, GraphText(graph));
  WriteDot(name + ".dot", file, std::span(&graph, 1));
}

void SessionDump::WriteDot(const std::string& path, const File& file,
                           std::span<const pb::GraphDef> parts) {
  if (!status_.ok()) return;
  File known = file;
  std::vector<std::unique_ptr<DataflowGraph>> graphs;
  std::vector<const DataflowGraph*> views;
  for (const pb::GraphDef& part : parts) {
    StatusOr<std::unique_ptr<DataflowGraph>> graph = Read(part, ops_);
    if (!graph.ok()) {
      MR_LOG(kWarning, "no picture of ", JoinPath(folder_, path), ": ", Message(graph.status()));
      return;
    }
    known.nodes += part.node_size();
    known.edges += NumEdges(part);
    views.push_back(graph->get());
    graphs.push_back(*std::move(graph));
  }
  // The lambda runs under our lock, which the analysis cannot see.
  const StringMap<int64_t>* const sizes = &sizes_;
  Write(path, known, ToDot(views, [sizes](const Node& node, int output) {
          return SizeOf(*sizes, node, output);
        }));
}

void SessionDump::WriteParts(RunDump* run, const std::string& stage,
                             std::span<const pb::GraphDef> parts) {
  const bool by_task = stage == "partition";
  for (const pb::GraphDef& part : parts) {
    const std::string place = by_task ? TaskPart(PlaceOf(part)) : PlaceOf(part);
    const std::string name =
        Numbered(run->next_file_++, StrCat(stage, "_", PlaceForFileName(place)));
    WriteGraph(StrCat(run->folder_, "/", name),
               {.stage = stage, .place = place, .run = run->folder_}, part);
  }
  const std::string all = Numbered(run->next_file_++, stage + "s.dot");
  WriteDot(StrCat(run->folder_, "/", all), {.stage = stage + "s", .run = run->folder_}, parts);
}

void SessionDump::WriteManifest() {
  if (!status_.ok()) return;
  Json manifest;
  manifest["format"] = "millrace graph dump 1";
  Json& incarnations = manifest["incarnations"] = Json::object();
  for (size_t i = 0; i < devices_.size(); ++i) incarnations[StrCat(i + 1)] = devices_[i];
  Json& runs = manifest["runs"] = Json::array();
  for (const auto& [folder, signature] : runs_) {
    Json run = {{"folder", folder},
                {"feeds", signature.feeds},
                {"fetches", signature.fetches},
                {"targets", signature.targets}};
    if (!signature.connections.empty()) run["connections"] = signature.connections;
    if (signature.partial) run["partial"] = true;
    runs.push_back(std::move(run));
  }
  Json& files = manifest["files"] = Json::array();
  for (const auto& [path, file] : files_) {
    Json entry = {{"file", path}, {"stage", file.stage}};
    if (!file.place.empty()) entry["place"] = file.place;
    if (!file.run.empty()) entry["run"] = file.run;
    if (file.nodes > 0) {
      entry["nodes"] = file.nodes;
      entry["edges"] = file.edges;
    }
    files.push_back(std::move(entry));
  }
  const std::string text =
      manifest.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  Keep(PosixFileSystem()->WriteFileAtomically(JoinPath(folder_, kManifest), text + "\n"));
}

}  // namespace millrace
