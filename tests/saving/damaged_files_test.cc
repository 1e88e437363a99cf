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
      const auto reader = CheckpointReader::Open(prefix);
      bool whole = reader.ok();
      for (std::size_t e = 0; whole && e < (*reader)->entries().size(); ++e) {
        whole = (*reader)->Read((*reader)->entries()[e].name).ok();
      }
      if (!whole) ++refused;
    }
    WriteText(path, good);
  }
  EXPECT_GT(flips, 300);
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
    }
    EXPECT_FALSE(p.checkpoint->Read(*p.session, prefix).ok());
    WriteText(path, good);
  }
  EXPECT_TRUE(CheckpointIsComplete(prefix));
}

// Damage that TensorFlow's tests know.
TEST(DamagedFilesTest, DamagedFilesOfTensorFlowHaveItsErrors) {
  const Json expected = LoadJson("checkpoints/expected.json");
  const std::string folder = GoldenPath("checkpoints/");
  int run = 0;
  for (const auto& [name, want] : expected.items()) {
    if (!want.contains("error_code")) continue;
    const auto reader = CheckpointReader::Open(folder + name);
    const Status status = reader.ok() ? (*reader)->Read("a").status() : reader.status();
    EXPECT_EQ(static_cast<int>(status.code()), want["error_code"]) << name << ": " << status;
    ++run;
  }
  EXPECT_GT(run, 4);
}

}  // namespace
}  // namespace millrace::testing
