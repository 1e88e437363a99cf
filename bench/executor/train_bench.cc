// Training steps of graphs that TensorFlow wrote (feeds x and y, target "train", initialisation
// "init"), beside other engines on the same models.
//
//   train_bench --graphs FOLDER [--model NAME]... [--threads N] [--rounds N] [--peer COMMAND]...
//
// FOLDER holds NAME.pb (by default MLP128 and CNN64). A peer is a shell command that prints a line
// of JSON for each thing it times, {"name": "B.train.NAME.<how>", "value": milliseconds}; peers and
// ours take turns, and every way of theirs is a row with our ratio to it. For the default models
// there is one more: their matrix products and convolutions at the rate at which the processor
// multiplies and adds in registers, measured in the same turns. No engine on it is faster than
// that.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "bench/executor/arithmetic_peak.h"
#include "bench/executor/peer.h"
#include "proto/graph.pb.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"

namespace millrace {
namespace {

class Model {
 public:
  Model(const std::string& graphs, std::string name, int threads) : name_(std::move(name)) {
    std::ifstream in(StrCat(graphs, "/", name_, ".pb"), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    pb::GraphDef graph;
    if (text.empty() || !graph.ParseFromString(text)) {
      std::fprintf(stderr, "no graph %s.pb in %s\n", name_.c_str(), graphs.c_str());
      std::exit(2);
    }
    pb::ConfigProto config;
    // The caller and the threads that kernels spread over.
    config.set_inter_op_parallelism_threads(-1);
    config.set_intra_op_parallelism_threads(threads > 1 ? threads - 1 : -1);
    auto master = ConnectTarget("", config);
    MR_CHECK(master.ok());
    ClientSession::Options options;
    options.config = config;
    auto opened = ClientSession::Create(*master, std::move(graph), options);
    if (!opened.ok()) MR_LOG(kError, opened.status().ToString());
    MR_CHECK(opened.ok());
    session_ = *std::move(opened);
    pb::CallableOptions init, train;
    init.add_target("init");
    for (const char* feed : {"x:0", "y:0"}) train.add_feed(feed);
    train.add_target("train");
    auto made = session_->MakeCallable(init);
    MR_CHECK(made.ok() && session_->RunCallable(*made, {}).ok());
    made = session_->MakeCallable(train);
    MR_CHECK(made.ok());
    callable_ = *made;
    const int64_t batch = name_.ends_with("128") ? 128 : 64;
    Tensor x(kFloat, Shape({batch, 784})), y(kInt32, Shape({batch}));
    uint32_t state = 1;
    for (float& v : x.flat<float>()) {
      state = state * 1664525 + 1013904223;
      v = static_cast<float>(state >> 8) / 16777216.0f;
    }
    for (int64_t i = 0; i < batch; ++i) y.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % 10);
    feeds_ = {x, y};
    for (int i = 0; i < 20; ++i) Step();
    const int64_t start = SteadyNanos();
    Step();
    const double step = static_cast<double>(SteadyNanos() - start);
    steps_ = std::max(6, static_cast<int>(0.4e9 / step));
  }

  const std::string& name() const { return name_; }
  // Milliseconds of a step, over a block of them.
  double Measure() {
    const int64_t start = SteadyNanos();
    for (int i = 0; i < steps_; ++i) Step();
    return static_cast<double>(SteadyNanos() - start) / steps_ * 1e-6;
  }

 private:
  void Step() { MR_CHECK(session_->RunCallable(callable_, feeds_).ok()); }

  const std::string name_;
  std::shared_ptr<ClientSession> session_;
  int64_t callable_ = 0;
  std::vector<Tensor> feeds_;
  int steps_ = 1;
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

int Usage() {
  std::fprintf(stderr,
               "usage: train_bench --graphs FOLDER [--model NAME]... [--threads N] [--rounds N]\n"
               "                   [--peer COMMAND]...\n");
  return 2;
}

int Main(int argc, char** argv) {
  std::string graphs;
  std::vector<std::string> names, commands;
  int threads = 2, rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--graphs") {
      graphs = value;
    } else if (flag == "--model") {
      names.push_back(value);
    } else if (flag == "--threads") {
      threads = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--rounds") {
      rounds = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--peer") {
      commands.push_back(value);
    } else {
      return Usage();
    }
  }
  if (graphs.empty() || argc % 2 == 0) return Usage();
  if (names.empty()) names = {"MLP128", "CNN64"};
  std::vector<std::unique_ptr<Model>> models;
  for (const std::string& name : names) {
    models.push_back(std::make_unique<Model>(graphs, name, threads));
  }
  Peer peer;
  std::vector<std::vector<double>> values(models.size());
  std::vector<double> peaks;
  for (int round = 0; round < rounds; ++round) {
    peaks.push_back(MeasureArithmeticPeak(threads, 0.2));
    for (std::size_t i = 0; i < models.size(); ++i) values[i].push_back(models[i]->Measure());
    for (const std::string& command : commands) {
      if (!peer.RunCommand(command)) std::fprintf(stderr, "a peer failed: %s\n", command.c_str());
    }
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto [low, high] = std::minmax_element(values[i].begin(), values[i].end());
    std::printf("training step %-8s %d thread(s) %9.3f ms [%.3f, %.3f]", models[i]->name().c_str(),
                threads, Median(values[i]), *low, *high);
    if (const double operations = NumOperations(models[i]->name()); operations > 0) {
      const double limit = operations / Median(peaks) * 1e3;
      std::printf("\n  %-60s %9.3f ms  ratio %.3f", "the limit: its products in registers", limit,
                  Median(values[i]) / limit);
    }
    std::printf("\n");
    PrintWays(peer, {StrCat("B.train.", models[i]->name())}, values[i], "ms");
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
