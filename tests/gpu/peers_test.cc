// SPDX-License-Identifier: Apache-2.0
// Values that go from one GPU to another, and collectives of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/own_process.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOneGpu[] = "there is one GPU";

Tensor Counting(int64_t count, float first) {
  Tensor t(kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = first + static_cast<float>(i % 4096);
  return t;
}

int NumGpus() {
  const auto count = GpusForTests().driver->NumDevices();
  return count.ok() ? *count : 0;
}

// Two devices on GPU 0.
void Divide(Program* p) {
  auto* const options = p->config.mutable_gpu_options();
  options->set_visible_device_list("0");
  auto* const parts = options->mutable_experimental()->add_virtual_devices();
  for (int i = 0; i < 2; ++i) parts->add_memory_limit_mb(1024);
}

class PeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(GpusForTests().obstacle, "");
    UseTestKernels();
  }
};

// For what one GPU cannot show.
class SeveralGpusTest : public PeersTest {
 protected:
  void SetUp() override {
    PeersTest::SetUp();
    if (!HasFatalFailure() && NumGpus() < 2) GTEST_SKIP() << kOneGpu;
  }
};

// ---- copies ----

// Every value goes through all devices, there and back, with a computation on each.
void ExpectValuesToArrive(Program* p) {
  p->config.mutable_gpu_options()->set_allow_growth(true);
  const Output x = Placeholder(p->root, kFloat, PartialShape({-1}));
  Output y = x;
  for (int hop = 0; hop < 3 * p->devices; ++hop) {
    const Scope there = p->On(hop % p->devices);
    y = ops::AddV2(there, y, Constant(there, Tensor::FromValues<float>({1})));
  }
  p->Open();
  ASSERT_NE(p->session, nullptr);
  const float added = static_cast<float>(3 * p->devices);
  for (const int64_t count : {1, 3, 1000, 65537, 1 << 20, (4 << 20) + 5}) {
    for (int step = 0; step < 4; ++step) {
      const float first = static_cast<float>(step);
      const Tensor got = p->Eval(y, {{x, Counting(count, first)}});
      ASSERT_TRUE(TensorsEqual(got, Counting(count, first + added))) << count << " floats";
    }
  }
  // Several steps at once, of other sizes each.
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int step = 0; step < 20; ++step) {
        const int64_t count = 1000 + 7919 * caller + step;
        const float first = static_cast<float>(100 * caller + step);
        const Tensor got = p->Eval(y, {{x, Counting(count, first)}});
        ASSERT_TRUE(TensorsEqual(got, Counting(count, first + added)));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(PeersTest, ValuesArriveBetweenPartsOfAGpu) {
  if (!InOwnProcess()) return;
  Program p("GPU");
  Divide(&p);
  ExpectValuesToArrive(&p);
}

TEST_F(SeveralGpusTest, ValuesArriveBetweenAllGpus) {
  if (!InOwnProcess()) return;
  Program p("GPU");
  p.devices = NumGpus();
  std::vector<Output> probes;
  for (int i = 0; i < p.devices; ++i) {
    probes.push_back(Labelled(p.On(i), "probe", Constant(p.On(i), Tensor::Scalar<float>(1))));
  }
  ExpectValuesToArrive(&p);
  std::set<int> ordinals;
  for (const Output& probe : probes) {
    p.Eval(probe);
    ordinals.insert(LastProbe().properties.ordinal);
  }
  EXPECT_EQ(static_cast<int>(ordinals.size()), p.devices) << "two devices are one GPU";
}

TEST_F(SeveralGpusTest, VisibleGpusHaveTheirOrder) {
  if (!InOwnProcess()) return;
  Program p("GPU");
  p.config.mutable_gpu_options()->set_visible_device_list("1,0");
  p.config.mutable_gpu_options()->set_allow_growth(true);
  std::vector<Output> probes;
  for (int i = 0; i < 2; ++i) {
    probes.push_back(Labelled(p.On(i), "probe", Constant(p.On(i), Tensor::Scalar<float>(1))));
  }
  p.Open();
  for (int i = 0; i < 2; ++i) {
    p.Eval(probes[i]);
    EXPECT_EQ(LastProbe().properties.ordinal, 1 - i);
  }
}

// ---- collectives ----

struct Members {
  Program* p;
  Output Add(int member, const char* op, const std::vector<Input>& inputs,
             std::vector<std::pair<std::string, AttrValue>> attrs) const {
    const std::vector<Input> all = inputs;
    return p->On(member)
        .AddOp(op, all, std::move(attrs), std::source_location::current())
        .output(0);
  }
  // Of a group of all members; `hint` "ring" is the way through the hosts.
  std::vector<std::pair<std::string, AttrValue>> Attrs(int64_t group, int64_t instance,
                                                       const char* hint) const {
    return {{"group_size", static_cast<int64_t>(p->devices)},
            {"group_key", group},
            {"instance_key", instance},
            {"communication_hint", std::string(hint)}};
  }
  Output Reduce(int member, const Output& value, int64_t instance, const char* final,
                const char* hint) const {
    auto attrs = Attrs(1, instance, hint);
    attrs.emplace_back("merge_op", std::string("Add"));
    attrs.emplace_back("final_op", std::string(final));
    attrs.emplace_back("subdiv_offsets", std::vector<int64_t>{0});
    return Add(member, "CollectiveReduce", {value}, std::move(attrs));
  }
  Output Gather(int member, const Output& value, int64_t instance, const char* hint) const {
    auto attrs = Attrs(1, instance, hint);
    attrs.emplace_back("shape", PartialShape({kCount * p->devices}));
    return Add(member, "CollectiveGather", {value}, std::move(attrs));
  }
  // From the last member to all others.
  Output Broadcast(int member, const Output& value, int64_t instance, const char* hint) const {
    auto attrs = Attrs(1, instance, hint);
    attrs.emplace_back("shape", Shape({kCount}));
    if (member == p->devices - 1) {
      return Add(member, "CollectiveBcastSend", {value}, std::move(attrs));
    }
    attrs.emplace_back("T", kFloat);
    return Add(member, "CollectiveBcastRecv", {}, std::move(attrs));
  }
  static constexpr int64_t kCount = 100'003;
};

void ExpectClose(const Tensor& got, const Tensor& want, float tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const float g = got.data<float>()[i], w = want.data<float>()[i];
    ASSERT_LE(std::abs(g - w), tolerance * std::max(1.0f, std::abs(w))) << "element " << i;
  }
}

