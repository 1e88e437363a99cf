// SPDX-License-Identifier: Apache-2.0
// Evaluation beside training: a program of its own that takes a job's checkpoints as they appear.
// It is no task of the training cluster, and costs that nothing.
//
//   Model model(...);  // the same layers
//   StatusOr<SidecarCounts> done = RunSidecarEvaluator(
//       {.directory = "/data/run", .last_number = 15000}, [&](const std::string& checkpoint) {
//         Status status = model.LoadWeights(checkpoint);
//         return status.ok() ? model.Evaluate(x, y).status() : status;
//       });
#ifndef MILLRACE_EVALUATOR_H_
#define MILLRACE_EVALUATOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

class ClusterCoordinator;  // millrace/cluster_coordinator.h
class Dataset;             // millrace/data.h

// Which checkpoints are taken when several have appeared: the newest, or each that is there, the
// oldest first.
enum class TakeCheckpoints { kLatest, kEvery };
// "latest" or "every"; InvalidArgument for another word.
StatusOr<TakeCheckpoints> ParseTakeCheckpoints(std::string_view word);

// The number that a prefix ends with, "model.ckpt-200": 200; nothing if it has none.
std::optional<int64_t> CheckpointNumber(std::string_view prefix);

// Which checkpoints a CheckpointsIterator takes, and when it ends.
struct CheckpointsIteratorOptions {
  TakeCheckpoints take = TakeCheckpoints::kLatest;  // kEvery: those before the newest too
  std::chrono::milliseconds min_interval{0};        // from one to the next
  std::chrono::milliseconds poll{1000};             // between two looks at the directory
  // So long without a new one ends the iteration; nothing: it has no end.
  std::optional<std::chrono::milliseconds> timeout{};
  // Asked after that time: false waits on.
  std::function<bool()> timeout_fn{};
  // Asked at every poll: true ends the iteration, but for what is there by then.
  std::function<bool()> stop{};
};

// The checkpoints of a directory, as they appear. Each is complete (LatestCheckpoint), which the
// job that writes them may change at any time: who reads one must expect NotFound. A job that has
// gone back to an older one writes names again that were taken: they are taken again, for their
// files are others. One thread at a time.
class CheckpointsIterator {
 public:
  // Begins with nothing taken. The directory need not be there yet; it is looked at by Next.
  explicit CheckpointsIterator(std::string directory, CheckpointsIteratorOptions options = {});

  // Waits for one that has not been taken. "" at the end.
  std::string Next();
  // Those that were complete when a newer one was taken instead; kLatest only.
  int64_t skipped() const { return skipped_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string Take();
  bool IsTaken(const std::string& prefix) const;
  void Mark(const std::string& prefix);

  const std::string directory_;
  const CheckpointsIteratorOptions options_;
  // Those that were taken or skipped, and which files they were then.
  std::map<std::string, std::string> taken_;
  int64_t newest_number_ = -1;  // that was seen
  int64_t skipped_ = 0;
  Clock::time_point not_before_{};
};

// Waits for a checkpoint other than `last` to be the newest that is complete. "" after `timeout`.
std::string WaitForNewCheckpoint(const std::string& directory, const std::string& last,
                                 std::optional<std::chrono::milliseconds> timeout = {},
                                 std::chrono::milliseconds poll = std::chrono::milliseconds(1000));

// What RunSidecarEvaluator looks for, and when it ends.
struct SidecarOptions {
  std::string directory;  // where the job writes its checkpoints; must be given
  TakeCheckpoints take = TakeCheckpoints::kLatest;  // kEvery: those before the newest too
  // Ends after the checkpoint of this number, or a greater one. Nothing: ends by `timeout` or
  // `stop` alone.
  std::optional<int64_t> last_number{};
  // So long without a new checkpoint is the end: DeadlineExceeded if `last_number` was awaited.
  std::optional<std::chrono::milliseconds> timeout{};
  std::chrono::milliseconds poll{1000};  // between two looks at the directory
  // Asked between evaluations: true takes what is there, and ends. For signals.
  std::function<bool()> stop{};
};

// What became of the checkpoints of one RunSidecarEvaluator.
struct SidecarCounts {
  int64_t evaluated = 0;   // by `evaluate`, with OK
  int64_t skipped = 0;     // older than the one that was taken
  int64_t unreadable = 0;  // deleted while they were read, or damaged
  std::string last;        // the newest that was evaluated
};

// Restores a checkpoint and evaluates it. Nothing of one that was given before may count: an
// evaluation that is begun anew begins with no sums.
using EvaluateCheckpoint = std::function<Status(const std::string& checkpoint)>;

// Calls `evaluate` for checkpoints as they appear. One that cannot be read (NotFound, DataLoss,
// OutOfRange; Unavailable or PermissionDenied that names its files, as of a disk that fails) is
// told in the log, and the next one is taken: the job may have deleted it. Any other error is
// returned. InvalidArgument without a directory.
StatusOr<SidecarCounts> RunSidecarEvaluator(const SidecarOptions& options,
                                            const EvaluateCheckpoint& evaluate);

// Evaluation within the job, by the workers of a ClusterCoordinator: the coordinator hands out
// splits of a data set, and what a worker had done of one when it was lost does not count. So every
// element counts once, whichever workers are lost meanwhile.
struct SplitOptions {
  std::string name = "evaluation";  // of the function that workers run
  // Each is an element in so many, from its own number on. 0: four for every worker. Small ones
  // cost little when a worker is lost; each goes through the whole data set, so that what is
  // expensive there belongs into the sums.
  int num_splits = 0;
};

// What one element, a batch in most, adds to the sums: numbers (scalars of any real type), as many
// in each. Called once, in a loop of the graph: variables are read there as they are then.
using SplitSums =
    std::function<std::vector<Output>(const Scope& worker, std::span<const Output> element)>;

// What SplitEvaluator::Evaluate has added up.
struct SplitResult {
  std::vector<double> sums;  // added by split, in the order of the splits
  int64_t examples = 0;      // rows of the first component; elements where those are scalars
  int64_t elements = 0;      // of the data set
  int num_splits = 0;        // in which they were evaluated
};

// One thread at a time. The coordinator outlives it.
class SplitEvaluator {
 public:
  // Adds the function. InvalidArgument for a data set that has no end, or that is shuffled (each
  // walk would have other elements in a split), or whose first component has no known rank; the
  // error of the data set or of the graph.
  static StatusOr<std::unique_ptr<SplitEvaluator>> Create(ClusterCoordinator& coordinator,
                                                          const Dataset& dataset,
                                                          const SplitSums& sums,
                                                          const SplitOptions& options = {});
  ~SplitEvaluator();

  // Schedules every split, behind what is scheduled already, and joins. What
  // ClusterCoordinator::Schedule and Join say. Variables should not change meanwhile.
  StatusOr<SplitResult> Evaluate();

 private:
  struct Impl;
  explicit SplitEvaluator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_EVALUATOR_H_
