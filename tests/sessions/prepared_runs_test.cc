// SPDX-License-Identifier: Apache-2.0
// Requests that come again and again, by Session::Run or by a callable, run on the caller's
// thread without lookups: the same values and the same errors as the first time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "millrace/core.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kLong(60'000);

Tensor F(float value) { return Tensor::Scalar<float>(value); }

std::vector<float> Values(const StatusOr<std::vector<Tensor>>& fetched) {
  std::vector<float> values;
  EXPECT_TRUE(fetched.ok()) << fetched.status();
  if (!fetched.ok()) return values;
  for (const Tensor& value : *fetched) values.push_back(value.scalar<float>());
  return values;
}

struct Program {
  Program() {
    const Scope root = graph.root();
    x = Placeholder(root.WithOpName("x"), kFloat, PartialShape({}));
    y = Placeholder(root.WithOpName("y"), kFloat, PartialShape({}));
    difference = ops::Sub(root.WithOpName("difference"), x, y);
    product = ops::Mul(root.WithOpName("product"), x, y);
    queue = ops::FIFOQueueV2(root.WithOpName("queue"), {kFloat});
    put = ops::QueueEnqueueV2(root.WithOpName("put"), queue, {x});
    taken = ops::QueueDequeueV2(root.WithOpName("taken"), queue, {kFloat})[0];
  }
  Session Open(const SessionOptions& options = {}) {
    auto session = Session::Create(graph, options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  Graph graph;
  Output x, y, difference, product, queue, taken;
  Operation put;
};

// Prepared runs and runs by name, which a request is the first time, have to agree.
constexpr int kTimes = 4;

TEST(PreparedRunsTest, ComputeFromTheFeedsOfThisTime) {
  Program p;
  Session session = p.Open();
  for (int i = 0; i < kTimes; ++i) {
    const float a = static_cast<float>(10 * i);
    EXPECT_THAT(Values(session.Run({{p.x, F(a)}, {p.y, F(3)}}, {p.difference, p.product})),
                ElementsAre(a - 3, a * 3));
    EXPECT_THAT(Values(session.Run({{p.y, F(a)}, {p.x, F(3)}}, {p.difference, p.product})),
                ElementsAre(3 - a, a * 3));
    EXPECT_THAT(Values(session.Run({{p.x, F(a)}, {p.y, F(3)}}, {p.product, p.difference})),
                ElementsAre(a * 3, a - 3));
  }
}

TEST(PreparedRunsTest, GiveAFetchAsOftenAsItIsAskedFor) {
  Program p;
  Session session = p.Open();
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_THAT(Values(session.Run({{p.x, F(5)}, {p.y, F(3)}},
                                   {p.product, p.difference, p.product, p.product})),
                ElementsAre(15, 2, 15, 15));
  }
}

TEST(PreparedRunsTest, UseAFedValueInPlaceOfItsNode) {
  Program p;
  Session session = p.Open();
  const Output twice = ops::AddV2(p.graph.root(), p.product, p.product);
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_THAT(Values(session.Run({{p.product, F(4)}}, {twice})), ElementsAre(8));
  }
}

TEST(PreparedRunsTest, SeeNodesThatWereAddedSince) {
  Program p;
  Session session = p.Open();
  Output sum = p.x;
  for (int i = 1; i <= kTimes; ++i) {
    sum = ops::AddV2(p.graph.root(), sum, p.x);
    for (int j = 0; j < kTimes; ++j) {
      EXPECT_THAT(Values(session.Run({{p.x, F(2)}}, {sum})), ElementsAre(2 * (i + 1)));
      EXPECT_THAT(Values(session.Run({{p.x, F(2)}, {p.y, F(1)}}, {p.difference})), ElementsAre(1));
    }
  }
}

