// SPDX-License-Identifier: Apache-2.0
// Files of weights, and what the callbacks that write checkpoints say and leave behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/saver.h"
#include "tests/fit/counting_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::Counted;
using testing::CountingModel;
using testing::Ones;

// A directory that is gone with it.
class Directory {
 public:
  Directory() {
    static int number = 0;
    const char* folder = std::getenv("TEST_TMPDIR");
    path_ = StrCat(folder == nullptr ? "/tmp" : folder, "/callbacks", getpid(), "_", number++);
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Directory() { fs::remove_all(path_); }
  std::string operator/(std::string_view name) const { return StrCat(path_, "/", name); }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::recursive_directory_iterator(path_)) {
      if (file.is_regular_file()) names.push_back(fs::relative(file.path(), path_));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void ExpectError(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) {
    EXPECT_NE(Message(status).find(part), std::string_view::npos)
        << "no '" << part << "' in: " << status;
  }
}

FitOptions Epochs(int64_t epochs, std::vector<Callback*> callbacks) {
  return {.batch_size = 2,
          .epochs = epochs,
          .shuffle = false,
          .callbacks = std::move(callbacks),
          .verbose = Verbose::kSilent};
}

double WeightOf(Model& model) {
  const auto weights = model.GetWeights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  return weights.ok() ? (*weights)[0].data<float>()[0] : NAN;
}

// --- Weights ----------------------------------------------------------------------------------

std::unique_ptr<Model> Net(int64_t seed, int64_t units = 5) {
  auto model = std::make_unique<Model>(layers::Sequential(
      {layers::Dense(units, {.kernel_initializer = initializers::GlorotUniform(seed)}),
       layers::BatchNormalization(), layers::Activation("relu"),
       layers::Lambda([](Pass& pass, std::span<const Output> x) {
         return ops::ExpandDims(pass.scope(), x[0], 1);
       }),
       layers::Gru(3, {.kernel_initializer = initializers::GlorotUniform(seed + 1),
                       .recurrent_initializer = initializers::Orthogonal({.seed = seed + 2})})}));
  EXPECT_TRUE(model->Build({{PartialShape({-1, 4})}}).ok());
  return model;
}

bool SameWeights(Model& a, Model& b) {
  const auto x = a.GetWeights(), y = b.GetWeights();
  EXPECT_TRUE(x.ok() && y.ok());
  if (x->size() != y->size()) return false;
  for (std::size_t i = 0; i < x->size(); ++i) {
    const auto &u = (*x)[i], &v = (*y)[i];
    for (int64_t k = 0; k < u.num_elements(); ++k) {
      if (u.data<float>()[k] != v.data<float>()[k]) return false;
    }
  }
  return true;
}

TEST(WeightsTest, GoThroughFilesOfBothFormats) {
  const Directory directory;
  for (const WeightsFormat format : {WeightsFormat::kObjects, WeightsFormat::kNames}) {
    const auto from = Net(1), to = Net(50);
    ASSERT_FALSE(SameWeights(*from, *to));
    const std::string prefix = directory / (format == WeightsFormat::kObjects ? "o" : "n");
    ASSERT_TRUE(from->SaveWeights(prefix, format).ok());
    const Status loaded = to->LoadWeights(prefix);
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_TRUE(SameWeights(*from, *to));
  }
}

TEST(WeightsTest, HaveTheNamesOfLayersInFilesOfObjects) {
  const Directory directory;
  const auto model = Net(1);
  ASSERT_TRUE(model->SaveWeights(directory / "w").ok());
  const auto reader = CheckpointReader::Open(directory / "w");
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const char* name : {"layer-0/kernel", "layer-0/bias", "layer-1/gamma",
                           "layer-1/moving_variance", "layer-4/gru_cell/recurrent_kernel"}) {
    EXPECT_NE((*reader)->Find(StrCat(name, "/.ATTRIBUTES/VARIABLE_VALUE")), nullptr) << name;
  }
  EXPECT_TRUE((*reader)->ObjectGraph().ok());
  ASSERT_TRUE(model->SaveWeights(directory / "n", WeightsFormat::kNames).ok());
  const auto by_name = CheckpointReader::Open(directory / "n");
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  for (const Variable& v : model->weights()) EXPECT_NE((*by_name)->Find(v.name()), nullptr);
}

