// SPDX-License-Identifier: Apache-2.0
// The table of run_all, over programs that stand for those that need a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class RunAllTest : public ::testing::Test {
 protected:
  RunAllTest()
      : bin_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
             ::testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  void Program(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(bin_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0755);
  }
  void Gpu() { Program("tools/millrace", "echo 'CPU:0  2 threads'; echo 'GPU:0  a GPU'"); }
  std::string RunAll(const std::string& arguments, int* code) {
    FILE* const pipe = popen(
        ("timeout 50 tests/gpu/run_all --bin " + bin_ + " " + arguments + " 2>&1").c_str(), "r");
    std::string text;
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, n);
    const int status = pclose(pipe);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
  }

  const std::string bin_;
};

TEST_F(RunAllTest, WithoutAGpuItSaysSoInOneLineAndIsNotPassed) {
  Program("tools/millrace", "echo 'CPU:0  2 threads'; echo 'no GPU: libcuda.so.1'; exit 1");
  int code = -1;
  EXPECT_EQ(RunAll("", &code), "run_all: nothing was run: no GPU: libcuda.so.1\n");
  EXPECT_EQ(code, 3);
}

TEST_F(RunAllTest, WhatPassedFailedAndWasNotRunIsOneTable) {
  Gpu();
  Program("tests/device_conformance/sessions_gpu_test", "echo '[       OK ] A.b (1 ms)'");
  Program("tests/gpu/gpu_test", "echo '[  FAILED  ] it is broken'; exit 1");
  int code = -1;
  const std::string text = RunAll("--only sessions --only fused_loops --only kernels", &code);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, AllOf(ContainsRegex("passed +sessions +[0-9]+ s, 1 tests, 0 skipped"),
                          ContainsRegex("failed +fused_loops +exit code 1"),
                          ContainsRegex("not run +kernels +.*was not built"),
                          HasSubstr("1 passed, 1 failed, 1 not run"), HasSubstr("it is broken"),
                          Not(HasSubstr("gradients"))));
}

TEST_F(RunAllTest, AProgramThatRunsNoTestHasNotPassed) {
  Gpu();
  Program("tests/device_conformance/sessions_gpu_test", "true");
  int code = -1;
  EXPECT_THAT(RunAll("--only sessions", &code), HasSubstr("no test was run"));
  EXPECT_EQ(code, 1);
}

TEST_F(RunAllTest, LibrariesAndDeterminismAreRowsOfOneProgram) {
  Gpu();
  Program(
      "tests/gpu/library_test",
      "case $1 in --gtest_filter='LibrariesTest.*') echo '[       OK ] LibrariesTest.a (1 ms)' ;;"
      " --gtest_filter='NcclOnGpusTest.*') echo 'nccl_test.cc:9: Skipped';"
      "  echo 'there is no libnccl.so.2'; echo '[  SKIPPED ] NcclOnGpusTest.a (1 ms)' ;;"
      " *) echo 'no GPU: it is gone'; exit 1 ;; esac");
  int code = -1;
  EXPECT_THAT(
      RunAll("--only libraries --only nccl --only determinism", &code),
      AllOf(ContainsRegex("passed +libraries +[0-9]+ s, 1 tests"),
            ContainsRegex("not run +nccl +there is no libnccl.so.2"),
            ContainsRegex("failed +determinism +exit code 1"), HasSubstr("no GPU: it is gone")));
  EXPECT_EQ(code, 1);
}

TEST_F(RunAllTest, WhatSessionsSeeOfGpusAreRowsOfOneProgram) {
  Gpu();
  Program("tests/gpu/sessions_test",
          "case $1 in"
          " --gtest_filter='FaultTest.*') echo '[       OK ] FaultTest.a (1 ms)' ;;"
          " --gtest_filter='MemoryTest.*') echo '[       OK ] MemoryTest.a (1 ms)';"
          "  echo '[  SKIPPED ] MemoryTest.b (0 ms)'; echo '[  SKIPPED ] MemoryTest.b' ;;"
          " --gtest_filter='PeersTest.*') echo 'a value got lost'; exit 1 ;;"
          " --gtest_filter='SharingTest.*') kill -9 $$ ;;"
          " *) exit 7 ;; esac");
  int code = -1;
  EXPECT_THAT(RunAll("--only faults --only memory --only peers --only sharing", &code),
              AllOf(ContainsRegex("passed +faults +[0-9]+ s, 1 tests, 0 skipped"),
                    ContainsRegex("passed +memory +[0-9]+ s, 1 tests, 1 skipped"),
                    ContainsRegex("failed +peers +exit code 1"), HasSubstr("a value got lost"),
                    ContainsRegex("failed +sharing +exit code 137"),
                    HasSubstr("2 passed, 2 failed, 0 not run")));
  EXPECT_EQ(code, 1);
}

TEST_F(RunAllTest, WhatOneGpuCannotShowWasNotRun) {
  Gpu();
  Program("tests/gpu/sessions_test",
          "echo 'tests/gpu/own_process.cc:80: Skipped'; echo 'there is one GPU';"
          "echo '[  SKIPPED ] SeveralGpusTest.a (0 ms)'; echo '[  PASSED  ] 0 tests.'");
  int code = -1;
  const std::string text = RunAll("--only several_gpus", &code);
  EXPECT_THAT(text, AllOf(ContainsRegex("not run +several_gpus +there is one GPU"),
                          HasSubstr("0 passed, 0 failed, 1 not run")));
  EXPECT_EQ(code, 1) << "nothing has passed";
}