TEST(PreparedRunsTest, RefuseWhatTheyWouldHaveRefusedTheFirstTime) {
  Program p;
  Program other;
  Session session = p.Open();
  for (int i = 0; i < kTimes; ++i) {
    Status status =
        session.Run({{p.x, Tensor::Scalar<int32_t>(1)}, {p.y, F(1)}}, {p.product}).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the feed of x:0 is int32"));
    status = session.Run({{p.x, Tensor(kFloat, {2})}, {p.y, F(1)}}, {p.product}).status();
    EXPECT_THAT(std::string(Message(status)), HasSubstr("the feed of x:0 has shape [2]"));
    status = session.Run({{p.x, F(1)}}, {p.product}).status();
    EXPECT_THAT(std::string(Message(status)), HasSubstr("y"));
    status = session.Run({{other.x, F(1)}, {p.y, F(1)}}, {p.product}).status();
    EXPECT_THAT(std::string(Message(status)), HasSubstr("belongs to another graph"));
    EXPECT_THAT(Values(session.Run({{p.x, F(3)}, {p.y, F(2)}}, {p.product})), ElementsAre(6));
  }
}

TEST(PreparedRunsTest, AnErrorLeavesTheNextRunAlone) {
  Program p;
  const Output checked = ops::CheckNumerics(p.graph.root().WithOpName("checked"), p.x, "bad");
  Session session = p.Open();
  const auto callable = session.MakeCallable({&p.x, 1}, {&checked, 1});
  ASSERT_TRUE(callable.ok()) << callable.status();
  for (int i = 0; i < kTimes; ++i) {
    std::vector<Tensor> fetches = {F(7)};
    const Tensor infinite = F(std::numeric_limits<float>::infinity());
    const Status status = callable->Run({&infinite, 1}, &fetches);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("{{node checked}}"));
    EXPECT_EQ(fetches[0].scalar<float>(), 7) << "as it was";
    EXPECT_THAT(Values(callable->Run(std::vector<Tensor>{F(2)})), ElementsAre(2));
  }
}

TEST(PreparedRunsTest, AskForAsManyFeedsAsThereAre) {
  Program p;
  Session session = p.Open();
  const std::vector<Output> feeds = {p.x, p.y};
  const auto callable = session.MakeCallable(feeds, {&p.difference, 1});
  ASSERT_TRUE(callable.ok()) << callable.status();
  const Status status = callable->Run(std::vector<Tensor>{F(1)}).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("Expected 2 feed tensors, but got 1"));
  EXPECT_THAT(Values(callable->Run(std::vector<Tensor>{F(7), F(3)})), ElementsAre(4));
}

