// SPDX-License-Identifier: Apache-2.0
// Several steps that are one call of the graph: as many calls as they should be, and the numbers of
// single steps.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/pages.h"
#include "millrace/server.h"
#include "tests/fit/small_models.h"

namespace millrace {
namespace {

using testing::Classifier;
using testing::ExpectError;
using testing::Labels;
using testing::Numbers;
using testing::Quietly;

Dataset Rows(int64_t rows, int64_t batch) {
  return Dataset::FromTensorSlices({Numbers(rows, 4), Labels(rows, 3)}).Batch(batch);
}

// Of unknown size.
Dataset SomeRows(int64_t rows, int64_t batch) {
  return Dataset::FromTensorSlices({Numbers(rows, 4), Labels(rows, 3)})
      .Filter([](const Scope& s, std::span<const Output> x) {
        return ops::GreaterEqual(s, x[1], int64_t{0});
      })
      .Batch(batch);
}

CompileOptions With(int64_t steps, const char* optimizer = "adam") {
  return {.optimizer = optimizer,
          .loss = "sparse_categorical_crossentropy",
          .metrics = {"accuracy"},
          .steps_per_execution = steps};
}

std::vector<float> WeightsOf(Model& model) {
  std::vector<float> all;
  const auto weights = model.GetWeights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  if (!weights.ok()) return all;
  for (const Tensor& w : *weights)
    all.insert(all.end(), w.flat<float>().begin(), w.flat<float>().end());
  return all;
}

// A layer of every kind that changes something of its own in a step, or loops in it.
std::unique_ptr<Model> Everything(int64_t steps) {
  auto model = std::make_unique<Model>(
      layers::Sequential({layers::Reshape({4, 1}), layers::Lstm(5), layers::BatchNormalization(),
                          layers::Dropout(0.3), layers::Dense(3, {.activation = "softmax"})}),
      ModelOptions{.seed = 3});
  EXPECT_TRUE(model->Compile(With(steps)).ok());
  return model;
}

TEST(ExecutionsTest, TheNumbersAreThoseOfSingleStepsForEveryKindOfState) {
  std::vector<float> weights[3];
  std::vector<double> losses[3];
  for (int i = 0; i < 3; ++i) {
    const auto model = Everything(1 + 2 * i);
    const auto history =
        model->Fit(Numbers(50, 4), Labels(50, 3), Quietly({.batch_size = 8, .epochs = 2}));
    ASSERT_TRUE(history.ok()) << history.status();
    losses[i] = history->values("loss");
    weights[i] = WeightsOf(*model);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

TEST(ExecutionsTest, DataSetsAreReadInTheGraphWhateverTheirSizeSays) {
  const auto single = Classifier(3);
  const auto a = single->Fit(Rows(50, 8), Quietly({.epochs = 3}));
  ASSERT_TRUE(a.ok()) << a.status();
  for (const bool known : {true, false}) {
    const auto many = Classifier(3);
    ASSERT_TRUE(many->Compile(With(3)).ok());
    std::vector<int64_t> ends;
    LambdaCallback record({.on_train_batch_end = [&](int64_t batch, const Logs& logs) {
      ends.push_back(logs.Find("loss") ? batch : -1);
      return OkStatus();
    }});
    const auto b = many->Fit(known ? Rows(50, 8) : SomeRows(50, 8),
                             Quietly({.epochs = 3, .callbacks = {&record}}));
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(a->values("loss"), b->values("loss"));
    EXPECT_EQ(a->values("accuracy"), b->values("accuracy"));
    EXPECT_EQ(WeightsOf(*single), WeightsOf(*many));
    EXPECT_EQ(ends, (std::vector<int64_t>{2, 5, 6, 2, 5, 6, 2, 5, 6}));
    const auto one = single->Evaluate(Rows(50, 8), {.verbose = Verbose::kSilent});
    const auto more = many->Evaluate(Rows(50, 8), {.verbose = Verbose::kSilent});
    ASSERT_TRUE(one.ok() && more.ok()) << more.status();
    EXPECT_EQ((*one)["loss"], (*more)["loss"]);
  }
}

TEST(ExecutionsTest, LogsAreThoseOfTheLastStepAlsoWhereTheDataEnd) {
  const auto losses = [](int64_t steps) {
    const auto model = Classifier(3);
    EXPECT_TRUE(model->Compile(With(steps)).ok());
    std::map<int64_t, double> at;
    LambdaCallback record({.on_train_batch_end = [&](int64_t batch, const Logs& logs) {
      at[batch] = logs.Find("loss").value_or(-1);
      return OkStatus();
    }});
    EXPECT_TRUE(model->Fit(SomeRows(50, 8), Quietly({.callbacks = {&record}})).ok());
    return at;
  };
  const std::map<int64_t, double> single = losses(1);
  ASSERT_EQ(single.size(), 7u);
  // The first execution is all there is; the second is cut short.
  for (const int64_t steps : {4, 10}) {
    const std::map<int64_t, double> many = losses(steps);
    ASSERT_TRUE(many.contains(6)) << steps;
    EXPECT_EQ(many.at(6), single.at(6)) << steps;
  }
}

TEST(ExecutionsTest, AnOpThatRunsOutOfRangeIsNoEndOfSamplesInMemory) {
  for (const int64_t steps : {1, 3}) {
    Model model(layers::Sequential(
        {layers::Lambda(
             [](Pass& pass, std::span<const Output> x) -> Output {
               const Output queue = ops::FIFOQueueV2(pass.scope(), {kFloat});
               const Operation close = ops::QueueCloseV2(pass.scope(), queue);
               const Output taken = ops::QueueDequeueV2(
                   pass.scope().WithControlDependencies({close}), queue, {kFloat})[0];
               return Expr(pass.scope(), x[0]) +
                      ops::EnsureShape(pass.scope(), taken, PartialShape({}));
             },
             "empties"),
         layers::Dense(3)}));
    ASSERT_TRUE(model.Compile(With(steps)).ok());
    const Status status =
        model.Fit(Numbers(6, 4), Labels(6, 3), Quietly({.batch_size = 2})).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange) << status;
  }
}

TEST(ExecutionsTest, EpochsOfSoManyStepsGoOnWhereTheLastEnded) {
  const auto single = Classifier(3), many = Classifier(3);
  ASSERT_TRUE(many->Compile(With(4)).ok());
  const auto fit = [](Model& model) {
    return model.Fit(Rows(50, 8).Repeat(), Quietly({.epochs = 3, .steps_per_epoch = 6}));
  };
  const auto a = fit(*single), b = fit(*many);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->values("loss"), b->values("loss"));
}

TEST(ExecutionsTest, AStepThatFailsLeavesWhatTheStepsBeforeItMade) {
  const auto model = Classifier(3);
  ASSERT_TRUE(model->Compile(With(5, "sgd")).ok());
  Tensor y = Labels(10, 3);
  y.data<int64_t>()[7] = 5;
  const Dataset rows = Dataset::FromTensorSlices({Numbers(10, 4), y}).Batch(2);
  ExpectError(model->Fit(rows, Quietly()).status(), StatusCode::kInvalidArgument,
              {"epoch 0, batch 3"});
  const auto good = Classifier(3);
  ASSERT_TRUE(good->Compile(With(1, "sgd")).ok());
  ASSERT_TRUE(
      good->Fit(Dataset::FromTensorSlices({Numbers(10, 4), y}).Batch(2).Take(3), Quietly()).ok());
  EXPECT_EQ(WeightsOf(*good), WeightsOf(*model));
}

// What stands at the address.
std::string Get(const std::string& url) {
  const std::string rest = url.substr(std::string("http://").size());
  const std::size_t colon = rest.find(':'), slash = rest.find('/');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(rest.substr(colon + 1))));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string request =
        StrCat("GET ", rest.substr(slash), " HTTP/1.1\r\nHost: localhost\r\n",
               "Connection: close\r\n\r\n");
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char part[4096];
    for (ssize_t n; (n = recv(fd, part, sizeof part, 0)) > 0;) text.append(part, n);
  }
  close(fd);
  return text;
}

