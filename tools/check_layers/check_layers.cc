// SPDX-License-Identifier: Apache-2.0
// check_layers [ROOT]: prints every include that breaks the picture of the layers and every
// registration that nobody calls, what is larger than it may be, tensors that are sized by data
// without a check, types of one name, errors of an op that are written for each device, sources
// without their licence, and who asks the environment past base/options/engine_options.h; exit code
// 0 when there is none, 1 when there is, 2 when the tree cannot be read.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tools/check_layers/environment.h"
#include "tools/check_layers/layers.h"
#include "tools/check_layers/licence.h"
#include "tools/check_layers/names.h"
#include "tools/check_layers/sizes.h"
#include "tools/check_layers/tensors.h"
#include "tools/check_layers/texts.h"

int main(int argc, char** argv) {
  namespace layers = millrace::layers;
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: check_layers [ROOT]\n");
    return 2;
  }
  // `bazel run` says where the workspace is.
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string root = argc == 2 ? argv[1] : workspace != nullptr ? workspace : ".";

  layers::Tree tree;
  std::string error;
  if (!layers::ReadTree(root, tree, error)) {
    std::fprintf(stderr, "check_layers: %s\n", error.c_str());
    return 2;
  }
  if (tree.empty()) {
    std::fprintf(stderr, "check_layers: no sources under %s\n", root.c_str());
    return 2;
  }
  std::vector<layers::Violation> violations = layers::CheckTree(tree);
  for (layers::Violation& size : layers::CheckSizes(tree)) violations.push_back(std::move(size));
  for (layers::Violation& made : layers::CheckTensors(tree)) violations.push_back(std::move(made));
  for (layers::Violation& name : layers::CheckNames(tree)) violations.push_back(std::move(name));
  for (layers::Violation& text : layers::CheckTexts(tree)) violations.push_back(std::move(text));
  for (layers::Violation& none : layers::CheckLicence(tree)) violations.push_back(std::move(none));
  for (layers::Violation& asks : layers::CheckEnvironment(tree)) {
    violations.push_back(std::move(asks));
  }
  for (const layers::Violation& violation : violations) {
    std::printf("%s\n", layers::ToString(violation).c_str());
  }
  std::printf("check_layers: %zu files, %zu violations\n", tree.size(), violations.size());
  return violations.empty() ? 0 : 1;
}
