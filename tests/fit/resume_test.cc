// Runs of Fit that are killed and gone on with: they end with the numbers of a run that was not,
// bit for bit, whichever step they are killed at.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/checkpoint_callbacks.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/preemption.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEpochs = 3, kStepsPerEpoch = 10, kBatch = 4, kRows = 38, kClasses = 3;
constexpr int64_t kSteps = kEpochs * kStepsPerEpoch;

std::string NewDirectory() {
  static int number = 0;
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      StrCat(folder == nullptr ? "/tmp" : folder, "/resume", getpid(), "_", number++);
  fs::remove_all(path);
  return path;
}

Tensor Inputs(std::vector<int64_t> sample) {
  sample.insert(sample.begin(), kRows);
  Tensor x(kFloat, Shape(sample));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 101.0f;
  }
  return x;
}

Tensor Labels() {
  Tensor y(kInt64, Shape({kRows}));
  for (int64_t i = 0; i < kRows; ++i) y.data<int64_t>()[i] = (i * 5) % kClasses;
  return y;
}

// A kind of model. Its seeds are drawn from `seed`: models of other seeds begin with other weights
// and drop other values, unless they go on from one another.
struct Kind {
  const char* name;
  Tensor x;
  std::function<layers::LayerList(int64_t seed)> layers;
  std::function<OptimizerSpec()> optimizer;
  bool has_rate = true;  // that callbacks set
};

