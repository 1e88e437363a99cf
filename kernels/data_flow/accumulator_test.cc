// SPDX-License-Identifier: Apache-2.0
#include "kernels/data_flow/accumulator.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"

namespace millrace {
namespace {

using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

Accumulator::Options Options(PartialShape shape, bool mean = true) {
  Accumulator::Options options;
  options.name = "a";
  options.shape = std::move(shape);
  options.mean = mean;
  return options;
}

Tensor Vector(const Floats& values) {
  return Tensor::FromValues<float>(std::span<const float>(values),
                                   Shape({static_cast<int64_t>(values.size())}));
}

Status Apply(const RefPtr<Accumulator>& a, int64_t step, const Tensor& gradient) {
  const Tensor* inputs[] = {&gradient};
  return a->Apply(step, inputs);
}

struct Outcome {
  Notification done;
  Status status;
  std::vector<Tensor> outputs;

  Floats average() const {
    const auto flat = outputs.at(0).flat<float>();
    return Floats(flat.begin(), flat.end());
  }
};

void Take(const RefPtr<Accumulator>& a, int64_t required, Outcome* outcome,
          CancellationManager* cancellation = nullptr) {
  a->Take(required, cancellation, [outcome](Status status, std::vector<Tensor> outputs) {
    outcome->status = std::move(status);
    outcome->outputs = std::move(outputs);
    outcome->done.Notify();
  });
}

TEST(DenseAccumulator, DividesByTheNumberOfGradientsThatCame) {
  auto a = NewDenseAccumulator(Options({2}), HostAllocator());
  for (const Floats& g : {Floats{1, 2}, Floats{3, 5}, Floats{5, 8}}) {
    ASSERT_TRUE(Apply(a, 0, Vector(g)).ok());
  }
  EXPECT_EQ(a->num_accumulated(), 3);
  Outcome out;
  Take(a, 2, &out);
  EXPECT_EQ(out.average(), Floats({3, 5}));
  EXPECT_EQ(a->num_accumulated(), 0);
}

TEST(DenseAccumulator, MaySumInstead) {
  auto a = NewDenseAccumulator(Options({1}, false), HostAllocator());
  ASSERT_TRUE(Apply(a, 0, Vector({1})).ok());
  ASSERT_TRUE(Apply(a, 0, Vector({2})).ok());
  Outcome out;
  Take(a, 1, &out);
  EXPECT_EQ(out.average(), Floats({3}));
}

TEST(DenseAccumulator, DropsStaleGradientsWithoutAnError) {
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  ASSERT_TRUE(Apply(a, 0, Vector({1})).ok());
  Outcome out;
  Take(a, 1, &out);  // moves the global step to 1
  EXPECT_TRUE(Apply(a, 0, Vector({9})).ok());
  EXPECT_TRUE(Apply(a, 0, Vector({1, 2, 3})).ok());  // dropped before it is looked at
  EXPECT_EQ(a->num_accumulated(), 0);
  EXPECT_TRUE(Apply(a, 1, Vector({9})).ok());
  EXPECT_EQ(a->num_accumulated(), 1);
  a->SetGlobalStep(7);
  EXPECT_TRUE(Apply(a, 6, Vector({9})).ok());
  EXPECT_EQ(a->num_accumulated(), 1);
}

TEST(DenseAccumulator, ServesTakesInOrderWhenEnoughGradientsCame) {
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  Outcome first, second;
  Take(a, 2, &first);
  Take(a, 1, &second);
  ASSERT_TRUE(Apply(a, 0, Vector({2})).ok());
  EXPECT_FALSE(first.done.HasBeenNotified());
  EXPECT_FALSE(second.done.HasBeenNotified());
  ASSERT_TRUE(Apply(a, 0, Vector({4})).ok());
  EXPECT_EQ(first.average(), Floats({3}));
  EXPECT_FALSE(second.done.HasBeenNotified());
  ASSERT_TRUE(Apply(a, 1, Vector({8})).ok());
  EXPECT_EQ(second.average(), Floats({8}));
}

TEST(DenseAccumulator, CountsOneGradientOfEachStepOfAWorkerThatIsNamed) {
  auto a = NewDenseAccumulator(Options({1}, /*mean=*/false), HostAllocator());
  const auto push = [&a](int64_t step, float value, std::string_view worker) {
    const Tensor gradient = Vector({value});
    const Tensor* const inputs[] = {&gradient};
    EXPECT_TRUE(a->Apply(step, inputs, {}, worker).ok());
    return a->num_accumulated();
  };
  EXPECT_EQ(push(0, 1, "a"), 1);
  EXPECT_EQ(push(0, 10, "a"), 1) << "a process before had brought one";
  EXPECT_EQ(push(0, 2, "b"), 2);
  EXPECT_EQ(push(1, 4, "a"), 3) << "of another step";
  EXPECT_EQ(push(0, 8, ""), 4);
  EXPECT_EQ(push(0, 16, ""), 5) << "as TensorFlow's programs do";
  Outcome sum;
  Take(a, 5, &sum);
  ASSERT_TRUE(sum.status.ok()) << sum.status;
  EXPECT_EQ(sum.average(), Floats({31}));
  // Nothing is held any more.
  a->SetGlobalStep(0);
  EXPECT_EQ(push(0, 1, "a"), 1);
  a->AllowAgain("b");
  EXPECT_EQ(push(0, 1, "a"), 1);
  a->AllowAgain("a");
  EXPECT_EQ(push(0, 1, "a"), 2);
  EXPECT_EQ(push(0, 1, "a"), 2);
}

// Two processes that are placed on one task: a worker that was started again is told from them,
// since nothing comes of the one before it any more.
TEST(DenseAccumulator, RefusesTwoSessionsInTheNameOfOneWorker) {
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  const auto push = [&a](int64_t step, int64_t session, std::string_view name) {
    const Tensor gradient = Vector({1});
    const Tensor* const inputs[] = {&gradient};
    const StepOrigin origin{.task = "/job:m", .session_number = session, .session_name = name};
    return a->Apply(step, inputs, origin, "/job:worker/task:0");
  };
  CancellationManager cancellation;
  a->Take(2, &cancellation, [](const Status&, const std::vector<Tensor>&) {});
  const auto waits = [&cancellation] { return DecodeWait(cancellation.DescribeWaits()[0]).text; };
  ASSERT_TRUE(push(0, 7, "first").ok());
  ASSERT_TRUE(push(0, 7, "first").ok());
  EXPECT_EQ(waits().find("session"), std::string::npos) << waits();
  ASSERT_TRUE(push(0, 9, "second").ok()) << "as of one that was started again";
  EXPECT_EQ(a->num_accumulated(), 1);
  EXPECT_NE(waits().find("the worker /job:worker/task:0 has brought this step in session first of "
                         "/job:m and again in session second of /job:m"),
            std::string::npos)
      << waits();
  const Status refused = push(0, 7, "first");
  EXPECT_TRUE(errors::IsFailedPrecondition(refused)) << refused;
  for (const char* phrase : {"'a'", "/job:worker/task:0", "session first of /job:m, which this is",
                             "the later session second of /job:m"}) {
    EXPECT_NE(std::string(Message(refused)).find(phrase), std::string::npos) << refused;
  }
  ASSERT_TRUE(push(1, 9, "second").ok());  // the second of two: the step is made
  EXPECT_EQ(a->num_accumulated(), 0);
  EXPECT_TRUE(errors::IsFailedPrecondition(push(0, 7, "first"))) << "stale as well";
  EXPECT_TRUE(push(1, 9, "second").ok());
  cancellation.StartCancel(errors::Cancelled("over"));
}

// Clients may name any step: the last one does not begin again with the first.
TEST(DenseAccumulator, HasNoStepBehindTheLast) {
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  a->SetGlobalStep(kLast);
  for (int i = 0; i < 2; ++i) {
    for (const int64_t stale : {kFirst, int64_t{-1}, int64_t{0}, kLast - 1}) {
      ASSERT_TRUE(Apply(a, stale, Vector({9})).ok());
      EXPECT_EQ(a->num_accumulated(), 0) << stale;
    }
    ASSERT_TRUE(Apply(a, kLast, Vector({2})).ok());
    Outcome out;
    Take(a, 1, &out);
    EXPECT_EQ(out.average(), Floats({2}));
  }
}

TEST(DenseAccumulator, LeavesTheGradientOfOthersAlone) {
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  const Tensor mine = Vector({1});
  const Tensor shared = mine;
  ASSERT_TRUE(Apply(a, 0, mine).ok());
  ASSERT_TRUE(Apply(a, 0, Vector({5})).ok());
  EXPECT_EQ(shared.data<float>()[0], 1);
}

TEST(DenseAccumulator, RefusesBadArguments) {
  auto a = NewDenseAccumulator(Options({2}), HostAllocator());
  EXPECT_EQ(Apply(a, 0, Vector({1})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Apply(a, 0, Tensor::FromValues<double>({1, 2})).code(), StatusCode::kInvalidArgument);
  Outcome out;
  Take(a, 0, &out);
  EXPECT_EQ(out.status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(out.status.ToString().find("Argument num_required must be positive"),
            std::string::npos);
}

TEST(DenseAccumulator, CancellationAndRemovalEndATake) {
  auto a = NewDenseAccumulator(Options({1}), HostAllocator());
  CancellationManager cancellation;
  Outcome cancelled, removed;
  Take(a, 1, &cancelled, &cancellation);
  Take(a, 1, &removed);
  cancellation.StartCancel(errors::Cancelled("the step is over"));
  EXPECT_EQ(cancelled.status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(removed.done.HasBeenNotified());
  a->OnRemoved();
  EXPECT_EQ(removed.status.code(), StatusCode::kCancelled);
}

TEST(DenseAccumulator, AddsEveryGradientOfManyThreads) {
  constexpr int kThreads = 4, kEach = 100;
  auto a = NewDenseAccumulator(Options({1}, false), HostAllocator());
  Outcome out;
  Take(a, kThreads * kEach, &out);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(Apply(a, 0, Vector({1})).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(out.done.WaitUntil(DeadlineAfter(std::chrono::seconds(30))));
  EXPECT_EQ(out.average(), Floats({kThreads * kEach}));
}

Status ApplySparse(const RefPtr<Accumulator>& a, int64_t step, const Longs& indices,
                   const Floats& values, int64_t columns) {
  const Tensor index = Tensor::FromValues<int64_t>(std::span<const int64_t>(indices),
                                                   Shape({static_cast<int64_t>(indices.size())}));
  const Tensor rows =
      Tensor::FromValues<float>(std::span<const float>(values),
                                Shape({static_cast<int64_t>(values.size()) / columns, columns}));
  const Tensor unknown(kInt64, Shape({0}));
  const Tensor* inputs[] = {&index, &rows, &unknown};
  return a->Apply(step, inputs);
}

TEST(DenseAccumulator, SaysHowManyGradientsATakeLacks) {
  auto a = NewSparseAccumulator(Options({-1, 2}), HostAllocator());
  a->SetGlobalStep(812);
  ASSERT_TRUE(ApplySparse(a, 812, {0}, {1, 2}, 2).ok());
  CancellationManager cancellation;
  a->Take(2, &cancellation, [](const Status&, const std::vector<Tensor>&) {});
  const std::vector<std::string> waits = cancellation.DescribeWaits();
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_NE(waits[0].find("has 1 of 2 gradients for step 812"), std::string::npos) << waits[0];
  cancellation.StartCancel(errors::Cancelled("over"));
}

TEST(DenseAccumulator, NamesWhoIsBehind) {
  auto a = NewDenseAccumulator(Options({}), HostAllocator());
  const Tensor one = Tensor::Scalar(1.0f);
  const Tensor* const gradient[] = {&one};
  ASSERT_TRUE(a->Apply(0, gradient, {"worker 1"}).ok());
  ASSERT_TRUE(a->Apply(0, gradient, {"worker 0"}).ok());
  a->Take(2, nullptr, [](const Status&, const std::vector<Tensor>&) {});
  ASSERT_TRUE(a->Apply(1, gradient, {"worker 0"}).ok());
  ASSERT_TRUE(a->Apply(0, gradient, {"worker 2"}).ok());  // stale, and so behind
  CancellationManager cancellation;
  a->Take(2, &cancellation, [](const Status&, const std::vector<Tensor>&) {});
  const std::vector<std::string> waits = cancellation.DescribeWaits();
  ASSERT_EQ(waits.size(), 1u);
  const Wait wait = DecodeWait(waits[0]);
  EXPECT_EQ(wait.kind, Wait::Kind::kAccumulator);
  EXPECT_EQ(wait.peer, "worker 1");  // of which nothing has come for longest
  for (const char* phrase : {"has 1 of 2 gradients for step 1; worker 1 last pushed step 0, 0",
                             "; worker 2 last pushed step 0, 0", "; worker 0 has pushed step 1"}) {
    EXPECT_NE(wait.text.find(phrase), std::string::npos) << wait.text;
  }
  cancellation.StartCancel(errors::Cancelled("over"));
}

TEST(SparseAccumulator, AveragesEachRowOverTheGradientsThatHadIt) {
  auto a = NewSparseAccumulator(Options({-1, 2}), HostAllocator());
  ASSERT_TRUE(ApplySparse(a, 0, {0, 3}, {1, 2, 3, 4}, 2).ok());
  ASSERT_TRUE(ApplySparse(a, 0, {3, 5}, {5, 6, 7, 8}, 2).ok());
  Outcome out;
  Take(a, 2, &out);
  ASSERT_TRUE(out.status.ok()) << out.status;
  const auto indices = out.outputs[0].flat<int64_t>();
  const auto values = out.outputs[1].flat<float>();
  const auto shape = out.outputs[2].flat<int64_t>();
  EXPECT_EQ(Longs(indices.begin(), indices.end()), Longs({0, 3, 5}));
  EXPECT_EQ(Floats(values.begin(), values.end()), Floats({1, 2, 4, 5, 7, 8}));
  EXPECT_EQ(Longs(shape.begin(), shape.end()), Longs({-1, 2}));
}

TEST(SparseAccumulator, RefusesValuesThatDoNotFitUnlessTheyAreStale) {
  auto a = NewSparseAccumulator(Options({-1, 2}), HostAllocator());
  EXPECT_EQ(ApplySparse(a, 0, {0, 1, 2}, {1, 2}, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ApplySparse(a, 0, {0}, {1, 2, 3}, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(a->num_accumulated(), 0);
  a->SetGlobalStep(6);
  EXPECT_TRUE(ApplySparse(a, 5, {0, 1, 2}, {1, 2}, 2).ok());
}

}  // namespace
}  // namespace millrace
