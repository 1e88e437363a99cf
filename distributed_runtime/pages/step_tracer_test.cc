// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/step_tracer.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/errors.h"

namespace millrace {
namespace {

using Answer = std::optional<StatusOr<StepTracer::Steps>>;

StepTracer::Done To(Answer* answer) {
  return [answer](StatusOr<StepTracer::Steps> steps) {
    EXPECT_FALSE(answer->has_value()) << "answered twice";
    answer->emplace(std::move(steps));
  };
}

pb::TracedPart Part(const std::string& task) {
  pb::TracedPart part;
  part.set_task(task);
  return part;
}

TEST(StepTracerTest, TheNextStepsAreTheAnswerWithAllTheirParts) {
  StepTracer tracer;
  EXPECT_FALSE(tracer.active());
  EXPECT_FALSE(tracer.PartBegins("s", 1)) << "nobody asked";
  Answer answer;
  tracer.Start(2, kNoDeadline, To(&answer));
  EXPECT_TRUE(tracer.active());
  for (const int64_t step : {11, 12}) {
    EXPECT_TRUE(tracer.PartBegins("s", step));
    EXPECT_TRUE(tracer.PartBegins("s", step));
  }
  EXPECT_FALSE(tracer.PartBegins("s", 13)) << "two were asked for";
  tracer.PartEnds(11, Part("a"));
  tracer.PartEnds(12, Part("a"));
  tracer.PartEnds(11, Part("b"));
  tracer.StepEnds();
  EXPECT_FALSE(answer.has_value()) << "a part of the second step runs";
  tracer.PartEnds(12, Part("b"));
  tracer.StepEnds();
  ASSERT_TRUE(answer.has_value());
  ASSERT_TRUE(answer->ok());
  ASSERT_EQ((**answer).size(), 2u);
  EXPECT_EQ((**answer)[0].step_id(), 11);
  EXPECT_EQ((**answer)[0].part_size(), 2);
  EXPECT_FALSE(tracer.active());
}

TEST(StepTracerTest, OneTraceAtATimeAndOnlySoManySteps) {
  StepTracer tracer;
  Answer first, second, third;
  tracer.Start(1, kNoDeadline, To(&first));
  tracer.Start(1, kNoDeadline, To(&second));
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(errors::IsFailedPrecondition(second->status())) << second->status();
  tracer.Start(0, kNoDeadline, To(&third));
  EXPECT_TRUE(errors::IsInvalidArgument(third->status()));
  tracer.AddWhole("s", /*request_id=*/7, Part("a"));
  tracer.StepEnds();
  ASSERT_TRUE(first.has_value() && first->ok());
  EXPECT_EQ((**first)[0].part(0).task(), "a");
}

// What is answered at a deadline, of five steps that were asked for one that has ended and one that
// has not. False if the deadline came before that.
bool TraceUntil(StepTracer* tracer, std::chrono::milliseconds limit,
                StatusOr<StepTracer::Steps>* steps) {
  Notification answered;
  tracer->Start(5, DeadlineAfter(limit), [&](StatusOr<StepTracer::Steps> answer) {
    *steps = std::move(answer);
    answered.Notify();
  });
  const bool begun = tracer->PartBegins("s", 1) && tracer->PartBegins("s", 2);
  tracer->PartEnds(1, Part("a"));
  const bool in_time = tracer->active();
  EXPECT_TRUE(begun || !in_time);
  EXPECT_TRUE(answered.WaitUntil(DeadlineAfter(std::chrono::seconds(60))));
  return in_time;
}

TEST(StepTracerTest, AtTheDeadlineTheAnswerIsWhatThereIs) {
  std::optional<StepTracer> tracer;
  StatusOr<StepTracer::Steps> steps = errors::Internal("no answer");
  bool in_time = false;
  for (std::chrono::milliseconds limit(50); !in_time && limit < std::chrono::seconds(30);
       limit *= 2) {
    tracer.emplace();
    in_time = TraceUntil(&*tracer, limit, &steps);
  }
  ASSERT_TRUE(in_time && steps.ok());
  ASSERT_EQ(steps->size(), 1u) << "the second one has not ended";
  // A part that was late is not taken for one of the next trace.
  Answer next;
  tracer->Start(1, kNoDeadline, To(&next));
  tracer->PartEnds(2, Part("a"));
  tracer->StepEnds();
  EXPECT_FALSE(next.has_value());
  tracer->Stop();
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(errors::IsUnavailable(next->status()));
}

TEST(StepTracerTest, WhoeverIsGoneLeavesRoomForTheNext) {
  StepTracer tracer;
  CancellationManager caller;
  Answer first, second, third;
  tracer.Start(1000, kNoDeadline, To(&first), &caller);
  EXPECT_TRUE(tracer.PartBegins("s", 1));
  caller.StartCancel(errors::Cancelled("the client was killed"));
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(errors::IsCancelled(first->status())) << first->status();
  EXPECT_FALSE(tracer.active());
  tracer.Start(1, kNoDeadline, To(&second), &caller);
  ASSERT_TRUE(second.has_value()) << "he was gone before it began";
  EXPECT_TRUE(errors::IsCancelled(second->status())) << second->status();
  tracer.Start(1, kNoDeadline, To(&third));
  tracer.AddWhole("s", /*request_id=*/7, Part("a"));
  tracer.StepEnds();
  ASSERT_TRUE(third.has_value() && third->ok());
}

TEST(StepTracerTest, AnAnswerIsLastToTouchTheCaller) {
  StepTracer tracer;
  auto caller = std::make_unique<CancellationManager>();
  Answer answer, next;
  tracer.Start(
      1, kNoDeadline,
      [&](StatusOr<StepTracer::Steps> steps) {
        caller.reset();
        answer.emplace(std::move(steps));
      },
      caller.get());
  tracer.AddWhole("s", /*request_id=*/7, Part("a"));
  tracer.StepEnds();
  ASSERT_TRUE(answer.has_value() && answer->ok());
  tracer.Start(1, kNoDeadline, To(&next));
  tracer.Stop();
  ASSERT_TRUE(next.has_value());
}

TEST(StepTracerTest, OnceStoppedNothingBegins) {
  StepTracer tracer;
  tracer.Stop();
  Answer answer;
  tracer.Start(1, kNoDeadline, To(&answer));
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(errors::IsUnavailable(answer->status())) << answer->status();
}

TEST(StepTracerTest, StepsOfManyThreadsWhileTracesComeAndGo) {
  StepTracer tracer;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t step = t + 1; !over.load(); step += 3) {
        if (tracer.active() && tracer.PartBegins("s", step)) tracer.PartEnds(step, Part("a"));
        tracer.StepEnds();
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    Notification answered;
    tracer.Start(3, DeadlineAfter(std::chrono::seconds(30)),
                 [&](const StatusOr<StepTracer::Steps>& steps) {
                   EXPECT_TRUE(steps.ok() && steps->size() == 3);
                   answered.Notify();
                 });
    answered.Wait();
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
