// SPDX-License-Identifier: Apache-2.0
// Kernels that fail on the device, long after they were issued: whose error that is, who hears of
// it, and what is left. Each in a process of its own, which has no working GPU afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "millrace/ops.h"
#include "runtime/local_cluster.h"
#include "tests/device_conformance/program.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/own_process.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBlocking[] = "MILLRACE_CUDA_BLOCKING";
constexpr char kGpu[] = "/device:GPU:0";

Tensor Filled(float value) {
  Tensor t(kFloat, {1000});
  for (float& x : t.flat<float>()) x = value;
  return t;
}

// before -> bad -> after on the GPU, and other nodes that have nothing to do with it.
struct Faulty {
  explicit Faulty(const std::string& label) : p("GPU") {
    p.devices = 1;
    p.config.mutable_gpu_options()->set_allow_growth(true);
    // What is put together is none of the kernels that have labels.
    p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        pb::RewriterConfig::OFF);
    x = Placeholder(p.root, kFloat, {1000});
    before = ops::Neg(p.device.WithOpName("before"), x);
    after =
        ops::Neg(p.device.WithOpName("after"), Labelled(p.device.WithOpName("bad"), label, before));
    good = ops::Neg(p.device.WithOpName("good"), x);
    p.Open();
  }
  Status Run(const Output& fetch) { return p.Run({{x, Filled(2)}}, {fetch}).status(); }
  Program p;
  Output x, before, after, good;
};

// From the driver's error to the end of its sentence, which all errors of a lost device have.
std::string RootOf(const Status& status) {
  const std::string text = status.ToString();
  const std::size_t at = text.find("CUDA_ERROR_");
  const std::size_t end = text.find("until the process is started again");
  return at == std::string::npos || end == std::string::npos ? "none in: " + text
                                                             : text.substr(at, end - at);
}

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(GpusForTests().obstacle, "");
    UseTestKernels();
  }
};

void ExpectTheFaultOf(const std::string& label) {
  Faulty f(label);
  ASSERT_NE(f.p.session, nullptr);
  EXPECT_TRUE(f.Run(f.good).ok()) << "the device works until then";
  const Status status = f.Run(f.after);
  EXPECT_TRUE(errors::IsInternal(status)) << status;
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("CUDA_ERROR_"), HasSubstr("{{node bad}}"), HasSubstr(kGpu),
                    HasSubstr("is lost until the process is started again"),
                    Not(HasSubstr("{{node good}}"))));
  // Nothing works any more, and everybody is told why.
  for (const Output& fetch : {f.good, f.after}) {
    const Status later = f.Run(fetch);
    EXPECT_TRUE(errors::IsInternal(later)) << later;
    EXPECT_EQ(RootOf(later), RootOf(status));
    EXPECT_THAT(later.ToString(), HasSubstr("{{node bad}}"));
  }
  const auto other = f.p.NewSession();
  ASSERT_NE(other, nullptr);
  const Status theirs = other->Run({{f.x.name(), Filled(1)}}, {f.good.name()}).status();
  EXPECT_EQ(RootOf(theirs), RootOf(status));
  // The host goes on.
  const Output y = ops::Neg(f.p.host(), f.x);
  f.p.session = f.p.NewSession();
  EXPECT_TRUE(TensorsEqual(f.p.Eval(y, {{f.x, Filled(3)}}), Filled(-3)));
  f.p.session.reset();
  f.p.master.reset();
}

TEST_F(FaultTest, AnAddressThatIsNoneIsToldWithItsNodeByTheStepAndAllLaterOnes) {
  if (!InOwnProcess()) return;
  ExpectTheFaultOf("bad_address");
}

TEST_F(FaultTest, SoIsATrap) {
  if (!InOwnProcess()) return;
  ExpectTheFaultOf("trap");
}

