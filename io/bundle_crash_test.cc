// SPDX-License-Identifier: Apache-2.0
// Whatever ends a save, the checkpoint before it or the new one is there as a whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "io/crash_disk.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"

namespace millrace {
namespace {

constexpr char kPrefix[] = "ckpt/model";

// A checkpoint of two tensors that are all `value`.
Status Save(FileSystem* fs, const std::string& prefix, float value, int64_t elements = 8) {
  auto writer = BundleWriter::Create(fs, prefix);
  if (!writer.ok()) return writer.status();
  Tensor all(kFloat, Shape({elements}));
  for (float& element : all.flat<float>()) element = value;
  if (Status status = (*writer)->Add("a", all); !status.ok()) return status;
  if (Status status = (*writer)->Add("b", all); !status.ok()) return status;
  return (*writer)->Finish();
}

// Two shards, and one checkpoint of both.
Status SaveMerged(FileSystem* fs, const std::string& prefix, float value) {
  const std::vector<std::string> parts = {"parts/one", "parts/two"};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto writer = BundleWriter::Create(fs, parts[i]);
    if (!writer.ok()) return writer.status();
    Status status = (*writer)->Add(i == 0 ? "a" : "b", Tensor::FromValues<float>({value, value}));
    if (status.ok()) status = (*writer)->Finish();
    if (!status.ok()) return status;
  }
  return MergeBundles(fs, parts, prefix, /*allow_missing_files=*/false);
}

// The value of the checkpoint, if all of it is there and the same.
StatusOr<float> Load(FileSystem* fs, const std::string& prefix) {
  const auto reader = BundleReader::Open(fs, prefix);
  if (!reader.ok()) return reader.status();
  std::vector<float> values;
  for (const char* key : {"a", "b"}) {
    const StatusOr<Tensor> tensor = (*reader)->Read(key);
    if (!tensor.ok()) return tensor.status();
    for (const float value : tensor->flat<float>()) values.push_back(value);
  }
  for (const float value : values) {
    if (value != values[0]) return errors::DataLoss("mixed values");
  }
  return values[0];
}

std::string Names(const CrashDisk::Contents& contents) {
  std::string names;
  for (const auto& [name, content] : contents) StrAppend(&names, " ", name);
  return names;
}

struct Way {
  const char* name;
  Status (*save)(FileSystem* fs, const std::string& prefix, float value);
  bool has_links;
  std::size_t files;  // of a checkpoint
};

class SaveTest : public testing::TestWithParam<Way> {
 protected:
  SaveTest() { disk_.has_links = GetParam().has_links; }

  Status Save(float value) { return GetParam().save(&disk_, kPrefix, value); }

  // Of all that the disk may hold if the power is lost now.
  void ExpectWhole(float old_value, float new_value) {
    for (const CrashDisk::Contents& contents : disk_.AfterPowerLoss("ckpt")) {
      CrashDisk after(contents);
      const StatusOr<float> value = Load(&after, kPrefix);
      ASSERT_TRUE(value.ok()) << value.status() << "; files:" << Names(contents);
      ASSERT_TRUE(*value == old_value || *value == new_value) << *value;
    }
  }

