// SPDX-License-Identifier: Apache-2.0
// A transformer's encoder that learns to turn sequences round: attention has to find, for each
// place, the one that lies opposite.
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "examples/training_flags.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;
namespace layers = mr::layers;

constexpr int64_t kSteps = 12, kSymbols = 10, kWidth = 64;

struct Flags : mr::examples::TrainingFlags {
  int64_t samples = 8192;
};

struct Sequences {
  mr::Tensor given, reversed;  // int64 [count, kSteps]
};

Sequences MakeSequences(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Sequences made{mr::Tensor(mr::kInt64, {count, kSteps}), mr::Tensor(mr::kInt64, {count, kSteps})};
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < kSteps; ++j) {
      const auto symbol = static_cast<int64_t>(random() % kSymbols);
      made.given.data<int64_t>()[i * kSteps + j] = symbol;
      made.reversed.data<int64_t>()[i * kSteps + kSteps - 1 - j] = symbol;
    }
  }
  return made;
}

// What attention adds to each step, and then what two dense layers add.
layers::LayerPtr EncoderBlock() {
  const std::shared_ptr<mr::Layer> attend = layers::MultiHeadAttention(4, kWidth / 4),
                                   first = layers::LayerNormalization(),
                                   wide = layers::Dense(2 * kWidth, {.activation = "gelu"}),
                                   narrow = layers::Dense(kWidth),
                                   second = layers::LayerNormalization();
  return layers::Functional(
      {attend, first, wide, narrow, second}, [=](mr::Pass& pass, std::span<const mr::Output> in) {
        const mr::Scope& s = pass.scope();
        const mr::Output x = (*first)(pass, mr::ops::AddV2(s, in[0], (*attend)(pass, in[0])));
        return (*second)(pass, mr::ops::AddV2(s, x, (*narrow)(pass, (*wide)(pass, x))));
      });
}

layers::LayerPtr Encoder() {
  const std::shared_ptr<mr::Layer> symbols = layers::Embedding(kSymbols, kWidth),
                                   places = layers::PositionEmbedding(kSteps),
                                   blocks = layers::Sequential({EncoderBlock(), EncoderBlock()}),
                                   answers = layers::Dense(kSymbols);
  return layers::Functional(
      {symbols, places, blocks, answers}, [=](mr::Pass& pass, std::span<const mr::Output> in) {
        const mr::Output x = (*symbols)(pass, in[0]);
        const mr::Output placed = mr::ops::AddV2(pass.scope(), x, (*places)(pass, x));
        return (*answers)(pass, (*blocks)(pass, placed));
      });
}

mr::Status Train(const Flags& flags) {
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas),
                                                    .server = {.insecure = flags.insecure}});
  if (!strategy.ok()) return strategy.status();
  mr::Model model(Encoder(), {.seed = 1, .strategy = *strategy});
  mr::Status status =
      model.Compile({.optimizer = mr::optimizers::Adam({.learning_rate = 0.002}),
                     .loss = mr::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  const Sequences train = MakeSequences(flags.samples, 1), test = MakeSequences(512, 2);
  auto history = model.Fit({train.given}, train.reversed,
                           {.batch_size = flags.batch_size, .epochs = flags.epochs});
  if (!history.ok()) return history.status();
  std::printf("%s", model.Summary().c_str());
  auto results = model.Evaluate({test.given}, test.reversed, {.verbose = mr::Verbose::kSilent});
  if (!results.ok()) return results.status();
  const double accuracy = (*results)["accuracy"];
  std::printf("accuracy on new sequences: %.4f\n", accuracy);
  return mr::examples::CheckAccuracy(accuracy, flags);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 6;
  flags.batch_size = 64;
  CLI::App app("Teaches an encoder with attention to turn sequences round", "transformer");
  mr::examples::AddTrainingFlags(app, flags);
  app.add_option("--samples", flags.samples, "Sequences to train on")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return mr::examples::RunProgram(app, argc, argv, [&] { return Train(flags); });
}
