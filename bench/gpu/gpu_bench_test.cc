// SPDX-License-Identifier: Apache-2.0
// The program that times GPUs, over little graphs and with a peer that is an echo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace millrace::bench {
namespace {

using ::testing::HasSubstr;

std::string RunBench(const std::string& arguments, int* code) {
  FILE* const pipe = popen(("timeout 50 bench/gpu/gpu_bench " + arguments + " 2>&1").c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, n);
  const int status = pclose(pipe);
  *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

TEST(GpuBenchTest, FiguresAreHeldAgainstGoalsAndPeers) {
  const std::string json = std::string(std::getenv("TEST_TMPDIR")) + "/figures.json";
  int code = -1;
  const std::string text = RunBench(
      "--device FAKE --small --rounds 2 --seconds 0.01 --only mlp --only tiny_chain --json " +
          json + " --peer \"echo '{\\\"name\\\": \\\"mlp.torch_eager\\\", \\\"value\\\": 1e9}' #\"",
      &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("reached"));
  EXPECT_THAT(text, HasSubstr("not run")) << "what nobody timed";
  std::ifstream in(json);
  const auto figures = nlohmann::json::parse(in);
  EXPECT_EQ(figures["ours"]["mlp"].size(), 2u);
  EXPECT_GT(figures["ours"]["tiny_chain"][0].get<double>(), 0);
  EXPECT_EQ(figures["peers"]["mlp.torch_eager"], 1e9);
  int held = 0, mlp_rows = 0;
  for (const auto& row : figures["rows"]) {
    // What a host's thread computes is held against a time, which this machine keeps or not.
    const bool was_run = row.contains("ratio");
    held += was_run;
    EXPECT_EQ(row["verdict"], !was_run ? "not run"
                              : row["ratio"].get<double>() <= row["at_most"].get<double>()
                                  ? "reached"
                                  : "MISSED")
        << row;
    if (row["what"] != "mlp") continue;
    ++mlp_rows;
    EXPECT_EQ(row["verdict"], row["beside"] == "torch_eager" ? "reached" : "not run") << row;
  }
  EXPECT_EQ(mlp_rows, 2);
  EXPECT_EQ(held, 2) << "the peer's, and the host's time";
}

TEST(GpuBenchTest, WithoutAGpuItSaysWhatIsMissing) {
  int code = -1;
  const std::string text = RunBench("--only mlp --rounds 1 --seconds 0.01", &code);
  if (code == 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(code, 3) << text;
  EXPECT_THAT(text, HasSubstr("gpu_bench: not run: "));
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("--config=cuda"), HasSubstr("libcuda.so.1"),
                                     HasSubstr("driver")));
}

TEST(GpuBenchTest, AWorkloadThatIsNoneIsRefused) {
  int code = -1;
  EXPECT_THAT(RunBench("--only everything", &code),
              HasSubstr("no workload everything, but tiny_chain"));
  EXPECT_EQ(code, 2);
}

}  // namespace
}  // namespace millrace::bench
