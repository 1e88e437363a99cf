// SPDX-License-Identifier: Apache-2.0
// A language model over characters: an LSTM that learns which character comes next, then writes
// text of its own. It reads sentences that a small grammar makes, or with --text a file.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "examples/training_flags.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;
namespace layers = mr::layers;

constexpr int64_t kSteps = 40;  // characters of a sample

struct Flags : mr::examples::TrainingFlags {
  std::string text;  // a file
  int64_t sentences = 4000;
  int64_t write = 200;  // characters
};

std::string MakeSentences(int64_t count) {
  static const char* const kWho[] = {"the miller", "a heron", "the boy", "my aunt", "the ferryman"};
  static const char* const kDoes[] = {"watches", "follows", "paints", "forgets", "mends"};
  static const char* const kWhat[] = {"the wheel", "a boat", "the river", "an old bridge"};
  static const char* const kWhen[] = {"at dawn", "in the rain", "every spring", "before supper"};
  std::mt19937 random(1);
  const auto any = [&](const auto& words) { return words[random() % std::size(words)]; };
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += std::string(any(kWho)) + " " + any(kDoes) + " " + any(kWhat) + " " + any(kWhen) + ". ";
  }
  return text;
}

mr::StatusOr<std::string> ReadText(const Flags& flags) {
  if (flags.text.empty()) return MakeSentences(flags.sentences);
  std::ifstream file(flags.text, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || static_cast<int64_t>(text.size()) <= 2 * kSteps) {
    return mr::Status(mr::StatusCode::kInvalidArgument, "no text in '" + flags.text + "'");
  }
  return text;
}

// The characters of a text, numbered.
class Alphabet {
 public:
  explicit Alphabet(const std::string& text) : characters_(text) {
    std::sort(characters_.begin(), characters_.end());
    characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  }
  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  int64_t NumberOf(char c) const { return static_cast<int64_t>(characters_.find(c)); }
  char operator[](int64_t number) const { return characters_[static_cast<size_t>(number)]; }

 private:
  std::string characters_;
};

// Samples [count, kSteps] of numbers that begin at `first`, one behind the other.
mr::Tensor Windows(const std::string& text, const Alphabet& alphabet, size_t first, int64_t count) {
  mr::Tensor windows(mr::kInt64, {count, kSteps});
  int64_t* const numbers = windows.data<int64_t>();
  for (int64_t i = 0; i < count * kSteps; ++i) {
    numbers[i] = alphabet.NumberOf(text[first + static_cast<size_t>(i)]);
  }
  return windows;
}

// Draws one character after the other from what the model expects, given the ones before.
mr::StatusOr<std::string> Write(mr::Model& model, const Alphabet& alphabet, std::string text,
                                int64_t count) {
  std::mt19937 random(2);
  for (int64_t i = 0; i < count; ++i) {
    auto logits = model.PredictOnBatch({Windows(text, alphabet, text.size() - size_t{kSteps}, 1)});
    if (!logits.ok()) return logits.status();
    const float* const last = logits->data<float>() + (kSteps - 1) * alphabet.size();
    std::vector<double> odds(last, last + alphabet.size());
    for (double& odd : odds) odd = std::exp(odd);
    std::discrete_distribution<int64_t> next(odds.begin(), odds.end());
    text += alphabet[next(random)];
  }
  return text.substr(text.size() - static_cast<size_t>(count));
}

mr::Status Train(const Flags& flags) {
  const auto text = ReadText(flags);
  if (!text.ok()) return text.status();
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas),
                                                    .server = {.insecure = flags.insecure}});
  if (!strategy.ok()) return strategy.status();
  const Alphabet alphabet(*text);
  mr::Model model(layers::Sequential({layers::Embedding(alphabet.size(), 32),
                                      layers::Lstm(128, {.return_sequences = true}),
                                      layers::Dense(alphabet.size())}),
                  {.seed = 1, .strategy = *strategy});
  mr::Status status =
      model.Compile({.optimizer = mr::optimizers::Adam({.learning_rate = 0.01}),
                     .loss = mr::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  const int64_t samples = (static_cast<int64_t>(text->size()) - 1) / kSteps;
  auto history =
      model.Fit(Windows(*text, alphabet, 0, samples), Windows(*text, alphabet, 1, samples),
                {.batch_size = flags.batch_size, .epochs = flags.epochs});
  if (!history.ok()) return history.status();
  auto written = Write(model, alphabet, text->substr(0, kSteps), flags.write);
  if (!written.ok()) return written.status();
  std::printf("%s\n", written->c_str());
  return mr::examples::CheckAccuracy(history->values("accuracy").back(), flags);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 5;
  flags.batch_size = 64;
  CLI::App app("Learns which character of a text comes next, and writes", "char_lm");
  mr::examples::AddTrainingFlags(app, flags);
  app.add_option("--text", flags.text, "File to read; generated sentences without it");
  app.add_option("--sentences", flags.sentences, "How many sentences are generated")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--write", flags.write, "Characters to write at the end")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return mr::examples::RunProgram(app, argc, argv, [&] { return Train(flags); });
}
