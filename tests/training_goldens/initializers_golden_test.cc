// SPDX-License-Identifier: Apache-2.0
// Initial values for seeds against those of Keras and tf.compat.v1.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {
namespace {

using initializers::Initializer;

GoldenTolerance ToleranceOf(const std::string& name, const std::string& arguments) {
  if (name.find("rthogonal") != std::string::npos) return {1e-4, 1e-5};
  const bool uniform = name.find("niform") != std::string::npos ||
                       arguments.find("\"uniform\"") != std::string::npos;
  if (uniform) return {2.4e-7, 0};
  if (name.find("ormal") != std::string::npos || name.starts_with("Var") ||
      name.starts_with("var")) {
    return {1e-5, 1e-6};
  }
  return {0, 0};
}

initializers::VarianceScalingOptions ScalingOf(const Arguments& a, initializers::Seed seed) {
  initializers::VarianceScalingOptions o{.seed = seed};
  std::string mode = "fan_in", distribution = "truncated_normal";
  a.Get("scale", &o.scale);
  a.Get("mode", &mode);
  a.Get("distribution", &distribution);
  o.mode = mode == "fan_in"    ? initializers::Fan::kIn
           : mode == "fan_out" ? initializers::Fan::kOut
                               : initializers::Fan::kAverage;
  o.distribution = distribution == "uniform" ? initializers::Distribution::kUniform
                   : distribution == "untruncated_normal"
                       ? initializers::Distribution::kUntruncatedNormal
                       : initializers::Distribution::kTruncatedNormal;
  return o;
}

Initializer KerasInitializerOf(const std::string& name, const Arguments& a,
                               initializers::Seed seed) {
  double value = 0, gain = 1;
  a.Get("value", &value);
  a.Get("gain", &gain);
  initializers::NormalOptions normal{.seed = seed};
  a.Get("mean", &normal.mean);
  a.Get("stddev", &normal.stddev);
  initializers::UniformOptions uniform{.seed = seed};
  a.Get("minval", &uniform.minval);
  a.Get("maxval", &uniform.maxval);
  if (name == "Zeros") return initializers::Zeros();
  if (name == "Ones") return initializers::Ones();
  if (name == "Constant") return initializers::Constant(value);
  if (name == "Identity") return initializers::Identity(gain);
  if (name == "RandomNormal") return initializers::RandomNormal(normal);
  if (name == "TruncatedNormal") return initializers::TruncatedNormal(normal);
  if (name == "RandomUniform") return initializers::RandomUniform(uniform);
  if (name == "VarianceScaling") return initializers::VarianceScaling(ScalingOf(a, seed));
  if (name == "GlorotUniform") return initializers::GlorotUniform(seed);
  if (name == "GlorotNormal") return initializers::GlorotNormal(seed);
  if (name == "HeUniform") return initializers::HeUniform(seed);
  if (name == "HeNormal") return initializers::HeNormal(seed);
  if (name == "LecunUniform") return initializers::LecunUniform(seed);
  if (name == "LecunNormal") return initializers::LecunNormal(seed);
  if (name == "Orthogonal") return initializers::Orthogonal({.gain = gain, .seed = seed});
  return nullptr;
}

Initializer V1InitializerOf(const std::string& name, const Arguments& a, initializers::Seed seed) {
  using initializers::Distribution;
  using initializers::Fan;
  double value = 0, gain = 1, factor = 1;
  a.Get("value", &value);
  a.Get("gain", &gain);
  a.Get("factor", &factor);
  initializers::NormalOptions normal{.stddev = 1, .seed = seed};
  a.Get("mean", &normal.mean);
  a.Get("stddev", &normal.stddev);
  initializers::UniformOptions uniform{.minval = 0, .maxval = 1, .seed = seed};
  a.Get("minval", &uniform.minval);
  a.Get("maxval", &uniform.maxval);
  const auto scaled = [&](double scale, Fan fan, Distribution distribution) {
    return initializers::v1::VarianceScaling(
        {.scale = scale, .mode = fan, .distribution = distribution, .seed = seed});
  };
  if (name == "zeros_initializer") return initializers::Zeros();
  if (name == "ones_initializer") return initializers::Ones();
  if (name == "constant_initializer") return initializers::Constant(value);
  if (name == "initializers.identity") return initializers::Identity(gain);
  if (name == "random_uniform_initializer") return initializers::v1::RandomUniform(uniform);
  if (name == "random_normal_initializer") return initializers::v1::RandomNormal(normal);
  if (name == "truncated_normal_initializer") return initializers::v1::TruncatedNormal(normal);
  if (name == "uniform_unit_scaling_initializer") {
    return initializers::v1::UniformUnitScaling(factor, seed);
  }
  if (name == "orthogonal_initializer") {
    return initializers::v1::Orthogonal({.gain = gain, .seed = seed});
  }
  if (name == "variance_scaling_initializer") {
    return initializers::v1::VarianceScaling(ScalingOf(a, seed));
  }
  if (name == "glorot_uniform_initializer") return scaled(1, Fan::kAverage, Distribution::kUniform);
  if (name == "glorot_normal_initializer") {
    return scaled(1, Fan::kAverage, Distribution::kTruncatedNormal);
  }
  if (name == "initializers.he_normal") return scaled(2, Fan::kIn, Distribution::kTruncatedNormal);
  if (name == "initializers.he_uniform") return scaled(2, Fan::kIn, Distribution::kUniform);
  if (name == "initializers.lecun_normal") {
    return scaled(1, Fan::kIn, Distribution::kTruncatedNormal);
  }
  if (name == "initializers.lecun_uniform") return scaled(1, Fan::kIn, Distribution::kUniform);
  return nullptr;
}

std::string RunCase(const Initializer& initializer, const Json& c, int64_t graph_seed,
                    const GoldenTolerance& tolerance) {
  if (!initializer) return "there is no such initializer";
  Graph graph;
  graph.SetSeed(graph_seed);
  const Output value = initializer(graph.root(), ShapeOf(c["shape"]));
  if (c.contains("raises")) return graph.status().ok() ? "no error" : "";
  if (!graph.status().ok()) return graph.status().ToString();
  auto session = Session::Create(graph);
  if (!session.ok()) return session.status().ToString();
  auto got = session->Eval(value);
  if (!got.ok()) return got.status().ToString();
  std::string why = Difference(*got, c["values"], tolerance);
  if (!why.empty() || !c.contains("second_run_first_value")) return why;
  got = session->Eval(value);
  if (!got.ok()) return got.status().ToString();
  std::vector<double> two = ValuesOf(*got);
  two.resize(2);
  why = Difference(Tensor::FromValues<double>(two, Shape({2})), c["second_run_first_value"],
                   tolerance);
  return why.empty() ? "" : "second run: " + why;
}

TEST(InitializersGoldenTest, ValuesForSeedsAreKeras) {
  const Json golden = LoadGolden("initializers/initializers.json");
  Tally tally("initializers keras");
  for (const Json& c : golden["keras"]) {
    const std::string name = c["initializer"], arguments = c["arguments"].dump();
    initializers::Seed seed;
    Arguments(c).Get("seed", &seed);
    tally.Add(StrCat(name, arguments, c["shape"].dump(), " seed ", c["seed"].dump()),
              RunCase(KerasInitializerOf(name, Arguments(c["arguments"]), seed), c, 0,
                      ToleranceOf(name, arguments)));
  }
}

TEST(InitializersGoldenTest, ValuesForSeedsAreV1) {
  const Json golden = LoadGolden("initializers/initializers.json");
  Tally tally("initializers v1");
  for (const Json& c : golden["v1"]) {
    const std::string name = c["initializer"], arguments = c["arguments"].dump();
    initializers::Seed seed, graph_seed;
    Arguments(c).Get("op_seed", &seed);
    Arguments(c).Get("graph_seed", &graph_seed);
    // A graph's seed of 0 is none here.
    if (graph_seed == 0 && c.contains("random_nodes") && !c["random_nodes"].empty()) {
      tally.LeaveOut();
      continue;
    }
    tally.Add(StrCat(name, arguments, c["shape"].dump(), " seeds ", c["graph_seed"].dump(), " ",
                     c["op_seed"].dump()),
              RunCase(V1InitializerOf(name, Arguments(c["arguments"]), seed), c,
                      graph_seed.value_or(0), ToleranceOf(name, arguments)));
  }
}

TEST(InitializersGoldenTest, SeedGeneratorsCount) {
  const Json golden = LoadGolden("initializers/initializers.json");
  Tally tally("seed generators");
  const Json& all = golden["seed_generator"];
  for (const Json& c : all.is_array() ? all : Json::array({all})) {
    Graph graph;
    const initializers::SeedGenerator generator(graph.root(), c["seed"].get<int64_t>());
    const Output next = generator.Next(graph.root());
    const Operation init = InitializeVariables(graph.root());
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok());
    ASSERT_TRUE(session->RunTargets({init}).ok());
    std::string why;
    for (const Json& want : c["next"]) {
      auto got = session->Eval(next);
      if (why.empty()) why = got.ok() ? Difference(*got, want, {0, 0}) : got.status().ToString();
    }
    tally.Add(c["seed"].dump(), why);
  }
}

}  // namespace
}  // namespace millrace::testing
