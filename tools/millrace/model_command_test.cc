// SPDX-License-Identifier: Apache-2.0
// Runs the program itself on models that TensorFlow wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kModels[] = "tests/saved_models/testdata/";

// What `tools/millrace model ARGUMENTS` prints, errors too, and its exit code.
std::string Model(const std::string& arguments, int* code) {
  const std::string command =
      "MILLRACE_LOG_LEVEL=error timeout 50 tools/millrace model " + arguments + " 2>&1";
  FILE* const output = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof(buffer), output)) > 0;) text.append(buffer, n);
  const int status = pclose(output);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

TEST(ModelCommandTest, ShowPrintsSignatures) {
  int code = -1;
  const std::string text = Model("show " + std::string(kModels) + "keras_mlp", &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("tags: serve"));
  EXPECT_THAT(text, HasSubstr("serving_default  (tensorflow/serving/predict)"));
  EXPECT_THAT(text, HasSubstr("in  x  float[?,4]  serving_default_x:0"));
  EXPECT_THAT(text, HasSubstr("out output_0  float[?,3]"));
}

TEST(ModelCommandTest, ShowIsForProgramsToo) {
  int code = -1;
  const std::string text = Model("show --json " + std::string(kModels) + "v2_module", &code);
  ASSERT_EQ(code, 0) << text;
  const Json graphs = Json::parse(text);
  ASSERT_EQ(graphs.size(), 1u);
  EXPECT_EQ(graphs[0]["tags"], Json({"serve"}));
  EXPECT_TRUE(graphs[0]["missing_ops"].empty());
  const Json& inputs = graphs[0]["signatures"]["pair"]["inputs"];
  EXPECT_EQ(inputs["a"]["dtype"], "float");
  EXPECT_EQ(inputs["a"]["shape"], Json({-1}));
  EXPECT_EQ(inputs["b"]["shape"], Json::array());
}

TEST(ModelCommandTest, RunTakesJsonAndPrintsJson) {
  int code = -1;
  const std::string model = std::string(kModels) + "v2_module";
  const std::string file = ::testing::TempDir() + "/b.json";
  std::ofstream(file) << "3";
  std::string text =
      Model("run " + model + " --signature pair --input 'a=[1, 2]' --input b=" + file, &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_EQ(Json::parse(text), Json::parse(R"({"a":[1,2],"product":[3,6],"sum":[4,5]})"));
  text = Model("run " + model + R"( --signature lookup --input 'word=["BLUE","pink"]')", &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_EQ(Json::parse(text), Json::parse(R"({"number":[2,-1]})"));
}

TEST(ModelCommandTest, MistakesAreToldInOneLine) {
  int code = -1;
  const std::string model = std::string(kModels) + "v2_module";
  EXPECT_THAT(Model("run " + model + " --signature pair --input 'a=[1]'", &code),
              HasSubstr("input 'b' is missing"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(Model("run " + model + " --input 'x=[[1,2],[3]]'", &code),
              HasSubstr("lists differ in length"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(Model("show /nowhere", &code), HasSubstr("/nowhere/saved_model.pb"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(Model("serve /nowhere --port=0", &code), HasSubstr("/nowhere"));
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace millrace
