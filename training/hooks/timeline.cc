// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/timeline.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"

namespace millrace::hooks {
namespace {

using Json = nlohmann::json;

bool IsOp(const Json& event) {
  return event.value("ph", "") == "X" && event.value("cat", "") == "op";
}

// One end of an arrow, at a place of a slice.
Json End(const char* phase, int id, const Json& slice, double at) {
  Json end = {{"ph", phase},         {"cat", "dataflow"},   {"name", "value"}, {"id", id},
              {"pid", slice["pid"]}, {"tid", slice["tid"]}, {"ts", at}};
  if (*phase == 'f') end["bp"] = "e";  // in the slice that it is in, not the next one
  return end;
}

// From each op that ran to those that use its values and ran, too.
std::vector<Json> Arrows(const Json& events, const Graph& graph) {
  std::map<std::string, const Json*> slices;  // by node
  for (const Json& event : events) {
    if (IsOp(event)) slices[event["args"].value("node", "")] = &event;
  }
  std::vector<Json> arrows;
  int id = 0;
  for (const auto& [name, slice] : slices) {
    const Operation op = graph.FindOperation(name);
    for (int i = 0; op.valid() && i < op.num_inputs(); ++i) {
      const auto from = slices.find(op.input(i).op().name());
      if (from == slices.end()) continue;
      const Json& source = *from->second;
      arrows.push_back(
          End("s", ++id, source, source["ts"].get<double>() + source["dur"].get<double>()));
      arrows.push_back(End("f", id, *slice, (*slice)["ts"].get<double>()));
    }
  }
  return arrows;
}

}  // namespace

StatusOr<std::string> Timeline(const std::string& trace, const Graph& graph, bool dataflow,
                               bool memory) {
  Json timeline = Json::parse(trace, nullptr, /*allow_exceptions=*/false);
  if (!timeline.is_object() || !timeline["traceEvents"].is_array()) {
    return errors::Internal("the trace of a step is not readable as JSON");
  }
  Json events = Json::array();
  for (const Json& event : timeline["traceEvents"]) {
    if (memory || event.value("ph", "") != "C") events.push_back(event);
  }
  if (dataflow) {
    for (Json& end : Arrows(events, graph)) events.push_back(std::move(end));
  }
  timeline["traceEvents"] = std::move(events);
  return timeline.dump();
}

}  // namespace millrace::hooks
