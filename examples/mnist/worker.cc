// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "examples/mnist/keeper.h"
#include "examples/mnist/program.h"
#include "examples/mnist/rounds.h"
#include "examples/mnist/save_bound.h"
#include "examples/mnist/serving.h"
#include "examples/mnist/task.h"
#include "millrace/digits.h"
#include "millrace/pages.h"
#include "millrace/security.h"
#include "millrace/server.h"
#include "millrace/staleness_bound.h"
#include "millrace/step_trace.h"
#include "millrace/supervised_session.h"
#include "millrace/training.h"

namespace millrace::mnist {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kJobEndTimeout{60'000};
constexpr int kMostLateSteps = 3;    // in a row
constexpr int kMostRounds = 20;      // in a row, without a step
constexpr int64_t kTracedStep = 30;  // of each worker, sooner in a short run

double WallSeconds() { return static_cast<double>(WallMicros()) * 1e-6; }

class Worker {
 public:
  Worker(const Flags& flags, ClusterSpec cluster)
      : flags_(flags), cluster_(std::move(cluster)), num_workers_(cluster_.num_tasks("worker")) {}

  Status Run() {
    std::printf("job name = worker\ntask index = %d\n", flags_.task_index);
    std::fflush(stdout);
    // For the server, the session, and the end of the parameter servers.
    MR_RETURN_IF_ERROR(SetDefaultCredentials(TaskCredentials(flags_)));
    MR_RETURN_IF_ERROR(StartServer());
    MR_ASSIGN_OR_RETURN(digits_, DigitsOf(flags_));
    MR_RETURN_IF_ERROR(Build());
    MR_RETURN_IF_ERROR(OpenSession());
    while (true) {
      MR_RETURN_IF_ERROR(Train());
      if (StopSignal() != 0) return SaveAndStop();
      const Status awaited = AwaitUpdates();
      if (awaited.ok()) break;
      if (rounds_ == nullptr || !Rounds::IsOver(awaited)) return awaited;
      MR_RETURN_IF_ERROR(BeginRound(awaited));
    }
    MR_RETURN_IF_ERROR(Evaluate());
    MR_RETURN_IF_ERROR(AwaitOthers());
    MR_RETURN_IF_ERROR(session_->Stop());  // before the tasks that it talks to end
    MR_RETURN_IF_ERROR(EndParameterServers());
    return server_ ? server_->Stop() : OkStatus();
  }

 private:
  Status StartServer() {
    MR_ASSIGN_OR_RETURN(const std::string address, cluster_.Address("worker", flags_.task_index));
    target_ = "grpc://" + address;
    if (flags_.existing_servers) {
      std::printf("Using existing server at: %s\n", target_.c_str());
      return OkStatus();
    }
    ServerOptions options;
    options.cluster = cluster_;
    options.job_name = "worker";
    options.task_index = flags_.task_index;
    AddServerFlags(flags_, &options);
    if (!flags_.dump_graph.empty()) {
      options.dump_dir = StrCat(flags_.dump_graph, "/worker_", flags_.task_index);
    }
    MR_RETURN_IF_ERROR(TakeGpus(flags_));
    MR_ASSIGN_OR_RETURN(server_, Server::Create(options));
    MR_RETURN_IF_ERROR(server_->Start());
    target_ = server_->target();
    MR_ASSIGN_OR_RETURN(pages_, ServePages(flags_, *server_));
    return OkStatus();
  }

  std::string WorkerDevice() const {
    const std::string task = StrCat("/job:worker/task:", flags_.task_index);
    if (flags_.num_gpus > 0) return StrCat(task, "/gpu:", flags_.task_index % flags_.num_gpus);
    return task + "/cpu:0";
  }

  DeviceFunction Setter() const {
    const int ps_tasks = cluster_.num_tasks("ps");
    ReplicaDeviceSetterOptions options;
    options.ps_tasks = ps_tasks;
    options.ps_device = "/job:ps/cpu:0";
    options.worker_device = WorkerDevice();
    options.strategy =
        flags_.ps_strategy == "balanced" ? ByteBalanced(ps_tasks) : RoundRobin(ps_tasks);
    return ReplicaDeviceSetter(std::move(options));
  }

