// SPDX-License-Identifier: Apache-2.0
#include "base/options/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

// Variables that are set until the end of a test; what was there before is put back.
class EngineOptionsTest : public ::testing::Test {
 protected:
  void Set(const char* name, const char* value) {
    const char* const before = std::getenv(name);
    before_.emplace_back(name, before == nullptr ? "" : before);
    ASSERT_EQ(setenv(name, value, 1), 0);
  }
  void TearDown() override {
    for (; !before_.empty(); before_.pop_back()) {
      const auto& [name, value] = before_.back();
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(EngineOptionsTest, WhatIsNotSetOrEmptyIsTheDefault) {
  for (const char* name : {"MILLRACE_STEP_MEMORY_LIMIT", "MILLRACE_SESSION_IDLE_LIMIT",
                           "MILLRACE_CAPTURE", "MILLRACE_FUSION"}) {
    Set(name, "");
  }
  const auto options = EngineOptions::FromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->step_memory_limit, 0);
  EXPECT_EQ(options->session_idle_limit.count(), 0);
  EXPECT_TRUE(options->capture);
  EXPECT_FALSE(options->fusion);
}

TEST_F(EngineOptionsTest, EachVariableIsRead) {
  Set("MILLRACE_STEP_MEMORY_LIMIT", "4096");
  Set("MILLRACE_SESSION_IDLE_LIMIT", "1.5");
  Set("MILLRACE_CAPTURE", "off");
  Set("MILLRACE_FUSION", "on");
  const auto options = EngineOptions::FromEnvironment();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->step_memory_limit, 4096);
  EXPECT_EQ(options->session_idle_limit.count(), 1500);
  EXPECT_FALSE(options->capture);
  EXPECT_TRUE(options->fusion);
}

TEST_F(EngineOptionsTest, AnyOtherValueIsRefusedByItsName) {
  const std::pair<const char*, std::vector<const char*>> kWrong[] = {
      {"MILLRACE_STEP_MEMORY_LIMIT", {"plenty", "-1", "1GB"}},
      {"MILLRACE_SESSION_IDLE_LIMIT", {"soon", "-0.5", "1e9", "nan"}},
      {"MILLRACE_CAPTURE", {"no", "Off"}},
      {"MILLRACE_FUSION", {"yes", "2"}},
  };
  for (const auto& [name, values] : kWrong) {
    for (const char* value : values) {
      Set(name, value);
      const Status status = EngineOptions::FromEnvironment().status();
      EXPECT_TRUE(errors::IsInvalidArgument(status)) << name << "=" << value << ": " << status;
      EXPECT_THAT(
          std::string(Message(status)),
          AllOf(HasSubstr(name), HasSubstr(std::string("'") + value + "'"), HasSubstr("must be")));
    }
    Set(name, "");
  }
}

TEST_F(EngineOptionsTest, AProcessHasACompilerAndCredentials) {
  Set("MILLRACE_JIT", "0");
  Set("MILLRACE_JIT_CACHE", "/a/cache");
  Set("MILLRACE_TLS_CERT", "own.pem");
  Set("MILLRACE_TLS_KEY", "own.key");
  Set("MILLRACE_TLS_CA", "ca.pem");
  Set("MILLRACE_TOKEN_FILE", "secret");
  Set("MILLRACE_CLUSTER_ID", "job-7");
  const ProcessOptions options = ProcessOptions::FromEnvironment();
  EXPECT_FALSE(options.jit);
  EXPECT_EQ(options.jit_cache, "/a/cache");
  EXPECT_EQ(options.tls_cert, "own.pem");
  EXPECT_EQ(options.tls_key, "own.key");
  EXPECT_EQ(options.tls_ca, "ca.pem");
  EXPECT_EQ(options.token_file, "secret");
  EXPECT_EQ(options.cluster_id, "job-7");
  EXPECT_THAT(ProcessVariables(), Contains(Pair("MILLRACE_JIT", "0")));
  Set("MILLRACE_JIT", "on");
  EXPECT_TRUE(ProcessOptions::FromEnvironment().jit);
}

}  // namespace
}  // namespace millrace
