// SPDX-License-Identifier: Apache-2.0
#include "kernels/data_flow/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace {
namespace {

Queue::Options IntQueue(int64_t capacity) {
  Queue::Options options;
  options.name = "q";
  options.kind = "FIFOQueue";
  options.types = {kInt32};
  options.shapes = {PartialShape({})};
  options.capacity = capacity;
  return options;
}

Queue::Element Int(int32_t value) { return {Tensor::Scalar<int32_t>(value)}; }

std::vector<Queue::Element> Ints(std::initializer_list<int32_t> values) {
  std::vector<Queue::Element> out;
  for (const int32_t value : values) out.push_back(Int(value));
  return out;
}

// The outcome of an attempt, which may come later and from any thread.
struct Outcome {
  Notification done;
  Status status;
  std::vector<int32_t> values;
};

void Enqueue(const RefPtr<Queue>& queue, std::vector<Queue::Element> elements, Outcome* outcome,
             CancellationManager* cancellation = nullptr) {
  queue->Enqueue(std::move(elements), cancellation, [outcome](Status status) {
    outcome->status = std::move(status);
    outcome->done.Notify();
  });
}

void Dequeue(const RefPtr<Queue>& queue, int64_t count, bool up_to, Outcome* outcome,
             CancellationManager* cancellation = nullptr) {
  queue->Dequeue(count, up_to, cancellation,
                 [outcome](Status status, std::vector<Queue::Element> elements) {
                   outcome->status = std::move(status);
                   for (const auto& e : elements) outcome->values.push_back(e[0].scalar<int32_t>());
                   outcome->done.Notify();
                 });
}

using Values = std::vector<int32_t>;

TEST(Queue, GivesElementsInTheOrderInWhichTheyCame) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  Outcome in, first, rest;
  Enqueue(queue, Ints({3, 1, 2}), &in);
  EXPECT_TRUE(in.status.ok());
  EXPECT_EQ(queue->size(), 3);
  Dequeue(queue, 1, false, &first);
  Dequeue(queue, 2, false, &rest);
  EXPECT_EQ(first.values, Values({3}));
  EXPECT_EQ(rest.values, Values({1, 2}));
}

TEST(Queue, DequeueWaitsForElementsWithoutBlocking) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  Outcome in, early, late;
  Dequeue(queue, 2, false, &early);
  Dequeue(queue, 1, false, &late);
  EXPECT_FALSE(early.done.HasBeenNotified());
  Enqueue(queue, Ints({1, 2}), &in);
  EXPECT_EQ(early.values, Values({1, 2}));
  EXPECT_FALSE(late.done.HasBeenNotified());
  Enqueue(queue, Ints({3}), &in);
  EXPECT_EQ(late.values, Values({3}));
}

TEST(Queue, EnqueueWaitsForRoomAndKeepsItsPlaceInLine) {
  auto queue = MakeRef<Queue>(IntQueue(2));
  Outcome many, one, out;
  Enqueue(queue, Ints({1, 2, 3}), &many);
  Enqueue(queue, Ints({4}), &one);
  EXPECT_EQ(queue->size(), 2);
  EXPECT_FALSE(many.done.HasBeenNotified());
  Dequeue(queue, 1, false, &out);
  EXPECT_TRUE(many.done.HasBeenNotified());
  EXPECT_FALSE(one.done.HasBeenNotified());
  Outcome rest;
  Dequeue(queue, 3, false, &rest);
  EXPECT_TRUE(one.done.HasBeenNotified());
  EXPECT_EQ(rest.values, Values({2, 3, 4}));
}

TEST(Queue, DequeueOfMoreThanTheCapacityIsServedPieceByPiece) {
  auto queue = MakeRef<Queue>(IntQueue(2));
  Outcome in, out;
  Dequeue(queue, 5, false, &out);
  Enqueue(queue, Ints({1, 2, 3, 4, 5}), &in);
  EXPECT_TRUE(in.done.HasBeenNotified());
  EXPECT_EQ(out.values, Values({1, 2, 3, 4, 5}));
}

