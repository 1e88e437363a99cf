// SPDX-License-Identifier: Apache-2.0
// Members of a group whose collectives go through NCCL: each has a machine and a task of its own,
// all in this process.
#ifndef TESTS_DEVICE_CONFORMANCE_NCCL_MEMBERS_H_
#define TESTS_DEVICE_CONFORMANCE_NCCL_MEMBERS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline_timer.h"
#include "base/notification.h"
#include "base/strings.h"
#include "collective/collective_manager.h"
#include "device/cuda/machine/machine.h"
#include "kernels/cuda/nccl_link.h"

namespace millrace::testing {

class NcclMembers : public ::testing::Test {
 protected:
  struct Member {
    std::shared_ptr<CudaMachineImpl> machine;
    std::unique_ptr<Device> device;  // for its name
    std::shared_ptr<CollectiveManager> manager;
    std::shared_ptr<DeviceLink> link;
  };
  struct Result {
    Notification ended;
    DeviceLink::Outcome outcome;
    RefPtr<DeviceWork> work = MakeRef<DeviceWork>();
    Tensor output;
  };
  static constexpr std::chrono::seconds kLimit{30};

  // One more member, on a machine of its own; `options` without a name.
  void Join(CudaMachineOptions options, NcclSource source) {
    const auto i = static_cast<int>(members_.size());
    Member member;
    options.name = StrCat(Task(i), "/device:GPU:0");
    options.allow_growth = true;
    auto machine = CudaMachineImpl::Start(std::move(options));
    ASSERT_TRUE(machine.ok()) << machine.status();
    member.machine = *std::move(machine);
    member.device = NewCpuDevice(StrCat(Task(i), "/device:CPU:0"), i + 1, nullptr, nullptr);
    member.link = NewNcclLink(member.machine.get(), source);
    CollectiveOptions collectives;
    collectives.task = Task(i);
    collectives.devices = {member.device->attributes()};
    collectives.patience = std::chrono::milliseconds(20);
    collectives.peer = [this](std::string_view name) -> CollectivePeer* {
      for (std::size_t k = 0; k < members_.size(); ++k) {
        if (Task(static_cast<int>(k)) == name) return members_[k].manager->local();
      }
      return nullptr;
    };
    collectives.at = [](Deadline deadline, std::function<void()> what) -> std::function<void()> {
      const auto token = DeadlineTimer::Global().Schedule(deadline, std::move(what));
      return [token] { (void)DeadlineTimer::Global().Cancel(token); };
    };
    member.manager = NewCollectiveManager(std::move(collectives));
    members_.push_back(std::move(member));
  }

  // A step, once all have joined; the one before it ends.
  void Begin(int64_t id) {
    Forget();
    step_ = id;
    for (Member& member : members_) steps_.push_back(member.manager->NewStep(id, Task(0)));
  }
  void Forget() {
    if (steps_.empty()) return;
    steps_.clear();
    for (Member& member : members_) member.manager->Cleanup(step_);
  }

  CollectiveParams Params(int instance, CollectiveKind kind = CollectiveKind::kReduce) {
    CollectiveParams params;
    params.node = StrCat("node", instance);
    params.kind = kind;
    params.dtype = kFloat;
    params.shape = Shape({4 + instance});
    params.group_key = 1;
    params.group_size = static_cast<int>(members_.size());
    params.instance_key = instance;
    params.anew_each_step = true;
    return params;
  }

  // Floats from `first` on, in a member's memory.
  virtual Tensor OnDevice(int member, const Shape& shape, float first) = 0;

  // One member's part, of numbers from 10 * member on.
  void Run(int member, const CollectiveParams& params, Result* result,
           const std::string& hint = "auto") {
    Shape part = params.shape;
    if (params.kind == CollectiveKind::kGather) part = Shape({part.dim(0) / params.group_size});
    Tensor input;
    if (params.kind != CollectiveKind::kBroadcast || params.is_source) {
      input = OnDevice(member, part, static_cast<float>(10 * member));
    }
    result->output = OnDevice(member, params.shape, -1);
    steps_[member]->ResolveAsync(
        params, *members_[member].device,
        [this, member, hint, input, result,
         step = steps_[member]](StatusOr<std::shared_ptr<const ResolvedCollective>> resolved) {
          if (!resolved.ok()) {
            result->outcome.status = resolved.status();
            return result->ended.Notify();
          }
          const std::string key = StrCat("1:", (*resolved)->params.instance_key, ":0:0");
          members_[member].link->RunAsync(
              {step, *resolved, key, hint, result->work, input, result->output},
              [result](const DeviceLink::Outcome& outcome) {
                result->outcome = outcome;
                result->ended.Notify();
              });
        });
  }
  // Of all members; the second, or the only one, is the source of a broadcast.
  void RunAll(const CollectiveParams& params, std::vector<Result>* results) {
    const auto count = static_cast<int>(members_.size());
    for (int i = 0; i < count; ++i) {
      CollectiveParams own = params;
      own.is_source = params.kind == CollectiveKind::kBroadcast && i == (count > 1 ? 1 : 0);
      Run(i, own, &results->at(i));
    }
  }
  static const DeviceLink::Outcome& End(Result& result) {
    EXPECT_TRUE(result.ended.WaitUntil(DeadlineAfter(kLimit))) << "a member waits";
    return result.outcome;
  }
  static std::string Task(int i) { return StrCat("/job:worker/replica:0/task:", i); }

  std::vector<Member> members_;
  std::vector<RefPtr<CollectiveExecutor>> steps_;
  int64_t step_ = 0;
};

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_NCCL_MEMBERS_H_