// How many steps the server has made, from its page for Prometheus.
int StepsOf(const Pages& pages) {
  const std::string page = Get(pages.url() + "/metrics");
  const std::string name = "\nmillrace_steps_total ";
  const std::size_t at = page.find(name);
  EXPECT_NE(at, std::string::npos) << page;
  return at == std::string::npos ? -1 : std::atoi(page.c_str() + at + name.size());
}

// Calls of a Fit of 20 steps that the model's server gets, by its own count.
int CallsOfFit(int64_t steps_per_execution) {
  const auto cluster = ClusterSpec::Parse("local|127.0.0.1:0");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  const auto server = Server::Create({.cluster = *cluster, .job_name = "local"});
  EXPECT_TRUE(server.ok()) << server.status();
  if (!server.ok() || !(*server)->Start().ok()) return -1;
  const auto pages = Pages::Serve(**server, "127.0.0.1:0");
  EXPECT_TRUE(pages.ok()) << pages.status();
  Model model(layers::Sequential({layers::Dense(3, {.activation = "softmax"})}),
              {.session = {.target = (*server)->target()}});
  EXPECT_TRUE(model.Compile(With(steps_per_execution)).ok());
  int begin = -1, end = -1;
  int calls = 0;
  LambdaCallback count({.on_epoch_begin =
                            [&](int64_t epoch) {
                              if (epoch == 1) begin = StepsOf(**pages);
                              return OkStatus();
                            },
                        .on_epoch_end =
                            [&](int64_t epoch, Logs&) {
                              if (epoch == 1) end = StepsOf(**pages);
                              return OkStatus();
                            },
                        .on_train_batch_end =
                            [&](int64_t, const Logs&) {
                              ++calls;
                              return OkStatus();
                            }});
  const auto history = model.Fit(Numbers(40, 4), Labels(40, 3),
                                 Quietly({.batch_size = 2, .epochs = 2, .callbacks = {&count}}));
  EXPECT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(calls, 2 * 20 / steps_per_execution);
  return end - begin;
}

TEST(ExecutionsTest, TwentyStepsByTensAreTwoCalls) {
  const int one_by_one = CallsOfFit(1), by_tens = CallsOfFit(10);
  // Each epoch also resets its metrics and reads them at its end.
  const int around = one_by_one - 20;
  EXPECT_GE(around, 0);
  EXPECT_LE(around, 2);
  EXPECT_EQ(by_tens - around, 2);
}

}  // namespace
}  // namespace millrace
