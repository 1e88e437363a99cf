// SPDX-License-Identifier: Apache-2.0
// Evaluators: which checkpoints they take, what they do about those that vanish or are damaged
// while they read, and how they end.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/evaluator.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using Names = std::vector<std::string>;

constexpr milliseconds kPoll{1};
constexpr milliseconds kShort{20};

// What a job does: a checkpoint whose tensors are all its number, and the state file.
class Job {
 public:
  explicit Job(std::string folder, std::size_t max_to_keep = 3)
      : folder_(std::move(folder)), max_to_keep_(max_to_keep) {}

  std::string Prefix(int64_t number) const { return StrCat(folder_, "/model.ckpt-", number); }
  void Save(int64_t number) {
    Tensor all(kFloat, Shape({50}));
    for (float& v : all.flat<float>()) v = static_cast<float>(number);
    const Status written = WriteTensors(Prefix(number), {{"a", all}, {"b", all}});
    ASSERT_TRUE(written.ok()) << written;
    kept_.push_back(Prefix(number));
    CheckpointState state;
    state.model_checkpoint_path = kept_.back();
    const std::size_t from = kept_.size() > max_to_keep_ ? kept_.size() - max_to_keep_ : 0;
    state.all_model_checkpoint_paths.assign(kept_.begin() + static_cast<std::ptrdiff_t>(from),
                                            kept_.end());
    const Status told = UpdateCheckpointState(folder_, state);
    ASSERT_TRUE(told.ok()) << told;
    if (from > 0) {
      RemoveCheckpoint(kept_[from - 1]).IgnoreError();
    }
  }
  void Damage(int64_t number) const {
    const std::string data = Prefix(number) + ".data-00000-of-00001";
    std::string bytes = FileText(data);
    bytes[10] = static_cast<char>(bytes[10] ^ 1);
    WriteText(data, bytes);
  }

 private:
  const std::string folder_;
  const std::size_t max_to_keep_;
  std::vector<std::string> kept_;
};

// What an evaluation of the whole checkpoint yields: its number, or the error of what it reads.
StatusOr<int64_t> NumberIn(const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(const auto tensors, ReadTensors(prefix));
  const float first = tensors.at("a").flat<float>()[0];
  for (const auto& [name, tensor] : tensors) {
    for (const float v : tensor.flat<float>()) {
      if (v != first) return errors::Internal(prefix, " is of two saves");
    }
  }
  return static_cast<int64_t>(first);
}

TEST(CheckpointNumber, IsWhatAPrefixEndsWith) {
  EXPECT_EQ(CheckpointNumber("/a/model.ckpt-200"), 200);
  EXPECT_EQ(CheckpointNumber("/a-7/ckpt"), std::nullopt);
  EXPECT_EQ(CheckpointNumber("ckpt-"), std::nullopt);
  EXPECT_EQ(CheckpointNumber(""), std::nullopt);
  EXPECT_TRUE(errors::IsInvalidArgument(ParseTakeCheckpoints("all").status()));
}

TEST(CheckpointsIterator, OfTheLatestSkipsThoseBefore) {
  Job job(EmptyFolder("it"));
  const std::string folder = EmptyFolder("it");
  CheckpointsIterator iterator(folder, {.poll = kPoll, .timeout = kShort});
  EXPECT_EQ(iterator.Next(), "") << "there is none";
  job.Save(1);
  job.Save(2);
  EXPECT_EQ(iterator.Next(), job.Prefix(2));
  EXPECT_EQ(iterator.skipped(), 0) << "what was there before the first is no loss";
  for (const int64_t number : {3, 4, 5}) job.Save(number);
  EXPECT_EQ(iterator.Next(), job.Prefix(5));
  EXPECT_EQ(iterator.skipped(), 2);
  EXPECT_EQ(iterator.Next(), "") << "nothing is newer";
}

TEST(CheckpointsIterator, OfEveryOneTakesThoseThatAreThereInTheirOrder) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  CheckpointsIterator iterator(folder,
                               {.take = TakeCheckpoints::kEvery, .poll = kPoll, .timeout = kShort});
  for (const int64_t number : {1, 2, 3, 4}) job.Save(number);  // the first has been deleted
  Names taken;
  for (std::string next = iterator.Next(); !next.empty(); next = iterator.Next()) {
    taken.push_back(next);
    if (taken.size() == 1) job.Save(5);
  }
  EXPECT_EQ(taken, (Names{job.Prefix(2), job.Prefix(3), job.Prefix(4), job.Prefix(5)}));
}