TEST(Queue, ClosingRefusesNewElementsAndLetsTheOldOnesOut) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  Outcome in, refused, out, empty;
  Enqueue(queue, Ints({7}), &in);
  queue->Close(false);
  EXPECT_TRUE(queue->closed());
  Enqueue(queue, Ints({8}), &refused);
  EXPECT_EQ(refused.status.code(), StatusCode::kCancelled);
  EXPECT_NE(refused.status.ToString().find("is closed"), std::string::npos);
  Dequeue(queue, 1, false, &out);
  EXPECT_EQ(out.values, Values({7}));
  Dequeue(queue, 1, false, &empty);
  EXPECT_EQ(empty.status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(empty.status.ToString().find("is closed and has insufficient elements"),
            std::string::npos);
}

TEST(Queue, ClosingServesEnqueuesThatWaitUnlessTheyAreCancelled) {
  auto kept = MakeRef<Queue>(IntQueue(1)), dropped = MakeRef<Queue>(IntQueue(1));
  Outcome kept_in, dropped_in, kept_out, dropped_out;
  Enqueue(kept, Ints({1, 2}), &kept_in);
  Enqueue(dropped, Ints({1, 2}), &dropped_in);
  kept->Close(false);
  dropped->Close(true);
  EXPECT_FALSE(kept_in.done.HasBeenNotified());
  EXPECT_EQ(dropped_in.status.code(), StatusCode::kCancelled);
  Dequeue(kept, 2, false, &kept_out);
  EXPECT_EQ(kept_out.values, Values({1, 2}));
  Dequeue(dropped, 2, false, &dropped_out);
  EXPECT_EQ(dropped_out.status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(dropped->size(), 1);  // what it had is still there
}

TEST(Queue, ClosingFailsDequeuesThatCannotBeServedAnyMore) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  Outcome in, many, up_to;
  Dequeue(queue, 3, false, &many);
  Enqueue(queue, Ints({1, 2}), &in);
  Dequeue(queue, 5, true, &up_to);
  queue->Close(false);
  EXPECT_EQ(many.status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(up_to.values, Values({1, 2}));  // what the failed one gave back
}

TEST(Queue, UpToOnAClosedAndEmptyQueueIsOutOfRange) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  queue->Close(false);
  Outcome out;
  Dequeue(queue, 2, true, &out);
  EXPECT_EQ(out.status.code(), StatusCode::kOutOfRange);
}

TEST(Queue, CancellationEndsAWaitAndGivesElementsBack) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  CancellationManager cancellation;
  Outcome in, cancelled, next, late;
  Enqueue(queue, Ints({1, 2}), &in);
  Dequeue(queue, 3, false, &cancelled, &cancellation);
  Dequeue(queue, 2, false, &next);
  EXPECT_FALSE(next.done.HasBeenNotified());
  cancellation.StartCancel(errors::Cancelled("the step is over"));
  EXPECT_EQ(cancelled.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(next.values, Values({1, 2}));
  Dequeue(queue, 1, false, &late, &cancellation);
  EXPECT_EQ(late.status.code(), StatusCode::kCancelled);
}

TEST(Queue, RemovalCancelsEverythingThatWaits) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  Outcome out;
  Dequeue(queue, 1, false, &out);
  queue->OnRemoved();
  EXPECT_EQ(out.status.code(), StatusCode::kCancelled);
}

