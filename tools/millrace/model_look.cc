// SPDX-License-Identifier: Apache-2.0
// What is in a SavedModel, and what it answers.
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "millrace/data.h"
#include "serving/json_tensors.h"
#include "tools/millrace/model_command.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, SignatureTensor>;

std::string TensorsText(const char* kind, const Tensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    StrAppend(&text, "    ", kind, " ", name, "  ", DataTypeName(tensor.dtype),
              tensor.shape.DebugString(), "  ", tensor.tensor, "\n");
  }
  return text;
}

Json TensorsJson(const Tensors& tensors) {
  Json all = Json::object();
  for (const auto& [name, tensor] : tensors) {
    Json shape = nullptr;  // of unknown rank
    if (tensor.shape.has_rank()) {
      shape = std::vector<int64_t>(tensor.shape.dims().begin(), tensor.shape.dims().end());
    }
    all[name] = {
        {"tensor", tensor.tensor}, {"dtype", DataTypeName(tensor.dtype)}, {"shape", shape}};
  }
  return all;
}

std::string InfoText(const SavedModelInfo& info) {
  std::string text = StrCat("tags: ", StrJoin(info.tags, ","), "; ", info.num_nodes, " nodes, ",
                            info.num_functions, " functions");
  if (!info.written_by.empty()) StrAppend(&text, "; written by TensorFlow ", info.written_by);
  StrAppend(&text, "\n");
  for (const auto& [name, signature] : info.signatures) {
    StrAppend(&text, "  ", name, "  (", signature.method_name, ")\n",
              TensorsText("in ", signature.inputs), TensorsText("out", signature.outputs));
  }
  if (!info.missing_ops.empty()) {
    StrAppend(&text, "  ops that this build has not: ", StrJoin(info.missing_ops, ", "), "\n");
  }
  return text;
}

Json InfoJson(const SavedModelInfo& info) {
  Json signatures = Json::object();
  for (const auto& [name, signature] : info.signatures) {
    signatures[name] = {{"method_name", signature.method_name},
                        {"inputs", TensorsJson(signature.inputs)},
                        {"outputs", TensorsJson(signature.outputs)}};
  }
  return {{"tags", info.tags},
          {"nodes", info.num_nodes},
          {"functions", info.num_functions},
          {"written_by", info.written_by},
          {"missing_ops", info.missing_ops},
          {"signatures", signatures}};
}

// The value of "NAME=VALUE" for an input of this type.
StatusOr<Tensor> ReadValue(const std::string& value, DataType dtype) {
  if (value.ends_with(".npy")) return ReadNpy(value);
  std::string text = value;
  if (value.ends_with(".json")) {
    MR_ASSIGN_OR_RETURN(text, PosixFileSystem()->ReadFile(value));
  }
  MR_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  return TensorFromJson(json, dtype);
}

}  // namespace

Status ModelShow(const ModelFlags& flags, std::string* text) {
  MR_ASSIGN_OR_RETURN(const std::vector<SavedModelInfo> graphs,
                      ReadSavedModelInfo(flags.directory));
  Json json = Json::array();
  for (const SavedModelInfo& info : graphs) {
    if (flags.as_json) {
      json.push_back(InfoJson(info));
    } else {
      StrAppend(text, InfoText(info));
    }
  }
  if (flags.as_json) *text = JsonText(json, /*indent=*/2) + "\n";
  return OkStatus();
}

Status ModelRun(const ModelFlags& flags, std::string* text) {
  LoadSavedModelOptions options;
  options.tags = {flags.tags.begin(), flags.tags.end()};
  MR_ASSIGN_OR_RETURN(const SavedModel model, LoadSavedModel(flags.directory, options));
  MR_ASSIGN_OR_RETURN(const ModelSignature* const signature, model.FindSignature(flags.signature));
  std::map<std::string, Tensor> inputs;
  for (const std::string& flag : flags.inputs) {
    const std::size_t equals = flag.find('=');
    if (equals == std::string::npos) {
      return errors::InvalidArgument("--input ", flag, " is not NAME=VALUE");
    }
    const std::string name = flag.substr(0, equals);
    const auto wanted = signature->inputs.find(name);
    const DataType dtype = wanted == signature->inputs.end() ? kFloat : wanted->second.dtype;
    StatusOr<Tensor> value = ReadValue(flag.substr(equals + 1), dtype);
    if (!value.ok()) return Annotate(value.status(), StrCat(" (input '", name, "')"));
    inputs.insert_or_assign(name, *std::move(value));
  }
  MR_ASSIGN_OR_RETURN(const auto outputs, model.Run(flags.signature, inputs));
  MR_ASSIGN_OR_RETURN(const Json json, TensorsToJson(outputs));
  *text = JsonText(json) + "\n";
  return OkStatus();
}

}  // namespace millrace