  Status Build() {
    Program& p = program_;
    if (flags_.seed != 0) p.graph.SetSeed(flags_.seed);
    const Scope scope = p.graph.root().WithDevice(Setter());
    p.global_step = GlobalStep(scope);
    p.model = flags_.model == "cnn" ? BuildCnn(scope) : BuildMlp(scope, flags_.hidden_units);
    MR_RETURN_IF_ERROR(p.graph.status());
    MR_ASSIGN_OR_RETURN(
        std::unique_ptr<Optimizer> optimizer,
        OptimizerByName(flags_.optimizer, static_cast<float>(flags_.learning_rate)));
    if (flags_.sync_replicas) {
      MR_RETURN_IF_ERROR(BuildSync(scope, std::move(optimizer)));
    } else {
      MR_RETURN_IF_ERROR(BuildAsync(scope, std::move(optimizer)));
    }
    BuildEnd(scope);
    p.init = InitializeVariables(scope);
    p.not_ready = ReportUninitializedVariables(scope);
    if (flags_.is_chief() && !flags_.checkpoint_dir.empty()) {
      MR_ASSIGN_OR_RETURN(keeper_, Keeper::Create(flags_, p.graph, p.global_step));
    }
    if (SaveBound::IsNeeded(flags_)) {
      MR_ASSIGN_OR_RETURN(bound_,
                          SaveBound::Create(flags_, p.graph, p.global_step.read, num_workers_));
      if (keeper_ != nullptr) keeper_->set_period(bound_->period());
    }
    if (Rounds::AreNeeded(flags_, num_workers_)) {
      MR_ASSIGN_OR_RETURN(rounds_,
                          Rounds::Create(flags_, p.graph, p.global_step.read, num_workers_));
    }
    return p.graph.status();
  }

  Status BuildSync(const Scope& scope, std::unique_ptr<Optimizer> optimizer) {
    Program& p = program_;
    const int aggregate =
        flags_.replicas_to_aggregate > 0 ? flags_.replicas_to_aggregate : num_workers_;
    SyncReplicas sync(std::move(optimizer), {.replicas_to_aggregate = aggregate,
                                             .total_num_replicas = num_workers_,
                                             .name = "mnist_sync_replicas"});
    MR_ASSIGN_OR_RETURN(p.train, sync.Minimize(scope, p.model.cross_entropy, &p.global_step));
    MR_ASSIGN_OR_RETURN(p.local_init,
                        flags_.is_chief() ? sync.chief_init_op() : sync.local_step_init_op());
    // Rounds begin with no more than the first step needs: with the usual one for every worker all
    // are a step ahead of what has been applied, and who is faster decides whose gradient is old.
    const int tokens = Rounds::AreNeeded(flags_, num_workers_) ? 0 : -1;
    MR_ASSIGN_OR_RETURN(p.init_tokens, sync.InitTokensOp(scope, tokens));
    MR_ASSIGN_OR_RETURN(p.sync_op, sync.chief_queue_op());
    return OkStatus();
  }

  Status BuildAsync(const Scope& scope, std::unique_ptr<Optimizer> optimizer) {
    Program& p = program_;
    if (flags_.staleness_bound >= 0) {
      optimizer = std::make_unique<StalenessBound>(
          std::move(optimizer),
          StalenessBoundOptions{flags_.staleness_bound, StrCat("worker ", flags_.task_index)});
    }
    if (flags_.exact_steps) {
      MR_RETURN_IF_ERROR(BuildExact(scope, *optimizer));
    } else {
      MR_ASSIGN_OR_RETURN(p.train,
                          optimizer->Minimize(scope, p.model.cross_entropy, &p.global_step));
    }
    return OkStatus();
  }

