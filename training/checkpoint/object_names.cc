// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/object_names.h"

#include <set>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"

namespace millrace {

StatusOr<pb::TrackableObjectGraph> ReadObjectGraph(const BundleReader& reader) {
  MR_ASSIGN_OR_RETURN(const Tensor bytes, reader.Read(kObjectGraphKey));
  const StatusOr<std::string> text = bytes.TryScalar<std::string>();
  pb::TrackableObjectGraph graph;
  if (!text.ok() || !graph.ParseFromString(*text)) {
    return errors::DataLoss("the tensor ", kObjectGraphKey, " is no object graph");
  }
  const auto exists = [&](int id) { return id >= 0 && id < graph.nodes_size(); };
  for (int i = 0; i < graph.nodes_size(); ++i) {
    for (const auto& child : graph.nodes(i).children()) {
      if (!exists(child.node_id())) {
        return errors::DataLoss("object ", i, " has a child ", child.local_name(), " with number ",
                                child.node_id(), " of ", graph.nodes_size(), " objects");
      }
    }
    for (const auto& slot : graph.nodes(i).slot_variables()) {
      if (!exists(slot.original_variable_node_id()) || !exists(slot.slot_variable_node_id())) {
        return errors::DataLoss("object ", i, " has a slot ", slot.slot_name(),
                                " of a variable that is not among the ", graph.nodes_size(),
                                " objects");
      }
    }
  }
  if (graph.nodes_size() == 0) return errors::DataLoss("the object graph has no root");
  return graph;
}

StatusOr<std::map<std::string, std::string>> KeysByName(const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(PosixFileSystem(), prefix));
  MR_ASSIGN_OR_RETURN(const pb::TrackableObjectGraph graph, ReadObjectGraph(*reader));
  std::map<std::string, std::string> keys;
  std::set<std::string> ambiguous;
  for (const auto& node : graph.nodes()) {
    for (const auto& attribute : node.attributes()) {
      if (attribute.full_name().empty()) continue;
      if (!keys.emplace(attribute.full_name(), attribute.checkpoint_key()).second) {
        ambiguous.insert(attribute.full_name());
      }
    }
  }
  for (const std::string& name : ambiguous) keys.erase(name);
  return keys;
}

}  // namespace millrace
