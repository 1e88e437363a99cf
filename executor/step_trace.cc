#include "executor/step_trace.h"

#include <algorithm>
#include <cstdint>
#include <limits>
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

// "MatMul" of "a/b = MatMul(...)".
std::string_view OpOf(const pb::NodeExecStats& node) {
  std::string_view label = node.timeline_label();
  const std::size_t equals = label.find(" = ");
  if (equals == std::string_view::npos) return node.node_name();
  label.remove_prefix(equals + 3);
  return label.substr(0, label.find('('));
}

std::string OutputsOf(const pb::NodeExecStats& node) {
  std::vector<std::string> outputs;
  for (const pb::NodeOutput& output : node.output()) {
    const pb::TensorDescription& tensor = output.tensor_description();
    std::vector<int64_t> dims;
    for (const auto& dim : tensor.shape().dim()) dims.push_back(dim.size());
    outputs.push_back(
        StrCat(DataTypeName(static_cast<DataType>(tensor.dtype())), " [", StrJoin(dims, ","), "]"));
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

class TraceWriter {
 public:
  explicit TraceWriter(const pb::StepStats& stats) {
    for (const pb::DeviceStepStats& device : stats.dev_stats()) {
      for (const pb::NodeExecStats& node : device.node_stats()) {
        begin_ = std::min(begin_, StartNanos(node));
      }
    }
    for (int i = 0; i < stats.dev_stats_size(); ++i) AddDevice(i, stats.dev_stats(i));
  }

  std::string Take() {
    return StrCat("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", events_, "\n]}\n");
  }

 private:
  void Add(const std::string& event) { StrAppend(&events_, events_.empty() ? "" : ",\n", event); }

  void AddDevice(int pid, const pb::DeviceStepStats& device) {
    Add(StrCat("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", pid,
               ",\"args\":{\"name\":", Quoted(device.device()), "}}"));
    for (const auto& [thread, name] : device.thread_names()) {
      Add(StrCat("{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", pid, ",\"tid\":", thread,
                 ",\"args\":{\"name\":", Quoted(name), "}}"));
    }
    for (const pb::NodeExecStats& node : device.node_stats()) AddNode(pid, node);
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
  int64_t begin_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::string ChromeTrace(const pb::StepStats& stats) { return TraceWriter(stats).Take(); }

}  // namespace millrace
