// SPDX-License-Identifier: Apache-2.0
// Models whose tables are cut into parts, one for each parameter server: they train as they do with
// a table in one piece, and are saved as that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/keras_optimizers.h"
#include "millrace/millrace.h"
#include "millrace/partitioners.h"
#include "millrace/saved_model.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 11, kWidth = 4, kSamples = 22;

struct Setting {
  int workers = 1, ps = 3;
  int parts = 0;  // 0: the table is not cut
  bool by_hash = false;
  std::function<std::unique_ptr<Optimizer>()> optimizer = [] {
    return optimizers::Sgd({.learning_rate = 0.3});
  };
  Regularizer regularizer{}, kernel_regularizer{};
  Constraint constraint{};
  bool synchronized_norm = false;
  bool all_weights = false;  // the kernel and the bias are cut, too
  std::string precision = "float32";
};

Tensor Ids() {
  Tensor ids(kInt64, Shape({kSamples, 3}));
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    ids.data<int64_t>()[i] = (i * i + i / 5) % kRows;
  }
  return ids;
}

Tensor Labels() {
  Tensor y(kFloat, Shape({kSamples, 1}));
  for (int64_t i = 0; i < kSamples; ++i) y.data<float>()[i] = static_cast<float>((i * 7) % 5) / 5;
  return y;
}

// Servers, and a model that trains with them.
struct Training {
  explicit Training(const Setting& s) {
    cluster = LocalCluster::Start({.workers = s.workers, .ps = s.ps}).value();
    StrategyOptions options;
    options.task.cluster = cluster->spec();
    options.target = cluster->target("worker", 0);
    if (s.parts > 0) options.variable_partitioner = FixedShards(s.parts);
    if (s.all_weights) options.variable_partitioner = AllWeights(options.variable_partitioner);
    const auto strategy = MakeStrategy("parameter_server", options).value();
    layers::LayerList net;
    net.push_back(layers::Embedding(kRows, kWidth,
                                    {.embeddings_initializer = initializers::RandomUniform(
                                         {.minval = -0.5, .maxval = 0.5, .seed = 7}),
                                     .embeddings_regularizer = s.regularizer,
                                     .embeddings_constraint = s.constraint,
                                     .by_hash = s.by_hash}));
    net.push_back(layers::GlobalAveragePooling1D());
    if (s.synchronized_norm) net.push_back(layers::BatchNormalization({.synchronized = true}));
    net.push_back(layers::Dense(1, {.kernel_initializer = initializers::GlorotUniform(8),
                                    .kernel_regularizer = s.kernel_regularizer}));
    model = std::make_unique<Model>(layers::Sequential(std::move(net)),
                                    ModelOptions{.strategy = strategy, .precision = s.precision});
    const Status compiled = model->Compile({.optimizer = s.optimizer(), .loss = "mse"});
    EXPECT_TRUE(compiled.ok()) << compiled;
  }

  // The losses of the epochs, and the weights after them.
  std::vector<Tensor> Fit(int64_t epochs, const Tensor& ids = Ids(), FitOptions o = {}) {
    o.batch_size = 8;
    o.epochs = epochs;
    o.shuffle = false;
    o.verbose = Verbose::kSilent;
    const auto history = model->Fit(ids, Labels().Slice(0, ids.dim(0)), o);
    EXPECT_TRUE(history.ok()) << history.status();
    std::vector<Tensor> all = Weights();
    if (!history.ok()) return all;
    const std::vector<double>& losses = history->values("loss");
    all.push_back(Tensor::FromValues<double>(losses, Shape({static_cast<int64_t>(losses.size())})));
    return all;
  }
  std::vector<Tensor> Weights() {
    const auto weights = model->GetWeights();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return weights.ok() ? *weights : std::vector<Tensor>();
  }

  std::unique_ptr<LocalCluster> cluster;
  std::unique_ptr<Model> model;
};

void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(got[i], wanted[i])) << "value " << i;
  }
}

void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), wanted[i].shape());
    if (got[i].dtype() != kFloat) continue;
    for (int64_t k = 0; k < got[i].num_elements(); ++k) {
      EXPECT_NEAR(got[i].data<float>()[k], wanted[i].data<float>()[k], 1e-5) << i << " " << k;
    }
  }
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;
const std::vector<MakeOptimizer>& SomeOptimizers() {
  static const std::vector<MakeOptimizer> all = {
      [] { return optimizers::Sgd({.learning_rate = 0.3}); },
      [] { return optimizers::Sgd({.learning_rate = 0.3, .momentum = 0.9}); },
      [] { return optimizers::Adagrad({.learning_rate = 0.3}); },
      [] { return optimizers::Adam({.learning_rate = 0.05}); }};
  return all;
}

