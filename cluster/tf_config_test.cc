// SPDX-License-Identifier: Apache-2.0
#include "cluster/tf_config.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(TfConfig, GivesClusterAndTask) {
  const StatusOr<TfConfig> config = ParseTfConfig(
      R"({"cluster": {"ps": ["h:1"], "worker": ["h:2", "h:3"]},
          "task": {"type": "worker", "index": 1}, "environment": "cloud"})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->cluster.ToString(), "ps|h:1,worker|h:2;h:3");
  EXPECT_EQ(config->job_name, "worker");
  EXPECT_EQ(config->task_index, 1);
}

TEST(TfConfig, TakesSparseTasksAndNumbersAsText) {
  const StatusOr<TfConfig> config = ParseTfConfig(
      R"({"cluster": {"worker": {"3": "h:2"}}, "task": {"type": "worker", "index": "3"}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config->cluster.Address("worker", 3), "h:2");
  EXPECT_EQ(config->task_index, 3);
}

TEST(TfConfig, LeavesOpenWhatItDoesNotSay) {
  const StatusOr<TfConfig> config = ParseTfConfig("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->cluster.jobs().empty());
  EXPECT_FALSE(config->job_name.has_value());
  EXPECT_FALSE(config->task_index.has_value());
}

TEST(TfConfig, MakesAnEvaluatorAClusterOfItsOwn) {
  StatusOr<TfConfig> config = ParseTfConfig(
      R"({"cluster": {"ps": ["h:1"], "chief": ["h:2"]}, "task": {"type": "evaluator", "index": 0}})");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(AddEvaluator(&*config).ok());
  EXPECT_EQ(config->cluster.ToString(), "evaluator|127.0.0.1:0");
  // Where it is a task of the cluster, or another task, nothing changes.
  for (const char* text :
       {R"({"cluster": {"evaluator": ["h:1"]}, "task": {"type": "evaluator", "index": 0}})",
        R"({"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 0}})"}) {
    StatusOr<TfConfig> other = ParseTfConfig(text);
    ASSERT_TRUE(other.ok()) << other.status();
    const std::string before = other->cluster.ToString();
    ASSERT_TRUE(AddEvaluator(&*other).ok());
    EXPECT_EQ(other->cluster.ToString(), before);
  }
}

TEST(TfConfig, RefusesASecondEvaluator) {
  for (
      const char* text :
      {R"({"cluster": {"ps": ["h:1"]}, "task": {"type": "evaluator", "index": 1}})",
       R"({"cluster": {"evaluator": ["h:1", "h:2"]}, "task": {"type": "evaluator", "index": 0}})"}) {
    StatusOr<TfConfig> config = ParseTfConfig(text);
    ASSERT_TRUE(config.ok()) << config.status();
    const Status status = AddEvaluator(&*config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("at most one evaluator"), std::string::npos) << status;
  }
}

TEST(TfConfig, SaysWhatIsWrong) {
  for (const char* text :
       {"", "{", "[]", R"({"cluster": 1})", R"({"cluster": {"ps": 1}})",
        R"({"cluster": {"ps": [1]}})", R"({"cluster": {"ps": {"x": "h:1"}}})", R"({"task": []})",
        R"({"task": {"index": -1}})", R"({"task": {"index": "x"}})", R"({"task": {"type": 1}})"}) {
    const Status status = ParseTfConfig(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(Message(status).starts_with("TF_CONFIG")) << status;
  }
  EXPECT_EQ(ParseTfConfig(R"({"cluster": {"ps": ["h:1", "h:1"]}})").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
