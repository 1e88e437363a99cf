// SPDX-License-Identifier: Apache-2.0
// The sources of this workspace keep to the picture of the layers.

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tools/check_layers/environment.h"
#include "tools/check_layers/layers.h"
#include "tools/check_layers/licence.h"
#include "tools/check_layers/names.h"
#include "tools/check_layers/sizes.h"
#include "tools/check_layers/tensors.h"
#include "tools/check_layers/texts.h"

namespace millrace::layers {
namespace {

// A file among the test's data is a link (or a link to a link) into the workspace.
std::string WorkspaceRoot() {
  return std::filesystem::canonical("WORKSPACE").parent_path().string();
}

TEST(TreeTest, EverySourceKeepsToTheLayers) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  ASSERT_TRUE(tree.count("tools/check_layers/layers.cc")) << "this is not the workspace";
  for (const Violation& violation : CheckTree(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, NothingGrowsBeyondWhatAReaderCanCarry) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckSizes(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, WhatIsSizedByDataIsCheckedAndKernelsCannotEndTheProcess) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckTensors(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, NoTwoTypesHaveOneName) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckNames(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, WhatAnOpAcceptsIsWrittenOnceForAllDevices) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckTexts(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, EverySourceSaysItsLicence) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckLicence(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, OptionsOfTheEnvironmentAreReadInOnePlace) {
  Tree tree;
  std::string error;
  ASSERT_TRUE(ReadTree(WorkspaceRoot(), tree, error)) << error;
  for (const Violation& violation : CheckEnvironment(tree)) {
    ADD_FAILURE() << ToString(violation);
  }
}

TEST(TreeTest, AMissingFolderIsAnErrorAndNotAnEmptyTree) {
  Tree tree;
  std::string error;
  EXPECT_FALSE(ReadTree(WorkspaceRoot() + "/no_such_folder", tree, error));
  EXPECT_NE(error.find("no_such_folder"), std::string::npos) << error;
}

}  // namespace
}  // namespace millrace::layers