std::string DeviceOf(const Variable& v) { return v.handle.op().device(); }

TEST(ShardedTable, LiesOnOneParameterServerAfterTheOther) {
  Training cut({.parts = 3});
  cut.Fit(1);
  std::vector<std::string> names, places;
  for (const Variable& v : cut.model->weights()) {
    names.push_back(v.name());
    places.push_back(DeviceOf(v).substr(0, 23));
  }
  EXPECT_THAT(names, ElementsAre("sequential/embedding/embeddings/part_0",
                                 "sequential/embedding/embeddings/part_1",
                                 "sequential/embedding/embeddings/part_2",
                                 "sequential/dense/kernel", "sequential/dense/bias"));
  EXPECT_THAT(places, ElementsAre("/job:ps/replica:0/task:", "/job:ps/replica:0/task:",
                                  "/job:ps/replica:0/task:", "/job:ps/replica:0/task:",
                                  "/job:ps/replica:0/task:"));
  EXPECT_NE(DeviceOf(cut.model->weights()[0]), DeviceOf(cut.model->weights()[1]));
  EXPECT_NE(DeviceOf(cut.model->weights()[1]), DeviceOf(cut.model->weights()[2]));
  // As a whole for whoever asks for values.
  const std::vector<Tensor> values = cut.Weights();
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].shape(), Shape({kRows, kWidth}));
}

// The kernel has four rows, and the bias one.
TEST(AllWeights, AreCutAndTrainAsThoseInOnePieceDo) {
  for (const int workers : {1, 2}) {
    for (std::size_t i = 0; i < SomeOptimizers().size(); ++i) {
      SCOPED_TRACE(StrCat(workers, " workers, optimizer ", i));
      Training whole({.workers = workers, .optimizer = SomeOptimizers()[i]});
      Training cut(
          {.workers = workers, .parts = 3, .optimizer = SomeOptimizers()[i], .all_weights = true});
      ExpectSameBits(cut.Fit(2), whole.Fit(2));
      std::vector<std::string> names;
      for (const Variable& v : cut.model->weights()) names.push_back(v.name());
      ASSERT_EQ(names.size(), 7u);
      EXPECT_THAT(std::vector(names.begin() + 3, names.end()),
                  ElementsAre("sequential/dense/kernel/part_0", "sequential/dense/kernel/part_1",
                              "sequential/dense/kernel/part_2", "sequential/dense/bias"));
    }
  }
}

TEST(AllWeights, AreRegularizedAndComputedInSixteenBitsAsAWhole) {
  for (const char* precision : {"float32", "mixed_bfloat16"}) {
    SCOPED_TRACE(precision);
    const Setting one{
        .workers = 2, .kernel_regularizer = regularizers::L2(0.1), .precision = precision};
    Setting three = one;
    three.parts = 3;
    three.all_weights = true;
    Training whole(one), cut(three);
    ExpectClose(cut.Fit(2), whole.Fit(2));
  }
}