class WaitingTest : public ::testing::TestWithParam<int> {
 protected:
  // Threads: what waits ends on another thread than the one that started it, or on none.
  SessionOptions Options() const { return {.inter_op_threads = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Threads, WaitingTest, ::testing::Values(1, 4));

TEST_P(WaitingTest, EndsByItsTimeout) {
  Program p;
  Session session = p.Open(Options());
  const auto callable = session.MakeCallable({}, {&p.taken, 1});
  ASSERT_TRUE(callable.ok()) << callable.status();
  for (int i = 0; i < 2; ++i) {
    // Until it has come as far as the queue before its deadline.
    std::string text;
    for (milliseconds limit(20); limit < kLong; limit *= 2) {
      const Status status = callable->Run({}, RunOptions{.timeout = limit}).status();
      EXPECT_TRUE(errors::IsDeadlineExceeded(status)) << status;
      text = std::string(Message(status));
      EXPECT_THAT(text, HasSubstr(StrCat("the step did not end within ", limit.count(), " ms")));
      if (text.find("a dequeue: ") != std::string::npos) break;
    }
    EXPECT_THAT(text, AllOf(HasSubstr("a dequeue: FIFOQueue 'queue' has 0 of 1 element"),
                            HasSubstr("taken")));
  }
  EXPECT_TRUE(session.Run({{p.x, F(4)}}, {}, {p.put}).ok());
  EXPECT_THAT(Values(callable->Run({})), ElementsAre(4)) << "nothing was taken meanwhile";
}

TEST_P(WaitingTest, GoesOnWhenAnotherCallLetsIt) {
  Program p;
  Session session = p.Open(Options());
  for (int i = 0; i < kTimes; ++i) {
    std::thread taker([&] {
      EXPECT_THAT(Values(session.Run({}, {p.taken})), ElementsAre(static_cast<float>(i)));
    });
    EXPECT_TRUE(session.Run({{p.x, F(static_cast<float>(i))}}, {}, {p.put}).ok());
    taker.join();
  }
}

TEST_P(WaitingTest, IsEndedByClose) {
  Program p;
  Session session = p.Open(Options());
  const auto callable = session.MakeCallable({}, {&p.taken, 1});
  ASSERT_TRUE(callable.ok()) << callable.status();
  EXPECT_TRUE(session.Run({{p.x, F(1)}}, {}, {p.put}).ok());
  Notification first_is_over;
  Status status;
  std::thread waiter([&] {
    EXPECT_THAT(Values(callable->Run({})), ElementsAre(1));
    first_is_over.Notify();
    status = callable->Run({}).status();
  });
  ASSERT_TRUE(first_is_over.WaitUntil(DeadlineAfter(kLong)));
  EXPECT_TRUE(session.Close().ok());
  waiter.join();
  // The second run was inside, or came too late.
  EXPECT_TRUE(errors::IsCancelled(status) || errors::IsFailedPrecondition(status)) << status;
  status = callable->Run({}).status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("Session is closed."));
}

TEST_P(WaitingTest, ThreadsShareOneCallable) {
  Program p;
  Session session = p.Open(Options());
  const std::vector<Output> feeds = {p.x, p.y};
  const auto callable = session.MakeCallable(feeds, {&p.difference, 1});
  ASSERT_TRUE(callable.ok()) << callable.status();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Tensor> fetches;
      for (int i = 0; i < 500; ++i) {
        const std::vector<Tensor> given = {F(static_cast<float>(1000 * t + i)), F(1)};
        const bool ok = callable->Run(given, &fetches).ok() &&
                        fetches[0].scalar<float>() == static_cast<float>(1000 * t + i - 1);
        const auto again = session.Run({{p.x, given[0]}, {p.y, given[1]}}, {p.product});
        if (!ok || !again.ok() || (*again)[0].scalar<float>() != given[0].scalar<float>()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PreparedRunsTest, TellNothingThatWasNotAskedFor) {
  Program p;
  Session session = p.Open();
  const std::vector<Feed> feeds = {{p.x, F(5)}, {p.y, F(3)}};
  RunMetadata metadata;
  ASSERT_TRUE(
      session.Run(feeds, {&p.product, 1}, {}, {.trace = true, .partition_graphs = true}, &metadata)
          .ok());
  EXPECT_FALSE(metadata.step_stats.empty());
  EXPECT_EQ(metadata.partition_graphs.size(), 1u);
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_TRUE(session.Run(feeds, {&p.product, 1}, {}, {}, &metadata).ok());
    EXPECT_EQ(metadata.step_stats, "");
    EXPECT_TRUE(metadata.partition_graphs.empty());
  }
  ASSERT_TRUE(session.Run(feeds, {&p.product, 1}, {}, {.trace = true}, &metadata).ok());
  EXPECT_FALSE(metadata.step_stats.empty()) << "of a request that is known";
}

TEST(PreparedRunsTest, WorkForRunsThatAreSpreadOverDevices) {
  Program p;
  const Output remote = ops::Mul(p.graph.root().WithOpName("remote").WithDevice("/device:CPU:1"),
                                 p.difference, p.product);
  Session session = p.Open({.num_cpu_devices = 2});
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_THAT(Values(session.Run({{p.x, F(5)}, {p.y, F(3)}}, {remote})), ElementsAre(30));
  }
}

}  // namespace
}  // namespace millrace