  // Every update waits for a claim: a step of the job that nobody else takes. What a worker reads
  // of the global step is too old to tell whether the others' steps under way are the last ones.
  Status BuildExact(const Scope& scope, Optimizer& optimizer) {
    Program& p = program_;
    const Scope beside = scope.ColocateWith(p.global_step.handle);
    const Variable claimed = MakeVariable(
        beside, "claimed_steps",
        Constant(beside.WithOpName("claimed_steps/initial_value"), Tensor::Scalar<int64_t>(0)),
        {.trainable = false});
    p.step_claim = ops::CountUpTo(beside.WithOpName("claim_step"), claimed.handle,
                                  static_cast<int64_t>(flags_.train_steps));
    MR_ASSIGN_OR_RETURN(std::vector<GradientAndVariable> gradients,
                        optimizer.ComputeGradients(scope, p.model.cross_entropy));
    // The claim goes to the worker once, long before the gradients are there. As a value: that can
    // be fed instead of claimed.
    const Output step_claimed = ops::Identity(scope.WithOpName("step_claimed"), p.step_claim);
    const Scope claimed_scope = scope.WithControlDependencies({step_claimed.op()});
    for (GradientAndVariable& g : gradients) {
      if (g.gradient.valid()) g.gradient = ops::Identity(claimed_scope, g.gradient);
    }
    MR_ASSIGN_OR_RETURN(p.train, optimizer.ApplyGradients(scope, gradients, &p.global_step));
    return OkStatus();
  }

  // Queues on the first ps through which workers and the chief wait for each other.
  void BuildEnd(const Scope& scope) {
    Program& p = program_;
    const Scope s = scope.WithoutDevice().WithDevice("/job:ps/task:0/cpu:0");
    const auto queue = [&s](const char* name) {
      return ops::FIFOQueueV2(s.WithOpName(name), {kInt32},
                              {.shapes = {PartialShape({})}, .shared_name = name});
    };
    const auto report = [&](const Output& to) {
      return ops::QueueEnqueueV2(s, to, {Input(flags_.task_index)});
    };
    const auto take = [&](const Output& from, int count) {
      const std::vector<Output> taken = ops::QueueDequeueManyV2(s, from, count, {kInt32});
      return taken.empty() ? Output() : taken[0];
    };
    const Output trained = queue("trained_workers"), evaluate = queue("workers_may_evaluate"),
                 finished = queue("finished_workers");
    p.report_trained = report(trained);
    p.all_trained = take(trained, num_workers_);
    const std::vector<int32_t> turns(static_cast<std::size_t>(num_workers_ - 1));
    p.let_evaluate = ops::QueueEnqueueManyV2(
        s, evaluate, {Input(Tensor::FromValues<int32_t>(turns, Shape({num_workers_ - 1})))});
    p.may_evaluate = take(evaluate, 1);
    p.report_done = report(finished);
    p.all_done = take(finished, num_workers_);
  }

  Status OpenSession() {
    if (flags_.is_chief()) {
      std::printf("Worker %d: Initializing session...\n", flags_.task_index);
    } else {
      std::printf("Worker %d: Waiting for session to be initialized...\n", flags_.task_index);
    }
    std::fflush(stdout);
    SupervisedSessionOptions options;
    options.session.target = target_;
    options.session.allow_soft_placement = true;
    options.session.device_filters = {"/job:ps", StrCat("/job:worker/task:", flags_.task_index)};
    options.is_chief = flags_.is_chief();
    options.init_op = program_.init;
    options.local_init_op = program_.local_init;
    options.not_ready = program_.not_ready;
    options.ready_timeout = std::chrono::seconds(flags_.ready_timeout);
    if (flags_.sync_replicas && flags_.is_chief()) {
      options.init_tokens_op = program_.init_tokens;
      options.queue_ops = {program_.sync_op};
    }
    options.on_wait = [this](const std::string& reason) {
      std::printf("Worker %d: %s\n", flags_.task_index, reason.c_str());
      std::fflush(stdout);
    };
    if (rounds_ != nullptr) return OpenRound(options);
    if (keeper_ != nullptr) {
      must_restore_ = false;
      options.on_variables_lost = [this](const std::vector<std::string>&) {
        must_restore_ = keeper_->HasCheckpoint();
        return must_restore_ ? errors::FailedPrecondition("to be restored from a checkpoint")
                             : OkStatus();
      };
      MR_RETURN_IF_ERROR(keeper_->RestoreIfNeeded(options));
    }
    MR_ASSIGN_OR_RETURN(session_, SupervisedSession::Create(program_.graph, options));
    std::printf("Worker %d: Session initialization complete.\n", flags_.task_index);
    TellSaved(keeper_ != nullptr ? keeper_->NewestStep() : 0);
    return OkStatus();
  }

