// A small convolutional net on handwritten digits, trained by one process or by several: the
// strategy is all that differs. With several workers, `millrace run` starts the program once for
// each and says in TF_CONFIG which one it is:
//
//   millrace run --workers 2 -- multi_worker_mnist --strategy=multi_worker_mirrored
//
// Synthetic digits, or with --data_dir the idx files of MNIST.
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "millrace/digits.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;

struct Flags {
  std::string data_dir, strategy = "default";
  int64_t replicas = 0, epochs = 3, steps = 70;
  int64_t batch_size = 64;  // of each replica
  double min_accuracy = 0;
};

mr::Status Train(const mr::Digits& digits, const Flags& flags) {
  namespace layers = mr::layers;
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas)});
  if (!strategy.ok()) return strategy.status();
  mr::Model model(
      layers::Sequential({layers::Reshape({28, 28, 1}),
                          layers::Conv2D(32, {3, 3}, {.activation = "relu"}), layers::Flatten(),
                          layers::Dense(128, {.activation = "relu"}), layers::Dense(10)}),
      {.seed = 1, .strategy = *strategy});
  mr::Status status =
      model.Compile({.optimizer = mr::optimizers::Sgd({.learning_rate = 0.001}),
                     .loss = mr::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  // The batch of all replicas, so that each has its own, however many there are.
  const int64_t global_batch = flags.batch_size * (*strategy)->num_replicas_in_sync();
  const bool is_chief = (*strategy)->is_chief();
  auto history = model.Fit(digits.train.images, digits.train.labels,
                           {.batch_size = global_batch,
                            .epochs = flags.epochs,
                            .steps_per_epoch = flags.steps,
                            .verbose = is_chief ? mr::Verbose::kAuto : mr::Verbose::kSilent});
  if (!history.ok()) return history.status();
  const double accuracy = history->values("accuracy").back();
  if (is_chief) std::printf("%s: accuracy %.4f\n", (*strategy)->Description().c_str(), accuracy);
  if (accuracy >= flags.min_accuracy) return mr::OkStatus();
  return mr::Status(mr::StatusCode::kFailedPrecondition, "the accuracy is below --min_accuracy");
}

// "--name=value"; false if it is anything else.
bool Parse(std::string_view argument, Flags* flags) {
  std::string_view value;
  const auto is = [&](std::string_view name) {
    if (!argument.starts_with(name)) return false;
    value = argument.substr(name.size());
    return true;
  };
  const auto number = [&](auto* result) {
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, *result);
    return parsed.ec == std::errc() && parsed.ptr == end && *result >= 0;
  };
  if (is("--data_dir=")) {
    flags->data_dir = value;
    return true;
  }
  if (is("--strategy=")) {
    flags->strategy = value;
    return true;
  }
  if (is("--replicas=")) return number(&flags->replicas) && flags->replicas <= 64;
  if (is("--epochs=")) return number(&flags->epochs) && flags->epochs > 0;
  if (is("--steps=")) return number(&flags->steps) && flags->steps > 0;
  if (is("--batch_size=")) return number(&flags->batch_size) && flags->batch_size > 0;
  if (is("--min_accuracy=")) return number(&flags->min_accuracy);
  return false;
}

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (Parse(argv[i], &flags)) continue;
    std::fprintf(stderr,
                 "usage: multi_worker_mnist [--strategy=NAME] [--replicas=N] [--data_dir=DIR] "
                 "[--epochs=N] [--steps=N] [--batch_size=N] [--min_accuracy=X]\n");
    return 2;
  }
  mr::StatusOr<mr::Digits> digits =
      flags.data_dir.empty() ? mr::SyntheticDigits() : mr::LoadDigits(flags.data_dir);
  const mr::Status status = digits.ok() ? Train(*digits, flags) : digits.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
