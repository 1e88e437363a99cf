// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/hook_support.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/saver.h"
#include "millrace/variables.h"
#include "proto/meta_graph.pb.h"
#include "proto/summary.pb.h"

namespace millrace::hooks {
namespace {

constexpr int64_t kMostElements = 100;

// As people write a number that is a float: with a point, if it is finite.
template <typename T>
std::string Number(T value) {
  std::string text = StrCat(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

template <typename T, typename Format>
std::string Elements(const Tensor& value, Format format) {
  const std::span<const T> flat = value.flat<T>();
  if (value.rank() == 0) return format(flat[0]);
  std::string text = "[";
  const auto count = static_cast<int64_t>(flat.size());
  for (int64_t i = 0; i < std::min(count, kMostElements); ++i) {
    if (i > 0) text += ' ';
    text += format(flat[i]);
  }
  return text + (count > kMostElements ? " ...]" : "]");
}

}  // namespace

StatusOr<Output> GlobalStepOf(const Graph& graph, std::string_view hook) {
  const std::vector<Variable> steps = Variables(graph, kGlobalStep);
  if (steps.empty()) {
    return errors::FailedPrecondition("Global step should be created to use ", hook,
                                      ": call GlobalStep(scope) while the graph is built");
  }
  return steps.front().read;
}

Status CheckStepsPerRun(std::string_view hook, int64_t steps_per_run) {
  if (steps_per_run >= 1 && steps_per_run <= std::numeric_limits<int32_t>::max()) {
    return OkStatus();
  }
  return errors::InvalidArgument(hook, ": steps_per_run must be positive and an int32, not ",
                                 steps_per_run);
}

StatusOr<int64_t> StepIn(const Tensor& value) { return value.TryScalar<int64_t>(); }

StatusOr<int64_t> ReadStep(Session& session, const Output& global_step) {
  MR_ASSIGN_OR_RETURN(const Tensor value, session.Eval(global_step));
  return StepIn(value);
}

void Log(const HookIo& io, const std::string& line) {
  if (io.log) {
    io.log(line);
  } else {
    MR_LOG(kInfo, line);
  }
}

int64_t Now(const HookIo& io) { return io.now ? io.now() : SteadyNanos(); }

std::string FormatValue(const Tensor& value) {
  switch (value.dtype()) {
    case kFloat:
      return Elements<float>(value, Number<float>);
    case kDouble:
      return Elements<double>(value, Number<double>);
    case kInt32:
      return Elements<int32_t>(value, [](int32_t v) { return StrCat(v); });
    case kInt64:
      return Elements<int64_t>(value, [](int64_t v) { return StrCat(v); });
    case kBool:
      return Elements<bool>(value, [](bool v) { return std::string(v ? "True" : "False"); });
    case kString:
      return Elements<std::string>(value, [](const std::string& v) { return CEscape(v); });
    default:
      return value.DebugString();
  }
}

StatusOr<std::shared_ptr<EventWriter>> EventWriterFor(const std::string& directory,
                                                      const Graph& graph) {
  static Mutex mu;
  static auto* const writers = new std::map<std::string, std::weak_ptr<EventWriter>>();
  MutexLock lock(&mu);
  if (std::shared_ptr<EventWriter> known = (*writers)[directory].lock()) return known;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<EventWriter> made,
                      EventWriter::Create(directory, {.filename_suffix = ""}));
  std::shared_ptr<EventWriter> writer = std::move(made);
  MR_RETURN_IF_ERROR(WriteGraphEvents(*writer, graph, nullptr));
  (*writers)[directory] = writer;
  return writer;
}

Status WriteGraphEvents(EventWriter& events, const Graph& graph, const Saver* saver) {
  MR_RETURN_IF_ERROR(events.WriteGraph(graph));
  if (saver != nullptr) {
    MR_ASSIGN_OR_RETURN(const std::string meta_graph, saver->ExportMetaGraph());
    return events.WriteMetaGraph(meta_graph);
  }
  MR_ASSIGN_OR_RETURN(const std::string bytes, graph.ToGraphDef());
  pb::MetaGraphDef meta;
  if (!meta.mutable_graph_def()->ParseFromString(bytes)) {
    return errors::Internal("the graph's own message cannot be read");
  }
  return events.WriteMetaGraph(meta.SerializeAsString());
}

Status WriteGraphText(const std::string& directory, const Graph& graph) {
  MR_ASSIGN_OR_RETURN(const std::string text, graph.ToText());
  return PosixFileSystem()->WriteFileAtomically(StrCat(directory, "/graph.pbtxt"), text);
}

Status WriteNumber(EventWriter& events, const std::string& tag, double value, int64_t step) {
  pb::Summary summary;
  auto* const entry = summary.add_value();
  entry->set_tag(tag);
  entry->set_simple_value(static_cast<float>(value));
  return events.WriteSummary(summary.SerializeAsString(), step);
}

}  // namespace millrace::hooks
