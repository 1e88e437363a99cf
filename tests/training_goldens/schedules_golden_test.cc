// SPDX-License-Identifier: Apache-2.0
// Learning rates of schedules against those of Keras and tf.compat.v1.train.
#include <gtest/gtest.h>

#include <cmath>

#include "base/strings.h"
#include "tests/training_goldens/schedule_of.h"

namespace millrace::testing {
namespace {

std::string RunCase(const Json& c, const std::vector<double>& steps) {
  const Arguments arguments(c["arguments"]);
  const std::string name = c["schedule"];
  const Schedule schedule = ScheduleOf(name, arguments);
  if (!schedule) return "there is no such schedule";
  Graph graph;
  const Output step = Placeholder(graph.root(), kInt64, PartialShape({}));
  const Output rate = schedule(graph.root(), step);
  if (!graph.status().ok()) return graph.status().ToString();
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status().ToString();
  const bool restarts = name.find("estarts") != std::string::npos;
  const double first = restarts ? c["arguments"]["first_decay_steps"].get<double>() : 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    auto out =
        session->Run({{step, Tensor::Scalar<int64_t>(static_cast<int64_t>(steps[i]))}}, {rate});
    if (!out.ok()) return out.status().ToString();
    GoldenTolerance tolerance{1e-5, 1e-9};
    if (name.find("osine") != std::string::npos) tolerance.atol = 1e-7;
    // Which restart a step near one belongs to comes from a logarithm in float.
    if (restarts && (steps[i] >= first - 1)) tolerance.rtol = 1e-3;
    const std::string why = Difference((*out)[0], c["values"][i], tolerance);
    if (!why.empty()) return StrCat("step ", static_cast<int64_t>(steps[i]), ": ", why);
  }
  return "";
}

TEST(SchedulesGoldenTest, RatesAreThoseOfKerasAndV1) {
  const Json golden = LoadGolden("schedules/schedules.json");
  const std::vector<double> steps = Numbers(golden["steps"]);
  for (const char* api : {"keras", "v1"}) {
    Tally tally(StrCat("schedules ", api));
    for (const Json& c : golden[api]) {
      tally.Add(StrCat(c["schedule"].get<std::string>(), " ", c["arguments"].dump()),
                RunCase(c, steps));
    }
  }
}

TEST(SchedulesTest, OptionsThatMakeNoSenseAreTheGraphsError) {
  Graph graph;
  const Output step = Placeholder(graph.root(), kInt64, PartialShape({}));
  schedules::CosineDecay({.initial_learning_rate = 0.1})(graph.root(), step);
  EXPECT_EQ(graph.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(graph.status().ToString().find("decay_steps must be positive"), std::string::npos);
}

TEST(SchedulesTest, NoiseOfTheNoisyDecayShrinks) {
  Graph graph;
  const Output step = Placeholder(graph.root(), kInt64, PartialShape({}));
  const Output rate = schedules::NoisyLinearCosineDecay(
      {.decay = {.learning_rate = 0.1, .decay_steps = 10}, .seed = 7})(graph.root(), step);
  const Output quiet =
      schedules::LinearCosineDecay({.learning_rate = 0.1, .decay_steps = 10})(graph.root(), step);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok());
  const auto noise = [&](int64_t at) {
    double sum = 0;
    for (int i = 0; i < 50; ++i) {
      auto out = session->Run({{step, Tensor::Scalar<int64_t>(at)}}, {rate, quiet});
      sum += std::abs((*out)[0].scalar<float>() - (*out)[1].scalar<float>());
    }
    return sum;
  };
  const double first = noise(0);
  EXPECT_GT(first, 0);
  EXPECT_EQ(noise(10), 0);  // multiplied by the wave's end
  EXPECT_LT(noise(3), first);
}

}  // namespace
}  // namespace millrace::testing
