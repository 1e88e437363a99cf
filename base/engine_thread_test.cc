// SPDX-License-Identifier: Apache-2.0
#include "base/engine_thread.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/log.h"

namespace millrace {
namespace {

struct Note : DeferredWork {
  Note(int number, std::vector<int>* log) : number(number), log(log) {
    run = [](DeferredWork* self) {
      auto* note = static_cast<Note*>(self);
      note->log->push_back(note->number);
    };
  }
  int number;
  std::vector<int>* log;
};

TEST(DeferScopeTest, KeepsNothingOutsideOfABurst) {
  std::vector<int> log;
  Note note(1, &log);
  EXPECT_FALSE(DeferScope::Defer(&note));
  DeferScope::RunDeferred();
  EXPECT_TRUE(log.empty());
}

TEST(DeferScopeTest, TheOutermostEndRunsInOrder) {
  std::vector<int> log;
  Note first(1, &log), second(2, &log);
  {
    DeferScope outer;
    {
      DeferScope inner;
      EXPECT_TRUE(DeferScope::Defer(&first));
      EXPECT_TRUE(DeferScope::Defer(&second));
    }
    EXPECT_TRUE(log.empty());
  }
  EXPECT_EQ(log, (std::vector<int>{1, 2}));
}

TEST(DeferScopeTest, AThreadMayRunItsWorkEarlyAndOnce) {
  std::vector<int> log;
  Note note(1, &log);
  {
    DeferScope scope;
    EXPECT_TRUE(DeferScope::Defer(&note));
    DeferScope::RunDeferred();
    EXPECT_EQ(log, std::vector<int>{1});
  }
  EXPECT_EQ(log, std::vector<int>{1});
}

TEST(HurryScopeTest, TheInnermostCounts) {
  EXPECT_FALSE(HurryScope::InHurry());
  HurryScope outer(true);
  EXPECT_TRUE(HurryScope::InHurry());
  {
    HurryScope inner(false);
    EXPECT_FALSE(HurryScope::InHurry());
  }
  EXPECT_TRUE(HurryScope::InHurry());
}

TEST(EngineThreadTest, EachThreadMarksItself) {
  bool before = true, after = false;
  std::thread([&] {
    before = OnEngineThread();
    MarkEngineThread();
    after = OnEngineThread();
  }).join();
  EXPECT_FALSE(before);
  EXPECT_TRUE(after);
  EXPECT_FALSE(OnEngineThread());
}

TEST(EngineThread, ALineNamesTheRequestThatItsThreadWorksFor) {
  ::testing::internal::CaptureStderr();
  MR_LOG(kError, "before");
  {
    const LogRequest outer(0xab);
    MR_LOG(kError, "outer");
    {
      const LogRequest inner(0xcd);
      MR_LOG(kError, "inner");
      MR_LOG(kError, "said [request 00000000000000cd] already");
    }
    std::thread([] { MR_LOG(kError, "elsewhere"); }).join();
    MR_LOG(kError, "outer again");
  }
  MR_LOG(kError, "after");
  const std::string text = ::testing::internal::GetCapturedStderr();
  for (const char* line :
       {"] before\n", "] outer [request 00000000000000ab]\n",
        "] inner [request 00000000000000cd]\n", "] said [request 00000000000000cd] already\n",
        "] elsewhere\n", "] outer again [request 00000000000000ab]\n", "] after\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace millrace