TEST_F(FaultTest, InBlockingModeTheErrorIsExactlyThatOfItsNode) {
  if (!InOwnProcess({.environment = {{kBlocking, "1"}}})) return;
  Faulty f("bad_address");
  ASSERT_NE(f.p.session, nullptr);
  EXPECT_TRUE(f.Run(f.good).ok());
  const Status status = f.Run(f.after);
  EXPECT_TRUE(errors::IsInternal(status)) << status;
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("the operation was {{node bad}}"), HasSubstr(kGpu),
                    Not(HasSubstr("it was one of")), Not(HasSubstr("{{node before}}")),
                    Not(HasSubstr("{{node after}}"))));
}

TEST_F(FaultTest, WithoutItTheNodesThatMayHaveBeenAreNamed) {
  if (!InOwnProcess()) return;
  Faulty f("bad_address");
  // All of it has been issued when the fault happens.
  const Output late = Labelled(f.p.device.WithOpName("late"), "bad_address",
                               Labelled(f.p.device.WithOpName("spin"), "spin", f.before));
  const Output last = ops::Neg(f.p.device.WithOpName("last"), late);
  f.p.session = f.p.NewSession();
  const Status status = f.Run(last);
  EXPECT_THAT(status.ToString(),
              AllOf(ContainsRegex("it was one of [2-5] operations: "), HasSubstr("{{node late}}"),
                    HasSubstr("{{node spin}}"), HasSubstr("MILLRACE_CUDA_BLOCKING=1 tells which"),
                    Not(HasSubstr("{{node bad}}")), Not(HasSubstr("{{node good}}"))));
}

TEST_F(FaultTest, EveryCallerThatWaitsGetsTheOneCause) {
  if (!InOwnProcess()) return;
  Faulty f("trap");
  ASSERT_NE(f.p.session, nullptr);
  constexpr int kCallers = 4;
  std::vector<std::unique_ptr<ClientSession>> sessions;
  for (int i = 0; i < kCallers; ++i) sessions.push_back(f.p.NewSession());
  std::vector<Status> ends(kCallers);
  std::atomic<int> ran{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      while (ends[i].ok()) {
        ends[i] = sessions[i]->Run({{f.x.name(), Filled(1)}}, {f.good.name()}).status();
        ++ran;
      }
    });
  }
  while (ran < 10 * kCallers) std::this_thread::yield();
  const Status status = f.Run(f.after);
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(RootOf(status), HasSubstr("CUDA_ERROR_"));
  for (const Status& end : ends) {
    EXPECT_TRUE(errors::IsInternal(end)) << end;
    EXPECT_EQ(RootOf(end), RootOf(status));
    EXPECT_THAT(end.ToString(), HasSubstr("{{node bad}}"));
  }
}

TEST_F(FaultTest, ADeadDeviceKeepsNobodyFromClosing) {
  if (!InOwnProcess()) return;
  Faulty f("bad_address");
  const Variable v =
      MakeVariable(f.p.device, "v", Constant(f.p.device, Filled(1)), {.use_resource = true});
  f.p.session = f.p.NewSession();
  f.p.RunTargets({v.initializer});
  Status status;
  std::thread waits([&] { status = f.Run(f.after); });
  waits.join();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(f.p.session->Close().ok());
  f.p.session.reset();
  f.p.master.reset();
  // A new cluster has the same GPU: it says that it is lost, or, where the driver has made a new
  // context, works.
  Program next("GPU");
  next.devices = 1;
  next.config = f.p.config;
  const Output y = ops::Neg(next.device, Constant(next.device, Filled(1)));
  next.config.set_allow_soft_placement(true);
  (*next.config.mutable_device_count())["GPU"] = 1;
  auto master = NewLocalCluster(next.config);
  if (!master.ok()) {
    EXPECT_THAT(master.status().ToString(), HasSubstr("CUDA_ERROR_"));
    return;
  }
  next.Open();
  const auto values = next.Run({}, {y});
  if (values.ok()) {
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(-1)));
  } else {
    EXPECT_THAT(values.status().ToString(), HasSubstr("CUDA_ERROR_"));
  }
}

}  // namespace
}  // namespace millrace::testing
