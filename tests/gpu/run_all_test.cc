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
      " *) echo 'no GPU: it is gone'; exit 1 ;; esac");
  int code = -1;
  EXPECT_THAT(
      RunAll("--only libraries --only determinism", &code),
      AllOf(ContainsRegex("passed +libraries +[0-9]+ s, 1 tests"),
            ContainsRegex("failed +determinism +exit code 1"), HasSubstr("no GPU: it is gone")));
  EXPECT_EQ(code, 1);
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

TEST_F(RunAllTest, AnUnknownFlagIsRefused) {
  Gpu();
  int code = -1;
  EXPECT_THAT(RunAll("--everything yes", &code), HasSubstr("unknown flag --everything"));
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace millrace