TEST(WeightsTest, ThatDoNotFitAreNamed) {
  const Directory directory;
  ASSERT_TRUE(Net(1)->SaveWeights(directory / "five").ok());
  ASSERT_TRUE(Net(1)->SaveWeights(directory / "named", WeightsFormat::kNames).ok());
  const auto other = Net(2, 7);
  ExpectError(other->LoadWeights(directory / "five"), StatusCode::kInvalidArgument, {"kernel"});
  ExpectError(other->LoadWeights(directory / "named"), StatusCode::kInvalidArgument, {"kernel"});
  ExpectError(other->LoadWeights(directory / "none"), StatusCode::kNotFound, {"none"});
  Model unbuilt(layers::Sequential({layers::Dense(2)}));
  ExpectError(unbuilt.SaveWeights(directory / "x"), StatusCode::kFailedPrecondition, {"Build"});
}

// --- ModelCheckpoint --------------------------------------------------------------------------

TEST(ModelCheckpointTest, SaysWhatItDoes) {
  const Directory directory;
  const auto model = CountingModel(1.0, Counted());
  std::ostringstream out;
  const std::vector<double> values = {0.5, 0.75, 0.25};
  LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    logs.Set("val_loss", values[epoch]);
    return OkStatus();
  }});
  ModelCheckpoint best({.filepath = directory / "b",
                        .save_best_only = true,
                        .save_weights_only = true,
                        .direction = Direction::kDown,
                        .verbose = 1,
                        .out = &out});
  const auto history = model->Fit(Ones(2), Ones(2), Epochs(3, {&script, &best}));
  ASSERT_TRUE(history.ok()) << history.status();
  const std::string b = directory / "b";
  EXPECT_EQ(out.str(), StrCat("\nEpoch 1: val_loss improved from None to 0.50000, saving model to ",
                              b, "\nEpoch 1: finished saving model to ", b,
                              "\n\nEpoch 2: val_loss did not improve from 0.50000\n"
                              "\nEpoch 3: val_loss improved from 0.50000 to 0.25000, saving model "
                              "to ",
                              b, "\nEpoch 3: finished saving model to ", b, "\n"));
}

TEST(ModelCheckpointTest, ANanIsNeverTheBest) {
  const Directory directory;
  const auto model = CountingModel(1.0, Counted());
  const std::vector<double> values = {NAN, 2.0, NAN, 3.0};
  LambdaCallback script({.on_epoch_end = [&](int64_t epoch, Logs& logs) {
    logs.Set("val_loss", values[epoch]);
    return OkStatus();
  }});
  ModelCheckpoint best({.filepath = directory / "{epoch}",
                        .save_best_only = true,
                        .save_weights_only = true,
                        .direction = Direction::kDown});
  ASSERT_TRUE(model->Fit(Ones(2), Ones(2), Epochs(4, {&script, &best})).ok());
  EXPECT_EQ(best.best(), 2.0);
  EXPECT_TRUE(CheckpointExists(directory / "2"));
  EXPECT_FALSE(CheckpointExists(directory / "1") || CheckpointExists(directory / "4"));
}

TEST(ModelCheckpointTest, PathsAreFormattedAsPythonDoes) {
  const Directory directory;
  const auto model = CountingModel(1.0, Counted());
  LambdaCallback script({.on_epoch_end = [&](int64_t, Logs& logs) {
    logs.Set("f1", 0.0625);
    return OkStatus();
  }});
  ModelCheckpoint a({.filepath = directory / "a{{{epoch:03d}}}", .save_weights_only = true});
  ModelCheckpoint b({.filepath = directory / "b{f1}", .save_weights_only = true});
  ModelCheckpoint c({.filepath = directory / "c{f1:08.3f}-{epoch:4}", .save_weights_only = true});
  ModelCheckpoint d({.filepath = directory / "d{f1:e}", .save_weights_only = true});
  const auto history = model->Fit(Ones(2), Ones(2), Epochs(1, {&script, &a, &b, &c, &d}));
  ASSERT_TRUE(history.ok()) << history.status();
  for (const char* name : {"a{001}", "b0.0625", "c0000.062-   1", "d6.250000e-02"}) {
    EXPECT_TRUE(CheckpointExists(directory / name)) << name;
  }
}

