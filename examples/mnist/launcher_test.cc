// SPDX-License-Identifier: Apache-2.0
// Runs the example itself: what people and scripts see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace millrace::mnist {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// What the program prints, both streams; its exit code.
std::string RunExample(const std::string& arguments, int* code) {
  FILE* const pipe =
      popen(("timeout 50 examples/mnist_replica " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

std::map<std::string, std::string> ReadTree(const fs::path& folder) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    tree[fs::relative(entry.path(), folder).string()] = text.str();
  }
  return tree;
}

// A worker that finds the token of a step that it has made looks around, puts it back and takes
// another, or any if others have left: that depends on who comes first, and the manifest lists what
// was run.
void DropRunsOfChance(std::map<std::string, std::string>* tree) {
  constexpr const char* kOfChance[] = {"/run_sync_tokens_first_at_", "/run_sync_tokens_put_back_",
                                       "/run_sync_tokens_retake_",   "/run_sync_tokens_again_",
                                       "_local_step_init_0_",        "/manifest.json"};
  std::erase_if(*tree, [&](const auto& file) {
    return std::any_of(std::begin(kOfChance), std::end(kOfChance), [&](const char* part) {
      return file.first.find(part) != std::string::npos;
    });
  });
}

std::set<std::string> NamesOf(const std::map<std::string, std::string>& tree) {
  std::set<std::string> names;
  for (const auto& [name, text] : tree) names.insert(name);
  return names;
}

TEST(MnistReplica, WritesTheGraphsOfEveryWorkerAndSaysWhere) {
  const std::string base = ::testing::TempDir() + "/mnist_dumps_" + std::to_string(getpid());
  for (const char* run : {"/1", "/2", "/alone_1", "/alone_2"}) {
    int code = -1;
    const std::string workers = std::string(run).starts_with("/alone") ? "1" : "2";
    const std::string text = RunExample(
        "--train_steps=3 --batch_size=10 --hidden_units=8 --sync_replicas --quiet --num_workers=" +
            workers + " --dump_graph=" + base + run,
        &code);
    ASSERT_EQ(code, 0) << text;
    EXPECT_THAT(text, EndsWith("graph dumps: " + base + run + "\n"));
  }
  EXPECT_TRUE(ReadTree(base + "/alone_1") == ReadTree(base + "/alone_2"));
  auto first = ReadTree(base + "/1"), second = ReadTree(base + "/2");
  for (const char* worker : {"worker_0", "worker_1"}) {
    const std::string folder = std::string(worker) + "/session_1/";
    ASSERT_TRUE(first.contains(folder + "manifest.json")) << worker;
    EXPECT_THAT(first.at(folder + "0002_placed.pbtxt"),
                HasSubstr("device: \"/job:ps/replica:0/task:0/device:CPU:0\""));
  }
  DropRunsOfChance(&first);
  DropRunsOfChance(&second);
  EXPECT_EQ(NamesOf(first), NamesOf(second));
  EXPECT_TRUE(first == second);
}

TEST(MnistReplica, WritesATraceOfEveryWorker) {
  const std::string folder = ::testing::TempDir() + "/mnist_trace_" + std::to_string(getpid());
  int code = -1;
  const std::string text = RunExample(
      "--train_steps=6 --batch_size=10 --hidden_units=8 --sync_replicas --quiet "
      "--trace_dir=" +
          folder,
      &code);
  ASSERT_EQ(code, 0) << text;
  const auto files = ReadTree(folder);
  EXPECT_EQ(files.size(), 2u);
  for (const char* worker : {"worker_0.json", "worker_1.json"}) {
    ASSERT_TRUE(files.contains(worker)) << text;
    const auto trace = nlohmann::json::parse(files.at(worker));
    int products = 0;
    for (const auto& event : trace["traceEvents"]) products += event["name"] == "MatMul";
    EXPECT_GE(products, 2) << "both layers";
  }
}

// What follows `phrase` on each line that has it.
std::vector<std::string> Following(const std::string& text, const std::string& phrase) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(phrase);
    if (at != std::string::npos) found.push_back(line.substr(at + phrase.size()));
  }
  return found;
}

