// SPDX-License-Identifier: Apache-2.0
// Writes and reads the weights of a model for tests/tf_compat/checkpoints.py, which has a stock
// Keras.
//   weights_program write FOLDER    FOLDER/objects and FOLDER/names: weights that count from 1
//   weights_program read PREFIX     prints all weights, in the order of the layers
#include <cstdio>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/layers.h"
#include "millrace/model.h"

namespace millrace {
namespace {

constexpr int64_t kInputs = 5;

std::unique_ptr<Layer> Layers() {
  return layers::Sequential({layers::Dense(4, {.activation = "relu", .name = "first"}),
                             layers::BatchNormalization(), layers::Dense(3, {.name = "second"})});
}

Status Write(const std::string& folder) {
  Model model(Layers());
  MR_RETURN_IF_ERROR(model.Build({{{-1, kInputs}}}));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values, model.GetWeights());
  float next = 1;
  for (Tensor& value : values) {
    for (float& element : value.flat<float>()) element = next++;
  }
  MR_RETURN_IF_ERROR(model.SetWeights(values));
  MR_RETURN_IF_ERROR(model.SaveWeights(folder + "/objects"));
  return model.SaveWeights(folder + "/names", WeightsFormat::kNames);
}

Status Read(const std::string& prefix) {
  Model model(Layers());
  MR_RETURN_IF_ERROR(model.Build({{{-1, kInputs}}}));
  MR_RETURN_IF_ERROR(model.LoadWeights(prefix));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, model.GetWeights());
  for (const Tensor& value : values) {
    for (const float element : value.flat<float>()) std::printf("%g ", element);
  }
  std::printf("\n");
  return OkStatus();
}

int Main(const std::string& what, const std::string& where) {
  const Status status = what == "write"  ? Write(where)
                        : what == "read" ? Read(where)
                                         : errors::InvalidArgument("write or read");
  if (status.ok()) return 0;
  std::fprintf(stderr, "weights_program: %s\n", std::string(Message(status)).c_str());
  return 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return argc == 3 ? millrace::Main(argv[1], argv[2]) : millrace::Main("", "");
}