// Sums, means, gathers and broadcasts of all members, in both ways, which agree with each other and
// with what they are.
void ExpectCollectives(Program* p) {
  p->config.mutable_gpu_options()->set_allow_growth(true);
  const Members all{p};
  const int n = p->devices;
  const Output x = Placeholder(p->root, kFloat, PartialShape({Members::kCount}));
  std::vector<Output> fetches;
  for (int i = 0; i < n; ++i) {
    const Output value =
        ops::Mul(p->On(i), x, Constant(p->On(i), Tensor::FromValues<float>({i + 1.0f})));
    int64_t instance = 1;
    for (const char* hint : {"auto", "ring"}) {
      const Output results[] = {all.Reduce(i, value, instance, "Id", hint),
                                all.Reduce(i, value, instance + 1, "Div", hint),
                                all.Gather(i, value, instance + 2, hint),
                                all.Broadcast(i, value, instance + 3, hint)};
      instance += 4;
      // What goes on there reads what has arrived.
      for (const Output& result : results) fetches.push_back(ops::Neg(p->On(i), result));
    }
  }
  p->Open();
  ASSERT_NE(p->session, nullptr);
  for (int step = 0; step < 3; ++step) {
    const Tensor fed = Counting(Members::kCount, static_cast<float>(step));
    const auto values = p->Run({{x, fed}}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    const auto times = [&](float factor) {
      Tensor t(kFloat, fed.shape());
      for (int64_t k = 0; k < t.num_elements(); ++k) {
        t.data<float>()[k] = -factor * fed.data<float>()[k];
      }
      return t;
    };
    const float sum = static_cast<float>(n * (n + 1)) / 2;
    for (int i = 0; i < n; ++i) {
      const Tensor* const there = &(*values)[static_cast<std::size_t>(8 * i)];
      for (int way = 0; way < 2; ++way) {
        SCOPED_TRACE(StrCat("member ", i, way == 0 ? ", auto" : ", ring"));
        const Tensor* const got = there + 4 * way;
        ExpectClose(got[0], times(sum), 1e-5f);
        ExpectClose(got[1], times(sum / static_cast<float>(n)), 1e-5f);
        ExpectClose(got[3], times(static_cast<float>(n)), 0);
        ASSERT_EQ(got[2].num_elements(), Members::kCount * n);
        for (int part = 0; part < n; ++part) {
          const Tensor want = times(static_cast<float>(part + 1));
          ASSERT_EQ(std::memcmp(got[2].data<float>() + part * Members::kCount, want.raw_data(),
                                want.num_bytes()),
                    0)
              << "part " << part;
        }
      }
      // Nothing is added up in these.
      for (const int k : {2, 3}) EXPECT_TRUE(TensorsEqual(there[k], there[4 + k]));
      // All members have the same bits.
      EXPECT_TRUE(TensorsEqual(there[0], (*values)[0])) << "member " << i;
    }
  }
}

constexpr char kThroughNccl[] = "members reduce through NCCL";

TEST_F(PeersTest, CollectivesOfPartsOfAGpuGoThroughTheHost) {
  const OwnProcess how{.environment = {{"MILLRACE_LOG_LEVEL", "info"}}};
  if (InOwnProcess(how)) {
    Program p("GPU");
    Divide(&p);
    return ExpectCollectives(&p);
  }
  EXPECT_THAT(OutputOfOwnProcess(), Not(HasSubstr(kThroughNccl)));
}

TEST_F(SeveralGpusTest, CollectivesOfAllGpusGoThroughNcclAndGiveWhatTheHostGives) {
  const OwnProcess how{.environment = {{"MILLRACE_LOG_LEVEL", "info"}}};
  if (InOwnProcess(how)) {
    Program p("GPU");
    p.devices = NumGpus();
    return ExpectCollectives(&p);
  }
  if (GpusForTests().simulated) return;  // which has no links
  EXPECT_THAT(OutputOfOwnProcess(), HasSubstr(kThroughNccl));
}

TEST_F(SeveralGpusTest, ACollectiveWhoseMemberFailsEndsForAllAndTheNextStepWorks) {
  if (!InOwnProcess()) return;
  Program p("GPU");
  p.devices = 2;
  p.config.mutable_gpu_options()->set_allow_growth(true);
  const Members all{&p};
  const Output x = Placeholder(p.root, kFloat, PartialShape({Members::kCount}));
  const Output bad = Placeholder(p.root, kFloat, PartialShape({}));
  std::vector<Output> fetches;
  for (int i = 0; i < 2; ++i) {
    // Of the second member it depends on a value of the host that is checked.
    const Output gate = ops::CheckNumerics(p.host().WithOpName(StrCat("check", i)),
                                           i == 1 ? bad : ops::OnesLike(p.host(), bad), "bad");
    fetches.push_back(all.Reduce(i, ops::Mul(p.On(i), x, gate), 1, "Id", "auto"));
  }
  p.Open();
  const auto run = [&](float value) {
    return p.Run({{x, Counting(Members::kCount, 1)}, {bad, Tensor::Scalar<float>(value)}}, fetches);
  };
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(run(1).ok());
    const Status status = run(std::nanf("")).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("{{node check1}}"));
    const auto values = run(1);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ((*values)[0].data<float>()[0], 2);
  }
}

}  // namespace
}  // namespace millrace::testing
