// SPDX-License-Identifier: Apache-2.0
#include "device/device_name.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace millrace {
namespace {

DeviceName Name(std::string_view text) {
  const StatusOr<DeviceName> name = DeviceName::Parse(text);
  EXPECT_TRUE(name.ok()) << text << ": " << name.status();
  return name.ok() ? *name : DeviceName();
}

std::string Canonical(std::string_view text) { return Name(text).ToString(); }

TEST(DeviceNameTest, ReadsTheFullForm) {
  const DeviceName name = Name("/job:worker/replica:1/task:2/device:GPU:3");
  EXPECT_EQ(name.job, "worker");
  EXPECT_EQ(name.replica, 1);
  EXPECT_EQ(name.task, 2);
  EXPECT_EQ(name.type, "GPU");
  EXPECT_EQ(name.id, 3);
  EXPECT_TRUE(name.IsFull());
  EXPECT_EQ(name.ToString(), "/job:worker/replica:1/task:2/device:GPU:3");
}

TEST(DeviceNameTest, ReadsPartsInAnyOrderAndTheLastOfEachWins) {
  EXPECT_EQ(Canonical("/task:1/job:ps"), "/job:ps/task:1");
  EXPECT_EQ(Canonical("/job:ps/task:1/job:worker/task:4"), "/job:worker/task:4");
  EXPECT_EQ(Canonical("/device:CPU:0/device:GPU:1"), "/device:GPU:1");
}

TEST(DeviceNameTest, NothingMeansNoConstraint) {
  EXPECT_TRUE(Name("").empty());
  EXPECT_TRUE(Name("/").empty());
  EXPECT_EQ(Canonical(""), "");
}

TEST(DeviceNameTest, StarsClearTheField) {
  EXPECT_EQ(Canonical("/job:*/replica:*/task:*/device:*"), "");
  EXPECT_EQ(Canonical("/job:ps/task:3/job:*"), "/task:3");
  EXPECT_EQ(Canonical("/device:GPU:*"), "/device:GPU:*");
  EXPECT_EQ(Canonical("/device:GPU"), "/device:GPU:*");
  EXPECT_FALSE(Name("/device:GPU").id.has_value());
}

TEST(DeviceNameTest, ReadsLegacyFormsInUpperCaseAndKeepsTheCaseOfOthers) {
  EXPECT_EQ(Canonical("/cpu:0"), "/device:CPU:0");
  EXPECT_EQ(Canonical("/gpu:1"), "/device:GPU:1");
  EXPECT_EQ(Canonical("/job:ps/GPU:2"), "/job:ps/device:GPU:2");
  EXPECT_EQ(Canonical("/device:gpu:0"), "/device:gpu:0");
  EXPECT_FALSE(Name("/device:gpu:0").IsCompatibleWith(Name("/device:GPU:0")));
}

TEST(DeviceNameTest, ReadsLocalNames) {
  EXPECT_EQ(Canonical("CPU:0"), "/device:CPU:0");
  EXPECT_EQ(Canonical("/device:CPU:0"), "/device:CPU:0");
}

TEST(DeviceNameTest, RefusesWhatIsMalformedAndQuotesIt) {
  for (const char* bad : {"job:ps",
                          "/job:1ps",
                          "/job:",
                          "/job:a-b",
                          "/task:x",
                          "/task:-1",
                          "/task:",
                          "/replica:1x",
                          "/device:",
                          "/device:9PU:0",
                          "/device:CPU:x",
                          "/device:CPU:0:1",
                          "/tpu:0",
                          "/cpu",
                          "//",
                          "/job:ps/",
                          "/job:ps//task:0",
                          "/job:ps/x",
                          "CPU",
                          "CPU:0/task:1",
                          "/task:99999999999",
                          "/job:ps /task:0",
                          "/job:ps/task:0/device:CPU:0junk"}) {
    const Status status = DeviceName::Parse(bad).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << bad;
    EXPECT_EQ(Message(status).find(StrCat("Malformed device specification '", bad, "'")), 0u)
        << status;
  }
}

TEST(DeviceNameTest, CanonicalTextReadsBack) {
  for (const char* text : {"/job:a", "/replica:0", "/task:7", "/device:CPU:*",
                           "/job:a/replica:0/task:1/device:X_1:9", "/device:*:3"}) {
    EXPECT_EQ(Canonical(text), text);
  }
}

TEST(DeviceNameTest, EnsureOverridesAndFillDoesNot) {
  DeviceName name = Name("/job:ps/device:CPU:0");
  name.EnsureSpecification(Name("/job:worker/task:1"));
  EXPECT_EQ(name.ToString(), "/job:worker/task:1/device:CPU:0");
  name.FillFrom(Name("/job:ps/replica:0/task:5/device:GPU:3"));
  EXPECT_EQ(name.ToString(), "/job:worker/replica:0/task:1/device:CPU:0");
}

TEST(DeviceNameTest, MatchesAndCompatibilityDifferInWhatIsMissing) {
  const DeviceName request = Name("/job:ps/device:CPU:*");
  EXPECT_TRUE(request.Matches(Name("/job:ps/replica:0/task:0/device:CPU:0")));
  EXPECT_FALSE(request.Matches(Name("/job:ps"))) << "the type is not known there";
  EXPECT_TRUE(request.IsCompatibleWith(Name("/job:ps")));
  EXPECT_TRUE(DeviceName().Matches(request));
  EXPECT_FALSE(request.IsCompatibleWith(Name("/job:worker")));
  EXPECT_FALSE(Name("/device:CPU:0").IsCompatibleWith(Name("/device:CPU:1")));
}

TEST(DeviceNameTest, SameAddressSpaceNeedsJobReplicaAndTask) {
  const DeviceName a = Name("/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_TRUE(a.SameAddressSpace(Name("/job:ps/replica:0/task:1/device:GPU:0")));
  EXPECT_FALSE(a.SameAddressSpace(Name("/job:ps/replica:0/task:2/device:CPU:0")));
  EXPECT_FALSE(Name("/job:ps/task:1").SameAddressSpace(Name("/job:ps/task:1")));
}

// target, other, result of a hard merge, of a soft one, of an override ("!x": an error
// that names x).
struct MergeCase {
  const char* target;
  const char* other;
  const char* hard;
  const char* soft;
  const char* override_;
};

const MergeCase kMergeCases[] = {
    {"/job:ps", "/task:1", "/job:ps/task:1", "/job:ps/task:1", "/job:ps/task:1"},
    {"", "/device:GPU:1", "/device:GPU:1", "/device:GPU:1", "/device:GPU:1"},
    {"/device:CPU:*", "/device:CPU:1", "/device:CPU:1", "/device:CPU:1", "/device:CPU:1"},
    {"/job:a", "/job:b", "!jobs", "!jobs", "!jobs"},
    {"/replica:0", "/replica:1", "!replicas", "!replicas", "!replicas"},
    {"/task:0", "/task:1", "!tasks", "!tasks", "!tasks"},
    {"/task:0/device:CPU:0", "/job:a/device:GPU:1", "!types", "/job:a/task:0",
     "/job:a/task:0/device:GPU:1"},
    {"/device:CPU:0", "/device:GPU:*", "!types", "", "/device:GPU:*"},
    {"/device:CPU:0", "/device:CPU:1", "!ids", "/device:CPU:*", "/device:CPU:1"},
};

void ExpectMerge(const char* what, const MergeCase& c, const char* expected, const Status& status,
                 const DeviceName& merged) {
  if (expected[0] == '!') {
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << what << " " << c.target << " " << c.other;
    EXPECT_NE(Message(status).find(StrCat("incompatible ", expected + 1)), std::string_view::npos)
        << status;
  } else {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(merged.ToString(), expected) << what << " " << c.target << " " << c.other;
  }
}

TEST(DeviceNameTest, MergesByTensorFlowsRules) {
  for (const MergeCase& c : kMergeCases) {
    DeviceName hard = Name(c.target);
    const Status hard_status = hard.MergeFrom(Name(c.other), /*soft=*/false);
    ExpectMerge("hard", c, c.hard, hard_status, hard);
    DeviceName soft = Name(c.target);
    const Status soft_status = soft.MergeFrom(Name(c.other), /*soft=*/true);
    ExpectMerge("soft", c, c.soft, soft_status, soft);
    DeviceName overridden = Name(c.target);
    const Status override_status = overridden.MergeOverride(Name(c.other));
    ExpectMerge("override", c, c.override_, override_status, overridden);
  }
}

TEST(TaskNameTest, StopsAtTheTask) {
  EXPECT_EQ(TaskName(Name("/job:ps/replica:0/task:1/device:CPU:0")), "/job:ps/replica:0/task:1");
  EXPECT_EQ(TaskName(Name("/job:ps/task:1")), "/job:ps/replica:0/task:1");
  EXPECT_EQ(TaskName(Name("/job:ps")), "");
  EXPECT_EQ(MakeTaskName("worker", 3), "/job:worker/replica:0/task:3");
}

TEST(CanonicalDeviceNameTest, CompletesLocalNames) {
  const DeviceName base = Name("/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(*CanonicalDeviceName("GPU:2", base), "/job:ps/replica:0/task:1/device:GPU:2");
  EXPECT_EQ(*CanonicalDeviceName("/cpu:1", base), "/job:ps/replica:0/task:1/device:CPU:1");
  EXPECT_EQ(*CanonicalDeviceName("/job:worker/task:4", base),
            "/job:worker/replica:0/task:4/device:CPU:0");
  EXPECT_TRUE(errors::IsInvalidArgument(CanonicalDeviceName("nonsense", base).status()));
}

}  // namespace
}  // namespace millrace
