// SPDX-License-Identifier: Apache-2.0
// What the TensorBoard callback leaves in its files, against what Keras' leaves.
#include "millrace/tensorboard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "proto/hparams.pb.h"
#include "tests/summary/read_events.h"
#include "tests/training_goldens/golden.h"

namespace millrace {
namespace {

using testing::Json;
using testing::ReadEvents;
using testing::TensorOf;
using testing::TestDirectory;

// The events of the only file in a directory.
std::vector<pb::Event> EventsIn(const std::string& directory) {
  const auto names = PosixFileSystem()->List(directory);
  EXPECT_TRUE(names.ok()) << names.status();
  std::vector<std::string> files;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (name.starts_with("events.")) files.push_back(name);
  }
  EXPECT_EQ(files.size(), 1u) << directory;
  return files.size() == 1 ? ReadEvents(JoinPath(directory, files[0])) : std::vector<pb::Event>();
}

// [step, tag, plugin, value of scalars], as the golden has it.
Json RowOf(const pb::Event& event) {
  if (!event.file_version().empty()) return {event.step(), "file_version"};
  const pb::Summary::Value& value = event.summary().value(0);
  const std::string& plugin = value.metadata().plugin_data().plugin_name();
  Json row = {event.step(), value.tag(), plugin};
  if (plugin == "scalars") row.push_back(TensorOf(event).scalar<float>());
  return row;
}

// Values are told of losses only.
bool Agree(const Json& got, const Json& want) {
  if (want.size() > got.size()) return false;
  for (std::size_t i = 0; i < std::min<std::size_t>(want.size(), 3); ++i) {
    if (got[i] != want[i]) return false;
  }
  return want.size() < 4 ||
         std::abs(got[3].get<double>() - want[3].get<double>()) < 1e-5 * want[3].get<double>();
}

// Keras leaves out what belongs to an epoch whose last step is no multiple of update_freq; we do
// not.
bool IsLeftOutByKeras(const Json& row, int64_t update_freq, int64_t steps_per_epoch) {
  const std::string tag = row[1];
  return update_freq > 1 && tag.starts_with("epoch_") &&
         (row[0].get<int64_t>() + 1) * steps_per_epoch % update_freq != 0;
}

// Empty if the file has what Keras' has.
std::string Difference(const std::vector<pb::Event>& events, const Json& want, int64_t update_freq,
                       int64_t steps_per_epoch) {
  std::size_t next = 0;
  for (const pb::Event& event : events) {
    const Json row = RowOf(event);
    if (IsLeftOutByKeras(row, update_freq, steps_per_epoch)) continue;
    if (next == want.size()) return "beyond the end: " + row.dump();
    if (!Agree(row, want[next])) return row.dump() + ", not " + want[next].dump();
    ++next;
  }
  return next == want.size() ? "" : "no " + want[next].dump();
}

struct Trained {
  std::unique_ptr<Model> model;
  Tensor x, y;
};

// Two layers without activation, which learn the sums of rows.
Trained NewModel() {
  std::vector<std::shared_ptr<Layer>> layers;
  layers.push_back(layers::Dense(2));
  layers.back()->set_name("hidden");
  layers.push_back(layers::Dense(1));
  layers.back()->set_name("out");
  Trained t;
  t.model = std::make_unique<Model>(layers::Sequential(std::move(layers), "sequential"));
  const Status status = t.model->Compile(
      {.optimizer = optimizers::Sgd({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}});
  EXPECT_TRUE(status.ok()) << status;
  t.x = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6, 7, 8}, Shape({4, 2}));
  t.y = Tensor::FromValues<float>({3, 7, 11, 15}, Shape({4, 1}));
  return t;
}

std::string CaseOf(const Json& golden, const std::string& directory) {
  const Json& a = golden["arguments"];
  TensorBoardOptions options{.log_dir = directory};
  if (a.contains("update_freq")) {
    options.update_freq = a["update_freq"].is_string() ? 1 : a["update_freq"].get<int64_t>();
  }
  options.histogram_freq = a.value("histogram_freq", 0);
  options.write_graph = a.value("write_graph", true);
  options.write_steps_per_second = a.value("write_steps_per_second", false);
  TensorBoard board(options);

  Trained t = NewModel();
  const Tensor x = testing::TensorOf(golden["x"]);
  Tensor y(kFloat, Shape({x.dim(0), 1}));
  for (int64_t i = 0; i < x.dim(0); ++i) {
    y.data<float>()[i] = x.data<float>()[2 * i] + x.data<float>()[2 * i + 1];
  }
  Status status = t.model->Predict(x).status();  // which makes the weights
  std::vector<Tensor> weights;
  for (const Json& w : golden["initial_weights"]) weights.push_back(testing::TensorOf(w));
  if (status.ok()) status = t.model->SetWeights(weights);
  if (!status.ok()) return status.ToString();
  const auto history =
      t.model->Fit(x, y,
                   {.batch_size = 2,
                    .epochs = golden["epochs"],
                    .validation = ValidationData{.x = x.Slice(0, 4), .y = y.Slice(0, 4)},
                    .shuffle = false,
                    .callbacks = {&board},
                    .verbose = Verbose::kSilent});
  if (!history.ok()) return history.status().ToString();
  for (const auto& [file, want] : golden["files"].items()) {
    const std::string run = file.substr(0, file.find('/'));
    const std::string why = Difference(EventsIn(directory + "/" + run), want, options.update_freq,
                                       golden["steps_per_epoch"]);
    if (!why.empty()) return run + ": " + why;
  }
  return "";
}

