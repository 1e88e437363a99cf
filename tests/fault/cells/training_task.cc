// SPDX-License-Identifier: Apache-2.0
// Workers that train with a ps, asynchronously or with SyncReplicas, and clients that read what
// has been learned.
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/supervised_session.h"
#include "millrace/sync_replicas.h"
#include "millrace/training.h"
#include "tests/fault/cells/task_flags.h"

namespace millrace::testing {
namespace {

// Between two steps, so that a cell is not about how fast the machine is.
constexpr std::chrono::milliseconds kRest{20};
constexpr int kWorkers = 2;

Output Features(const Scope& scope) {
  return Constant(scope, Tensor::FromValues<float>({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
                                                   Shape({4, 4})));
}

// What w is to become is 1, 2, 3, 4.
Output Loss(const Scope& scope, const Output& w) {
  const Output line = ops::MatMul(scope, Features(scope), w);
  const Output wanted = Constant(scope, Tensor::FromValues<float>({1, 2, 3, 4}, Shape({4, 1})));
  return ReduceMean(scope, ops::SquaredDifference(scope, line, wanted));
}

struct TrainingProgram {
  Graph graph;
  Output loss, step;
  Operation train;
  SupervisedSessionOptions options;
};

Status BuildTraining(const TaskFlags& flags, TrainingProgram* p) {
  ReplicaDeviceSetterOptions setter;
  setter.ps_tasks = 1;
  setter.ps_device = "/job:ps/cpu:0";
  setter.worker_device = StrCat("/job:worker/task:", flags.index, "/cpu:0");
  const Scope scope = p->graph.root().WithDevice(ReplicaDeviceSetter(setter));
  const Variable global_step = GlobalStep(scope);
  const Variable w = MakeVariable(scope, "w", Zeros(scope, {4, 1}));
  p->loss = Loss(scope, w.read);
  p->step = global_step.read;
  std::unique_ptr<Optimizer> optimizer = GradientDescent({.learning_rate = 0.02f});
  const bool is_chief = flags.index == 0;
  if (flags.sync) {
    SyncReplicas sync(std::move(optimizer),
                      {.replicas_to_aggregate = kWorkers, .total_num_replicas = kWorkers});
    MR_ASSIGN_OR_RETURN(p->train, sync.Minimize(scope, p->loss, &global_step));
    MR_ASSIGN_OR_RETURN(p->options.local_init_op,
                        is_chief ? sync.chief_init_op() : sync.local_step_init_op());
    MR_ASSIGN_OR_RETURN(const Operation tokens, sync.InitTokensOp(scope));
    MR_ASSIGN_OR_RETURN(const Operation queue, sync.chief_queue_op());
    if (is_chief) {
      p->options.init_tokens_op = tokens;
      p->options.queue_ops = {queue};
    }
  } else {
    MR_ASSIGN_OR_RETURN(p->train, optimizer->Minimize(scope, p->loss, &global_step));
  }
  p->options.init_op = InitializeVariables(scope);
  p->options.not_ready = ReportUninitializedVariables(scope);
  p->options.is_chief = is_chief;
  p->options.session.device_filters = {"/job:ps", StrCat("/job:worker/task:", flags.index)};
  p->options.session.step_timeout = flags.step_timeout;
  p->options.ready_timeout = flags.ready_timeout;
  // Every loss of a session is to be seen: this program makes the next one itself.
  p->options.max_recoveries = 0;
  return p->graph.status();
}

// The session that there is to be; none until somebody is there to make it with.
void Open(TrainingProgram& program, Reporter& reporter,
          std::unique_ptr<SupervisedSession>* session) {
  reporter.Begin();
  auto made = SupervisedSession::Create(program.graph, program.options);
  if (!made.ok()) {
    reporter.Error("error", made.status());
    std::this_thread::sleep_for(kRest);
    return;
  }
  *session = *std::move(made);
  reporter.Ready();
}

}  // namespace

Status RunTrainingWorker(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, StartTask(flags));
  TrainingProgram program;
  MR_RETURN_IF_ERROR(BuildTraining(flags, &program));
  program.options.session.target = server->target();
  const Output fetches[] = {program.loss, program.step};
  Reporter reporter;
  std::unique_ptr<SupervisedSession> session;
  while (true) {
    if (session == nullptr) {
      Open(program, reporter, &session);
      continue;
    }
    reporter.Begin();
    const auto ran = session->Run({}, fetches, std::span(&program.train, 1));
    if (ran.ok()) {
      reporter.Step((*ran)[1].scalar<int64_t>(), (*ran)[0].scalar<float>());
      std::this_thread::sleep_for(kRest);
      continue;
    }
    reporter.Error("step_error", ran.status());
    session->Stop().IgnoreError();
    session = nullptr;
  }
}

Status RunReader(const TaskFlags& flags) {
  Graph graph;
  const Scope scope = graph.root().WithDevice(flags.reads);
  const Variable global_step = GlobalStep(scope);
  const Variable w = MakeVariable(scope, "w", Zeros(scope, {4, 1}));
  const Output fetches[] = {Loss(scope, w.read), global_step.read};
  MR_RETURN_IF_ERROR(graph.status());
  const SessionOptions options{.target = flags.target,
                               .device_filters = {flags.reads},
                               .start_timeout = flags.ready_timeout,
                               .step_timeout = flags.step_timeout};
  Reporter reporter;
  std::optional<Session> session;
  while (true) {
    if (!session) {
      reporter.Begin();
      auto made = Session::Create(graph, options);
      if (made.ok()) {
        session = *std::move(made);
        reporter.Ready();
      } else {
        reporter.Error("error", made.status());
        std::this_thread::sleep_for(kRest);
      }
      continue;
    }
    reporter.Begin();
    const auto ran = session->Run({}, fetches);
    if (ran.ok()) {
      reporter.Step((*ran)[1].scalar<int64_t>(), (*ran)[0].scalar<float>());
    } else if (errors::IsFailedPrecondition(ran.status())) {
      reporter.Error("not_ready", ran.status());  // before the chief has initialised it
    } else {
      reporter.Error("step_error", ran.status());
      session.reset();
    }
    std::this_thread::sleep_for(5 * kRest);
  }
}

}  // namespace millrace::testing
