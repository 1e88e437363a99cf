// SPDX-License-Identifier: Apache-2.0
// Evaluators aside under `millrace run` that are killed in the middle of an evaluation: what they
// find afterwards is of whole evaluations, with the bits that an evaluator finds that nobody
// disturbs.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/checkpoint.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "tests/cluster/process.h"
#include "tests/fit/evaluated_model.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

constexpr seconds kLimit{100};
constexpr int kBatches = (kEvaluatedRows + kEvaluatedBatch - 1) / kEvaluatedBatch;

// A job that saves its weights after each epoch.
class Trainer {
 public:
  explicit Trainer(const std::string& name)
      : folder_(StrCat(::testing::TempDir(), "/evaluated_", name, "_", getpid())),
        model_(EvaluatedModel(/*seed=*/7).value()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  const std::string& folder() const { return folder_; }
  int saved() const { return static_cast<int>(state_.all_model_checkpoint_paths.size()); }
  void SaveNext() {
    const auto fitted = model_->Fit(EvaluatedSamples(), EvaluatedLabels(),
                                    {.batch_size = 8, .verbose = Verbose::kSilent});
    ASSERT_TRUE(fitted.ok()) << fitted.status();
    state_.model_checkpoint_path = StrCat(folder_, "/ckpt-", saved() + 1);
    const Status saved_all = model_->SaveWeights(state_.model_checkpoint_path);
    ASSERT_TRUE(saved_all.ok()) << saved_all;
    state_.all_model_checkpoint_paths.push_back(state_.model_checkpoint_path);
    const Status told = UpdateCheckpointState(folder_, state_);
    ASSERT_TRUE(told.ok()) << told;
  }

 private:
  const std::string folder_;
  const std::unique_ptr<Model> model_;
  CheckpointState state_;
};

std::vector<std::string> Command(const std::string& folder, int last, const Lines& flags) {
  std::vector<std::string> command = {"run",
                                      "--evaluator=1",
                                      "--max_restarts=100",
                                      "--backoff_ms=1",
                                      "--steady_ms=1",
                                      "tests/fit/evaluator_program",
                                      folder,
                                      StrCat(last)};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// What was found, in the order of the evaluations.
Lines Results(const std::string& output) {
  Lines results;
  for (const std::string_view line : StrSplit(output, '\n')) {
    const std::size_t at = line.find("result ");
    if (at != std::string_view::npos) results.emplace_back(line.substr(at));
  }
  return results;
}

// What an evaluator finds that nobody disturbs.
Lines Undisturbed(const Trainer& trainer) {
  Process job("tools/millrace", Command(trainer.folder(), trainer.saved(), {}));
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  const Lines results = Results(job.output());
  EXPECT_EQ(results.size(), static_cast<std::size_t>(trainer.saved())) << job.output();
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].starts_with(StrCat("result ", i + 1, " "))) << results[i];
    EXPECT_NE(results[i].find(" loss="), std::string::npos) << results[i];
    if (i > 0) {
      EXPECT_NE(results[i].substr(8), results[i - 1].substr(8)) << "of other weights";
    }
  }
  return results;
}

TEST(KilledEvaluator, FindsAfterwardsWhatOneFindsThatIsNot) {
  Trainer trainer("killed");
  for (int i = 0; i < 3; ++i) trainer.SaveNext();
  ASSERT_FALSE(HasFailure());
  const Lines whole = Undisturbed(trainer);
  ASSERT_FALSE(HasFailure());
  // At the first batch, within the first evaluation, at its last batch, and in later ones.
  for (const int batch : {0, 4, kBatches - 1, kBatches, 2 * kBatches - 3, 3 * kBatches - 1}) {
    SCOPED_TRACE(StrCat("killed before batch ", batch));
    Process job("tools/millrace", Command(trainer.folder(), 3, {StrCat("--dies_at=", batch)}));
    EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
    EXPECT_NE(job.output().find("(Killed)"), std::string::npos) << job.output();
    // One that is begun anew takes all that are there, from the oldest.
    Lines want(whole.begin(), whole.begin() + batch / kBatches);
    want.insert(want.end(), whole.begin(), whole.end());
    EXPECT_EQ(Results(job.output()), want) << job.output();
  }
}

TEST(KilledEvaluator, FindsNothingElseHoweverOftenItIsKilled) {
  constexpr int kKills = 8;
  Trainer trainer("random");
  for (int i = 0; i < 3; ++i) trainer.SaveNext();
  ASSERT_FALSE(HasFailure());
  std::mt19937 random(3);
  Process job("tools/millrace", Command(trainer.folder(), 4, {"--pause_ms=5"}));
  for (int kill = 0; kill < kKills; ++kill) {
    ASSERT_TRUE(job.WaitForOutput(StrCat("life ", kill, " evaluates"), kLimit)) << job.output();
    // Three evaluations take three times as long, at least.
    std::this_thread::sleep_for(milliseconds(random() % (3 * 5 * kBatches)));
    const std::vector<pid_t> evaluator = ChildrenOf(job.pid(), "evaluator_program");
    ASSERT_EQ(evaluator.size(), 1u) << job.output();
    ASSERT_EQ(::kill(evaluator[0], SIGKILL), 0);
  }
  trainer.SaveNext();
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  const Lines whole = Undisturbed(trainer), results = Results(job.output());
  ASSERT_FALSE(results.empty()) << job.output();
  EXPECT_EQ(results.back(), whole.back());
  for (const std::string& result : results) {
    const auto number = static_cast<std::size_t>(result.at(7) - '1');
    ASSERT_LT(number, whole.size()) << result;
    EXPECT_EQ(result, whole[number]);
  }
}

}  // namespace
}  // namespace millrace::testing
