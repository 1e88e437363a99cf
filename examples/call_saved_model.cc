// SPDX-License-Identifier: Apache-2.0
// call_saved_model [DIRECTORY]: loads a SavedModel, says what can be asked of it and asks it. With
// no argument it writes one first; TensorFlow's are called in the same way.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

#include "millrace/core.h"
#include "millrace/saved_model.h"

namespace mr = millrace;

// y = 3 x + 1
mr::Status WriteLine(const std::string& directory) {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output x = mr::Placeholder(root.WithOpName("x"), mr::kFloat, {-1});
  const mr::Variable w = mr::MakeVariable(root, "w", mr::Constant(root, mr::Tensor::Scalar(3.0f)));
  const mr::Output y = w * x + 1.0f;
  const mr::Operation init = mr::InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  return mr::ExportSavedModel(
      graph, session, {{mr::kServingDefault, {.inputs = {{"x", x}}, .outputs = {{"y", y}}}}},
      directory);
}

mr::Status Call(const std::string& directory) {
  MR_ASSIGN_OR_RETURN(mr::SavedModel model, mr::LoadSavedModel(directory));
  MR_ASSIGN_OR_RETURN(const mr::ModelSignature* signature,
                      model.FindSignature(mr::kServingDefault));
  std::map<std::string, mr::Tensor> inputs;
  for (const auto& [name, input] : signature->inputs) {
    std::printf("input %s: %s %s\n", name.c_str(), mr::DataTypeName(input.dtype).c_str(),
                input.shape.DebugString().c_str());
    inputs[name] = mr::Tensor::FromValues<float>({1, 2, 3});
  }
  MR_ASSIGN_OR_RETURN(const auto outputs, model.Run(mr::kServingDefault, inputs));
  for (const auto& [name, value] : outputs) {
    std::printf("output %s: %s\n", name.c_str(), value.DebugString().c_str());
  }
  return mr::OkStatus();
}

int main(int argc, char** argv) {
  const std::string own = (std::filesystem::temp_directory_path() / "millrace_line").string();
  mr::Status status = argc > 1 ? mr::OkStatus() : WriteLine(own);
  if (status.ok()) status = Call(argc > 1 ? argv[1] : own);
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