  void TellSaved(int64_t step) {
    if (keeper_ == nullptr || bound_ == nullptr) return;
    const Status told = bound_->SetSaved(session_->session(), step);
    if (!told.ok()) MR_LOG(kWarning, "the others do not know what is saved: ", Message(told));
  }

  // A session that neither initialises nor is made anew: all would have to begin again.
  Status OpenRound(SupervisedSessionOptions options) {
    while (true) {
      MR_ASSIGN_OR_RETURN(begin_step_, rounds_->Begin(options, keeper_.get()));
      SupervisedSessionOptions training = options;
      training.init_op = {};
      training.not_ready = {};
      training.max_recoveries = 0;
      auto session = SupervisedSession::Create(program_.graph, training);
      if (session.ok()) {
        session_ = *std::move(session);
        std::printf("Worker %d: Session initialization complete.\n", flags_.task_index);
        return OkStatus();
      }
      if (!Rounds::IsOver(session.status()) || ++rounds_in_a_row_ > kMostRounds) {
        return session.status();
      }
    }
  }

  Status BeginRound(const Status& why) {
    MR_LOG(kWarning, "all workers begin again from the newest checkpoint: ", Message(why));
    if (++rounds_in_a_row_ > kMostRounds) return why;
    session_->Stop().IgnoreError();
    return OpenSession();
  }

  // An asynchronous worker goes on with the batch at which it is if all have been equally fast.
  StatusOr<int64_t> FirstBatch() {
    if (flags_.sync_replicas || flags_.checkpoint_dir.empty()) return 0;
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> now,
                        session_->Run({}, std::span(&program_.global_step.read, 1)));
    return now[0].scalar<int64_t>() / num_workers_;
  }

  // A synchronous worker that comes when all steps are made would wait for the others' gradients.
  StatusOr<int64_t> FirstStep() {
    if (!flags_.sync_replicas || rounds_ != nullptr) return begin_step_;
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> now,
                        session_->Run({}, std::span(&program_.global_step.read, 1)));
    return now[0].scalar<int64_t>();
  }

