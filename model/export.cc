// A model as a SavedModel: a pass through the layers, as they predict, becomes a signature.
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/saved_model.h"
#include "model/steps.h"

namespace millrace {
namespace {

// The pass and, within it, what it yields: found again by a second export.
constexpr char kPassName[] = "serving";
constexpr char kOutputName[] = "output";

// The placeholders of a model, which Steps::MakeInputs calls "x", or "x_0", "x_1", ...
std::vector<Output> InputsOf(const Graph& graph) {
  if (const Operation only = graph.FindOperation("x"); only.valid()) return {only.output(0)};
  std::vector<Output> inputs;
  for (Operation next; (next = graph.FindOperation(StrCat("x_", inputs.size()))).valid();) {
    inputs.push_back(next.output(0));
  }
  return inputs;
}

StatusOr<Output> ServingOutput(Model* model, const std::vector<Output>& inputs) {
  const Operation known = model->graph().FindOperation(StrCat(kPassName, "/", kOutputName));
  if (known.valid()) return known.output(0);
  const Scope scope = model->graph().root().Named(kPassName);
  std::vector<Output> floats;
  for (const Output& input : inputs) floats.push_back(model::InFloats(scope, input));
  Pass pass(scope, /*training=*/false);
  const Output predictions = (*model->root())(pass, floats);
  const Output output = ops::Identity(scope.WithOpName(kOutputName), predictions);
  MR_RETURN_IF_ERROR(model->graph().status());
  return output;
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
  MR_ASSIGN_OR_RETURN(const Output output, ServingOutput(&model, inputs));
  GraphSignature signature;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = names.empty() ? DefaultInputName(i) : names[i];
    if (!signature.inputs.emplace(name, inputs[i]).second) {
      return errors::InvalidArgument("ModelExportOptions.input_names has '", name, "' twice");
    }
  }
  signature.outputs.emplace(options.output_name.empty() ? "output_0" : options.output_name, output);
  return ExportSavedModel(model.graph(), *session, {{options.signature, signature}}, directory,
                          options.options);
}

}  // namespace millrace