TEST(CheckpointsIterator, EndsByItsTimeoutItsFunctionOrAsItIsTold) {
  const std::string folder = EmptyFolder("it");
  int asked = 0;
  CheckpointsIterator patient(
      folder, {.poll = kPoll, .timeout = kPoll, .timeout_fn = [&] { return ++asked == 3; }});
  EXPECT_EQ(patient.Next(), "");
  EXPECT_EQ(asked, 3);
  Job job(folder);
  CheckpointsIterator stopped(folder, {.poll = kPoll, .stop = [&] {
                                         if (asked == 3) job.Save(1);
                                         ++asked;
                                         return true;
                                       }});
  EXPECT_EQ(stopped.Next(), job.Prefix(1)) << "what is there by then is taken";
  EXPECT_EQ(stopped.Next(), "");
}

TEST(CheckpointsIterator, KeepsItsInterval) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  CheckpointsIterator iterator(folder, {.min_interval = kShort, .poll = kPoll});
  job.Save(1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(iterator.Next(), job.Prefix(1));
  job.Save(2);
  EXPECT_EQ(iterator.Next(), job.Prefix(2));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kShort);
}

TEST(CheckpointsIterator, OfAJobThatHasGoneBackTakesWhatItWritesAgain) {
  for (const TakeCheckpoints take : {TakeCheckpoints::kLatest, TakeCheckpoints::kEvery}) {
    const std::string folder = EmptyFolder("it");
    CheckpointsIterator iterator(folder, {.take = take, .poll = kPoll, .timeout = kShort});
    {
      Job job(folder);
      job.Save(20);
      EXPECT_EQ(iterator.Next(), job.Prefix(20));
      job.Save(40);
      EXPECT_EQ(iterator.Next(), job.Prefix(40));
      EXPECT_EQ(iterator.Next(), "");
    }
    // Started again from an older one: lower than the last, then the same name with other files.
    Job job(folder);
    job.Save(30);
    EXPECT_EQ(iterator.Next(), job.Prefix(30));
    job.Save(40);
    EXPECT_EQ(iterator.Next(), job.Prefix(40)) << "its files are others";
    EXPECT_EQ(iterator.Next(), "") << "once";
  }
}

TEST(WaitForNewCheckpoint, ReturnsOneThatIsNotTheLast) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  EXPECT_EQ(WaitForNewCheckpoint(folder, "", kShort, kPoll), "");
  job.Save(1);
  EXPECT_EQ(WaitForNewCheckpoint(folder, "", kShort, kPoll), job.Prefix(1));
  EXPECT_EQ(WaitForNewCheckpoint(folder, job.Prefix(1), kShort, kPoll), "");
  std::thread saves([&] { job.Save(2); });
  EXPECT_EQ(WaitForNewCheckpoint(folder, job.Prefix(1), {}, kPoll), job.Prefix(2));
  saves.join();
}

TEST(SidecarEvaluator, GoesOnOverDeletedAndDamagedOnesAndEndsAtTheLast) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  job.Save(10);
  std::vector<int64_t> seen;
  int calls = 0;
  const auto counts = RunSidecarEvaluator(
      {.directory = folder, .take = TakeCheckpoints::kEvery, .last_number = 40, .poll = kPoll},
      [&](const std::string& checkpoint) -> Status {
        if (++calls == 1) {
          // The job goes on while this is evaluated.
          for (const int64_t number : {20, 30, 40}) job.Save(number);
          job.Damage(30);
        }
        const StatusOr<int64_t> number = NumberIn(checkpoint);
        if (number.ok()) seen.push_back(*number);
        return number.status();
      });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(seen, (std::vector<int64_t>{20, 40})) << "10 was deleted while it was read";
  EXPECT_EQ(counts->evaluated, 2);
  EXPECT_EQ(counts->unreadable, 2);
  EXPECT_EQ(counts->last, job.Prefix(40));
}

