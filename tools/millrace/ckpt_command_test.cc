// SPDX-License-Identifier: Apache-2.0
// Runs the program itself on checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/strings.h"
#include "io/filesystem.h"
#include "io/tensor_bundle.h"
#include "millrace/local_cluster.h"
#include "millrace/saver.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CkptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = StrCat(Root(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }

  // What the servers of this process may read, which is one folder for all.
  static std::string Root() { return StrCat(::testing::TempDir(), "/ckpt_", getpid()); }
  std::string Path(const std::string& name) const { return StrCat(folder_, "/", name); }

  std::string Run(const std::string& arguments, int* code) {
    FILE* const pipe =
        popen(("timeout 50 tools/millrace ckpt " + arguments + " 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
    const int status = pclose(pipe);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return text;
  }

  // Two tensors, the first of which begins with `first`.
  std::string Make(const std::string& name, float first, const std::string& key = "w") {
    const std::string prefix = Path(name);
    auto writer = *BundleWriter::Create(PosixFileSystem(), prefix);
    EXPECT_TRUE(writer->Add(key, Tensor::FromValues<float>({first, 2, 3, 4}, {2, 2})).ok());
    EXPECT_TRUE(writer->Add(key + "_step", Tensor::Scalar<int64_t>(7)).ok());
    EXPECT_TRUE(writer->Finish().ok());
    return prefix;
  }

  StatusOr<Tensor> Read(const std::string& prefix, const std::string& name) {
    auto reader = BundleReader::Open(PosixFileSystem(), prefix);
    return reader.ok() ? (*reader)->Read(name) : reader.status();
  }

  std::string folder_;
};

TEST_F(CkptTest, ListsWhatIsThere) {
  int code = -1;
  const std::string prefix = Make("a", 1);
  const std::string text = Run("list " + prefix, &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("w_step"));
  EXPECT_THAT(text, HasSubstr("[2,2]"));
  EXPECT_THAT(text, HasSubstr("2 tensors, 5 elements, 24 bytes in 1 data file(s)"));
  EXPECT_THAT(Run("list --json " + prefix, &code), HasSubstr("\"dtype\": \"int64\""));
  EXPECT_THAT(Run("list " + Path("none"), &code), HasSubstr("there is no checkpoint"));
  EXPECT_EQ(code, 2);
  // A directory stands for its newest.
  EXPECT_THAT(Run("list " + folder_, &code), HasSubstr(prefix));
}

TEST_F(CkptTest, ShowsValues) {
  int code = -1;
  const std::string text = Run(StrCat("show --tensor=w ", Make("a", 1)), &code);
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("least 1, greatest 4, mean 2.5"));
  EXPECT_THAT(text, HasSubstr("norm 5.4772"));
  EXPECT_THAT(text, HasSubstr("1 2 3 4"));
  EXPECT_THAT(Run(StrCat("show --json --tensor=w ", Path("a")), &code),
              HasSubstr("\"norm\": 5.4772255750516"));
  Run(StrCat("show --tensor=x ", Path("a")), &code);
  EXPECT_EQ(code, 2);
}

