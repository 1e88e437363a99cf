// SPDX-License-Identifier: Apache-2.0
// The graphs of sessions as files, for whoever composed the master and asked for them. Layout:
//
//   DIR/session_1/manifest.json              every file, with stage, run, place and sizes
//   DIR/session_1/0001_original.pbtxt .dot   as the client sent it
//   DIR/session_1/0002_placed.pbtxt .dot     with a device for every node
//   DIR/session_1/0002_placed.txt            and why
//   DIR/session_1/0003_extension.pbtxt       nodes that were added, 0004_placed..., and so on
//   DIR/session_1/run_<target>_<hash>/       one for each signature that was run:
//     0001_pruned.pbtxt .dot                 what the run needs, with its feeds and fetches
//     0002_partition_ps_0.pbtxt .dot         cut by task, one pair of files for each
//     0004_partitions.dot                    all of them, sends joined to receives
//     0005_device_ps_0_CPU_0.pbtxt .dot      cut by device, as the workers run it; written at
//     0007_devices.dot                       the end of the first step
//
// Two equal runs write the same bytes: names that count on, and incarnations, are numbered
// anew (master/dump/canonical_graph.h), and a run's folder is called by what it runs, since plans
// may be made by several threads at once.
#ifndef MASTER_DUMP_GRAPH_DUMP_H_
#define MASTER_DUMP_GRAPH_DUMP_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "graph/dataflow_graph.h"
#include "master/dump/canonical_graph.h"
#include "master/plan.h"
#include "millrace/status.h"
#include "partitioner/partition.h"
#include "proto/graph.pb.h"

namespace millrace {

class SessionDump;

// The folder of one master. Thread-safe.
class GraphDumper {
 public:
  // Makes the folder. The error of the file system if it cannot, naming the folder. `ops` must
  // outlive the dumper and the sessions.
  static StatusOr<std::unique_ptr<GraphDumper>> Open(std::string dir, const OpRegistry* ops);

  // Takes the first of session_1, session_2, ... that is not there yet.
  std::shared_ptr<SessionDump> NewSession();
  const std::string& dir() const { return dir_; }

 private:
  GraphDumper(std::string dir, const OpRegistry* ops) : dir_(std::move(dir)), ops_(ops) {}

  const std::string dir_;
  const OpRegistry* const ops_;
  Mutex mu_;
  int last_session_ ABSL_GUARDED_BY(mu_) = 0;
};

// The files of one run of a session. Thread-safe.
class RunDump {
 public:
  // True for the first step that asks, which then brings what the workers made of the plan.
  bool TakeDeviceTurn() { return !taken_.exchange(true); }
  // The parts of each task, in the order of the plan. None: the step failed before it had
  // them, and the next one may try.
  void AddDeviceParts(std::vector<pb::GraphDef> parts);

 private:
  friend class SessionDump;
  RunDump(std::shared_ptr<SessionDump> session, std::string folder, CanonicalNames names)
      : session_(std::move(session)), folder_(std::move(folder)), names_(std::move(names)) {}

  const std::shared_ptr<SessionDump> session_;
  const std::string folder_;
  std::atomic<bool> taken_{false};
  // From here on: of the builder of the plan, then of the step whose turn it is.
  CanonicalNames names_;
  int next_file_ = 1;
};

// The files of one session. A session goes on when they cannot be written: the first error
// is logged, ends them, and is the status. Thread-safe.
class SessionDump : public std::enable_shared_from_this<SessionDump> {
 public:
  SessionDump(std::string folder, const OpRegistry* ops);

  // The graph of version 0, or what a later version adds.
  void AddOriginal(int64_t version, const pb::GraphDef& graph);
  // `incarnations` of the devices of the session; `why` is the log of the placer.
  void AddPlaced(int64_t version, const DataflowGraph& graph,
                 const StringMap<uint64_t>& incarnations, std::string_view why);
  // `pruned` was cut into `parts` by task.
  std::shared_ptr<RunDump> AddRun(const RunSignature& signature, const DataflowGraph& pruned,
                                  std::span<const Partition> parts);

  // Where AddPlaced writes why.
  std::string PlacementFile(int64_t version) const;
  Status status() const;

 private:
  friend class RunDump;
  // What the manifest says of a file.
  struct File {
    std::string stage;
    std::string place{}, run{};
    int64_t nodes = 0, edges = 0;
  };

  void Write(const std::string& path, const File& file, std::string_view content)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // NAME.pbtxt and NAME.dot.
  void WriteGraph(const std::string& name, const File& file, const pb::GraphDef& graph)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteDot(const std::string& name, const File& file, std::span<const pb::GraphDef> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One pair of files for each, called by its place, and one picture of all.
  void WriteParts(RunDump* run, const std::string& stage, std::span<const pb::GraphDef> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteManifest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep(Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string folder_;
  const OpRegistry* const ops_;
  mutable Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
  IncarnationNumbers incarnations_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> devices_ ABSL_GUARDED_BY(mu_);  // in order of their numbers
  StringMap<int64_t> sizes_ ABSL_GUARDED_BY(mu_);          // of tensors, where known
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, RunSignature> runs_ ABSL_GUARDED_BY(mu_);  // by folder
};

}  // namespace millrace

#endif  // MASTER_DUMP_GRAPH_DUMP_H_
