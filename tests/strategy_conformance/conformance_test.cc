// SPDX-License-Identifier: Apache-2.0
// Every program under every strategy gives what it gives without one.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/strings.h"
#include "tests/strategy_conformance/programs.h"

namespace millrace::testing {
namespace {

constexpr double kRelative = 2e-5, kAbsolute = 2e-6;

template <typename T>
std::string NumberDifference(const Tensor& got, const Tensor& want) {
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const double a = static_cast<double>(got.data<T>()[i]);
    const double b = static_cast<double>(want.data<T>()[i]);
    if (!(std::abs(a - b) <= kAbsolute + kRelative * std::abs(b))) {
      return StrCat("element ", i, " is ", a, ", not ", b);
    }
  }
  return "";
}

std::string Difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  if (got.size() != want.size()) return StrCat(got.size(), " results, not ", want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].dtype() != want[i].dtype() || got[i].shape() != want[i].shape()) {
      return StrCat("result ", i, " is of shape ", got[i].shape().DebugString());
    }
    const std::string why = got[i].dtype() == kDouble ? NumberDifference<double>(got[i], want[i])
                                                      : NumberDifference<float>(got[i], want[i]);
    if (!why.empty()) return StrCat("result ", i, ": ", why);
  }
  return "";
}

std::string DirectoryOf(const std::string& name) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

class StrategyConformance : public ::testing::TestWithParam<Setting> {};

TEST_P(StrategyConformance, GivesWhatOneReplicaDoes) {
  const Setting& setting = GetParam();
  for (const NamedProgram& program : AllPrograms()) {
    SCOPED_TRACE(program.name);
    const std::string alone = DirectoryOf("alone_" + program.name);
    const Results want = program.run(DefaultStrategy(), alone);
    ASSERT_TRUE(want.ok()) << want.status();
    const std::string directory = DirectoryOf(setting.Name() + program.name);
    const std::vector<Results> all =
        RunUnder(setting, [&](const auto& strategy) { return program.run(strategy, directory); });
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(StrCat("process ", i));
      EXPECT_TRUE(all[i].ok()) << all[i].status();
      if (!all[i].ok()) continue;
      // A process that only took part has nothing to show.
      if (i > 0 && all[i]->empty()) continue;
      EXPECT_EQ(Difference(*all[i], *want), "");
    }
    ASSERT_FALSE(HasFailure()) << "with " << setting.Name();
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i]->empty()) continue;
      for (std::size_t k = 0; k < all[i]->size(); ++k) {
        EXPECT_TRUE(TensorsEqual(all[i]->at(k), all[0]->at(k)))
            << "process " << i << " and the first differ in result " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, StrategyConformance, ::testing::ValuesIn(AllSettings()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace millrace::testing
