// Handwritten digits with layers and fit, as a Keras program would train them: synthetic digits, or
// with --data_dir the idx files of MNIST. With --min_accuracy it fails below that; --strategy and
// --replicas say where it trains (docs/strategies.md).
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>

#include "millrace/digits.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/strategy.h"

namespace mr = millrace;

struct Flags {
  std::string data_dir, strategy = "default";
  int64_t epochs = 10, batch_size = 128, replicas = 0;
  double min_accuracy = 0;
};

mr::Status Train(const mr::Digits& digits, const Flags& flags) {
  namespace layers = mr::layers;
  auto strategy = mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas)});
  if (!strategy.ok()) return strategy.status();
  mr::Model model(
      layers::Sequential({layers::Dense(512, {.activation = "relu"}), layers::Dropout(0.2),
                          layers::Dense(10, {.activation = "softmax"})}),
      {.seed = 1, .strategy = *strategy});
  mr::Status status = model.Compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  if (!status.ok()) return status;
  mr::EarlyStopping stop({.patience = 2, .restore_best_weights = true});
  auto history = model.Fit(
      digits.train.images, digits.train.labels,
      {.batch_size = flags.batch_size,
       .epochs = flags.epochs,
       .validation = mr::ValidationData{digits.validation.images, digits.validation.labels},
       .callbacks = {&stop}});
  if (!history.ok()) return history.status();
  std::printf("%s", model.Summary().c_str());
  auto test = model.Evaluate(digits.test.images, digits.test.labels);
  if (!test.ok()) return test.status();
  const double accuracy = (*test)["accuracy"];
  std::printf("test accuracy: %.4f\n", accuracy);
  if (accuracy >= flags.min_accuracy) return mr::OkStatus();
  return mr::Status(mr::StatusCode::kFailedPrecondition, "the accuracy is below --min_accuracy");
}

// "--name=value" with a whole number or a fraction; false if it is anything else.
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
  if (is("--epochs=")) return number(&flags->epochs);
  if (is("--batch_size=")) return number(&flags->batch_size);
  if (is("--min_accuracy=")) return number(&flags->min_accuracy);
  return false;
}

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    if (Parse(argv[i], &flags)) continue;
    std::fprintf(stderr,
                 "usage: mnist_keras [--data_dir=DIR] [--epochs=N] [--batch_size=N] "
                 "[--min_accuracy=X] [--strategy=NAME] [--replicas=N]\n");
    return 2;
  }
  mr::StatusOr<mr::Digits> digits =
      flags.data_dir.empty() ? mr::SyntheticDigits() : mr::LoadDigits(flags.data_dir);
  const mr::Status status = digits.ok() ? Train(*digits, flags) : digits.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