  Status Train() {
    const uint64_t seed = flags_.seed != 0 ? static_cast<uint64_t>(flags_.seed) * 1000 +
                                                 static_cast<uint64_t>(flags_.task_index)
                                           : RandomId();
    BatchSource batches(digits_.train, flags_.batch_size, seed);
    MR_ASSIGN_OR_RETURN(const int64_t first_batch, FirstBatch());
    const double begin = WallSeconds();
    std::printf("Training begins @ %f\n", begin);
    std::fflush(stdout);
    // A synchronous step ends with a token of the global step. The counter itself is read while
    // the step runs: a worker that saw an older value than the others would wait for a further
    // step when they have left.
    const Output step = flags_.sync_replicas ? program_.train.output(0) : program_.global_step.read;
    const Output fetches[] = {program_.model.cross_entropy, step};
    MR_ASSIGN_OR_RETURN(int64_t global_step, FirstStep());
    while (global_step < flags_.train_steps && StopSignal() == 0) {
      MR_RETURN_IF_ERROR(AwaitRoom(global_step));
      if (StopSignal() != 0) break;
      BatchSource::Batch batch =
          batches.At(rounds_ != nullptr ? global_step : first_batch + local_steps_);
      const Feed feeds[] = {{program_.model.images, std::move(batch.images)},
                            {program_.model.labels, std::move(batch.one_hot)}};
      std::vector<Tensor> out;
      const bool traced =
          !flags_.trace_dir.empty() &&
          local_steps_ + 1 ==
              std::clamp<int64_t>(flags_.train_steps / (4 * num_workers_), 1, kTracedStep);
      if (!traced || !RunTraced(feeds, fetches, &out)) {
        StatusOr<std::vector<Tensor>> ran = RunStep(feeds, fetches);
        // All steps have been claimed; nothing of this one was applied.
        if (program_.step_claim.valid() && errors::IsOutOfRange(ran.status())) break;
        if (rounds_ != nullptr && !ran.ok() && Rounds::IsOver(ran.status())) {
          if (Rounds::IsStop(ran.status())) break;
          MR_RETURN_IF_ERROR(BeginRound(ran.status()));
          global_step = begin_step_;
          continue;
        }
        MR_ASSIGN_OR_RETURN(out, std::move(ran));
      }
      ++local_steps_;
      rounds_in_a_row_ = 0;
      global_step = out[1].scalar<int64_t>();
      Report(global_step, out[0].scalar<float>() / static_cast<float>(flags_.batch_size));
      if (keeper_ != nullptr && keeper_->SaveIfTime(session_->session(), global_step)) {
        TellSaved(keeper_->last_saved());
      }
    }
    if (StopSignal() == 0) {
      TellSaved(SaveBound::kNoFurther);
      const Status left = session_->Leave();
      if (!left.ok()) MR_LOG(kWarning, "the others may wait for this worker: ", Message(left));
    }
    const double end = WallSeconds();
    seconds_ = end - begin;
    std::printf("Training ends @ %f\nTraining elapsed time: %f s\n", end, seconds_);
    std::fflush(stdout);
    return OkStatus();
  }

  // What saves fail for may pass: until then no step is made that would be one too many to lose.
  Status AwaitRoom(int64_t global_step) {
    if (bound_ == nullptr || keeper_ == nullptr) {
      if (keeper_ != nullptr) keeper_->AwaitSave(session_->session(), global_step);
      return bound_ != nullptr ? bound_->AwaitRoom(*session_, global_step) : OkStatus();
    }
    const SaveBound::Save save = [this](int64_t step) {
      if (!keeper_->SaveInHaste(session_->session(), step)) return false;
      TellSaved(keeper_->last_saved());
      return true;
    };
    Status waited = bound_->AwaitRoom(*session_, global_step, save);
    while (!waited.ok() && must_restore_) {
      session_->Stop().IgnoreError();
      MR_RETURN_IF_ERROR(OpenSession());
      waited = bound_->AwaitRoom(*session_, global_step, save);
    }
    return waited;
  }

  // Where variables are lost, all go back to the newest checkpoint. A synchronous step may then
  // wait for what was lost with a task that is back already, a token or another worker's gradient:
  // it is given up, and what it is for is computed again.
  StatusOr<std::vector<Tensor>> RunStep(std::span<const Feed> feeds,
                                        std::span<const Output> fetches) {
    RunOptions run;
    if (flags_.sync_replicas) run.timeout = std::chrono::seconds(flags_.ready_timeout);
    if (rounds_ != nullptr) {
      return session_->Run(feeds, fetches, std::span(&program_.train, 1), run);
    }
    for (int late = 0;;) {
      StatusOr<std::vector<Tensor>> ran =
          session_->Run(feeds, fetches, std::span(&program_.train, 1), run);
      if (ran.ok()) return ran;
      if (flags_.sync_replicas && errors::IsDeadlineExceeded(ran.status()) &&
          ++late <= kMostLateSteps) {
        MR_LOG(kWarning, "a step has waited ", flags_.ready_timeout,
               " s for the other tasks, and is begun again: ", Message(ran.status()));
      } else if (!must_restore_) {
        return ran;
      }
      session_->Stop().IgnoreError();
      MR_RETURN_IF_ERROR(OpenSession());
    }
  }

