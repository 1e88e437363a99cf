// SPDX-License-Identifier: Apache-2.0
// Steps of models that TensorFlow wrote (feeds x and y, target "train", fetch "logits",
// initialisation "init"), beside other engines on the same models.
//
//   train_bench --graphs FOLDER [--model NAME]... [--threads N] [--rounds N] [--peer COMMAND]...
//               [--mode train|forward|tax|busy_core]
//
// FOLDER holds NAME.pb (by default MLP128 and CNN64). A peer is a shell command that prints a line
// of JSON for each thing it times, {"name": "B.train.NAME.<how>", "value": milliseconds}; peers and
// ours take turns, and every way of theirs is a row with our ratio to it.
//
// train      training steps. For the default models there is one row more: their matrix products
//            and convolutions at the rate at which the processor multiplies and adds in registers,
//            measured in the same turns. No engine on it is faster than that.
// forward    the logits of a batch, fetched; peers print "B.forward.NAME.<how>".
// tax        training steps, in turns with the same step's kernels called one after the other from
//            a list, on the same threads; the ratio is what the framework adds. Without peers.
// busy_core  training steps, in every other round while a process spins on one of the processors;
//            the ratio is what is left of their rate. Without peers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "bench/executor/arithmetic_peak.h"
#include "bench/executor/busy_core.h"
#include "bench/executor/kernels_alone.h"
#include "bench/executor/peer.h"
#include "bench/executor/trained_model.h"

namespace millrace {
namespace {

using Models = std::vector<std::unique_ptr<TrainedModel>>;

struct Flags {
  std::string graphs, mode = "train";
  std::vector<std::string> models, peers;
  int threads = 2, rounds = 7;
};

// Operations of a training step's matrix products and convolutions; 0 for other models. The first
// layer's input has no gradient, and products with zeros around images do not count.
double NumOperations(const std::string& model) {
  struct Layer {
    double rows, in, out;
  };
  const auto sum = [](std::initializer_list<Layer> layers) {
    double total = 0;
    bool first = true;
    for (const auto& [rows, in, out] : layers) {
      total += 2 * rows * in * out * (first ? 2 : 3);
      first = false;
    }
    return total;
  };
  if (model == "MLP128") return sum({{128, 784, 512}, {128, 512, 512}, {128, 512, 10}});
  // Of a row of 28 (14) pixels and a filter of 5, 134 (64) products are not with the border.
  if (model == "CNN64") {
    return sum(
        {{64 * 134 * 134.0, 1, 32}, {64 * 64 * 64.0, 32, 64}, {64, 3136, 1024}, {64, 1024, 10}});
  }
  return 0;
}

void PrintRow(const std::string& what, const std::string& model, int threads,
              const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::printf("%-22s %-8s %d thread(s) %9.3f ms [%.3f, %.3f]\n", what.c_str(), model.c_str(),
              threads, Median(values), *low, *high);
}

void BesidePeers(const Flags& flags, const Models& models) {
  const bool train = flags.mode == "train";
  Peer peer;
  std::vector<std::vector<double>> values(models.size());
  std::vector<double> peaks;
  for (int round = 0; round < flags.rounds; ++round) {
    if (train) peaks.push_back(MeasureArithmeticPeak(flags.threads, 0.2));
    for (std::size_t i = 0; i < models.size(); ++i) values[i].push_back(models[i]->Measure());
    for (const std::string& command : flags.peers) {
      if (!peer.RunCommand(command)) std::fprintf(stderr, "a peer failed: %s\n", command.c_str());
    }
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string& name = models[i]->name();
    PrintRow(train ? "training step" : "forward", name, flags.threads, values[i]);
    if (const double operations = NumOperations(name); train && operations > 0) {
      const double limit = operations / Median(peaks) * 1e3;
      std::printf("  %-56s %9.3f %-10s ratio %.3f\n", "the limit: its products in registers", limit,
                  "ms", Median(values[i]) / limit);
    }
    PrintWays(peer, {StrCat("B.", flags.mode, ".", name)}, values[i], "ms");
  }
}

void BesideKernels(const Flags& flags, const Models& models) {
  for (const auto& model : models) {
    KernelsAlone kernels(*model, flags.threads);
    std::vector<double> steps, alone;
    for (int round = 0; round < flags.rounds; ++round) {
      steps.push_back(model->Measure());
      alone.push_back(kernels.Measure(model->steps_per_block()));
    }
    PrintRow("training step", model->name(), flags.threads, steps);
    PrintRow(StrCat("its ", kernels.num_kernels(), " kernels alone"), model->name(), flags.threads,
             alone);
    std::printf("  step / kernels: %s\n", RatioText(steps, alone).c_str());
  }
}

void BesideAProcess(const Flags& flags, const Models& models) {
  std::vector<std::vector<double>> quiet(models.size()), busy(models.size());
  for (int round = 0; round < flags.rounds; ++round) {
    for (std::size_t i = 0; i < models.size(); ++i) quiet[i].push_back(models[i]->Measure());
    std::optional<BusyCore> spins(std::in_place);
    for (std::size_t i = 0; i < models.size(); ++i) busy[i].push_back(models[i]->Measure());
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    PrintRow("quiet", models[i]->name(), flags.threads, quiet[i]);
    PrintRow("with a busy processor", models[i]->name(), flags.threads, busy[i]);
    std::printf("  rate beside the quiet one: %s\n", RatioText(quiet[i], busy[i]).c_str());
  }
}

int Usage() {
  std::fprintf(stderr,
               "usage: train_bench --graphs FOLDER [--model NAME]... [--threads N] [--rounds N]\n"
               "                   [--peer COMMAND]... [--mode train|forward|tax|busy_core]\n");
  return 2;
}

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--graphs") {
      flags.graphs = value;
    } else if (flag == "--model") {
      flags.models.push_back(value);
    } else if (flag == "--threads") {
      flags.threads = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--rounds") {
      flags.rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--peer") {
      flags.peers.push_back(value);
    } else if (flag == "--mode") {
      flags.mode = value;
    } else {
      return Usage();
    }
  }
  const bool with_peers = flags.mode == "train" || flags.mode == "forward";
  if (flags.graphs.empty() || argc % 2 == 0 || (!with_peers && !flags.peers.empty())) {
    return Usage();
  }
  if (!with_peers && flags.mode != "tax" && flags.mode != "busy_core") return Usage();
  if (flags.models.empty()) flags.models = {"MLP128", "CNN64"};
  Models models;
  for (const std::string& name : flags.models) {
    models.push_back(std::make_unique<TrainedModel>(
        flags.graphs, name, flags.threads,
        flags.mode == "forward" ? TrainedModel::Step::kForward : TrainedModel::Step::kTrain));
  }
  if (with_peers) {
    BesidePeers(flags, models);
  } else if (flags.mode == "tax") {
    BesideKernels(flags, models);
  } else {
    BesideAProcess(flags, models);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
