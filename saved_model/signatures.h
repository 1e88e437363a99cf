// SPDX-License-Identifier: Apache-2.0
// Signatures in and out of their messages.
#ifndef SAVED_MODEL_SIGNATURES_H_
#define SAVED_MODEL_SIGNATURES_H_

#include <map>
#include <string>

#include "millrace/saved_model.h"
#include "millrace/status.h"
#include "proto/meta_graph.pb.h"

namespace millrace {

// The signature by which TensorFlow 2 names what is to be run after loading; not for callers.
inline constexpr char kInitSignature[] = "__saved_model_init_op";

// All signatures for callers. InvalidArgument, naming signature and tensor, for a type that there
// is not, a name that no tensor can have, a shape of negative sizes.
StatusOr<std::map<std::string, ModelSignature>> SignaturesOf(const pb::MetaGraphDef& meta);

void SignatureToProto(const ModelSignature& signature, pb::SignatureDef* def);

}  // namespace millrace

#endif  // SAVED_MODEL_SIGNATURES_H_