  CrashDisk disk_;
};

Status SaveAlone(FileSystem* fs, const std::string& prefix, float value) {
  return Save(fs, prefix, value);
}

INSTANTIATE_TEST_SUITE_P(All, SaveTest,
                         testing::Values(Way{"Alone", SaveAlone, true, 2},
                                         Way{"AloneWithoutLinks", SaveAlone, false, 2},
                                         Way{"Merged", SaveMerged, true, 3},
                                         Way{"MergedWithoutLinks", SaveMerged, false, 3}),
                         [](const auto& info) { return info.param.name; });

TEST_P(SaveTest, PowerMayBeLostAtAnyTime) {
  ASSERT_TRUE(Save(1).ok());
  ExpectWhole(1, 1);
  for (float value = 2; value < 6; ++value) {
    disk_.after_change = [&] { ExpectWhole(value - 1, value); };
    const Status status = Save(value);
    disk_.after_change = nullptr;
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_FALSE(HasFatalFailure());
    ExpectWhole(value, value);  // it is on the disk
    EXPECT_EQ(disk_.Now().size(), GetParam().files) << Names(disk_.Now());
  }
}

TEST_P(SaveTest, AnyOperationMayFailOnce) {
  ASSERT_TRUE(Save(1).ok());
  const CrashDisk::Contents before = disk_.Now();
  for (int fails_at = 0;; ++fails_at) {
    disk_ = CrashDisk(before);
    disk_.has_links = GetParam().has_links;
    disk_.fails_at = fails_at;
    const Status status = Save(2);
    if (disk_.operations <= fails_at) break;
    disk_.fails_at = -1;
    if (!status.ok()) {
      EXPECT_NE(status.message().find("the disk fails"), std::string::npos) << status;
      EXPECT_TRUE(status.message().find("model") != std::string::npos ||
                  status.message().find("parts") != std::string::npos ||
                  status.message().find("ckpt") != std::string::npos)
          << "it names the file: " << status;
    }
    const StatusOr<float> value = Load(&disk_, kPrefix);
    ASSERT_TRUE(value.ok()) << "operation " << fails_at << ": " << value.status();
    EXPECT_EQ(*value, status.ok() ? 2 : *value);
    ASSERT_TRUE(Save(3).ok()) << "operation " << fails_at;
    EXPECT_EQ(*Load(&disk_, kPrefix), 3);
    for (const auto& [name, content] : disk_.Now()) {
      EXPECT_EQ(name.find(kTemporarySuffix), std::string::npos) << "left by the save: " << name;
    }
  }
}

TEST(SaveCrashTest, WhatKilledSavesLeftIsDeletedByTheNext) {
  CrashDisk disk({{"ckpt/model.index.tempstate17", "x"},
                  {"ckpt/model.data-00000-of-00001.tempstate17", "x"},
                  {"ckpt/model.data-00000-of-00001", "x"},
                  {"ckpt/model.data-00003-of-00007", "x"},
                  {"ckpt/model2.data-00000-of-00001", "another checkpoint's"},
                  {"ckpt/model.data-00000-of-00001.mine", "a user's"}});
  ASSERT_TRUE(Save(&disk, kPrefix, 1).ok());
  EXPECT_EQ(Names(disk.Now()),
            " ckpt/model.data-00000-of-00001 ckpt/model.data-00000-of-00001.mine ckpt/model.index"
            " ckpt/model2.data-00000-of-00001");
}

TEST(SaveCrashTest, TwoAtATimeLeaveOneOfThemWhole) {
  CrashDisk disk;
  ASSERT_TRUE(Save(&disk, kPrefix, 1).ok());
  auto one = BundleWriter::Create(&disk, kPrefix);
  auto two = BundleWriter::Create(&disk, kPrefix);
  ASSERT_TRUE(one.ok() && two.ok());
  for (const char* key : {"a", "b"}) {
    ASSERT_TRUE((*one)->Add(key, Tensor::Scalar<float>(2)).ok());
    ASSERT_TRUE((*two)->Add(key, Tensor::Scalar<float>(3)).ok());
  }
  ASSERT_TRUE((*two)->Finish().ok());
  ASSERT_TRUE((*one)->Finish().ok());
  EXPECT_EQ(*Load(&disk, kPrefix), 2);
}

TEST(SaveCrashTest, AnOldIndexThatCannotBeReadIsReplaced) {
  CrashDisk disk({{"ckpt/model.index", "no table"}, {"ckpt/model.data-00000-of-00001", "x"}});
  ASSERT_TRUE(Save(&disk, kPrefix, 1).ok());
  EXPECT_EQ(*Load(&disk, kPrefix), 1);
}

TEST(SaveCrashTest, AKilledProcessLeavesTheOldOrTheNewCheckpoint) {
  const std::string directory = StrCat(testing::TempDir(), "/killed_saves");
  const std::string prefix = StrCat(directory, "/model");
  FileSystem* const fs = PosixFileSystem();
  constexpr int64_t kElements = 1 << 16;
  ASSERT_TRUE(Save(fs, prefix, 0, kElements).ok());
  std::mt19937 random(7);
  float last = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (float value = last + 1;; ++value) {
        if (!Save(fs, prefix, value, kElements).ok()) _exit(1);
      }
    }
    usleep(std::uniform_int_distribution<int>(1, 30'000)(random));
    kill(child, SIGKILL);
    int how = 0;
    ASSERT_EQ(waitpid(child, &how, 0), child);
    ASSERT_TRUE(WIFSIGNALED(how)) << "a save failed";
    const StatusOr<float> value = Load(fs, prefix);
    ASSERT_TRUE(value.ok()) << "round " << round << ": " << value.status();
    EXPECT_GE(*value, last);
    last = *value;
  }
  ASSERT_TRUE(Save(fs, prefix, last, kElements).ok());
  EXPECT_EQ(fs->List(directory)->size(), 2u) << "what the killed ones left is gone";
}

}  // namespace
}  // namespace millrace
