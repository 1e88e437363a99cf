// SPDX-License-Identifier: Apache-2.0
// What backups cost a Fit: epochs of a model with BackupAndRestore, by epochs and by numbers of
// steps, written while training waits and beside it, each in turn with the same Fit without, in one
// process. The limit is a write of the backup's bytes, with fsync, in the same turn.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/layers.h"
#include "millrace/model.h"

namespace mr = millrace;
namespace layers = mr::layers;

namespace {

constexpr int64_t kFeatures = 784, kClasses = 10, kBatch = 64, kEpochs = 3;

struct Flags {
  std::string folder = "/dev/shm/backup_bench";
  int rounds = 7;
  int64_t steps = 100, units = 256;  // of an epoch; of each of two hidden layers
};

struct Way {
  const char* name;
  int64_t save_freq = -1;  // none
  bool asynchronous = false;
};

constexpr Way kWays[] = {{"no backups"},
                         {"every epoch", mr::kEveryEpoch},
                         {"every epoch, beside training", mr::kEveryEpoch, true},
                         {"every 20 steps", 20},
                         {"every 20 steps, beside training", 20, true},
                         {"every step", 1},
                         {"every step, beside training", 1, true}};

int64_t BackupsOf(const Way& way, const Flags& flags) {
  if (way.save_freq < 0) return 0;
  return way.save_freq == mr::kEveryEpoch ? kEpochs : kEpochs * flags.steps / way.save_freq;
}

double SecondsOf(const std::function<mr::Status()>& run, mr::Status* status) {
  const auto begin = std::chrono::steady_clock::now();
  status->Update(run());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What any program would do at best with so many bytes.
mr::Status WriteBytes(const std::string& path, std::size_t size) {
  const std::string bytes(size, 'x');
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) return mr::errors::Unavailable("cannot write ", path);
  bool good = true;
  for (std::size_t at = 0; good && at < size;) {
    const ssize_t n = ::write(fd, bytes.data() + at, size - at);
    good = n > 0;
    at += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  good = good && ::fsync(fd) == 0;
  ::close(fd);
  std::filesystem::remove(path);
  return good ? mr::OkStatus() : mr::errors::Unavailable("cannot write ", path);
}

class Bench {
 public:
  explicit Bench(const Flags& flags) : flags_(flags) {}

  mr::Status Run() {
    MR_RETURN_IF_ERROR(Prepare());
    mr::Status status;
    std::vector<std::vector<double>> seconds(std::size(kWays));
    std::vector<double> writes;
    for (int round = -1; round < flags_.rounds && status.ok(); ++round) {
      // Each way comes first, and last, as often as any other.
      for (std::size_t i = 0; i < std::size(kWays); ++i) {
        const std::size_t way = (i + static_cast<std::size_t>(round + 1)) % std::size(kWays);
        const double took = SecondsOf([&] { return FitOnce(kWays[way]); }, &status);
        if (round >= 0) seconds[way].push_back(took);  // before: warm
      }
      const double took =
          SecondsOf([&] { return WriteBytes(flags_.folder + "/bytes", backup_bytes_); }, &status);
      if (round >= 0) writes.push_back(took);
    }
    std::filesystem::remove_all(flags_.folder);
    if (status.ok()) Print(seconds, writes);
    return status;
  }

 private:
  mr::Status Prepare() {
    std::filesystem::create_directories(flags_.folder);
    layers::LayerList list;
    for (int i = 0; i < 2; ++i) {
      list.push_back(layers::Dense(flags_.units, {.activation = "relu"}));
      list.push_back(layers::Dropout(0.1, {.seed = 3 + i}));
    }
    list.push_back(layers::Dense(kClasses, {.activation = "softmax"}));
    model_ = std::make_unique<mr::Model>(layers::Sequential(std::move(list)),
                                         mr::ModelOptions{.seed = 1});
    MR_RETURN_IF_ERROR(model_->Compile(
        {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}}));
    const int64_t rows = flags_.steps * kBatch;
    x_ = mr::Tensor(mr::kFloat, mr::Shape({rows, kFeatures}));
    y_ = mr::Tensor(mr::kInt64, mr::Shape({rows}));
    for (int64_t i = 0; i < x_.num_elements(); ++i) {
      x_.data<float>()[i] = static_cast<float>((i * 7919) % 1009) / 1009.0f;
    }
    for (int64_t i = 0; i < rows; ++i) y_.data<int64_t>()[i] = (i * 31) % kClasses;
    MR_RETURN_IF_ERROR(model_->Build({{mr::PartialShape({-1, kFeatures}), mr::kFloat}}));
    // Weights and Adam's two slots of each.
    MR_ASSIGN_OR_RETURN(const std::vector<mr::Tensor> weights, model_->GetWeights());
    for (const mr::Tensor& weight : weights) backup_bytes_ += 3 * weight.num_bytes();
    return mr::OkStatus();
  }

  mr::Status FitOnce(const Way& way) {
    mr::BackupAndRestore backup({.directory = flags_.folder + "/backup",
                                 .save_freq = std::max<int64_t>(way.save_freq, 0),
                                 .asynchronous = way.asynchronous});
    mr::FitOptions options;
    options.batch_size = kBatch;
    options.epochs = kEpochs;
    options.verbose = mr::Verbose::kSilent;
    if (way.save_freq >= 0) options.callbacks = {&backup};
    return model_->Fit(x_, y_, options).status();
  }

  void Print(std::vector<std::vector<double>> seconds, std::vector<double> writes) const {
    const auto middle = [](std::vector<double>* values) {
      std::sort(values->begin(), values->end());
      return (*values)[values->size() / 2];
    };
    std::printf("backups of %.2f MiB in %s; epochs of %lld steps; medians of %d turns\n",
                static_cast<double>(backup_bytes_) / (1 << 20), flags_.folder.c_str(),
                static_cast<long long>(flags_.steps), flags_.rounds);
    const std::vector<double> without = seconds[0];
    for (std::size_t way = 0; way < seconds.size(); ++way) {
      std::vector<double> ratios, each;
      const auto backups = static_cast<double>(BackupsOf(kWays[way], flags_));
      for (std::size_t i = 0; i < without.size(); ++i) {
        ratios.push_back(seconds[way][i] / without[i]);
        if (backups > 0) each.push_back(1e3 * (seconds[way][i] - without[i]) / backups);
      }
      const double ratio = middle(&ratios);
      std::printf("%-32s %8.1f ms per epoch, ratio %.3f [%.3f, %.3f]", kWays[way].name,
                  1e3 * middle(&seconds[way]) / kEpochs, ratio, ratios.front(), ratios.back());
      if (!each.empty()) {
        const double cost = middle(&each);
        std::printf(", %.2f ms per backup [%.2f, %.2f]", cost, each.front(), each.back());
      }
      std::puts("");
    }
    std::printf("%-32s %8.2f ms\n", "a write of as many bytes", 1e3 * middle(&writes));
  }

  const Flags flags_;
  std::unique_ptr<mr::Model> model_;
  mr::Tensor x_, y_;
  std::size_t backup_bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What backups cost a Fit");
  app.add_option("--folder", flags.folder, "made, and deleted; on a disk, fsync counts")
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--steps", flags.steps, "of an epoch")
      ->check(CLI::Range(20, 100'000))
      ->capture_default_str();
  app.add_option("--units", flags.units, "of each of two hidden layers")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const mr::Status status = Bench(flags).Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
