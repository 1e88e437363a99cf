// SPDX-License-Identifier: Apache-2.0
// Event files: what a program tells TensorBoard about its training (docs/tensorboard.md). They have
// TensorFlow 2's format: `tensorboard --logdir DIRECTORY` shows them.
//
//   MR_ASSIGN_OR_RETURN(auto events, EventWriter::Create("/tmp/run/train"));
//   MR_RETURN_IF_ERROR(events->WriteScalar("loss", loss, step));
#ifndef MILLRACE_SUMMARY_H_
#define MILLRACE_SUMMARY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// How an EventWriter names, holds back and dates events.
struct EventWriterOptions {
  // What the file's name ends with.
  std::string filename_suffix = ".v2";
  // Bytes of events that may wait to be written; who brings more waits until there is room.
  int64_t max_queue_bytes = 64 << 20;
  // So long after a call at the latest, readers see what it wrote.
  std::chrono::milliseconds flush_interval{2'000};
  // Seconds since 1970 that events are given; none: the machine's clock. Called by the threads that
  // write.
  std::function<double()> wall_time{};
};

// A hyperparameter's value.
using HParamValue = std::variant<bool, int64_t, double, std::string>;

// A scalar that the table of trials shows.
struct HParamsMetric {
  std::string tag;    // as WriteScalar is given it
  std::string run{};  // a directory within the one of the file ("validation"); "": that one
};

// What the table of trials shows beside the values of hyperparameters.
struct HParamsOptions {
  // Runs of one trial have the same; "": made of the values.
  std::string trial_id{};
  // Empty: TensorBoard shows all that there are.
  std::vector<HParamsMetric> metrics{};
};

// Appends events to a file of its own, events.out.tfevents.<seconds>.<host>.<process>.<n>.v2 in a
// directory; TensorBoard calls each directory a run. Events are written by a thread of the writer
// and whole: after a crash only the last one may be cut off, which readers pass over.
//
// Thread-safe, but for destruction. Calls return before the event is in the file; Flush waits. The
// first error of the disk is what all later calls return. Every Write is
//   InvalidArgument     for an empty tag or a value that cannot be shown, which it describes,
//   FailedPrecondition  after Close.
// `step` places a value on the horizontal axis. A `description`, in Markdown, is shown with the
// tag.
class EventWriter {
 public:
  // Makes the directory if there is none. InvalidArgument for options that cannot be, else the
  // error of the file system with the path.
  static StatusOr<std::unique_ptr<EventWriter>> Create(const std::string& directory,
                                                       const EventWriterOptions& options = {});
  // Closes; what goes wrong is in the log.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // One number, kept as a float.
  Status WriteScalar(std::string_view tag, double value, int64_t step,
                     std::string_view description = {});

  // How the values of a tensor of real numbers or bools are distributed: `buckets` (at least 1)
  // ranges of equal width from the least to the greatest. NaN and infinities are InvalidArgument,
  // with their number.
  Status WriteHistogram(std::string_view tag, const Tensor& values, int64_t step, int buckets = 30,
                        std::string_view description = {});

  // Images [count, height, width, channels] with 1 to 4 channels: grey, grey and alpha, RGB, RGBA.
  // uint8, or any floating type between 0 and 1; what is outside is cut off, NaN is 0. The first
  // `max_images` are kept, as PNG.
  Status WriteImages(std::string_view tag, const Tensor& images, int64_t step, int max_images = 3,
                     std::string_view description = {});

  // Markdown.
  Status WriteText(std::string_view tag, std::string_view text, int64_t step,
                   std::string_view description = {});
  // Strings; with one or two dimensions they are shown as a table.
  Status WriteText(std::string_view tag, const Tensor& strings, int64_t step,
                   std::string_view description = {});

  // The graph with the devices that its nodes ask for; TensorBoard shows one graph of a run.
  Status WriteGraph(const Graph& graph);
  // With the devices on which the nodes were in a run that was asked for its partition graphs or
  // statistics (RunOptions); nodes that it did not run have those that they ask for.
  Status WriteGraph(const Graph& graph, const RunMetadata& run);
  // A serialized GraphDef.
  Status WriteGraphDef(std::string_view graph_def);
  // A serialized MetaGraphDef, such as Saver::ExportMetaGraph returns.
  Status WriteMetaGraph(std::string_view meta_graph);
  // A model as Keras describes it (JSON), shown as a graph of layers.
  Status WriteKerasModel(std::string_view json);

  // Statistics of a step (RunOptions.trace), which TensorBoard shows in the graph: time and memory
  // of nodes. A tag names one step only.
  Status WriteRunMetadata(std::string_view tag, const RunMetadata& run, int64_t step);

  // The hyperparameters of the run that the file belongs to, once; then how it ended. Numbers must
  // be finite and names unique.
  Status WriteHParams(std::span<const std::pair<std::string, HParamValue>> values,
                      const HParamsOptions& options = {});
  // Ends the run in the table of trials, now: as a success or a failure.
  Status WriteHParamsEnd(bool success);

  // A serialized Summary, such as the ops ScalarSummary and MergeSummary yield.
  Status WriteSummary(std::string_view summary, int64_t step);

  // A training that goes on from `step`: TensorBoard drops what a run that was cut off wrote for
  // this step and later ones.
  Status WriteSessionStart(int64_t step);
  // A checkpoint of `step` was written. `path` is what it was saved as, without the step.
  Status WriteSessionCheckpoint(std::string_view path, int64_t step);
  // The session has ended. Without a step: a session that was lost cannot say which.
  Status WriteSessionStop();

  // Waits until what was written so far is with the operating system.
  Status Flush();
  // Flush, then no other Writes. A second one returns what the first did.
  Status Close();

  // Of the file.
  const std::string& path() const;

 private:
  struct Impl;
  explicit EventWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_SUMMARY_H_