TEST(TensorBoard, LeavesTheFilesThatKerasLeaves) {
  testing::Tally tally("tensorboard");
  const Json goldens = testing::LoadGolden("callbacks/tensorboard.json");
  for (const Json& golden : goldens["cases"]) {
    tally.Add(golden["arguments"].dump(), CaseOf(golden, TestDirectory()));
  }
}

TEST(TensorBoard, GoesOnCountingSteps) {
  const std::string directory = TestDirectory();
  CallbackState state;
  {
    Trained t = NewModel();
    TensorBoard board({.log_dir = directory + "/first", .update_freq = 1});
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(
          t.model
              ->Fit(t.x, t.y, {.batch_size = 2, .callbacks = {&board}, .verbose = Verbose::kSilent})
              .ok());
    }
    state = board.State();
  }
  EXPECT_EQ(state.at("step").scalar<int64_t>(), 4);
  TensorBoard board({.log_dir = directory + "/second", .update_freq = 1});
  EXPECT_TRUE(errors::IsInvalidArgument(board.SetState({})));
  ASSERT_TRUE(board.SetState(state).ok());
  Trained t = NewModel();
  ASSERT_TRUE(t.model->Fit(t.x, t.y, {.callbacks = {&board}, .verbose = Verbose::kSilent}).ok());
  std::vector<int64_t> steps;
  for (const pb::Event& event : EventsIn(directory + "/second/train")) {
    if (event.summary().value_size() > 0 && event.summary().value(0).tag() == "batch_loss") {
      steps.push_back(event.step());
    }
  }
  EXPECT_EQ(steps, std::vector<int64_t>{5});
}

TEST(TensorBoard, ShowsWeightsAsImages) {
  const std::string directory = TestDirectory();
  TensorBoard board({.log_dir = directory, .histogram_freq = 2, .write_images = true});
  Trained t = NewModel();
  ASSERT_TRUE(
      t.model->Fit(t.x, t.y, {.epochs = 3, .callbacks = {&board}, .verbose = Verbose::kSilent})
          .ok());
  std::map<std::string, int> tags;
  for (const pb::Event& event : EventsIn(directory + "/train")) {
    if (event.summary().value_size() > 0) ++tags[event.summary().value(0).tag()];
  }
  // After the first and the third epoch.
  EXPECT_EQ(tags["sequential/hidden/kernel/image"], 2);
  EXPECT_EQ(tags["sequential/hidden/kernel/histogram"], 2);
  EXPECT_EQ(tags["sequential/out/bias/image"], 2);
}

TEST(TensorBoard, TrainsOnWhereAHistogramCannotBeMade) {
  const std::string directory = TestDirectory();
  TensorBoard board({.log_dir = directory, .histogram_freq = 1});
  Trained t = NewModel();
  t.x.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(
      t.model->Fit(t.x, t.y, {.epochs = 2, .callbacks = {&board}, .verbose = Verbose::kSilent})
          .ok());
  int losses = 0;
  for (const pb::Event& event : EventsIn(directory + "/train")) {
    if (event.summary().value_size() == 0) continue;
    EXPECT_EQ(event.summary().value(0).tag().find("histogram"), std::string::npos);
    losses += event.summary().value(0).tag() == "epoch_loss";
  }
  EXPECT_EQ(losses, 2);
}

TEST(TensorBoard, SaysHowATrainingEnded) {
  const auto status_of = [](bool fails) {
    const std::string directory = TestDirectory();
    {
      TensorBoard board({.log_dir = directory, .hparams = {{"rate", 0.01}, {"units", 2}}});
      LambdaCallback stop({.on_epoch_end = [fails](int64_t, Logs&) {
        return fails ? errors::Aborted("enough") : OkStatus();
      }});
      Trained t = NewModel();
      EXPECT_EQ(
          t.model->Fit(t.x, t.y, {.callbacks = {&board, &stop}, .verbose = Verbose::kSilent}).ok(),
          !fails);
    }
    const std::vector<pb::Event> events = EventsIn(directory);
    EXPECT_EQ(events.size(), 3u);
    pb::HParamsPluginData end;
    EXPECT_TRUE(
        end.ParseFromString(events.back().summary().value(0).metadata().plugin_data().content()));
    return end.session_end_info().status();
  };
  EXPECT_EQ(status_of(false), pb::HParamsSessionEnd::STATUS_SUCCESS);
  EXPECT_EQ(status_of(true), pb::HParamsSessionEnd::STATUS_FAILURE);
}

TEST(TensorBoard, RefusesWhatCannotBe) {
  Trained t = NewModel();
  const auto fit = [&t](TensorBoardOptions options) {
    TensorBoard board(std::move(options));
    return t.model->Fit(t.x, t.y, {.callbacks = {&board}, .verbose = Verbose::kSilent}).status();
  };
  EXPECT_TRUE(errors::IsInvalidArgument(fit({.log_dir = ""})));
  EXPECT_TRUE(errors::IsInvalidArgument(fit({.log_dir = TestDirectory(), .update_freq = -1})));
  const std::string file = TestDirectory();
  ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(file, "").ok());
  EXPECT_FALSE(fit({.log_dir = file}).ok());
}

}  // namespace
}  // namespace millrace