TEST(MnistReplica, EachTaskServesPages) {
  const std::string arguments = "--train_steps=3 --batch_size=10 --hidden_units=8 --quiet --http=";
  int code = -1;
  const std::string text = RunExample(arguments + "127.0.0.1:0", &code);
  ASSERT_EQ(code, 0) << text;
  const std::string phrase = "pages at http://127.0.0.1:";
  const auto ports = Following(text, phrase);
  EXPECT_EQ(std::set<std::string>(ports.begin(), ports.end()).size(), 3u) << text;
  for (const char* task : {"ps/0", "worker/0", "worker/1"}) {
    std::istringstream lines(text);
    int served = 0;
    for (std::string line; std::getline(lines, line);) {
      served += line.starts_with(task) && line.find(phrase) != std::string::npos;
    }
    EXPECT_EQ(served, 1) << task << text;
  }
  const std::string refused = RunExample(arguments + "127.0.0.1:8080", &code);
  EXPECT_EQ(code, 2) << refused;
  EXPECT_THAT(refused, HasSubstr("cannot share a port"));
}

TEST(MnistReplica, WorkersEvaluateWhenAllUpdatesHaveLanded) {
  for (const char* mode : {"", " --sync_replicas", " --exact_steps --staleness_bound=1"}) {
    int code = -1;
    const std::string text = RunExample(
        std::string("--train_steps=40 --batch_size=10 --hidden_units=8 --num_workers=3 --num_ps=2 "
                    "--quiet") +
            mode,
        &code);
    ASSERT_EQ(code, 0) << text;
    const auto values = Following(text, "After 40 training step(s), validation cross entropy = ");
    ASSERT_EQ(values.size(), 3u) << text;
    EXPECT_EQ(values[0], values[1]) << mode;
    EXPECT_EQ(values[0], values[2]) << mode;
  }
}

TEST(MnistReplica, StopsAtExactlyTheStepAskedFor) {
  int code = -1;
  const std::string text = RunExample(
      "--train_steps=50 --batch_size=10 --hidden_units=8 --num_workers=4 --exact_steps", &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_THAT(Following(text, "the global step is "), ::testing::ElementsAre("50")) << text;
  // Every step was one worker's.
  EXPECT_EQ(Following(text, ": training step ").size(), 50u) << text;
}

TEST(MnistReplica, SaysThatAggregationIsForSynchronousReplicas) {
  int code = -1;
  const std::string text = RunExample(
      "--train_steps=3 --batch_size=10 --hidden_units=8 --replicas_to_aggregate=2 --quiet", &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_EQ(Following(text, "--replicas_to_aggregate has no effect without --sync_replicas").size(),
            1u)
      << text;
}

TEST(MnistReplica, WantsAJobNameWithHosts) {
  int code = -1;
  const std::string text = RunExample("--ps_hosts=localhost:2222", &code);
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, HasSubstr("Must specify an explicit `job_name`"));
}

TEST(MnistReplica, ServesOtherHostsIfThatIsAskedFor) {
  // An address for documents, which no machine has: it cannot be listened on.
  const std::string task =
      "--job_name=ps --task_index=0 --ps_hosts=192.0.2.1:2222 --worker_hosts=192.0.2.1:2223";
  int code = -1;
  std::string text = RunExample(task, &code);
  EXPECT_NE(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("ask for it without either (--insecure)"));
  text = RunExample(task + " --insecure", &code);
  EXPECT_EQ(code, 1) << text;
  EXPECT_THAT(text, HasSubstr("192.0.2.1:2222"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("--insecure")));
}

TEST(MnistReplica, SaysWhyItHasNoGpuAndTrainsOnTheCpu) {
  int code = -1;
  const std::string text = RunExample(
      "--train_steps=3 --batch_size=10 --hidden_units=8 --num_workers=1 --num_gpus=1", &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("validation cross entropy"));
  if (text.find("GPU:0") != std::string::npos) return;  // there is one: tests/gpu
  EXPECT_THAT(text, HasSubstr("No GPU, using the CPU: "));
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("--config=cuda"), HasSubstr("driver")));
}

TEST(MnistReplica, RefusesDumpsFromServersThatAreNotItsOwn) {
  int code = -1;
  const std::string text =
      RunExample("--job_name=worker --task_index=0 --existing_servers --dump_graph=dumps", &code);
  EXPECT_EQ(code, 2) << text;
  EXPECT_THAT(text, HasSubstr("--dump_dir"));
}

}  // namespace
}  // namespace millrace::mnist