TEST_F(CkptTest, VerifiesEveryChecksum) {
  int code = -1;
  const std::string prefix = Make("a", 1);
  EXPECT_THAT(Run("verify " + prefix, &code), HasSubstr("whole, 24 bytes"));
  EXPECT_EQ(code, 0);
  std::fstream file(prefix + ".data-00000-of-00001",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(3).put('\x11');
  file.close();
  EXPECT_THAT(Run("verify " + prefix, &code), HasSubstr("w: "));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(Run("verify --json " + prefix, &code), HasSubstr("\"ok\": false"));
  std::ofstream(prefix + ".index") << "no index";
  EXPECT_THAT(Run("verify " + prefix, &code), HasSubstr("index: "));
  EXPECT_EQ(code, 1);
  EXPECT_THAT(Run("list " + prefix, &code), HasSubstr("ends at byte 8; expected a footer"));
  EXPECT_EQ(code, 1);
}

TEST_F(CkptTest, ADataFileThatIsCutOffIsDamageToEveryCommand) {
  int code = -1;
  const std::string prefix = Make("a", 1), data = prefix + ".data-00000-of-00001";
  std::filesystem::resize_file(data, 3);
  const std::string reshard = StrCat("reshard --files=2 -o ", Path("two"), " ");
  for (const std::string& command :
       {std::string("show --tensor=w "), std::string("verify "), reshard}) {
    EXPECT_THAT(Run(command + prefix, &code),
                AllOf(HasSubstr("Read less bytes than requested: " + data),
                      HasSubstr("ends at byte 3; expected bytes 0 to 16 of ")))
        << command;
    EXPECT_EQ(code, 1) << command;
  }
}

TEST_F(CkptTest, ComparesTensorByTensor) {
  int code = -1;
  const std::string a = Make("a", 1), b = Make("b", std::nextafterf(1, 2)), c = Make("c", 1, "v");
  EXPECT_THAT(Run(StrCat("diff ", a, " ", a), &code), HasSubstr("2 tensors are the same"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Run(StrCat("diff ", a, " ", b), &code), HasSubstr("1 elements differ"));
  EXPECT_EQ(code, 3);
  EXPECT_THAT(Run(StrCat("diff ", a, " ", b), &code), HasSubstr("(1 ulps)"));
  Run(StrCat("diff --tolerance=1e-3 ", a, " ", b), &code);
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Run(StrCat("diff --json ", a, " ", c), &code), HasSubstr("\"only_in_second\""));
  EXPECT_EQ(code, 3);
  // 3 at one place; the first is 1, 2, 3, 4.
  const std::string d = Make("d", 4);
  EXPECT_THAT(Run(StrCat("diff ", a, " ", d), &code),
              HasSubstr("norm of the difference 3, 0.54772"));
  EXPECT_THAT(Run(StrCat("diff --json ", a, " ", d), &code),
              AllOf(HasSubstr("\"norm\": 3.0"), HasSubstr("\"relative_norm\": 0.54772255750516")));
}

TEST_F(CkptTest, ConvertsNamesAndTypes) {
  int code = -1;
  const std::string text =
      Run(StrCat("convert ", Make("a", 1), " --dtype=half --rename w=x -o ", Path("b")), &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_EQ(Read(Path("b"), "x")->dtype(), kHalf);
  EXPECT_EQ(Read(Path("b"), "w_step")->scalar<int64_t>(), 7);
  EXPECT_FALSE(Read(Path("b"), "w").ok());
  EXPECT_THAT(Run(StrCat("convert ", Path("a"), " -o ", Path("b")), &code),
              HasSubstr("there is a checkpoint"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(Run("convert --by_name -o " + Path("c") +
                      " tests/goldens/training/callbacks/checkpoints/adam_slots",
                  &code),
              HasSubstr("9 tensors"));
  EXPECT_TRUE(Read(Path("c"), "kernel/Adam_1").ok());
}

TEST_F(CkptTest, ConvertsNamesToObjectsByAMappingAndBack) {
  int code = -1;
  const std::string golden = "tests/goldens/training/callbacks/checkpoints/adam_slots";
  const std::string names = Path("names"), objects = Path("objects"), mapping = Path("mapping");
  Run(StrCat("convert --by_name -o ", names, " ", golden), &code);
  ASSERT_EQ(code, 0);
  std::ofstream(mapping) << "# slots of Adam\n\nkernel=layer.1/kernel\n"
                         << "kernel/Adam=layer.1/kernel/.OPTIMIZER_SLOT/optimizer/m\n"
                         << "kernel/Adam_1=layer.1/kernel/.OPTIMIZER_SLOT/optimizer/v\n";
  const std::string text =
      Run(StrCat("convert --by_object --mapping=", mapping, " -o ", objects, " ", names), &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_TRUE(
      Read(objects, "layer..1/kernel/.OPTIMIZER_SLOT/optimizer/v/.ATTRIBUTES/VARIABLE_VALUE").ok());
  Run(StrCat("convert --by_name -o ", Path("back"), " ", objects), &code);
  ASSERT_EQ(code, 0);
  Run(StrCat("diff ", names, " ", Path("back")), &code);
  EXPECT_EQ(code, 0) << "the same tensors under the same names";
  std::ofstream(mapping) << "nothing=x\n";
  EXPECT_THAT(Run(StrCat("convert --mapping=", mapping, " -o ", Path("no"), " ", names), &code),
              HasSubstr(":1: nothing=x must be old=new"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(
      Run(StrCat("convert --by_object --rename kernel=a//b -o ", Path("no"), " ", names), &code),
      HasSubstr("no path of objects"));
  EXPECT_FALSE(std::filesystem::exists(Path("no.index")));
}

TEST_F(CkptTest, ReshardsAndMerges) {
  int code = -1;
  std::string text = Run(StrCat("reshard ", Make("a", 1), " --files=2 -o ", Path("two")), &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_TRUE(std::filesystem::exists(Path("two.data-00001-of-00002")));
  EXPECT_FALSE(std::filesystem::exists(Path("two_temp")));
  Run(StrCat("diff ", Path("a"), " ", Path("two")), &code);
  EXPECT_EQ(code, 0);
  text = Run(StrCat("merge ", Path("two"), " ", Make("c", 5, "v"), " -o ", Path("all")), &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_EQ(Read(Path("all"), "v")->flat<float>()[0], 5);
  EXPECT_EQ(Read(Path("all"), "w")->flat<float>()[0], 1);
  EXPECT_THAT(Run(StrCat("merge ", Path("a"), " ", Path("two"), " -o ", Path("twice")), &code),
              HasSubstr("Duplicate tensor keyed by w"));
  EXPECT_EQ(code, 2);
  EXPECT_FALSE(std::filesystem::exists(Path("twice.index")));
}

TEST_F(CkptTest, ADamagedSourceLeavesNothingOfWhatWasToBeWritten) {
  int code = -1;
  const std::string prefix = Make("a", 1);
  {
    std::fstream data(prefix + ".data-00000-of-00001",
                      std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(1);
    data.put('x');
  }
  EXPECT_THAT(Run(StrCat("reshard ", prefix, " --files=2 -o ", Path("two")), &code),
              HasSubstr("a.data-00000-of-00001"));
  EXPECT_EQ(code, 1);
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    EXPECT_FALSE(file.path().filename().string().starts_with("two")) << file.path();
  }
}

TEST_F(CkptTest, AnOutputWithoutANameIsRefused) {
  const std::string one = Make("a", 1), two = StrCat(one, " ", Make("b", 2, "v"));
  for (const std::string command : {"convert", "reshard", "merge", "average"}) {
    const std::string& prefix = command == "merge" ? two : one;
    for (const std::string& output : {std::string("\"\""), folder_ + "/"}) {
      int code = -1;
      EXPECT_THAT(Run(StrCat(command, " ", prefix, " -o ", output), &code),
                  HasSubstr("no prefix of a checkpoint"))
          << command;
      EXPECT_EQ(code, 2) << command;
    }
  }
}

TEST_F(CkptTest, AStateFileThatIsAPipeHoldsNothingUp) {
  int code = -1;
  const std::string prefix = Make("a", 1);
  ASSERT_EQ(::mkfifo(Path("checkpoint").c_str(), 0600), 0);
  EXPECT_THAT(Run("list " + folder_, &code), HasSubstr("2 tensors"));
  EXPECT_EQ(code, 0);
}

TEST_F(CkptTest, AveragesWhatFloats) {
  int code = -1;
  const std::string text =
      Run(StrCat("average ", Make("a", 1), " ", Make("b", 4), " -o ", Path("mean")), &code);
  ASSERT_EQ(code, 0) << text;
  EXPECT_EQ(Read(Path("mean"), "w")->flat<float>()[0], 2.5f);
  EXPECT_EQ(Read(Path("mean"), "w_step")->scalar<int64_t>(), 7);
  EXPECT_THAT(Run(StrCat("average ", Path("a"), " ", Make("c", 1, "v"), " -o ", Path("no")), &code),
              HasSubstr("has no tensor v"));
  EXPECT_EQ(code, 2);
}

TEST_F(CkptTest, LooksAtWhatAServerSees) {
  const std::string prefix = Make("a", 1);
  CheckpointState state;
  state.model_checkpoint_path = prefix;
  ASSERT_TRUE(UpdateCheckpointState(folder_, state).ok());
  LocalClusterOptions options;
  options.server.file_root = Root();
  const auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string server = (*cluster)->target("worker", 0), there = server + prefix;
  int code = -1;
  EXPECT_THAT(Run("list " + there, &code), HasSubstr("2 tensors, 5 elements"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Run("list --json " + server + folder_ + "/", &code), HasSubstr(there)) << "a folder";
  EXPECT_THAT(Run("show --tensor=w " + there, &code), HasSubstr("1 2 3 4"));
  EXPECT_THAT(Run("verify " + there, &code), HasSubstr("whole, 24 bytes"));
  EXPECT_EQ(code, 0);
  EXPECT_THAT(Run(StrCat("diff ", there, " ", Make("b", 5)), &code),
              HasSubstr("1 elements differ"));
  EXPECT_EQ(code, 3);
  EXPECT_THAT(Run(StrCat("reshard --files=2 ", there, " -o ", Path("two")), &code),
              HasSubstr("2 tensors"));
  EXPECT_EQ(Read(Path("two"), "w")->flat<float>()[0], 1);
  EXPECT_THAT(Run(StrCat("reshard ", prefix, " -o ", there, "2"), &code),
              HasSubstr("nothing is written by a server"));
  EXPECT_THAT(Run("show " + there + "_none", &code), HasSubstr("there is no checkpoint"));
  EXPECT_EQ(code, 2);
  EXPECT_THAT(Run("show " + server + "/etc/passwd", &code), HasSubstr("/etc/passwd"));
  EXPECT_NE(code, 0);
  EXPECT_THAT(Run("show " + server, &code), HasSubstr("names no file"));
  // Cut: what is missing is said.
  std::filesystem::resize_file(prefix + ".data-00000-of-00001", 10);
  EXPECT_THAT(Run("verify " + there, &code), HasSubstr("damaged"));
  EXPECT_EQ(code, 1);
}

// Of files here, and of those that a server reads.
TEST_F(CkptTest, EveryCommandAnswersProgramsWithJson) {
  LocalClusterOptions options;
  options.server.file_root = Root();
  const auto cluster = LocalCluster::Start(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::string a = Make("a", 1), b = Make("b", 5), other = Make("other", 1, "v");
  const std::string mapping = Path("mapping");
  std::ofstream(mapping) << "w=layer/kernel\nw_step=step\n";
  for (const std::string& at : {std::string(), (*cluster)->target("worker", 0)}) {
    const std::string to = StrCat(" -o ", Path(at.empty() ? "here_" : "there_"));
    const std::pair<std::string, int> commands[] = {
        {StrCat("list ", at, a), 0},
        {StrCat("show ", at, a), 0},
        {StrCat("verify ", at, a), 0},
        {StrCat("diff ", at, a, " ", at, b), 3},
        {StrCat("convert --rename w=x ", at, a, to, "convert"), 0},
        {StrCat("convert --by_object --mapping=", mapping, " ", at, a, to, "objects"), 0},
        {StrCat("reshard --files=2 ", at, a, to, "reshard"), 0},
        {StrCat("merge ", at, a, " ", at, other, to, "merge"), 0},
        {StrCat("average ", at, a, " ", at, b, to, "average"), 0}};
    for (const auto& [command, want] : commands) {
      int code = -1;
      const std::string text = Run(command + " --json", &code);
      EXPECT_EQ(code, want) << command << "\n" << text;
      const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(json.is_structured() && !json.empty()) << command << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace millrace