TEST(ModelCheckpointTest, PathsThatCannotBeAreErrors) {
  const Directory directory;
  const auto fit = [&](const std::string& path) {
    ModelCheckpoint checkpoint({.filepath = path, .save_weights_only = true});
    return CountingModel(1.0, Counted())->Fit(Ones(2), Ones(2), Epochs(1, {&checkpoint})).status();
  };
  ExpectError(fit(directory / "{epoch:d"), StatusCode::kInvalidArgument,
              {"ModelCheckpoint", "Failed to format this callback filepath", "expected '}'"});
  ExpectError(fit(directory / "{epoch:x}"), StatusCode::kInvalidArgument, {"format specifier 'x'"});
  ExpectError(fit(directory / "{loss:d}"), StatusCode::kInvalidArgument, {"code 'd'"});
  ExpectError(fit(directory / "{los}"), StatusCode::kInvalidArgument, {"'los'", "epoch", "loss"});
  ExpectError(fit(directory / "a}b"), StatusCode::kInvalidArgument, {"Single '}'"});
  ExpectError(fit(""), StatusCode::kInvalidArgument, {"non-directory filepath"});
  fs::create_directory(directory / "there");
  ExpectError(fit(directory / "there"), StatusCode::kInvalidArgument,
              {"non-directory filepath", "an existing directory"});
}

TEST(ModelCheckpointTest, OfAllOfTheTrainingIsGoneOnFrom) {
  const Directory directory;
  const auto first = CountingModel(1.0, Counted());
  ModelCheckpoint all({.filepath = directory / "t{epoch}-{batch}", .save_freq = 1});
  ASSERT_TRUE(first->Fit(Ones(6), Ones(6), Epochs(2, {&all})).ok());
  // A checkpoint of weights by their names as well.
  const auto loads = CountingModel(1.0, Counted());
  ASSERT_TRUE(loads->Build({{PartialShape({-1, 1})}}).ok());
  ASSERT_TRUE(loads->LoadWeights(directory / "t1-2").ok());
  EXPECT_EQ(WeightOf(*loads), 2);

  const auto second = CountingModel(1.0, Counted());
  int steps = 0;
  LambdaCallback counts({.on_train_batch_begin = [&](int64_t) {
    ++steps;
    return OkStatus();
  }});
  FitOptions options = Epochs(2, {&counts});
  options.resume_from = directory / "t1-2";
  const auto history = second->Fit(Ones(6), Ones(6), options);
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_EQ(steps, 4) << "of six";
  EXPECT_EQ(WeightOf(*second), 6);
  ASSERT_EQ(history->epochs().size(), 2u);
  // The mean of all of the epoch's steps, those of the first run among them: 0, -1, -2.
  EXPECT_DOUBLE_EQ(history->epochs()[0].logs["loss"], -1);
}

TEST(ModelCheckpointTest, IsTheSameWhereItIsWrittenAside) {
  for (const bool weights : {false, true}) {
    const Directory now, aside;
    for (const bool asynchronous : {false, true}) {
      const auto model = CountingModel(1.0, Counted());
      ModelCheckpoint all({.filepath = (asynchronous ? aside : now) / "t{epoch}-{batch}",
                           .save_weights_only = weights,
                           .save_freq = 1,
                           .asynchronous = asynchronous});
      ASSERT_TRUE(model->Fit(Ones(6), Ones(6), Epochs(2, {&all})).ok());
    }
    ASSERT_EQ(now.files(), aside.files());
    EXPECT_EQ(now.files().size(), 12u);
    for (const std::string& file : now.files()) {
      EXPECT_EQ(TextOf(now / file), TextOf(aside / file)) << file;
    }
  }
}