TEST(SidecarEvaluator, GoesOnWhereTheDiskFailsForACheckpoint) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  job.Save(10);
  Names taken;
  const auto counts = RunSidecarEvaluator(
      {.directory = folder, .last_number = 30, .poll = kPoll},
      [&](const std::string& checkpoint) -> Status {
        taken.push_back(checkpoint);
        if (taken.size() == 1) return errors::Unavailable("reading ", checkpoint, ".index: EIO");
        if (taken.size() == 2) {
          job.Save(20);
          return errors::Unavailable("reading ", checkpoint, ".index: Input/output error");
        }
        if (taken.size() == 3) {
          job.Save(30);
          return errors::PermissionDenied("reading ", checkpoint, ".index");
        }
        return OkStatus();
      });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->last, job.Prefix(30));
  EXPECT_GE(counts->unreadable, 1);
  EXPECT_EQ(counts->evaluated, static_cast<int64_t>(taken.size()) - 3);
  // What does not name it is no matter of the checkpoint.
  job.Save(50);
  EXPECT_TRUE(errors::IsUnavailable(
      RunSidecarEvaluator({.directory = folder, .last_number = 50, .poll = kPoll},
                          [](const std::string&) { return errors::Unavailable("the session"); })
          .status()));
}

TEST(SidecarEvaluator, ReturnsErrorsThatAreNotTheCheckpoints) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  job.Save(1);
  const auto counts = RunSidecarEvaluator(
      {.directory = folder, .last_number = 1, .poll = kPoll},
      [](const std::string&) { return errors::InvalidArgument("no such layer"); });
  EXPECT_TRUE(errors::IsInvalidArgument(counts.status())) << counts.status();
  EXPECT_TRUE(errors::IsInvalidArgument(
      RunSidecarEvaluator({}, [](const std::string&) { return OkStatus(); }).status()));
}

TEST(SidecarEvaluator, SaysWhichOneHasNotCome) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  job.Save(1);
  const auto counts =
      RunSidecarEvaluator({.directory = folder, .last_number = 9, .timeout = kShort, .poll = kPoll},
                          [](const std::string&) { return OkStatus(); });
  ASSERT_TRUE(errors::IsDeadlineExceeded(counts.status())) << counts.status();
  for (const std::string& part : {folder, std::string("number 9"), job.Prefix(1)}) {
    EXPECT_NE(counts.status().message().find(part), std::string::npos) << counts.status();
  }
}

TEST(SidecarEvaluator, EvaluatesTheNewestWhenItIsToldToEnd) {
  const std::string folder = EmptyFolder("it");
  Job job(folder);
  bool told = false;
  Names taken;
  const auto counts = RunSidecarEvaluator({.directory = folder,
                                           .last_number = 9,
                                           .poll = kPoll,
                                           .stop =
                                               [&] {
                                                 if (!told) job.Save(1);
                                                 return std::exchange(told, true);
                                               }},
                                          [&](const std::string& checkpoint) {
                                            taken.push_back(checkpoint);
                                            if (taken.size() == 1) job.Save(2);
                                            return OkStatus();
                                          });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(taken, (Names{job.Prefix(1), job.Prefix(2)}));
}

// A job saves as fast as it can and keeps one checkpoint: whatever an evaluator reads is whole.
TEST(SidecarEvaluator, NeverSeesHalfOfACheckpoint) {
  constexpr int64_t kLast = 60;
  const std::string folder = EmptyFolder("it");
  Job job(folder, /*max_to_keep=*/1);
  std::thread saves([&] {
    for (int64_t number = 1; number <= kLast; ++number) job.Save(number);
  });
  int64_t newest = 0;
  const auto counts =
      RunSidecarEvaluator({.directory = folder, .last_number = kLast, .poll = kPoll},
                          [&](const std::string& checkpoint) -> Status {
                            MR_ASSIGN_OR_RETURN(const int64_t number, NumberIn(checkpoint));
                            EXPECT_EQ(number, CheckpointNumber(checkpoint));
                            EXPECT_GT(number, newest) << "they come in their order";
                            newest = number;
                            return OkStatus();
                          });
  saves.join();
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(newest, kLast);
}

}  // namespace
}  // namespace millrace::testing