  // False if the step has to be run again, without a trace.
  bool RunTraced(std::span<const Feed> feeds, std::span<const Output> fetches,
                 std::vector<Tensor>* out) {
    RunMetadata metadata;
    RunOptions options;
    options.trace = true;
    StatusOr<std::vector<Tensor>> result =
        session_->Run(feeds, fetches, std::span(&program_.train, 1), options, &metadata);
    if (!result.ok()) return false;  // what is to be done about it is seen then
    *out = *std::move(result);
    std::error_code ignored;
    std::filesystem::create_directories(flags_.trace_dir, ignored);
    const std::string file = StrCat(flags_.trace_dir, "/worker_", flags_.task_index, ".json");
    Status status = WriteStepTrace(metadata.step_stats, file);
    if (!status.ok()) {
      MR_LOG(kWarning, "no trace: ", Message(status));
    } else {
      std::printf("Worker %d: trace of a step: %s\n", flags_.task_index, file.c_str());
      std::fflush(stdout);
    }
    return true;
  }

  void Report(int64_t global_step, float loss) {
    if (!flags_.quiet) {
      std::printf("%f: Worker %d: training step %lld done (global step: %lld)\n", WallSeconds(),
                  flags_.task_index, static_cast<long long>(local_steps_),
                  static_cast<long long>(global_step));
      std::fflush(stdout);
    }
    WriteRecord(StrCat(kStepRecord, " ", local_steps_, " ", global_step, " ", loss, "\n"));
  }

  void WriteRecord(const std::string& record) const {
    if (flags_.progress_fd < 0) return;
    // A launcher that is gone is no reason to stop reporting to the terminal.
    [[maybe_unused]] const ssize_t n = write(flags_.progress_fd, record.data(), record.size());
  }

  // A notice that the machine is wanted back: what has been learned is kept, if there is time.
  Status SaveAndStop() {
    if (keeper_ != nullptr) {
      const Status saved = keeper_->Save(session_->session());
      if (!saved.ok()) MR_LOG(kWarning, "no checkpoint before the end: ", Message(saved));
    }
    // Those that wait for this worker's gradient.
    if (rounds_ != nullptr) rounds_->End(session_->session()).IgnoreError();
    return errors::Cancelled("stopped by signal ", StopSignal());
  }

  // Until no worker changes a variable any more: what is evaluated is the same everywhere.
  Status AwaitUpdates() {
    const std::chrono::seconds limit(flags_.ready_timeout);
    MR_RETURN_IF_ERROR(session_->Run({}, {}, std::span(&program_.report_trained, 1)).status());
    const Output& until = flags_.is_chief() ? program_.all_trained : program_.may_evaluate;
    // The chief may have to wait itself first.
    const RunOptions run{.timeout = flags_.is_chief() ? limit : 2 * limit};
    const Status waited = session_->Run({}, std::span(&until, 1), {}, run).status();
    if (!waited.ok() && !errors::IsDeadlineExceeded(waited)) return waited;
    others_ended_ = waited.ok();
    if (!others_ended_) {
      MR_LOG(kWarning, "not every worker said within ", run.timeout.count() / 1000,
             " s (--ready_timeout) that it takes no further step; the validation cross entropy of "
             "the others may differ: ",
             Message(waited));
    }
    if (!flags_.is_chief()) return OkStatus();
    if (flags_.exact_steps) MR_RETURN_IF_ERROR(TakeLostSteps());
    if (keeper_ != nullptr) MR_RETURN_IF_ERROR(keeper_->Save(session_->session()));
    return session_->Run({}, {}, std::span(&program_.let_evaluate, 1)).status();
  }