layers::LayerPtr Classes(int64_t seed) {
  return layers::Dense(
      kClasses, {.activation = "softmax", .kernel_initializer = initializers::GlorotUniform(seed)});
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  kinds.push_back(
      {"Mlp", Inputs({6}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(layers::Dense(
             8, {.activation = "relu", .kernel_initializer = initializers::GlorotUniform(seed)}));
         l.push_back(layers::Dropout(0.3, {.seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] { return OptimizerSpec("adam"); }});
  kinds.push_back(
      {"Cnn", Inputs({6, 6, 1}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(
             layers::Conv2D(4, 3, {.kernel_initializer = initializers::GlorotUniform(seed)}));
         l.push_back(layers::BatchNormalization());
         l.push_back(layers::Activation("relu"));
         l.push_back(layers::MaxPooling2D());
         l.push_back(layers::Flatten());
         l.push_back(layers::Dropout(0.4, {.seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] { return OptimizerSpec(optimizers::Sgd({.learning_rate = 0.05, .momentum = 0.9})); }});
  kinds.push_back(
      {"Lstm", Inputs({5, 3}),
       [](int64_t seed) {
         layers::LayerList l;
         l.push_back(
             layers::Lstm(6, {.kernel_initializer = initializers::GlorotUniform(seed),
                              .recurrent_initializer = initializers::Orthogonal({.seed = seed + 3}),
                              .dropout = 0.2,
                              .seed = seed + 1}));
         l.push_back(Classes(seed + 2));
         return l;
       },
       [] {
         return OptimizerSpec(std::make_unique<optimizers::LossScale>(
             optimizers::Adam({.learning_rate = 0.01}),
             optimizers::LossScaleOptions{.initial_scale = 16, .dynamic_growth_steps = 7}));
       },
       false});
  return kinds;
}

struct Settings {
  int64_t seed = 1;
  int64_t save_freq = 1;
  std::string directory{};
  int64_t dies_at = -1;      // before so many steps have been made in all
  bool by_signal = false;    // of kill -9
  int64_t noticed_at = -1;   // in this step the process is told that it is to end
  std::string on_dataset{};  // "", "seeded" or "cached"
};

struct Result {
  Status status;
  std::map<std::string, Tensor> variables;
  std::vector<std::vector<double>> epochs;  // numbers of the epoch, then what was logged
  int64_t steps = 0;
  double best = 0;
};

Dataset Batches(const Kind& kind, const std::string& how) {
  const Dataset rows = Dataset::FromTensorSlices({kind.x, Labels()});
  if (how == "seeded") return rows.Shuffle(20, {.seed = 5}).Batch(kBatch).Prefetch(2);
  return rows.Shuffle(kRows, {.seed = 3}).Cache().Shuffle(7, {.seed = 9}).Batch(kBatch);
}

// All that there is at the end: weights, slots, counts, seeds, sums of metrics.
std::map<std::string, Tensor> VariablesOf(Model& model) {
  std::map<std::string, Tensor> values;
  for (const char* collection : {kVariables, kLocalVariables}) {
    for (const Variable& v : Variables(model.graph(), collection)) {
      const auto value = model.session()->Eval(v.read);
      EXPECT_TRUE(value.ok()) << v.name() << ": " << value.status();
      if (value.ok()) values.emplace(v.name(), *value);
    }
  }
  return values;
}

Result Train(const Kind& kind, const Settings& run) {
  Model model(layers::Sequential(kind.layers(run.seed)));
  Result result;
  result.status = model.Compile({.optimizer = kind.optimizer(),
                                 .loss = "sparse_categorical_crossentropy",
                                 .metrics = {"accuracy"}});
  if (!result.status.ok()) return result;
  BackupAndRestore backup({.directory = run.directory, .save_freq = run.save_freq});
  EarlyStopping watches({.patience = 2, .restore_best_weights = true});
  ReduceLrOnPlateau plateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.5});
  LearningRateScheduler decay([](int64_t, double rate) { return rate * 0.9; });
  LambdaCallback killer({.on_train_batch_begin = [&](int64_t batch) -> Status {
    const int64_t made = model.training_run()->epoch() * kStepsPerEpoch + batch;
    if (made == run.dies_at) {
      if (run.by_signal) ::kill(::getpid(), SIGKILL);
      return errors::Aborted("killed by the test");
    }
    if (made == run.noticed_at) ::raise(SIGTERM);
    ++result.steps;
    return OkStatus();
  }});
  FitOptions fit;
  fit.batch_size = kBatch;
  fit.epochs = kEpochs;
  fit.verbose = Verbose::kSilent;
  // Callbacks before and behind the backup have states, too.
  fit.callbacks = {&decay, &backup, &watches, &plateau, &killer};
  if (!kind.has_rate) fit.callbacks = {&backup, &watches, &killer};
  StatusOr<History> history = errors::Internal("not trained");
  if (run.on_dataset.empty()) {
    fit.validation = ValidationData{kind.x.Slice(0, 5), Labels().Slice(0, 5)};
    history = model.Fit(kind.x, Labels(), fit);
  } else {
    fit.validation_dataset = Batches(kind, run.on_dataset).Take(2);
    history = model.Fit(Batches(kind, run.on_dataset), fit);
  }
  result.status = history.status();
  if (!history.ok()) return result;
  result.variables = VariablesOf(model);
  for (const History::Epoch& epoch : history->epochs()) {
    result.epochs.push_back({static_cast<double>(epoch.epoch)});
    for (const auto& [name, value] : epoch.logs) result.epochs.back().push_back(value);
  }
  result.best = watches.best().value_or(-1);
  return result;
}

void ExpectSameVariables(const std::map<std::string, Tensor>& got,
                         const std::map<std::string, Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) {
    const auto found = got.find(name);
    ASSERT_NE(found, got.end()) << name;
    const Tensor& other = found->second;
    ASSERT_EQ(other.shape(), value.shape()) << name;
    ASSERT_EQ(other.dtype(), value.dtype()) << name;
    const std::size_t bytes =
        static_cast<std::size_t>(value.num_elements()) * DataTypeSize(value.dtype());
    EXPECT_EQ(std::memcmp(other.raw_data(), value.raw_data(), bytes), 0)
        << name << ": " << other.DebugString(4) << ", not " << value.DebugString(4);
  }
}

void ExpectEndOf(const Result& want, const Result& got) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  ExpectSameVariables(got.variables, want.variables);
  EXPECT_EQ(got.best, want.best);
  ASSERT_LE(got.epochs.size(), want.epochs.size());
  // A history has the epochs that its run has ended.
  for (std::size_t i = 0; i < got.epochs.size(); ++i) {
    EXPECT_EQ(got.epochs[i], want.epochs[want.epochs.size() - got.epochs.size() + i]);
  }
}

class ResumeTest : public ::testing::TestWithParam<int> {
 protected:
  const Kind kind_ = Kinds()[static_cast<std::size_t>(GetParam())];

  // The run that is not interrupted.
  Result Whole(const Settings& like) {
    Settings run = like;
    run.directory = NewDirectory();
    Result result = Train(kind_, run);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.steps, kSteps);
    return result;
  }
  // Is killed, and gone on with by a program that would have begun with other numbers.
  void ExpectNoTrace(const Result& whole, Settings run, int64_t dies_at) {
    SCOPED_TRACE(StrCat(kind_.name, ", killed before step ", dies_at));
    run.directory = NewDirectory();
    run.dies_at = dies_at;
    const Result killed = Train(kind_, run);
    ASSERT_TRUE(errors::IsAborted(killed.status)) << killed.status;
    run.dies_at = -1;
    const bool has_backup = fs::exists(run.directory);
    if (has_backup) run.seed += 1000;
    const Result resumed = Train(kind_, run);
    ExpectEndOf(whole, resumed);
    const int64_t every = run.save_freq == kEveryEpoch ? kStepsPerEpoch : run.save_freq;
    EXPECT_EQ(resumed.steps, kSteps - dies_at / every * every);
    EXPECT_FALSE(fs::exists(run.directory)) << "backups go at the end";
  }
};

TEST_P(ResumeTest, KilledAtEveryStep) {
  const Settings run{.save_freq = 1};
  const Result whole = Whole(run);
  for (int64_t step = 0; step < kSteps; ++step) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, KilledBetweenBackups) {
  const Settings run{.save_freq = 4};
  const Result whole = Whole(run);
  for (const int64_t step : {3, 5, 11, 18, 29}) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, WithBackupsOfEpochs) {
  const Settings run{.save_freq = kEveryEpoch};
  const Result whole = Whole(run);
  for (const int64_t step : {4, 10, 13, 20, 29}) ExpectNoTrace(whole, run, step);
}

TEST_P(ResumeTest, OnDataSets) {
  for (const char* how : {"seeded", "cached"}) {
    SCOPED_TRACE(how);
    for (const int64_t every : {int64_t{1}, kEveryEpoch}) {
      const Settings run{.save_freq = every, .on_dataset = how};
      const Result whole = Whole(run);
      for (const int64_t step : {1, 9, 10, 12, 20, 25, 29}) ExpectNoTrace(whole, run, step);
    }
  }
}

TEST_P(ResumeTest, ANoticeThatTheProcessIsToEndCostsNoStep) {
  const Settings run{.save_freq = kEveryEpoch};
  const Result whole = Whole(run);
  for (const int64_t step : {0, 7, 9, 10, 29}) {
    SCOPED_TRACE(StrCat(kind_.name, ", noticed in step ", step));
    Settings noticed = run;
    noticed.directory = NewDirectory();
    noticed.noticed_at = step;
    ASSERT_TRUE(WatchForPreemption().ok());
    const Result ended = Train(kind_, noticed);
    EXPECT_TRUE(errors::IsCancelled(ended.status)) << ended.status;
    EXPECT_EQ(ended.steps, step + 1);
    EXPECT_EQ(PreemptionExitCode(), 128 + SIGTERM);
    ForgetPreemption();
    EXPECT_EQ(PreemptionExitCode(), 0);
    noticed.noticed_at = -1;
    noticed.seed += 1000;
    const Result resumed = Train(kind_, noticed);
    ExpectEndOf(whole, resumed);
    EXPECT_EQ(resumed.steps, kSteps - step - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ResumeTest, ::testing::Range(0, 3), [](const auto& info) {
  return std::string(Kinds()[static_cast<std::size_t>(info.param)].name);
});

// A process of its own, that kills itself: KILLED_MODEL, KILLED_AT, KILLED_DIRECTORY.
TEST(KilledProcess, DISABLED_Child) {
  const char* const model = std::getenv("KILLED_MODEL");
  ASSERT_NE(model, nullptr);
  Settings run;
  run.directory = std::getenv("KILLED_DIRECTORY");
  run.dies_at = std::atoi(std::getenv("KILLED_AT"));
  run.by_signal = true;
  Train(Kinds()[static_cast<std::size_t>(std::atoi(model))], run);
  FAIL() << "it lives";
}

TEST(KilledProcess, LeavesWhatTheNextOneGoesOnFrom) {
  const std::vector<Kind> kinds = Kinds();
  for (int model = 0; model < static_cast<int>(kinds.size()); ++model) {
    const Result whole = Train(kinds[model], {.directory = NewDirectory()});
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    for (const int dies_at : {1, 10, 17}) {
      const std::string directory = NewDirectory();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ::setenv("KILLED_MODEL", std::to_string(model).c_str(), 1);
        ::setenv("KILLED_AT", std::to_string(dies_at).c_str(), 1);
        ::setenv("KILLED_DIRECTORY", directory.c_str(), 1);
        // What whoever runs this test wants to know of it is not about the child.
        for (const char* name : {"TEST_PREMATURE_EXIT_FILE", "XML_OUTPUT_FILE", "TEST_TOTAL_SHARDS",
                                 "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE"}) {
          ::unsetenv(name);
        }
        ::execl("/proc/self/exe", "resume_test", "--gtest_also_run_disabled_tests",
                "--gtest_filter=KilledProcess.DISABLED_Child", nullptr);
        ::_exit(1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      const Result resumed = Train(kinds[model], {.seed = 77, .directory = directory});
      ExpectEndOf(whole, resumed);
      EXPECT_EQ(resumed.steps, kSteps - dies_at);
    }
  }
}

}  // namespace
}  // namespace millrace
