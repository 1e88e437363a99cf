// SPDX-License-Identifier: Apache-2.0
#include "executor/stats/step_trace.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "millrace/dtype.h"

namespace millrace {
namespace {

// As text in JSON. Names are UTF-8 or they would not have come through a message.
std::string Quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      StrAppend(&out, "\\u00", kHex[byte >> 4], kHex[byte & 15]);
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

// Nanoseconds as microseconds.
std::string Micros(int64_t nanos) {
  nanos = std::max<int64_t>(nanos, 0);
  const std::string rest = StrCat(nanos % 1000);
  return StrCat(nanos / 1000, ".", std::string(3 - rest.size(), '0'), rest);
}

std::string OutputsOf(const pb::NodeExecStats& node) {
  std::vector<std::string> outputs;
  for (const pb::NodeOutput& output : node.output()) {
    const pb::TensorDescription& tensor = output.tensor_description();
    const auto dtype = static_cast<DataType>(tensor.dtype());
    if (dtype == DataType::kInvalid) continue;  // nothing is known of it
    std::vector<int64_t> dims;
    for (const auto& dim : tensor.shape().dim()) dims.push_back(dim.size());
    outputs.push_back(StrCat(DataTypeName(dtype), " [", StrJoin(dims, ","), "]"));
  }
  return StrJoin(outputs, ", ");
}

int64_t OutputBytes(const pb::NodeExecStats& node) {
  int64_t bytes = 0;
  for (const pb::NodeOutput& output : node.output()) {
    bytes += output.tensor_description().allocation_description().requested_bytes();
  }
  return bytes;
}

// Clients that know microseconds only leave the others at 0.
int64_t StartNanos(const pb::NodeExecStats& node) {
  return node.all_start_nanos() != 0 ? node.all_start_nanos() : node.all_start_micros() * 1000;
}
int64_t LengthNanos(const pb::NodeExecStats& node) {
  return node.all_start_nanos() != 0 ? node.all_end_rel_nanos() : node.all_end_rel_micros() * 1000;
}

// What an accelerator did stands in lists of their own (executor/stats/activity_stats.h): `device`
// is the accelerator, `row` "stream:7", "stream:all" or "memcpy"; "" for what the host did.
struct Place {
  std::string_view device;
  std::string_view row;

  explicit Place(std::string_view name) : device(name) {
    std::size_t slash = name.rfind("/stream:");
    if (slash == std::string_view::npos && name.ends_with("/memcpy")) slash = name.rfind('/');
    if (slash == std::string_view::npos) return;
    device = name.substr(0, slash);
    row = name.substr(slash + 1);
  }
  bool has_all_of_a_stream() const { return row.starts_with("stream:") && row != "stream:all"; }
};

// Beyond all ids of threads.
constexpr int kFirstRow = 1 << 24;

class TraceWriter {
 public:
  explicit TraceWriter(const pb::StepStats& stats) {
    for (const pb::DeviceStepStats& device : stats.dev_stats()) {
      const Place place(device.device());
      if (place.has_all_of_a_stream()) with_streams_.insert(place.device);
      for (const pb::NodeExecStats& node : device.node_stats()) {
        begin_ = std::min(begin_, StartNanos(node));
      }
    }
    for (const pb::DeviceStepStats& device : stats.dev_stats()) {
      const Place place(device.device());
      place.row.empty() ? AddDevice(device) : AddRow(place, device);
    }
  }