  // Steps that were claimed by workers that were killed, or in sessions that were lost.
  Status TakeLostSteps() {
    if (!program_.step_claim.valid()) return OkStatus();  // synchronous
    const uint64_t seed = flags_.seed != 0 ? static_cast<uint64_t>(flags_.seed) : RandomId();
    BatchSource batches(digits_.train, flags_.batch_size, seed);
    while (true) {
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> now,
                          session_->Run({}, std::span(&program_.global_step.read, 1)));
      const int64_t global_step = now[0].scalar<int64_t>();
      if (global_step >= flags_.train_steps) {
        std::printf("Worker %d: the global step is %lld\n", flags_.task_index,
                    static_cast<long long>(global_step));
        return OkStatus();
      }
      BatchSource::Batch batch = batches.Next();
      const Feed feeds[] = {{program_.model.images, std::move(batch.images)},
                            {program_.model.labels, std::move(batch.one_hot)},
                            {program_.step_claim, Tensor::Scalar<int64_t>(global_step)}};
      MR_RETURN_IF_ERROR(session_->Run(feeds, {}, std::span(&program_.train, 1)).status());
      ++local_steps_;
    }
  }

  Status Evaluate() {
    const StepFunction step = [this](std::span<const Feed> feeds, std::span<const Output> fetches) {
      return session_->Run(feeds, fetches);
    };
    MR_ASSIGN_OR_RETURN(const Score validation, ScoreOf(program_.model, digits_.validation, step));
    std::printf("After %d training step(s), validation cross entropy = %g\n", flags_.train_steps,
                validation.cross_entropy);
    if (flags_.is_chief()) {
      MR_ASSIGN_OR_RETURN(const Score test, ScoreOf(program_.model, digits_.test, step));
      const double accuracy =
          static_cast<double>(test.correct) / static_cast<double>(digits_.test.size());
      std::printf("Test accuracy: %.2f %%\n", accuracy * 100);
      WriteRecord(StrCat(kResultRecord, " ", seconds_, " ", local_steps_, " ",
                         validation.cross_entropy, " ", digits_.validation.size(), " ", accuracy,
                         "\n"));
    }
    std::fflush(stdout);
    return OkStatus();
  }

  // The chief leaves last.
  Status AwaitOthers() {
    MR_RETURN_IF_ERROR(session_->Run({}, {}, std::span(&program_.report_done, 1)).status());
    if (!flags_.is_chief() || !others_ended_) return OkStatus();
    const StatusOr<std::vector<Tensor>> all = session_->Run(
        {}, std::span(&program_.all_done, 1), {}, RunOptions{.timeout = kJobEndTimeout});
    if (!all.ok()) {
      MR_LOG(kWarning, "not every worker reported its end: ", Message(all.status()));
    }
    return OkStatus();
  }

  Status EndParameterServers() {
    if (!flags_.is_chief() || flags_.existing_servers) return OkStatus();
    for (const auto& [task, address] : cluster_.jobs().at("ps")) {
      MR_RETURN_IF_ERROR(ShutdownTask(address, milliseconds(5000)));
    }
    return OkStatus();
  }

  const Flags& flags_;
  const ClusterSpec cluster_;
  const int num_workers_;
  std::string target_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Pages> pages_;  // of the server
  Digits digits_;
  Program program_;
  std::unique_ptr<Keeper> keeper_;    // the chief's, with --checkpoint_dir
  bool must_restore_ = false;         // variables were lost, and there is a checkpoint
  std::unique_ptr<SaveBound> bound_;  // of an asynchronous job with --checkpoint_dir
  std::unique_ptr<Rounds> rounds_;    // of a synchronous job with --checkpoint_dir
  int64_t begin_step_ = 0;            // the global step with which the round begins
  int rounds_in_a_row_ = 0;           // without a step
  std::unique_ptr<SupervisedSession> session_;
  int64_t local_steps_ = 0;
  double seconds_ = 0;
  bool others_ended_ = false;  // every worker has said that it takes no further step
};

}  // namespace

Status RunWorker(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(ClusterSpec cluster, ClusterFromFlags(flags));
  return Worker(flags, std::move(cluster)).Run();
}

}  // namespace millrace::mnist
