// SPDX-License-Identifier: Apache-2.0
// What the training examples ask of their command lines, and what they end with.
#ifndef EXAMPLES_TRAINING_FLAGS_H_
#define EXAMPLES_TRAINING_FLAGS_H_

#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

#include "examples/log_flag.h"
#include "millrace/digits.h"
#include "millrace/status.h"

namespace millrace::examples {

struct TrainingFlags {
  std::string data_dir, strategy = "default";
  int64_t replicas = 0, epochs = 10, batch_size = 128;
  bool insecure = false;
  double min_accuracy = 0;
};

// How long it trains, and what it must reach.
inline void AddLengthFlags(CLI::App& app, TrainingFlags& flags,
                           const std::string& batch_size_help) {
  app.add_option("--epochs", flags.epochs, "Epochs to train")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, batch_size_help)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--min_accuracy", flags.min_accuracy, "Fails below this accuracy")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

// Those of every training example. Defaults, also those shown by --help, are what `flags` holds.
inline void AddTrainingFlags(CLI::App& app, TrainingFlags& flags,
                             const std::string& batch_size_help = "Samples of a step") {
  app.add_option("--strategy", flags.strategy, "Where it trains: docs/strategies.md")
      ->capture_default_str();
  app.add_option("--replicas", flags.replicas,
                 "How many, for strategies of several devices; 0: one")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_flag("--insecure", flags.insecure,
               "Allow a worker's address that is not loopback without certificates or a token");
  AddLengthFlags(app, flags, batch_size_help);
}

inline void AddDigitsFlag(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--data_dir", flags.data_dir,
                 "Folder of the MNIST idx files; synthetic digits without it");
}

// FailedPrecondition below --min_accuracy.
inline Status CheckAccuracy(double accuracy, const TrainingFlags& flags) {
  if (accuracy >= flags.min_accuracy) return OkStatus();
  return Status(StatusCode::kFailedPrecondition, "the accuracy is below --min_accuracy");
}

inline StatusOr<Digits> GetDigits(const TrainingFlags& flags) {
  return flags.data_dir.empty() ? SyntheticDigits() : LoadDigits(flags.data_dir);
}

// The exit code of main: 2 for a wrong command line, 1 where `train()`, a Status, fails.
template <typename Train>
int RunProgram(CLI::App& app, int argc, char** argv, const Train& train) {
  AddLogFlag(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Status status = train();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), status.ToString().c_str());
  return 1;
}

}  // namespace millrace::examples

#endif  // EXAMPLES_TRAINING_FLAGS_H_
