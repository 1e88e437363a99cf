// SPDX-License-Identifier: Apache-2.0
#include "master/step_errors.h"

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "session/wait_report.h"

namespace millrace {
namespace {

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:1";

TEST(SummarizeErrors, NoErrorIsOk) { EXPECT_TRUE(SummarizeErrors({}).ok()); }

TEST(SummarizeErrors, ASingleErrorKeepsItsCodeAndNamesItsTask) {
  const std::vector<TaskError> errors = {{kPs, errors::OutOfRange("queue is closed")}};
  const Status status = SummarizeErrors(errors);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Message(status), "From /job:ps/replica:0/task:0:\nqueue is closed");
}

TEST(SummarizeErrors, DerivedErrorsAreDroppedIfThereIsARoot) {
  const std::vector<TaskError> errors = {
      {kWorker, MarkDerived(errors::Cancelled("RecvAsync is cancelled"))},
      {kPs, errors::Internal("disk on fire")}};
  const Status status = SummarizeErrors(errors);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(status), "From /job:ps/replica:0/task:0:\ndisk on fire");
}

TEST(SummarizeErrors, IfAllAreDerivedTheFirstStands) {
  const std::vector<TaskError> errors = {{kWorker, MarkDerived(errors::Cancelled("first"))},
                                         {kPs, MarkDerived(errors::Aborted("second"))}};
  const Status status = SummarizeErrors(errors);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Message(status), "From /job:worker/replica:0/task:1:\nfirst");
}

TEST(SummarizeErrors, SeveralRootsAreListedUnderTheCodeOfTheFirst) {
  const std::vector<TaskError> errors = {{kWorker, errors::InvalidArgument("one")},
                                         {kPs, errors::Internal("two")}};
  const Status status = SummarizeErrors(errors);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "2 root error(s) found."
            "\n=====================\nINVALID_ARGUMENT: From /job:worker/replica:0/task:1:\none"
            "\n=====================\nINTERNAL: From /job:ps/replica:0/task:0:\ntwo");
}

TEST(SummarizeErrors, TheSameErrorOfTwoTasksIsOneError) {
  const std::vector<TaskError> errors = {{kWorker, errors::Internal("same")},
                                         {kPs, errors::Internal("same")}};
  EXPECT_EQ(Message(SummarizeErrors(errors)), "From /job:worker/replica:0/task:1:\nsame");
}

TEST(SummarizeErrors, ATaskThatIsGoneIsOneErrorWhoeverNoticesIt) {
  const std::vector<TaskError> errors = {{kPs, errors::Unavailable("Socket closed")},
                                         {kWorker, errors::Unavailable("failed to connect")}};
  const Status status = SummarizeErrors(errors);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "From /job:ps/replica:0/task:0:\nSocket closed");
}

TEST(SummarizeErrors, PayloadsOfTheRootStay) {
  Status gone = errors::Aborted("gone");
  gone.SetPayload(kWorkerRestartedPayload, "");
  const std::vector<TaskError> errors = {{kPs, gone}};
  EXPECT_TRUE(SummarizeErrors(errors).GetPayload(kWorkerRestartedPayload).has_value());
}

TEST(SummarizeErrors, LongTextsAreWholeAndEndlessOnesCut) {
  const std::string long_text(1 << 20, 'x');
  const std::vector<TaskError> errors = {{kPs, errors::Internal(long_text)}};
  EXPECT_NE(Message(SummarizeErrors(errors)).find(long_text), std::string_view::npos);
  const std::vector<TaskError> endless = {{kPs, errors::Internal(std::string(20 << 20, 'x'))}};
  EXPECT_LT(Message(SummarizeErrors(endless)).size(), std::size_t{17} << 20);
}

TEST(SummarizeTimeout, SaysWhatWasWaitedFor) {
  const std::vector<TaskError> errors = {
      {kPs, MarkDerived(errors::Cancelled("dequeue was cancelled [[{{node dq}}]]"))}};
  const Status status = SummarizeTimeout("the step did not end within 5 ms", errors);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(IsDerived(status));
  EXPECT_NE(Message(status).find("within 5 ms"), std::string_view::npos);
  EXPECT_NE(Message(status).find("/job:ps/replica:0/task:0: dequeue was cancelled [[{{node dq}}]]"),
            std::string_view::npos);
}

pb::WaitReport ReportOf(std::string_view task, const pb::Wait& wait) {
  TaskAnswer answer{std::string(task), {}, OkStatus()};
  *answer.waits.add_wait() = wait;
  return MakeWaitReport({&answer, 1});
}

TEST(SummarizeTimeout, SaysOfATaskThatToldWhatItWaitedForNothingThatFollows) {
  const std::vector<TaskError> errors = {
      {kWorker, MarkDerived(errors::Cancelled("RecvAsync is cancelled"))},
      {kPs, MarkDerived(errors::Cancelled("the call was cancelled"))}};
  pb::Wait wait;
  wait.set_kind(pb::Wait::QUEUE);
  wait.set_node("take");
  wait.set_text("queue 'q' has 0 of 1 element");
  const Status status = SummarizeTimeout("late", errors, ReportOf(kPs, wait));
  EXPECT_EQ(Message(status), StrCat("late; it was waiting for:\n  ", kPs,
                                    ": queue 'q' has 0 of 1 element ({{node take}})\n  ", kWorker,
                                    ": RecvAsync is cancelled"));
  pb::WaitReport carried;
  ASSERT_TRUE(FindWaitReport(status, &carried));
  ASSERT_EQ(carried.wait_size(), 1);
  EXPECT_EQ(carried.wait(0).node(), "take");
}

TEST(SummarizeTimeout, KeepsErrorsBesideWhatWasWaitedFor) {
  const std::vector<TaskError> errors = {{kPs, errors::DeadlineExceeded("it still runs a node")}};
  pb::Wait wait;
  wait.set_text("a barrier");
  EXPECT_EQ(Message(SummarizeTimeout("late", errors, ReportOf(kPs, wait))),
            StrCat("late; it was waiting for:\n  ", kPs, ": a barrier\n  ", kPs,
                   ": it still runs a node"));
}

class Addresses : public FixedWorkerCache {
 public:
  Addresses() {
    for (const char* task : {kPs, kWorker}) Add(task, nullptr);
  }
  std::string Address(std::string_view task) const override { return task == kPs ? "h:1" : "h:2"; }
};

TEST(TellAddresses, SaysWhereTheTasksAreThatAnErrorNames) {
  const Addresses addresses;
  const auto told = [&addresses](const Status& status) {
    return std::string(Message(TellAddresses(&addresses, status)));
  };
  const std::string text = StrCat("waits for ", kPs);
  EXPECT_EQ(told(errors::DeadlineExceeded(text)), StrCat(text, "\n  (", kPs, " is at h:1)"));
  EXPECT_EQ(told(errors::Unavailable(text, " and ", kWorker, "2")),
            StrCat(text, " and ", kWorker, "2\n  (", kPs, " is at h:1)"));
  EXPECT_EQ(told(errors::Aborted(text, " at h:1")), StrCat(text, " at h:1"));
  EXPECT_EQ(told(errors::InvalidArgument(text)), text);
  EXPECT_EQ(Message(TellAddresses(nullptr, errors::Aborted(text))), text);
}

}  // namespace
}  // namespace millrace