  std::string Take() {
    return StrCat("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  void Add(const std::string& event) { StrAppend(&events_, events_.empty() ? "" : ",\n", event); }

  int ProcessOf(std::string_view device) {
    const auto [it, is_new] = pids_.try_emplace(device, static_cast<int>(pids_.size()));
    if (is_new) {
      Add(StrCat("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", it->second,
                 ",\"args\":{\"name\":", Quoted(device), "}}"));
    }
    return it->second;
  }

  void NameThread(int pid, int64_t tid, std::string_view name) {
    Add(StrCat("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", pid, ",\"tid\":", tid,
               ",\"args\":{\"name\":", Quoted(name), "}}"));
  }

  void AddDevice(const pb::DeviceStepStats& device) {
    const int pid = ProcessOf(device.device());
    for (const auto& [thread, name] : device.thread_names()) NameThread(pid, thread, name);
    for (const pb::NodeExecStats& node : device.node_stats()) AddNode(pid, node);
  }

  // Of an accelerator: one thread. What stands in the lists of its streams is not shown twice.
  void AddRow(const Place& place, const pb::DeviceStepStats& list) {
    const int pid = ProcessOf(place.device);
    const bool is_stream = place.has_all_of_a_stream();
    std::string name(place.row);
    for (const auto& [thread, text] : list.thread_names()) {
      if (is_stream) {
        StrAppend(&name, " ", text);
      } else {
        Add(StrCat("{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":", pid,
                   ",\"args\":{\"labels\":", Quoted(text), "}}"));
      }
    }
    if (list.node_stats().empty()) return;
    if (!is_stream && with_streams_.contains(place.device)) return;
    const int row = next_row_++;
    NameThread(pid, row, name);
    for (const pb::NodeExecStats& activity : list.node_stats()) AddActivity(pid, row, activity);
  }

  // Its name is "node:Op" or "node:MEMCPYHtoD".
  void AddActivity(int pid, int row, const pb::NodeExecStats& activity) {
    const std::string_view name = activity.node_name();
    const std::size_t colon = name.rfind(':');
    const std::string_view node = name.substr(0, colon);
    std::string_view what = colon == std::string_view::npos ? "unknown" : name.substr(colon + 1);
    if (what == "unknown") what = node;
    std::string args =
        StrCat("{\"node\":", Quoted(node), ",\"activity\":", Quoted(activity.timeline_label()));
    if (activity.output_size() > 0) StrAppend(&args, ",\"bytes\":", OutputBytes(activity));
    Add(StrCat("{\"ph\":\"X\",\"cat\":\"device\",\"name\":", Quoted(what), ",\"pid\":", pid,
               ",\"tid\":", row, ",\"ts\":", Micros(StartNanos(activity) - begin_),
               ",\"dur\":", Micros(LengthNanos(activity)), ",\"args\":", args, "}}"));
  }

  void AddNode(int pid, const pb::NodeExecStats& node) {
    const int64_t start = StartNanos(node) - begin_;
    std::string args =
        StrCat("{\"node\":", Quoted(node.node_name()), ",\"output_bytes\":", OutputBytes(node),
               ",\"outputs\":", Quoted(OutputsOf(node)));
    for (const pb::AllocatorMemoryUsed& used : node.memory()) {
      StrAppend(&args, ",\"bytes\":", used.total_bytes(), ",\"peak_bytes\":", used.peak_bytes());
      Add(StrCat("{\"ph\":\"C\",\"name\":\"tensors of the step\",\"pid\":", pid,
                 ",\"ts\":", Micros(start + LengthNanos(node)), ",\"args\":{",
                 Quoted(used.allocator_name()), ":", used.allocator_bytes_in_use(), "}}"));
    }
    args += '}';
    Add(StrCat("{\"ph\":\"X\",\"cat\":\"op\",\"name\":", Quoted(OpOf(node)), ",\"pid\":", pid,
               ",\"tid\":", node.thread_id(), ",\"ts\":", Micros(start),
               ",\"dur\":", Micros(LengthNanos(node)), ",\"args\":", args, "}"));
  }

  std::string events_;
  std::map<std::string_view, int> pids_;  // by device
  std::set<std::string_view> with_streams_;
  int next_row_ = kFirstRow;
  int64_t begin_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::string_view OpOf(const pb::NodeExecStats& node) {
  std::string_view label = node.timeline_label();
  const std::size_t equals = label.find(" = ");
  if (equals == std::string_view::npos) return node.node_name();
  label.remove_prefix(equals + 3);
  return label.substr(0, label.find('('));
}

std::string ChromeTrace(const pb::StepStats& stats) { return TraceWriter(stats).Take(); }

}  // namespace millrace
