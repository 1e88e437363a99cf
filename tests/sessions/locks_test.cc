// SPDX-License-Identifier: Apache-2.0
// Steps that wait for a lock end when they are to, and who waits gets it when it is free.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/core.h"
#include "millrace/ops.h"

namespace millrace {
namespace {

class LocksTest : public ::testing::Test {
 protected:
  LocksTest() {
    const Scope s = graph_.root();
    const Output mutex = ops::MutexV2(s, {.shared_name = "the lock"});
    lock_ = ops::MutexLock(s, mutex);
    // All in one step, each free again as soon as it is taken.
    for (int i = 0; i < 2000; ++i) {
      many_.push_back(ops::ConsumeMutexLock(s, ops::MutexLock(s, mutex)));
    }
    all_ = Group(s, many_);
    session_ = std::make_unique<Session>(*Session::Create(graph_, {.inter_op_threads = 2}));
  }

  // What holds it, as long as it is there.
  Tensor Hold() {
    auto held = session_->Run({}, {lock_});
    EXPECT_TRUE(held.ok()) << held.status();
    return held.ok() ? std::move((*held)[0]) : Tensor();
  }
  Status TryFor(std::chrono::milliseconds timeout) {
    return session_->Run({}, {}, {all_}, {.timeout = timeout}).status();
  }

  Graph graph_;
  Output lock_;
  std::vector<Operation> many_;
  Operation all_;
  std::unique_ptr<Session> session_;
};

TEST_F(LocksTest, AStepThatWaitsEndsByItsDeadline) {
  Tensor held = Hold();
  // However slow the machine is, some time will do to begin to wait.
  Status late;
  for (std::chrono::milliseconds timeout(100); timeout < std::chrono::minutes(1); timeout *= 2) {
    late = TryFor(timeout);
    ASSERT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late;
    if (late.ToString().find("lock 'the lock'") != std::string::npos) break;
  }
  EXPECT_NE(late.ToString().find("lock 'the lock': taken"), std::string::npos) << late;
  held = Tensor();
  // Nothing is left of those that gave up.
  EXPECT_TRUE(TryFor(std::chrono::milliseconds(60'000)).ok());
}

TEST_F(LocksTest, AStepThatWaitsEndsWithItsSession) {
  const Tensor held = Hold();
  Status ran;
  std::thread step([&] { ran = TryFor(std::chrono::milliseconds(60'000)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(session_->Close().ok());
  step.join();
  EXPECT_FALSE(ran.ok());
}

TEST_F(LocksTest, AllThatWaitGetIt) {
  Tensor held = Hold();
  std::vector<Status> ran(3);
  std::vector<std::thread> steps;
  for (Status& status : ran) {
    steps.emplace_back([&] { status = TryFor(std::chrono::milliseconds(60'000)); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  held = Tensor();
  for (std::thread& step : steps) step.join();
  for (const Status& status : ran) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace millrace