TEST(AllWeights, AreLoadedInOnePieceAndInParts) {
  const std::string prefix = StrCat(::testing::TempDir(), "/all_weights_", getpid(), "/weights");
  std::filesystem::create_directories(std::filesystem::path(prefix).parent_path());
  Training three({.parts = 3, .all_weights = true});
  three.Fit(1);
  ASSERT_TRUE(three.model->SaveWeights(prefix).ok());
  for (const Setting& setting : {Setting{.ps = 2, .parts = 2, .all_weights = true}, Setting{}}) {
    Training other(setting);
    ASSERT_TRUE(other.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
    const Status loaded = other.model->LoadWeights(prefix);
    ASSERT_TRUE(loaded.ok()) << loaded;
    ExpectSameBits(other.Weights(), three.Weights());
  }
}

// No worker has all of it.
TEST(ShardedTable, BeginsWithValuesThatAreComputedWhereItLies) {
  Training cut({.parts = 3});
  ASSERT_TRUE(cut.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
  for (int i = 0; i < 3; ++i) {
    const Variable v = cut.model->weights()[static_cast<std::size_t>(i)];
    EXPECT_EQ(v.initial_value.op().device(), DeviceOf(v)) << v.name();
    EXPECT_EQ(v.initial_value.shape(), v.shape()) << v.name();
  }
}

TEST(ShardedTable, TrainsAsOneInOnePieceDoes) {
  for (const int workers : {1, 2}) {
    for (std::size_t i = 0; i < SomeOptimizers().size(); ++i) {
      SCOPED_TRACE(StrCat(workers, " workers, optimizer ", i));
      Training whole({.workers = workers, .optimizer = SomeOptimizers()[i]});
      Training cut({.workers = workers, .parts = 3, .optimizer = SomeOptimizers()[i]});
      ExpectSameBits(cut.Fit(2), whole.Fit(2));
    }
  }
}

// All whose rule looks at single elements; what those do that look at a whole variable is another
// thing (docs/strategies.md).
TEST(ShardedTable, TrainsAsOneInOnePieceDoesWithEveryRuleOfElements) {
  namespace o = optimizers;
  const std::pair<const char*, MakeOptimizer> rules[] = {
      {"nesterov",
       [] { return o::Sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}); }},
      {"rmsprop", [] { return o::RmsProp({.learning_rate = 0.05}); }},
      {"centered rmsprop",
       [] { return o::RmsProp({.learning_rate = 0.05, .momentum = 0.5, .centered = true}); }},
      {"adamax", [] { return o::Adamax({.learning_rate = 0.05}); }},
      {"nadam", [] { return o::Nadam({.learning_rate = 0.05}); }},
      {"adadelta", [] { return o::Adadelta({.learning_rate = 0.5}); }},
      {"ftrl", [] { return o::Ftrl({.learning_rate = 0.1}); }},
      {"lion", [] { return o::Lion({.learning_rate = 0.01}); }},
      {"clipped values",
       [] { return o::Sgd({.learning_rate = 0.3, .common = {.clip_value = 0.01}}); }},
      {"clipped by the norm of all",
       [] { return o::Sgd({.learning_rate = 0.3, .common = {.global_clip_norm = 0.05}}); }},
      {"decay", [] { return o::Adam({.learning_rate = 0.05, .common = {.weight_decay = 0.1}}); }},
      {"averages",
       [] {
         return o::Adam(
             {.learning_rate = 0.05, .common = {.use_ema = true, .ema_overwrite_frequency = 2}});
       }},
      {"accumulated gradients",
       [] {
         return o::Adam({.learning_rate = 0.05, .common = {.gradient_accumulation_steps = 2}});
       }},
  };
  for (const auto& [name, optimizer] : rules) {
    SCOPED_TRACE(name);
    Training whole({.workers = 2, .optimizer = optimizer});
    Training cut({.workers = 2, .parts = 3, .optimizer = optimizer});
    ExpectClose(cut.Fit(2), whole.Fit(2));
  }
}

TEST(ShardedTable, TrainsByHashAsOneInOnePieceDoes) {
  Training whole({.workers = 2, .by_hash = true}), cut({.workers = 2, .parts = 3, .by_hash = true});
  const std::vector<Tensor> trained = cut.Fit(2);
  ExpectSameBits(trained, whole.Fit(2));
  Training by_number({.workers = 2, .parts = 3});
  EXPECT_FALSE(TensorsEqual(trained[0], by_number.Fit(2)[0]));
}

TEST(ShardedTable, IsRegularizedAndConstrainedAsAWhole) {
  const Setting one{
      .workers = 2, .regularizer = regularizers::L2(0.1), .constraint = constraints::MaxNorm(0.5)};
  Setting three = one;
  three.parts = 3;
  Training whole(one), cut(three);
  ExpectClose(cut.Fit(2), whole.Fit(2));
}

// There every replica's loss depends on the rows that the others take.
TEST(ShardedTable, TrainsBeforeLayersThatLookAtTheWholeBatch) {
  Training whole({.workers = 2, .synchronized_norm = true});
  Training cut({.workers = 2, .parts = 3, .synchronized_norm = true});
  ExpectClose(cut.Fit(2), whole.Fit(2));
}

