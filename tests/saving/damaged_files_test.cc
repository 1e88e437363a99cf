// SPDX-License-Identifier: Apache-2.0
// Every byte of a checkpoint changed: that is noticed, or changes nothing.
#include <gtest/gtest.h>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/saving/saving_testlib.h"

namespace millrace::testing {
namespace {

struct Program {
  Program() {
    a = FloatVariable(graph.root(), "a", {1, 2, 3});
    b = FloatVariable(graph.root(), "b", {4}, /*use_resource=*/true);
    auto made = Checkpoint::Create(graph, {{"a", a}, {"b", b}});
    EXPECT_TRUE(made.ok()) << made.status();
    checkpoint = *std::move(made);
    const Operation init = InitializeVariables(graph.root());
    session.emplace(*Session::Create(graph));
    EXPECT_TRUE(session->RunTargets({init}).ok());
  }
  Graph graph;
  Variable a, b;
  std::unique_ptr<Checkpoint> checkpoint;
  std::optional<Session> session;
};

// The file, the place in it, and what was expected there.
void ExpectTold(const Status& status, const std::string& path) {
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  const std::string said(status.message());
  EXPECT_NE(said.find(path), std::string::npos) << said;
  EXPECT_NE(said.find("byte"), std::string::npos) << said;
  const bool says_more = said.find("expected") != std::string::npos ||
                         said.find(": stored ") != std::string::npos ||
                         said.find("there should be") != std::string::npos;
  EXPECT_TRUE(says_more) << said;
}

// The first error of opening a checkpoint and reading all that is in it.
Status ReadAll(const std::string& prefix) {
  const auto reader = CheckpointReader::Open(prefix);
  if (!reader.ok()) return reader.status();
  for (const auto& entry : (*reader)->entries()) {
    const Status status = (*reader)->Read(entry.name).status();
    if (!status.ok()) return status;
  }
  return OkStatus();
}

// What a restore of damaged files leaves: an error, or the right values.
std::string Damage(Program& p, const std::string& prefix) {
  if (!SetFloats(p.graph, *p.session, p.a, {0, 0, 0}).ok()) return "cannot set";
  auto status = p.checkpoint->Read(*p.session, prefix);
  if (!status.ok()) {
    return status.status().message().empty() ? "an error without a message" : "";
  }
  // A name or type that has changed is an object that is missing.
  if (!status->AssertConsumed().ok()) return "";
  if (FloatsOf(*p.session, p.a) != std::vector<float>{1, 2, 3}) return "a changed";
  return FloatsOf(*p.session, p.b) == std::vector<float>{4} ? "" : "b changed";
}

TEST(DamagedFilesTest, NoChangedByteGoesUnnoticedAndChangesAValue) {
  Program p;
  const std::string prefix = EmptyFolder("it") + "/c";
  ASSERT_TRUE(p.checkpoint->Write(*p.session, prefix).ok());
  int flips = 0, refused = 0;
  for (const char* end : {".index", ".data-00000-of-00001"}) {
    const std::string path = prefix + end;
    const std::string good = FileText(path);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      WriteText(path, bad);
      ASSERT_EQ(Damage(p, prefix), "") << path << ", byte " << i;
      ++flips;
      const Status status = ReadAll(prefix);
      if (status.ok()) continue;
      ++refused;
      ExpectTold(status, path);
      ASSERT_FALSE(HasFailure()) << path << ", byte " << i;
    }
    WriteText(path, good);
  }
  EXPECT_GT(flips, 300);
  EXPECT_EQ(refused, flips);
  std::printf("%d bytes changed, %d noticed by reading alone\n", flips, refused);
  EXPECT_EQ(Damage(p, prefix), "");
}

TEST(DamagedFilesTest, FilesThatAreCutAreRefusedOrPassedOver) {
  Program p;
  const std::string folder = EmptyFolder("it");
  const std::string prefix = folder + "/c";
  ASSERT_TRUE(p.checkpoint->Write(*p.session, prefix).ok());
  for (const char* end : {".index", ".data-00000-of-00001"}) {
    const std::string path = prefix + end;
    const std::string good = FileText(path);
    for (std::size_t size = 0; size < good.size(); ++size) {
      WriteText(path, good.substr(0, size));
      ASSERT_FALSE(CheckpointIsComplete(prefix)) << path << " of " << size << " bytes";
      ASSERT_EQ(LatestCheckpoint(folder), "");
      ASSERT_EQ(Damage(p, prefix), "") << path << " of " << size << " bytes";
      ExpectTold(ReadAll(prefix), path);
      ASSERT_FALSE(HasFailure()) << path << " of " << size << " bytes";
    }
    // The op that restores says the same.
    const Status status = p.checkpoint->Read(*p.session, prefix).status();
    ExpectTold(status, path);
    WriteText(path, good);
  }
  EXPECT_TRUE(CheckpointIsComplete(prefix));
}

// Damage that TensorFlow's tests know. A data file that is cut off is DataLoss here, where
// TensorFlow's OutOfRange is what loops over data take for their end.
TEST(DamagedFilesTest, DamagedFilesOfTensorFlowHaveItsErrors) {
  const Json expected = LoadJson("checkpoints/expected.json");
  const std::string folder = GoldenPath("checkpoints/");
  int run = 0;
  for (const auto& [name, want] : expected.items()) {
    if (!want.contains("error_code")) continue;
    const auto reader = CheckpointReader::Open(folder + name);
    const Status status = reader.ok() ? (*reader)->Read("a").status() : reader.status();
    const int code = name == "short_data" ? static_cast<int>(StatusCode::kDataLoss)
                                          : want["error_code"].get<int>();
    EXPECT_EQ(static_cast<int>(status.code()), code) << name << ": " << status;
    ++run;
  }
  EXPECT_GT(run, 4);
}

}  // namespace
}  // namespace millrace::testing