TEST_F(RunAllTest, TrainingHasToReachItsAccuracyOnAGpu) {
  Gpu();
  int code = -1;
  Program("examples/mnist_replica", "echo 'Test accuracy: 98.70 %'");
  EXPECT_THAT(RunAll("--only mnist", &code), HasSubstr("1 passed, 0 failed"));
  EXPECT_EQ(code, 0);
  Program("examples/mnist_replica", "echo 'Test accuracy: 98.40 %'");
  EXPECT_THAT(RunAll("--only mnist", &code), HasSubstr("accuracy 98.40 %, wanted 98.5"));
  EXPECT_EQ(code, 1);
  Program("examples/mnist_replica",
          "echo 'No GPU, using the CPU: no driver'; echo 'Test accuracy: 99.00 %'");
  EXPECT_THAT(RunAll("--only mnist", &code), HasSubstr("it ran on the CPU"));
  EXPECT_EQ(code, 1);
}

TEST_F(RunAllTest, BenchesAreShownWithWhatWasNotBesideThem) {
  Gpu();
  Program("bench/gpu/gpu_bench", "echo \"H1 tiny_chain $*\"");
  int code = -1;
  const std::string text = RunAll("--only benches --rounds 2 --json figures.json", &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("H1 tiny_chain --rounds 2 --seconds 1 --json /"),
                          ContainsRegex("passed +benches")));
}

// As gpu_bench prints its rows.
std::string Goal(const char* what, const char* beside, const char* verdict) {
  char line[200];
  std::snprintf(line, sizeof(line),
                "echo '%-3s %-22s %12.4f  %-16s %12.4f  ratio %6.3f  goal <= %5.3f  %s'; ", "H1",
                what, 1.0, beside, 1.0, 1.0, 1.0, verdict);
  return line;
}

TEST_F(RunAllTest, GoalsThatAreMissedAreAFailureOfTheirOwn) {
  Gpu();
  int code = -1;
  Program("bench/gpu/gpu_bench", Goal("mlp", "torch_graph", "reached"));
  EXPECT_THAT(RunAll("--only benches", &code),
              AllOf(ContainsRegex("passed +benches"),
                    ContainsRegex("passed +goals +1 reached, 0 missed, 0 not run")));
  EXPECT_EQ(code, 0);
  Program("bench/gpu/gpu_bench",
          Goal("mlp", "torch_graph", "reached") + Goal("cnn", "torch_eager", "not run"));
  EXPECT_THAT(RunAll("--only benches", &code),
              ContainsRegex("not run +goals +1 reached, 0 missed, 1 not run"));
  EXPECT_EQ(code, 0);
  Program("bench/gpu/gpu_bench",
          Goal("mlp", "torch_graph", "reached") + Goal("tiny_chain host us", "limit", "MISSED"));
  EXPECT_THAT(RunAll("--only benches", &code),
              AllOf(ContainsRegex("passed +benches"),
                    ContainsRegex("failed +goals +1 reached, 1 missed, 0 not run: tiny_chain host "
                                  "us beside limit;")));
  EXPECT_EQ(code, 1);
}

TEST_F(RunAllTest, ARowForEachSanitizerOfEachKindOfCode) {
  Gpu();
  Program("bench/gpu/gpu_bench", "true");
  Program("tests/gpu/gpu_test", "true");
  Program("tests/device_conformance/kernel_golden_gpu_test", "true");
  // Stands for compute-sanitizer: fails for races in training.
  Program("cuda/bin/compute-sanitizer",
          "echo \"$* exact=$MILLRACE_CUDA_EXACT_MEMORY\" >>\"$SAID\";"
          "case \"$*\" in *racecheck*gpu_bench*) exit 9 ;; esac");
  const std::string said = bin_ + "/said";
  setenv("CUDA_HOME", (bin_ + "/cuda").c_str(), 1);
  setenv("PATH", "/usr/bin:/bin", 1);
  setenv("SAID", said.c_str(), 1);
  std::string rows;
  for (const char* tool : {"memcheck", "racecheck"}) {
    for (const char* of : {"", "_kernels", "_training"}) {
      rows += std::string(" --only ") + tool + of;
    }
  }
  int code = -1;
  EXPECT_THAT(RunAll(rows, &code), AllOf(HasSubstr("5 passed, 1 failed, 0 not run"),
                                         ContainsRegex("failed +racecheck_training +exit code 9")));
  EXPECT_EQ(code, 1);
  std::ifstream in(said);
  std::string line;
  int lines = 0, exact = 0;
  for (; std::getline(in, line); ++lines) {
    exact += line.find("memcheck") != std::string::npos && line.find("exact=1") < line.size();
    EXPECT_EQ(line.find("racecheck") < line.size(), line.find("exact=1") == std::string::npos);
  }
  EXPECT_EQ(lines, 6);
  EXPECT_EQ(exact, 3);
}

TEST_F(RunAllTest, AnUnknownFlagIsRefused) {
  Gpu();
  int code = -1;
  EXPECT_THAT(RunAll("--everything yes", &code), HasSubstr("unknown flag --everything"));
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace millrace
