// SPDX-License-Identifier: Apache-2.0
// A model as a SavedModel: a pass through the layers, as they predict, becomes a signature.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/saved_model.h"
#include "model/steps.h"

namespace millrace {
namespace {

// The pass and, within it, what it yields: found again by a second export.
constexpr char kPassName[] = "serving";
std::string OutputNode(std::size_t i) { return i == 0 ? "output" : StrCat("output_", i); }

// The placeholders of a model, which Steps::MakeInputs calls "x", or "x_0", "x_1", ...
std::vector<Output> InputsOf(const Graph& graph) {
  if (const Operation only = graph.FindOperation("x"); only.valid()) return {only.output(0)};
  std::vector<Output> inputs;
  for (Operation next; (next = graph.FindOperation(StrCat("x_", inputs.size()))).valid();) {
    inputs.push_back(next.output(0));
  }
  return inputs;
}

StatusOr<std::vector<Output>> ServingOutputs(Model* model, const std::vector<Output>& inputs) {
  const std::size_t count = std::max<std::size_t>(model->root()->output_names().size(), 1);
  std::vector<Output> known;
  for (std::size_t i = 0; i < count; ++i) {
    const Operation op = model->graph().FindOperation(StrCat(kPassName, "/", OutputNode(i)));
    if (op.valid()) known.push_back(op.output(0));
  }
  if (known.size() == count) return known;
  const Scope scope = model->graph().root().Named(kPassName);
  std::vector<Output> floats;
  for (const Output& input : inputs) floats.push_back(model::InFloats(scope, input));
  // In float32, whatever the model is trained in: clients need not know smaller types.
  Pass pass(scope, /*training=*/false);
  const Output predictions = (*model->root())(pass, floats);
  MR_RETURN_IF_ERROR(model->graph().status());
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < count; ++i) {
    const Output& made = count == 1 ? predictions : pass.outputs()[i];
    outputs.push_back(ops::Identity(scope.WithOpName(OutputNode(i)), made));
  }
  MR_RETURN_IF_ERROR(model->graph().status());
  return outputs;
}

// "keras_tensor", "keras_tensor_1", ...
std::string DefaultInputName(std::size_t i) {
  return i == 0 ? std::string("keras_tensor") : StrCat("keras_tensor_", i);
}

}  // namespace

Status ExportSavedModel(Model& model, const std::string& directory,
                        const ModelExportOptions& options) {
  Session* const session = model.session();
  if (session == nullptr) {
    return errors::FailedPrecondition("the model ", model.name(),
                                      " cannot be exported before it has weights: call Build, or "
                                      "let it see data");
  }
  const std::vector<Output> inputs = InputsOf(model.graph());
  const std::vector<std::string>& names = options.input_names;
  if (!names.empty() && names.size() != inputs.size()) {
    return errors::InvalidArgument("ModelExportOptions.input_names has ", names.size(),
                                   " names for a model with ", inputs.size(), " inputs");
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Output> outputs, ServingOutputs(&model, inputs));
  const std::vector<std::string> output_names = model.root()->output_names();
  if (outputs.size() > 1 && !options.output_name.empty()) {
    return errors::InvalidArgument(
        "ModelExportOptions.output_name is for a model with one output; this one has ",
        StrJoin(output_names, ", "));
  }
  GraphSignature signature;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = names.empty() ? DefaultInputName(i) : names[i];
    if (!signature.inputs.emplace(name, inputs[i]).second) {
      return errors::InvalidArgument("ModelExportOptions.input_names has '", name, "' twice");
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = i < output_names.size()       ? output_names[i]
                             : options.output_name.empty() ? "output_0"
                                                           : options.output_name;
    signature.outputs.emplace(name, outputs[i]);
  }
  return ExportSavedModel(model.graph(), *session, {{options.signature, signature}}, directory,
                          options.options);
}

}  // namespace millrace