// Rows 1 and 9 lie in the first part and the last.
TEST(ShardedTable, ChangesTheRowsThatBatchesHave) {
  Training cut({.workers = 2, .parts = 3, .optimizer = [] { return optimizers::Adagrad(); }});
  Tensor ids(kInt64, Shape({8, 3}));
  for (int64_t i = 0; i < ids.num_elements(); ++i) ids.data<int64_t>()[i] = i % 3 == 0 ? 9 : 1;
  ASSERT_TRUE(cut.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
  const Tensor before = cut.Weights()[0];
  const Tensor after = cut.Fit(1, ids)[0];
  std::vector<float> accumulated;
  int parts = 0;
  for (const Variable& v : Variables(cut.model->graph())) {
    if (v.name().find("embeddings_part_") == std::string::npos) continue;
    EXPECT_EQ(DeviceOf(v), DeviceOf(cut.model->weights()[static_cast<std::size_t>(parts++)]));
    const auto value = cut.model->session()->Eval(v.read);
    ASSERT_TRUE(value.ok()) << value.status();
    accumulated.insert(accumulated.end(), value->flat<float>().begin(), value->flat<float>().end());
  }
  ASSERT_EQ(parts, 3);
  ASSERT_EQ(accumulated.size(), static_cast<std::size_t>(kRows * kWidth));
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const bool is_touched = i / kWidth == 1 || i / kWidth == 9;
    EXPECT_EQ(before.data<float>()[i] != after.data<float>()[i], is_touched) << i;
    EXPECT_EQ(accumulated[static_cast<std::size_t>(i)] != 0.1f, is_touched) << i;
  }
}

// Nothing in a step is as large as a part, but the variables themselves and what gives them values.
TEST(ShardedTable, IsNotReadByStepsAsAWhole) {
  constexpr int64_t kMany = 100'000;
  const auto cluster = LocalCluster::Start({.workers = 2, .ps = 2}).value();
  StrategyOptions options;
  options.task.cluster = cluster->spec();
  options.target = cluster->target("worker", 0);
  options.variable_partitioner = MinSize({.max_shards = 2});
  Model model(
      layers::Sequential({layers::Embedding(kMany, 4), layers::Flatten(), layers::Dense(1)}),
      {.strategy = MakeStrategy("parameter_server", options).value()});
  ASSERT_TRUE(model.Compile({.optimizer = "adagrad", .loss = "mse"}).ok());
  const auto history =
      model.Fit(Ids(), Labels(), {.batch_size = 8, .shuffle = false, .verbose = Verbose::kSilent});
  ASSERT_TRUE(history.ok()) << history.status();
  int steps = 0;
  for (const Operation& op : model.graph().operations()) {
    if (op.name().find("train/") == std::string::npos) continue;
    ++steps;
    if (op.name().ends_with("_accumulator/Assign")) continue;  // of the first value
    for (int i = 0; i < op.num_inputs(); ++i) {
      const auto shape = op.input(i).shape().AsShape();
      EXPECT_LT(shape ? shape->num_elements() : 0, kMany) << op.name() << " of " << op.type();
    }
  }
  EXPECT_GT(steps, 10);
}

// A number that is no row of the table is an error of the step, with or without a hash.
TEST(ShardedTable, RefusesNumbersThatAreNoRows) {
  for (const bool by_hash : {false, true}) {
    Training cut({.parts = 3, .by_hash = by_hash});
    Tensor ids = Ids().Slice(0, 8);
    Tensor bad(kInt64, ids.shape());
    std::copy_n(ids.data<int64_t>(), ids.num_elements(), bad.data<int64_t>());
    bad.data<int64_t>()[5] = kRows;
    const auto predicted = cut.model->Predict(bad, {.verbose = Verbose::kSilent});
    EXPECT_THAT(predicted.status().ToString(), HasSubstr("partition")) << by_hash;
    EXPECT_TRUE(cut.model->Predict(ids, {.verbose = Verbose::kSilent}).ok());
  }
}

// ---- Files -------------------------------------------------------------------------

