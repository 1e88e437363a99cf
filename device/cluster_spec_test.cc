// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/errors.h"
#include "millrace/cluster.h"

namespace millrace {
namespace {

TEST(ClusterSpecTest, ReadsItsTextAndWritesItBack) {
  const char* text = "ps|localhost:2222,worker|h1:1;h2:2";
  const StatusOr<ClusterSpec> spec = ClusterSpec::Parse(text);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->num_tasks("ps"), 1);
  EXPECT_EQ(spec->num_tasks("worker"), 2);
  EXPECT_EQ(spec->num_tasks("chief"), 0);
  EXPECT_EQ(*spec->Address("worker", 1), "h2:2");
  EXPECT_EQ(spec->ToString(), text);
}

TEST(ClusterSpecTest, TaskNumbersMayHaveGaps) {
  ClusterSpec spec;
  ASSERT_TRUE(spec.AddTask("worker", 3, "h:3").ok());
  ASSERT_TRUE(spec.AddTask("worker", 7, "h:7").ok());
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(*spec.Address("worker", 7), "h:7");
  EXPECT_TRUE(errors::IsInvalidArgument(spec.Address("worker", 0).status()));
}

TEST(ClusterSpecTest, ErrorsNameTheWrongPart) {
  const struct {
    const char* text;
    const char* why;
  } kCases[] = {
      {"", "job|host:port"},
      {"ps", "job|host:port"},
      {"ps|", "host:port"},
      {"|h:1", "job name"},
      {"1ps|h:1", "job name"},
      {"ps|h", "host:port"},
      {"ps|:1", "host:port"},
      {"ps|h:x", "Could not parse port"},
      {"ps|h:65536", "Could not parse port"},
      {"ps|h:-1", "Could not parse port"},
      {"ps|h:1;", "host:port"},
      {"ps|h:1,ps|h:2", "twice"},
      {"ps|h:1,worker|h:1", "two tasks"},
      {"ps|h h:1", "malformed host"},
      {"ps|127.0.0.1\001.h:1", "'127.0.0.1\\001.h:1' has a malformed host"},
  };
  for (const auto& c : kCases) {
    const Status status = ClusterSpec::Parse(c.text).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << c.text;
    EXPECT_NE(Message(status).find(c.why), std::string_view::npos) << c.text << ": " << status;
  }
}

TEST(ClusterSpecTest, UnknownJobsAndTasksAreNamed) {
  const ClusterSpec spec = *ClusterSpec::Parse("ps|h:1");
  EXPECT_NE(
      Message(spec.Address("worker", 0).status()).find("Job \"worker\" was not defined in cluster"),
      std::string_view::npos);
  EXPECT_NE(Message(spec.Address("ps", 5).status()).find("Task 5 was not defined in job \"ps\""),
            std::string_view::npos);
}

TEST(ClusterSpecTest, SeveralTasksMayAskForAnyPort) {
  EXPECT_TRUE(ClusterSpec::Parse("worker|localhost:0;localhost:0").ok());
}

TEST(SplitAddressTest, SplitsAtTheLastColon) {
  std::string host;
  int port = 0;
  ASSERT_TRUE(SplitAddress("[::1]:80", &host, &port).ok());
  EXPECT_EQ(host, "::1");
  EXPECT_EQ(port, 80);
  EXPECT_TRUE(IsLoopbackHost(host));
  EXPECT_TRUE(IsLoopbackHost("127.1.2.3"));
  EXPECT_TRUE(IsLoopbackHost("localhost"));
  EXPECT_FALSE(IsLoopbackHost("10.0.0.1"));
  EXPECT_FALSE(IsLoopbackHost("127.example.com"));
  EXPECT_FALSE(IsLoopbackHost("127.0.0.1.example.com"));
  EXPECT_TRUE(IsLoopbackHost("0:0:0:0:0:0:0:1"));
}

}  // namespace
}  // namespace millrace