TEST(ModelCheckpointTest, TheErrorOfAWriteAsideEndsFit) {
  for (const bool weights : {false, true}) {
    const Directory directory;
    std::ofstream(directory / "file") << "";
    const auto model = CountingModel(1.0, Counted());
    ModelCheckpoint all(
        {.filepath = directory / "file/t", .save_weights_only = weights, .asynchronous = true});
    const Status status = model->Fit(Ones(6), Ones(6), Epochs(1, {&all})).status();
    EXPECT_FALSE(status.ok()) << "of the only save, at the end";
    ExpectError(status, status.code(), {"ModelCheckpoint", "file"});
  }
}

// --- BackupAndRestore -------------------------------------------------------------------------

// Fails before the given step, counted over epochs of three.
Status FailingFit(Model& model, const BackupAndRestoreOptions& backup_options, int64_t dies_at,
                  std::vector<Callback*> others = {}) {
  BackupAndRestore backup(backup_options);
  LambdaCallback killer({.on_train_batch_begin = [&](int64_t batch) -> Status {
    return model.training_run()->epoch() * 3 + batch == dies_at ? errors::Aborted("killed")
                                                                : OkStatus();
  }});
  others.insert(others.begin(), {&backup, &killer});
  return model.Fit(Ones(6), Ones(6), Epochs(4, others)).status();
}

TEST(BackupAndRestoreTest, KeepsOneBackupOrTwo) {
  for (const bool both : {false, true}) {
    const Directory directory;
    const BackupAndRestoreOptions options{
        .directory = directory.path(), .save_freq = 1, .double_checkpoint = both};
    EXPECT_TRUE(errors::IsAborted(FailingFit(*CountingModel(1.0, Counted()), options, 7)));
    std::vector<std::string> want = {"backup-7.data-00000-of-00001", "backup-7.index",
                                     "checkpoint"};
    if (both) {
      want.insert(want.begin(), {"backup-6.data-00000-of-00001", "backup-6.index"});
    }
    EXPECT_EQ(directory.files(), want);
  }
}

TEST(BackupAndRestoreTest, GoesOnFromWhatWasWrittenAside) {
  const Directory directory;
  const BackupAndRestoreOptions options{
      .directory = directory.path(), .save_freq = 1, .asynchronous = true};
  EXPECT_TRUE(errors::IsAborted(FailingFit(*CountingModel(1.0, Counted()), options, 7)));
  EXPECT_EQ(directory.files(), (std::vector<std::string>{"backup-7.data-00000-of-00001",
                                                         "backup-7.index", "checkpoint"}));
  const auto model = CountingModel(1.0, Counted());
  const Status ended = FailingFit(*model, options, -1);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(WeightOf(*model), 12);
  EXPECT_FALSE(fs::exists(directory.path())) << "deleted at the end";
}

TEST(BackupAndRestoreTest, ADamagedBackupIsSaidOrTheOneBeforeIsTaken) {
  for (const bool both : {false, true}) {
    const Directory directory;
    const BackupAndRestoreOptions options{
        .directory = directory.path(), .save_freq = 1, .double_checkpoint = both};
    EXPECT_TRUE(errors::IsAborted(FailingFit(*CountingModel(1.0, Counted()), options, 7)));
    {
      std::fstream file(directory / "backup-7.data-00000-of-00001",
                        std::ios::in | std::ios::out | std::ios::binary);
      char byte = 0;
      file.seekg(3);
      file.get(byte);
      file.seekp(3);
      file.put(static_cast<char>(byte ^ 1));
    }
    const auto model = CountingModel(1.0, Counted());
    const Status status = FailingFit(*model, options, -1);
    if (both) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(WeightOf(*model), 12);
    } else {
      ExpectError(status, StatusCode::kDataLoss, {"BackupAndRestore", directory.path(), "delete"});
    }
  }
}

