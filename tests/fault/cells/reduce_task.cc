// SPDX-License-Identifier: Apache-2.0
// Members of a group that train by all-reduce, each with a session at its own task.
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "millrace/core.h"
#include "session/async_join.h"
#include "session/master_interface.h"
#include "tests/fault/cells/task_flags.h"

namespace millrace::testing {
namespace {

constexpr std::chrono::milliseconds kRest{20};
constexpr int kMembers = 3, kWeights = 4;
constexpr float kRate = 0.02f;
// What travels: whether the sender has weights, and if so how many steps it has made, its weights
// and its gradient. One that has just started takes the mean of the others' weights.
constexpr int kSize = 2 + 2 * kWeights;

struct MemberGraph {
  Graph graph;
  std::string value, reduced, loss_in, store;  // names of nodes and outputs
};

// The sum over all members, and the variables that readers look at.
Status BuildMember(int task, MemberGraph* g) {
  const Scope scope = g->graph.root().WithDevice(StrCat("/job:worker/task:", task, "/cpu:0"));
  const Output value = Placeholder(scope.WithOpName("value"), kFloat, {kSize});
  const std::vector<Input> inputs = {value};
  const Output sum(scope.WithOpName("sum").AddOp("CollectiveReduce", inputs,
                                                 {{"group_size", int64_t{kMembers}},
                                                  {"group_key", int64_t{1}},
                                                  {"instance_key", int64_t{1}},
                                                  {"merge_op", std::string("Add")},
                                                  {"final_op", std::string("Id")},
                                                  {"subdiv_offsets", std::vector<int64_t>{0}}},
                                                 std::source_location::current()),
                   0);
  const Variable w = MakeVariable(scope, "w", Zeros(scope, {kWeights, 1}));
  const Variable step = GlobalStep(scope);
  const Output new_w = Placeholder(scope.WithOpName("new_w"), kFloat, {kWeights, 1});
  const Output new_step = Placeholder(scope.WithOpName("new_step"), kInt64, {});
  const Operation store =
      Group(scope.WithOpName("store"), {Assign(scope, w, new_w), Assign(scope, step, new_step)});
  g->value = value.name();
  g->reduced = sum.name();
  g->store = store.name();
  return g->graph.status();
}

class GroupMember {
 public:
  GroupMember(const TaskFlags& flags, std::string target)
      : flags_(flags), target_(std::move(target)) {}

  Status Open() {
    MemberGraph g;
    MR_RETURN_IF_ERROR(BuildMember(flags_.index, &g));
    names_ = {g.value, g.reduced, g.store};
    CreateSessionArgs args;
    MR_ASSIGN_OR_RETURN(const std::string bytes, g.graph.ToGraphDef());
    if (!args.graph.ParseFromString(bytes)) return errors::Internal("the graph cannot be read");
    args.config.add_device_filters(StrCat("/job:worker/task:", flags_.index));
    args.config.mutable_experimental()->set_collective_group_leader("/job:worker/replica:0/task:0");
    MR_ASSIGN_OR_RETURN(master_, ConnectToMaster(target_));
    CreateSessionResult created;
    MR_RETURN_IF_ERROR(Await([&](auto done) {
      master_->CreateSessionAsync({.deadline = DeadlineAfter(flags_.ready_timeout)},
                                  std::move(args), &created, done);
    }));
    handle_ = created.session_handle;
    return OkStatus();
  }
  void Close() { handle_.clear(); }
  bool is_open() const { return !handle_.empty(); }

  Status Reduce(const Tensor& value, Tensor* sum) {
    RunStepArgs args = Step();
    args.feeds = {{names_[0], value}};
    args.fetches = {names_[1]};
    args.options.mutable_experimental()->set_collective_graph_key(9);
    return Run(std::move(args), sum);
  }
  Status Store(const Tensor& w, int64_t step) {
    RunStepArgs args = Step();
    args.feeds = {{"new_w:0", w}, {"new_step:0", Tensor::Scalar<int64_t>(step)}};
    args.targets = {names_[2]};
    return Run(std::move(args), nullptr);
  }

 private:
  RunStepArgs Step() const {
    RunStepArgs args;
    args.session_handle = handle_;
    args.options.set_timeout_in_ms(flags_.step_timeout.count());
    return args;
  }
  Status Run(RunStepArgs args, Tensor* value) {
    RunStepResult result;
    MR_RETURN_IF_ERROR(Await([&](auto done) {
      master_->RunStepAsync({.deadline = DeadlineAfter(2 * flags_.step_timeout)}, &args, &result,
                            done);
    }));
    if (value != nullptr) *value = result.fetches.at(0);
    return OkStatus();
  }

  const TaskFlags& flags_;
  const std::string target_;
  std::array<std::string, 3> names_;
  std::shared_ptr<MasterInterface> master_;
  std::string handle_;
};

// What this member knows, and what becomes of it with the sum over all.
struct Weights {
  std::array<float, kWeights> w{};
  int64_t step = 0;
  bool known = false;

  float Loss() const {
    float loss = 0;
    for (int i = 0; i < kWeights; ++i) {
      const float error = w[i] - static_cast<float>(i + 1);
      loss += error * error / kWeights;
    }
    return loss;
  }
  Tensor ToSend() const {
    Tensor value(kFloat, Shape({kSize}));
    float* const v = value.data<float>();
    std::fill_n(v, kSize, 0.0f);
    if (!known) return value;
    v[0] = 1;
    v[1] = static_cast<float>(step);
    for (int i = 0; i < kWeights; ++i) {
      v[2 + i] = w[i];
      v[2 + kWeights + i] = 2 * (w[i] - static_cast<float>(i + 1));
    }
    return value;
  }
  void Take(const Tensor& sum) {
    const float* const v = sum.data<float>();
    const bool first = v[0] == 0;
    for (int i = 0; i < kWeights; ++i) {
      w[i] = first ? 0 : (v[2 + i] - kRate * v[2 + kWeights + i]) / v[0];
    }
    step = first ? 0 : static_cast<int64_t>(v[1] / v[0]) + 1;
    known = true;
  }
  Tensor AsColumn() const {
    return Tensor::FromValues<float>(std::vector<float>(w.begin(), w.end()), Shape({kWeights, 1}));
  }
};

Status StepOnce(GroupMember& member, Weights* weights) {
  Tensor sum;
  MR_RETURN_IF_ERROR(member.Reduce(weights->ToSend(), &sum));
  weights->Take(sum);
  return member.Store(weights->AsColumn(), weights->step);
}

}  // namespace

Status RunMember(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, StartTask(flags));
  GroupMember member(flags, server->target());
  Weights weights;
  Reporter reporter;
  while (true) {
    reporter.Begin();
    if (!member.is_open()) {
      const Status opened = member.Open();
      if (opened.ok()) {
        reporter.Ready();
      } else {
        reporter.Error("error", opened);
        std::this_thread::sleep_for(kRest);
      }
      continue;
    }
    const Status stepped = StepOnce(member, &weights);
    if (stepped.ok()) {
      reporter.Step(weights.step, weights.Loss());
    } else {
      reporter.Error("step_error", stepped);
      if (errors::IsAborted(stepped)) member.Close();
      std::this_thread::sleep_for(5 * kRest);
    }
    std::this_thread::sleep_for(kRest);
  }
}

}  // namespace millrace::testing
