// SPDX-License-Identifier: Apache-2.0
// Checkpoints of objects, read by the names that their variables had.
#ifndef TRAINING_CHECKPOINT_OBJECT_NAMES_H_
#define TRAINING_CHECKPOINT_OBJECT_NAMES_H_

#include <map>
#include <string>

#include "io/tensor_bundle.h"
#include "millrace/status.h"
#include "proto/trackable_object_graph.pb.h"

namespace millrace {

inline constexpr char kObjectGraphKey[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

// NotFound if the checkpoint is not object-based, DataLoss if its graph cannot be read or its nodes
// name others that there are not.
StatusOr<pb::TrackableObjectGraph> ReadObjectGraph(const BundleReader& reader);

// The keys of variables by the full names that they had when they were saved. Of several of one
// name, none. Errors as above.
StatusOr<std::map<std::string, std::string>> KeysByName(const std::string& prefix);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_OBJECT_NAMES_H_