TEST(BackupAndRestoreTest, ADamagedStateFileIsMadeAnewOfTheBackups) {
  for (const char* text : {"", "model_checkpoint_path: \"ba", "\x01"}) {
    SCOPED_TRACE(text);
    const Directory directory;
    const BackupAndRestoreOptions options{
        .directory = directory.path(), .save_freq = 1, .double_checkpoint = true};
    EXPECT_TRUE(errors::IsAborted(FailingFit(*CountingModel(1.0, Counted()), options, 7)));
    std::ofstream(directory / "checkpoint") << text;
    const auto model = CountingModel(1.0, Counted());
    EXPECT_TRUE(errors::IsAborted(FailingFit(*model, options, 9)));
    EXPECT_EQ(WeightOf(*model), 9) << "gone on from step 7";
    EXPECT_EQ(
        directory.files(),
        (std::vector<std::string>{"backup-8.data-00000-of-00001", "backup-8.index",
                                  "backup-9.data-00000-of-00001", "backup-9.index", "checkpoint"}));
  }
}

TEST(BackupAndRestoreTest, ABackupOfAnotherProgramIsRefused) {
  const Directory directory;
  const BackupAndRestoreOptions options{.directory = directory.path(), .save_freq = 1};
  EXPECT_TRUE(errors::IsAborted(FailingFit(*CountingModel(1.0, Counted()), options, 4)));
  const auto with_metric = CountingModel(1.0, Counted(), {"mae"});
  ExpectError(FailingFit(*with_metric, options, -1), StatusCode::kInvalidArgument,
              {"another program", "backup-4"});
  BackupAndRestore backup(options);
  ExpectError(CountingModel(1.0, Counted())->Fit(Ones(8), Ones(8), Epochs(4, {&backup})).status(),
              StatusCode::kInvalidArgument, {"6 samples", "now there are 8"});
  EXPECT_TRUE(CheckpointExists(directory / "backup-4"));
}

TEST(BackupAndRestoreTest, TrainingThatWasStoppedStaysStopped) {
  const Directory directory;
  const BackupAndRestoreOptions options{.directory = directory.path()};
  LambdaCallback stops({.on_epoch_end = [](int64_t, Logs&) { return OkStatus(); }});
  const auto first = CountingModel(1.0, Counted());
  LambdaCallback stop_and_die(
      {.on_train_end = [](const Logs&) { return errors::Aborted("killed"); },
       .on_epoch_end =
           [&](int64_t epoch, Logs&) {
             if (epoch == 1) first->set_stop_training(true);
             return OkStatus();
           }});
  // It dies before the backups are deleted.
  BackupAndRestore backup(options);
  const Status died = first->Fit(Ones(6), Ones(6), Epochs(4, {&stop_and_die, &backup})).status();
  ASSERT_TRUE(errors::IsAborted(died)) << died;
  const auto second = CountingModel(1.0, Counted());
  EXPECT_TRUE(FailingFit(*second, options, -1).ok());
  EXPECT_EQ(WeightOf(*second), 6);
}

TEST(BackupAndRestoreTest, TheCsvFileHasEveryEpochOnce) {
  const Directory directory, logs;
  const auto text = [&](const std::string& name) {
    std::ifstream file(logs / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  {
    CsvLogger whole(logs / "whole.csv");
    ASSERT_TRUE(CountingModel(1.0, Counted())->Fit(Ones(6), Ones(6), Epochs(4, {&whole})).ok());
  }
  // The second epoch ends behind the backup: it is made, and written, again.
  const BackupAndRestoreOptions options{.directory = directory.path(), .save_freq = 5};
  for (const int64_t dies_at : {8, -1}) {
    CsvLogger csv(logs / "parts.csv");
    const Status status = FailingFit(*CountingModel(1.0, Counted()), options, dies_at, {&csv});
    EXPECT_EQ(status.ok(), dies_at < 0) << status;
  }
  EXPECT_EQ(text("parts.csv"), text("whole.csv"));
}

TEST(BackupAndRestoreTest, OptionsThatCannotBeAreErrors) {
  const auto fit = [](const BackupAndRestoreOptions& o) {
    return FailingFit(*CountingModel(1.0, Counted()), o, -1);
  };
  ExpectError(fit({}), StatusCode::kInvalidArgument, {"directory"});
  ExpectError(fit({.directory = "x", .save_freq = -1}), StatusCode::kInvalidArgument,
              {"save_freq", "-1"});
}

}  // namespace
}  // namespace millrace