TEST(Queue, ChecksTypesAndShapes) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  EXPECT_TRUE(queue->CheckElement(Int(1)).ok());
  EXPECT_EQ(queue->CheckElement({Tensor::Scalar<float>(1)}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(queue->CheckElement({Tensor::FromValues<int32_t>({1})}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(queue->CheckElement({}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(queue->CheckBatch({Tensor::FromValues<int32_t>({1, 2})}).ok());
  EXPECT_EQ(queue->CheckBatch(Int(1)).code(), StatusCode::kInvalidArgument);
}

TEST(PriorityQueue, GivesTheSmallestFirstAndEqualOnesInOrder) {
  Queue::Options options = IntQueue(-1);
  options.order = Queue::Order::kPriority;
  options.types = {kInt64, kInt32};
  options.shapes = {PartialShape({}), PartialShape({})};
  auto queue = MakeRef<Queue>(options);
  std::vector<Queue::Element> elements;
  for (const auto& [priority, value] : {std::pair(2, 20), {1, 10}, {2, 21}, {0, 0}}) {
    elements.push_back({Tensor::Scalar<int64_t>(priority), Tensor::Scalar<int32_t>(value)});
  }
  Outcome in;
  Enqueue(queue, std::move(elements), &in);
  Values values;
  queue->Dequeue(4, false, nullptr, [&](Status, std::vector<Queue::Element> out) {
    for (const auto& e : out) values.push_back(e[1].scalar<int32_t>());
  });
  EXPECT_EQ(values, Values({0, 10, 20, 21}));
}

// Taken in parts, as they come, they were sorted within each part.
TEST(PriorityQueue, ABatchWaitsUntilAllOfItIsThereAndIsSorted) {
  Queue::Options options = IntQueue(3);
  options.order = Queue::Order::kPriority;
  options.types = {kInt64, kInt32};
  options.shapes = {PartialShape({}), PartialShape({})};
  auto queue = MakeRef<Queue>(options);
  const auto element = [](int32_t priority) {
    return Queue::Element{Tensor::Scalar<int64_t>(priority), Tensor::Scalar<int32_t>(priority)};
  };
  const auto take = [&](int64_t count, bool up_to, Values* values) {
    queue->Dequeue(count, up_to, nullptr, [values](Status, std::vector<Queue::Element> out) {
      for (const auto& e : out) values->push_back(e[1].scalar<int32_t>());
    });
  };
  Values three, rest, more_than_fit;
  take(3, false, &three);
  Outcome in[4];
  Enqueue(queue, {element(5)}, &in[0]);
  Enqueue(queue, {element(9)}, &in[1]);
  EXPECT_EQ(queue->size(), 2);
  EXPECT_TRUE(three.empty());
  Enqueue(queue, {element(1)}, &in[2]);
  EXPECT_EQ(three, Values({1, 5, 9}));
  // More than can ever be there at once still comes.
  take(4, false, &more_than_fit);
  Enqueue(queue, {element(4), element(3), element(2), element(1), element(7)}, &in[3]);
  EXPECT_EQ(more_than_fit.size(), 4u);
  // What a closed queue has left.
  take(2, true, &rest);
  EXPECT_TRUE(rest.empty());
  queue->Close(false);
  EXPECT_EQ(rest.size(), 1u);
}

TEST(RandomShuffleQueue, FollowsTensorFlowsSeededOrderAndKeepsAMinimum) {
  Queue::Options options = IntQueue(10);
  options.order = Queue::Order::kRandom;
  options.min_after_dequeue = 2;
  options.seed = 5;
  options.seed2 = 3;
  auto queue = MakeRef<Queue>(options);
  Outcome in, four, fifth, last;
  Enqueue(queue, Ints({0, 1, 2, 3, 4, 5}), &in);
  Dequeue(queue, 4, false, &four);
  EXPECT_EQ(four.values, Values({2, 1, 5, 3}));
  Dequeue(queue, 1, false, &fifth);
  EXPECT_FALSE(fifth.done.HasBeenNotified());
  queue->Close(false);
  EXPECT_EQ(fifth.values, Values({0}));
  Dequeue(queue, 1, false, &last);
  EXPECT_EQ(last.values, Values({4}));
}

TEST(Queue, ManyThreadsLoseAndInventNothing) {
  constexpr int kThreads = 4, kEach = 200;
  auto queue = MakeRef<Queue>(IntQueue(3));
  std::vector<std::thread> threads;
  std::vector<Outcome> ins(kThreads * kEach), outs(kThreads * kEach);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) Enqueue(queue, Ints({i}), &ins[i]);
    });
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) Dequeue(queue, 1, false, &outs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int32_t> seen;
  for (Outcome& out : outs) {
    ASSERT_TRUE(out.done.WaitUntil(DeadlineAfter(std::chrono::seconds(30))));
    ASSERT_TRUE(out.status.ok()) << out.status;
    seen.insert(out.values.at(0));
  }
  EXPECT_EQ(seen.size(), std::size_t{kThreads * kEach});
  EXPECT_EQ(queue->size(), 0);
}

// The only one; its text.
std::string OnlyWait(const CancellationManager& cancellation) {
  const std::vector<std::string> waits = cancellation.DescribeWaits();
  EXPECT_EQ(waits.size(), 1u);
  if (waits.size() != 1) return "";
  const Wait wait = DecodeWait(waits[0]);
  EXPECT_EQ(wait.kind, Wait::Kind::kQueue);
  EXPECT_EQ(wait.name, "q");
  EXPECT_GT(wait.since_nanos, 0);
  return wait.text;
}

TEST(Queue, SaysWhatAnAttemptInLineLacks) {
  auto queue = MakeRef<Queue>(IntQueue(1));
  CancellationManager cancellation;
  Outcome out, in, full;
  Dequeue(queue, 2, false, &out, &cancellation);
  EXPECT_EQ(OnlyWait(cancellation),
            "a dequeue: FIFOQueue 'q' has 0 of 2 elements, no enqueue yet, no dequeue yet");
  Enqueue(queue, Ints({1, 2}), &in, &cancellation);
  ASSERT_TRUE(out.done.HasBeenNotified());
  EXPECT_TRUE(cancellation.DescribeWaits().empty());
  Enqueue(queue, Ints({1, 2}), &full, &cancellation);
  EXPECT_EQ(OnlyWait(cancellation).find("an enqueue: FIFOQueue 'q' is full (1 of 1 elements), "),
            0u);
  cancellation.StartCancel(errors::Cancelled("over"));
}

TEST(Queue, SaysWhoseNodesCameLast) {
  auto queue = MakeRef<Queue>(IntQueue(-1));
  CancellationManager cancellation;
  Waiter put(&cancellation), take(&cancellation);
  put.node = "put";
  put.task = "/job:worker/replica:0/task:1";
  take.node = "take";
  Outcome waited, in, out;
  const auto dequeue = [&](Outcome* outcome) {
    queue->Dequeue(1, false, take, [outcome](const Status&, const std::vector<Queue::Element>&) {
      outcome->done.Notify();
    });
  };
  dequeue(&waited);
  queue->Enqueue(Ints({1}), put, [&](const Status&) { in.done.Notify(); });
  ASSERT_TRUE(waited.done.HasBeenNotified());
  dequeue(&out);
  const std::string text = OnlyWait(cancellation);
  EXPECT_NE(text.find("the last enqueue, of {{node put}} for /job:worker/replica:0/task:1, was 0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("the last dequeue, of {{node take}}, was 0"), std::string::npos) << text;
  EXPECT_EQ(DecodeWait(cancellation.DescribeWaits()[0]).node, "take");
  cancellation.StartCancel(errors::Cancelled("over"));
}

TEST(Queue, CancellationAndServiceMayRace) {
  for (int round = 0; round < 50; ++round) {
    auto queue = MakeRef<Queue>(IntQueue(-1));
    Outcome in, out;
    {
      CancellationManager cancellation;
      Dequeue(queue, 1, false, &out, &cancellation);
      std::thread canceller([&] { cancellation.StartCancel(errors::Cancelled("over")); });
      Enqueue(queue, Ints({1}), &in);
      canceller.join();
    }
    ASSERT_TRUE(out.done.WaitUntil(DeadlineAfter(std::chrono::seconds(30))));
    EXPECT_EQ(out.status.ok() ? 0 : 1, queue->size());
  }
}

}  // namespace
}  // namespace millrace