std::string EmptyFolder(const std::string& name) {
  const std::string folder = StrCat(::testing::TempDir(), "/sharded_table_", name, "_", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// Another number of parameter servers, and none of parts.
const std::vector<Setting>& OtherSettings(const MakeOptimizer& optimizer) {
  static std::vector<Setting> all;
  all = {{.ps = 2, .parts = 2, .optimizer = optimizer}, {.ps = 2, .optimizer = optimizer}};
  return all;
}

TEST(ShardedTable, IsLoadedIntoAnotherNumberOfParts) {
  const std::string folder = EmptyFolder("weights");
  Training three({.parts = 3});
  three.Fit(1);
  for (const WeightsFormat format : {WeightsFormat::kObjects, WeightsFormat::kNames}) {
    const std::string prefix = StrCat(folder, "/", static_cast<int>(format));
    const Status saved = three.model->SaveWeights(prefix, format);
    ASSERT_TRUE(saved.ok()) << saved;
    for (const Setting& setting : OtherSettings(SomeOptimizers()[0])) {
      Training other(setting);
      ASSERT_TRUE(other.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
      const Status loaded = other.model->LoadWeights(prefix);
      ASSERT_TRUE(loaded.ok()) << loaded;
      ExpectSameBits(other.Weights(), three.Weights());
      // And back.
      const std::string again = StrCat(prefix, "_again");
      ASSERT_TRUE(other.model->SaveWeights(again, format).ok());
      Training back({.parts = 3});
      ASSERT_TRUE(back.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
      ASSERT_TRUE(back.model->LoadWeights(again).ok());
      ExpectSameBits(back.Weights(), three.Weights());
    }
  }
}

// What the optimizer keeps, too: training goes on as if nothing had been changed.
TEST(ShardedTable, GoesOnInAnotherNumberOfPartsFromASaversFiles) {
  const std::string folder = EmptyFolder("saver");
  const MakeOptimizer optimizer = SomeOptimizers()[2];
  Training three({.parts = 3, .optimizer = optimizer});
  three.Fit(1);
  const auto saver = Saver::Create(three.model->graph());
  ASSERT_TRUE(saver.ok()) << saver.status();
  const auto prefix =
      (*saver)->Save(*three.model->session(), folder + "/model", {.write_meta_graph = false});
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  const auto reader = CheckpointReader::Open(*prefix);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const char* name : {"sequential/embedding/embeddings",
                           "train/adagrad/sequential_embedding_embeddings_accumulator"}) {
    const CheckpointReader::Entry* const entry = (*reader)->Find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->shape, Shape({kRows, kWidth}));
    EXPECT_EQ(entry->parts, 3);
  }
  const std::vector<Tensor> wanted = three.Fit(1);
  for (const Setting& setting : OtherSettings(optimizer)) {
    Training other(setting);
    other.Fit(0);  // makes the optimizer's variables
    const auto restorer = Saver::Create(other.model->graph());
    ASSERT_TRUE(restorer.ok()) << restorer.status();
    const Status restored = (*restorer)->Restore(*other.model->session(), *prefix);
    ASSERT_TRUE(restored.ok()) << restored;
    ExpectSameBits(other.Fit(1), wanted);
  }
}

TEST(ShardedTable, GoesOnInAnotherNumberOfPartsFromABackup) {
  const MakeOptimizer optimizer = SomeOptimizers()[3];
  Training through({.parts = 3, .optimizer = optimizer});
  std::vector<Tensor> wanted = through.Fit(3);
  wanted.pop_back();
  for (const Setting& setting : OtherSettings(optimizer)) {
    const std::string folder = EmptyFolder("backup");
    BackupAndRestore first({.directory = folder, .delete_checkpoint = false});
    Training three({.parts = 3, .optimizer = optimizer});
    three.Fit(1, Ids(), {.callbacks = {&first}});
    BackupAndRestore second({.directory = folder});
    Training other(setting);
    std::vector<Tensor> got = other.Fit(3, Ids(), {.callbacks = {&second}});
    EXPECT_EQ(got.back().num_elements(), 2);  // the epochs that were left
    got.pop_back();
    ExpectSameBits(got, wanted);
  }
}

TEST(ShardedTable, IsServedFromASavedModel) {
  const std::string folder = EmptyFolder("export") + "/model";
  Training three({.workers = 2, .parts = 3});
  three.Fit(1);
  const Tensor ids = Ids().Slice(0, 8);
  const auto wanted = three.model->Predict(ids, {.verbose = Verbose::kSilent});
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  const Status exported = ExportSavedModel(*three.model, folder);
  ASSERT_TRUE(exported.ok()) << exported;
  const auto loaded = LoadSavedModel(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto got = loaded->Run("serving_default", {{"keras_tensor", ids}});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), 1u);
  ExpectClose(std::vector<Tensor>{got->begin()->second}, std::vector<Tensor>{*wanted});
}

TEST(ShardedTable, TakesItsValuesAsAWhole) {
  Training three({.parts = 3}), two({.ps = 2, .parts = 2});
  three.Fit(1);
  ASSERT_TRUE(two.model->Build({{PartialShape({-1, 3}), kInt64}}).ok());
  std::vector<Tensor> weights = three.Weights();
  ASSERT_TRUE(two.model->SetWeights(weights).ok());
  ExpectSameBits(two.Weights(), weights);
  weights[0] = Tensor(kFloat, Shape({kRows + 1, kWidth}));
  EXPECT_THAT(two.model->SetWeights(weights).ToString(),
              HasSubstr("'sequential/embedding/embeddings'"));
}

}  // namespace
}  // namespace millrace
