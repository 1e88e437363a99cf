// SPDX-License-Identifier: Apache-2.0
#include "session/wait_report.h"

#include <string>
#include <vector>

#include "base/errors.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0";
constexpr char kOther[] = "/job:worker/replica:0/task:1";

pb::Wait WaitOf(pb::Wait::Kind kind, const std::string& text, double seconds = 1) {
  pb::Wait wait;
  wait.set_kind(kind);
  wait.set_text(text);
  wait.set_seconds(seconds);
  wait.set_step_id(7);
  return wait;
}

TaskAnswer Answer(const std::string& task, const std::vector<pb::Wait>& waits) {
  TaskAnswer answer{task, {}, OkStatus()};
  answer.waits.add_step_id(7);
  for (const pb::Wait& wait : waits) *answer.waits.add_wait() = wait;
  return answer;
}

std::vector<std::string> TextsOf(const pb::WaitReport& report) {
  std::vector<std::string> texts;
  for (const pb::Wait& wait : report.wait()) texts.push_back(wait.text());
  return texts;
}

TEST(WaitReport, PutsFirstWhatWaitsForNobody) {
  pb::Wait receive = WaitOf(pb::Wait::RECEIVE, "w", 9);
  receive.set_peer(kPs);
  std::vector<TaskAnswer> answers = {
      Answer(kWorker, {receive, WaitOf(pb::Wait::KERNEL, "just begun", 0.001)}),
      Answer(kPs, {WaitOf(pb::Wait::QUEUE, "q", 9), WaitOf(pb::Wait::LOCK, "turn"),
                   WaitOf(pb::Wait::ACCUMULATOR, "sum"), WaitOf(pb::Wait::COLLECTIVE, "reduce"),
                   WaitOf(pb::Wait::LOOP, "loop", 3), WaitOf(pb::Wait::KERNEL, "kernel", 4),
                   WaitOf(pb::Wait::TASK, "silent")})};
  const std::vector<std::string> expected = {"silent", "kernel", "loop",       "sum", "reduce",
                                             "turn",   "q",      "just begun", "w"};
  EXPECT_EQ(TextsOf(MakeWaitReport(answers)), expected);
}

TEST(WaitReport, NamesAValueThatNobodyIsAboutToSend) {
  pb::Wait receive = WaitOf(pb::Wait::RECEIVE, "w");
  receive.set_peer(kPs);
  receive.set_step_id(8);  // of which the ps does not know
  std::vector<TaskAnswer> answers = {
      Answer(kWorker, {WaitOf(pb::Wait::KERNEL, "just begun", 0.001), receive}), Answer(kPs, {})};
  const pb::WaitReport report = MakeWaitReport(answers);
  ASSERT_EQ(report.wait_size(), 2);
  EXPECT_EQ(report.wait(0).text(), "w, which does not run the step: nobody there sends it");
  EXPECT_EQ(report.wait(0).task(), kWorker);
}

TEST(WaitReport, TellsOfATaskThatDoesNotAnswerOnceAndWhenItWasHeard) {
  pb::Wait silent = WaitOf(pb::Wait::TASK, "no sign of life for 12 s", 12);
  silent.set_peer(kOther);
  std::vector<TaskAnswer> answers = {{kOther, {}, errors::Unavailable("refused")},
                                     Answer(kWorker, {silent}),
                                     Answer(kPs, {silent})};
  const pb::WaitReport report = MakeWaitReport(answers);
  ASSERT_EQ(report.wait_size(), 1);
  EXPECT_EQ(report.wait(0).task(), kOther);
  EXPECT_EQ(report.wait(0).text(), "it does not answer (refused); no sign of life for 12 s");
  EXPECT_EQ(report.wait(0).seconds(), 12);
}

TEST(WaitReport, SaysNothingOfATaskThatDoesNotKnowTheQuestion) {
  std::vector<TaskAnswer> answers = {{kOther, {}, errors::Unimplemented("no such method")}};
  EXPECT_EQ(MakeWaitReport(answers).wait_size(), 0);
}

TEST(WaitReport, SaysWhereAndForHowLong) {
  pb::Wait wait = WaitOf(pb::Wait::QUEUE, "a dequeue", 12.38);
  EXPECT_EQ(WaitText(wait), "a dequeue (for 12.3 s)");
  wait.set_node("take");
  wait.set_op("QueueDequeueV2");
  wait.set_device("/device:CPU:0");
  wait.set_origin("model.cc:12");
  EXPECT_EQ(WaitText(wait),
            "a dequeue ({{node take}}, op QueueDequeueV2 on /device:CPU:0, made at model.cc:12, "
            "for 12.3 s)");
}

TEST(WaitReport, CutsLines) {
  std::vector<TaskAnswer> answers = {
      Answer(kPs, {WaitOf(pb::Wait::QUEUE, "a", 3), WaitOf(pb::Wait::QUEUE, "b", 2)})};
  answers[0].waits.set_left_out(5);
  EXPECT_EQ(WaitLines(MakeWaitReport(answers), 1),
            std::string("\n  ") + kPs + ": a (for 3 s)\n  and 6 more");
}

// Text that graphs bring may be no UTF-8, and waits may be many.
TEST(WaitReport, TakesWhateverNamesAndHoweverManyThereAre) {
  pb::TaskWaits waits;
  Wait wait;
  wait.name = "\xff\n";
  for (int i = 0; i < kMostWaits + 3; ++i) AddWait(wait, 7, 1, &waits);
  EXPECT_EQ(waits.wait_size(), kMostWaits);
  EXPECT_EQ(waits.left_out(), 3);
  EXPECT_EQ(waits.wait(0).name(), "??");
}

TEST(WaitReport, TravelsWithAnErrorAsFarAsThereIsRoom) {
  std::vector<pb::Wait> many(100, WaitOf(pb::Wait::QUEUE, std::string(1000, 'x')));
  std::vector<TaskAnswer> answers = {Answer(kPs, many)};
  const pb::WaitReport report = MakeWaitReport(answers);
  const Status status = WithWaitReport(errors::DeadlineExceeded("late"), report);
  pb::WaitReport carried;
  ASSERT_TRUE(FindWaitReport(status, &carried));
  EXPECT_GE(carried.wait_size(), 1);
  EXPECT_EQ(carried.wait_size() + carried.left_out(), 100);
  EXPECT_LT(carried.ByteSizeLong(), 1300u);
  EXPECT_FALSE(FindWaitReport(errors::DeadlineExceeded("late"), &carried));
  EXPECT_TRUE(WithWaitReport(OkStatus(), report).ok());
}

}  // namespace
}  // namespace millrace
