// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/trained_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "runtime/local_cluster.h"

namespace millrace {
namespace {

void Check(const Status& status) {
  if (!status.ok()) MR_LOG(kError, status.ToString());
  MR_CHECK(status.ok());
}

pb::GraphDef ReadGraph(const std::string& folder, const std::string& name) {
  std::ifstream in(StrCat(folder, "/", name, ".pb"), std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  pb::GraphDef graph;
  if (text.empty() || !graph.ParseFromString(text)) {
    std::fprintf(stderr, "no graph %s.pb in %s\n", name.c_str(), folder.c_str());
    std::exit(2);
  }
  return graph;
}

std::vector<std::pair<std::string, Tensor>> MakeFeeds(int64_t batch, bool labels) {
  Tensor x(kFloat, Shape({batch, 784})), y(kInt32, Shape({batch}));
  uint32_t state = 1;
  for (float& v : x.flat<float>()) {
    state = state * 1664525 + 1013904223;
    v = static_cast<float>(state >> 8) / 16777216.0f;
  }
  for (int64_t i = 0; i < batch; ++i) y.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % 10);
  std::vector<std::pair<std::string, Tensor>> feeds = {{"x", x}};
  if (labels) feeds.emplace_back("y", y);
  return feeds;
}

}  // namespace

TrainedModel::TrainedModel(const std::string& folder, std::string name, int threads, Step step)
    : name_(std::move(name)),
      step_(step),
      feeds_(MakeFeeds(name_.ends_with("128") ? 128 : 64, step == Step::kTrain)) {
  pb::ConfigProto config;
  config.set_inter_op_parallelism_threads(-1);
  config.set_intra_op_parallelism_threads(threads > 1 ? threads - 1 : -1);
  auto master = ConnectTarget("", config);
  Check(master.status());
  ClientSession::Options options;
  options.config = config;
  auto opened = ClientSession::Create(*master, ReadGraph(folder, name_), options);
  Check(opened.status());
  session_ = *std::move(opened);
  Check(session_->Run({}, {}, {"init"}).status());
  pb::CallableOptions wanted;
  for (const auto& [feed, value] : feeds_) {
    wanted.add_feed(feed + ":0");
    values_.push_back(value);
  }
  if (step == Step::kTrain) {
    wanted.add_target("train");
  } else {
    wanted.add_fetch("logits:0");
  }
  const auto made = session_->MakeCallable(wanted);
  Check(made.status());
  callable_ = *made;
  for (int i = 0; i < 20; ++i) RunStep();
  if (step == Step::kForward) {
    MR_CHECK(fetched_[0].shape() == Shape({values_[0].dim(0), 10}));
    for (const float logit : fetched_[0].flat<float>()) MR_CHECK(std::isfinite(logit));
  }
  const int64_t start = SteadyNanos();
  RunStep();
  const double nanos = static_cast<double>(SteadyNanos() - start);
  steps_ = std::max(6, static_cast<int>(0.4e9 / nanos));
}

void TrainedModel::RunStep() { Check(session_->RunCallable(callable_, values_, &fetched_)); }

double TrainedModel::Measure() {
  const int64_t start = SteadyNanos();
  for (int i = 0; i < steps_; ++i) RunStep();
  return static_cast<double>(SteadyNanos() - start) / steps_ * 1e-6;
}

pb::GraphDef TrainedModel::GraphOf(ClientSession::RunRequest request) {
  request.options.set_output_partition_graphs(true);
  pb::RunMetadata metadata;
  Check(session_->Run(std::move(request), &metadata).status());
  MR_CHECK(metadata.partition_graphs_size() == 1);
  return metadata.partition_graphs(0);
}

pb::GraphDef TrainedModel::StepGraph() {
  ClientSession::RunRequest request;
  for (const auto& [feed, value] : feeds_) request.feeds.emplace_back(feed + ":0", value);
  if (step_ == Step::kTrain) {
    request.targets = {"train"};
  } else {
    request.fetches = {"logits:0"};
  }
  return GraphOf(std::move(request));
}

pb::GraphDef TrainedModel::InitGraph() {
  ClientSession::RunRequest request;
  request.targets = {"init"};
  return GraphOf(std::move(request));
}

std::map<std::string, Tensor> TrainedModel::FedNodes() const {
  std::map<std::string, Tensor> nodes;
  for (const auto& [feed, value] : feeds_) nodes[StrCat("_recv_", feed, "_0")] = value;
  return nodes;
}

}  // namespace millrace
