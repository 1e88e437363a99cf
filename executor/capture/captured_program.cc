// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/captured_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/capture.h"
#include "device/copy.h"
#include "executor/capture/captured_inputs.h"
#include "executor/capture/recorded_step.h"
#include "kernels/run_kernel.h"
#include "kernels/state/variable.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

constexpr int kOrdinarySteps = 2;      // with inputs of one kind, before one is recorded
constexpr int kMostRecordings = 16;    // of a program, after which it is left alone
constexpr int kMostFailures = 3;       // to record a step with inputs of one kind
constexpr int kMostFruitless = 200;    // steps in a row: what they receive is not waited for then
constexpr std::size_t kMostKinds = 4;  // of inputs that are remembered
constexpr std::size_t kMostHostBytes = 4096;  // of an input that has to be the same each time

struct Programs {
  Mutex mu;
  std::vector<const CapturedProgram*> all ABSL_GUARDED_BY(mu);
};
Programs& AllPrograms() {
  static auto* const programs = new Programs;
  return *programs;
}

using FoundVariables = std::vector<RefPtr<ResourceVariable>>;

// Locks in the order of LockedVariables.
class VariableLocks {
 public:
  explicit VariableLocks(const FoundVariables& variables) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& variable : variables) mutexes_.push_back(&variable->mu);
    std::sort(mutexes_.begin(), mutexes_.end());
    mutexes_.erase(std::unique(mutexes_.begin(), mutexes_.end()), mutexes_.end());
    for (Mutex* mutex : mutexes_) mutex->Lock();
  }
  ~VariableLocks() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (auto it = mutexes_.rbegin(); it != mutexes_.rend(); ++it) (*it)->Unlock();
  }

 private:
  std::vector<Mutex*> mutexes_;
};

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.num_bytes() == 0 || std::memcmp(a.raw_data(), b.raw_data(), a.num_bytes()) == 0);
}

// Copies that a launch waits for; `held` is kept until they have been made. All in an order that
// device/copy.cc explains.
void CopyIn(Accelerator* to, const std::vector<std::pair<Tensor, Tensor>>& from_to,
            DeviceWork* work, std::string_view node) {
  Stream* const compute = to->stream(StreamKind::kCompute);
  const auto account = RefPtr<DeviceWork>::Share(work);
  for (const StreamKind kind : {StreamKind::kCopyIn, StreamKind::kPeer}) {
    Stream* const copies = to->stream(kind);
    std::vector<Tensor> held;
    for (const auto& [from, into] : from_to) {
      Accelerator* const there = InDeviceMemory(from) ? AcceleratorOf(from.raw_data()) : nullptr;
      if (from.num_elements() == 0 || there == to) continue;
      if ((there == nullptr) != (kind == StreamKind::kCopyIn)) continue;
      if (there != nullptr) copies->Wait(there->stream(StreamKind::kCompute)->Record());
      if (held.empty()) copies->Wait(compute->Record());  // readers of the same place are there
      copies->EnqueueCopy(account, node, into.raw_data(), from.raw_data(), from.num_bytes());
      held.push_back(from);
    }
    if (held.empty()) continue;
    compute->Wait(copies->Record());
    copies->EnqueueCallback(account, node, [held = std::move(held)](const Status&) {});
  }
  for (const auto& [from, into] : from_to) {
    if (from.num_elements() == 0 || !InDeviceMemory(from)) continue;
    if (AcceleratorOf(from.raw_data()) != to) continue;
    compute->EnqueueCopy(account, node, into.raw_data(), from.raw_data(), from.num_bytes());
  }
}

}  // namespace

struct CapturedProgram::Variant {
  std::vector<Tensor> inputs;  // host values; of others the type and shape, without memory
  int steps = 0;               // ordinary ones
  int failures = 0;            // to record it
  Status obstacle;             // for good
  std::shared_ptr<RecordedStep> recording;
};

// One step until it is known how it runs; of an ordinary one, until its end.
class CapturedProgram::Step {
 public:
  Step(CapturedProgram* program, const ExecutorArgs& args, DoneCallback done)
      : program_(*program), args_(args), done_(done), base_(args.env->rendezvous) {}

  const ExecutorArgs& args() const { return args_; }
  DeviceWork* work() const { return WorkOf(base_); }
  const Tensor& input(int head) const { return inputs_->value(head); }

  static void Start(CapturedProgram* program, const ExecutorArgs& args, DoneCallback done) {
    auto* const step = new Step(program, args, done);
    step->inputs_ =
        MakeRef<CapturedInputs>(RefPtr<Rendezvous>::Share(step->base_), program->plan_.heads);
    const RefPtr<CapturedInputs> inputs = step->inputs_;  // the step may end in here
    inputs->Start(args.env->cancellation, [step](bool at_once) { step->Ready(at_once); });
  }

 private:
  void Ready(bool at_once) {
    ThreadPool* const pool = args_.pool;
    const bool has_threads = pool != nullptr && pool->num_threads() > 0;
    if (has_threads && !(at_once && args_.caller_runs)) {
      pool->Schedule({[](void* arg) { static_cast<Step*>(arg)->Run(); }, this});
    } else {
      Run();
    }
  }

  void Run() {
    if (!inputs_->complete()) {
      program_.NoteOrdinary("an input did not come, or came dead");
      return RunOrdinarily();
    }
    std::shared_ptr<RecordedStep> recording;
    std::vector<Tensor> sent;
    if (!program_.mu_.TryLock()) {
      program_.NoteOrdinary("another step was being launched");
      return RunOrdinarily();
    }
    recording = program_.Find(*this);
    if (recording != nullptr) {
      const Status launched = program_.Launch(*this, recording, &sent);
      if (!launched.ok()) {
        program_.NoteOrdinary(Message(launched));
        recording = nullptr;
      }
    }
    if (!program_.active_) program_.variants_.clear();  // with their memory
    program_.mu_.Unlock();
    if (recording == nullptr) return RunOrdinarily();
    Send(sent);
    sent.clear();
    ReceiveLast();
  }

  void Send(const std::vector<Tensor>& values) {
    const CompiledGraph& graph = program_.graph_;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int32_t tail = program_.plan_.tails[i];
      const CompiledNode& node = graph.nodes()[tail];
      EdgeValue input;
      input.value = values[i];
      input.kind = EdgeValue::Kind::kValue;
      KernelContext ctx(node.kernel, graph.device(), args_.env, {&input, 1}, {}, {});
      const Status status = RunKernel(node.kernel, ctx);
      if (!status.ok()) Fail(status, tail);
    }
  }

  // What the step waits for and does not use.
  void ReceiveLast() {
    const auto& last = program_.plan_.last;
    const RefPtr<Rendezvous> base = RefPtr<Rendezvous>::Share(base_);  // this may go
    CancellationManager* const cancellation = args_.env->cancellation;
    missing_ = static_cast<int>(last.size()) + 1;
    for (const CapturePlan::Head& head : last) {
      base->RecvAsync(head.key, cancellation,
                      [this, node = head.node](const Status& status, const Tensor&, bool) {
                        if (!status.ok()) Fail(status, node);
                        Received();
                      });
    }
    Received();
  }
  void Received() {
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Status status;
    {
      MutexLock lock(&mu_);
      status = status_;
    }
    const DoneCallback done = done_;
    delete this;
    done(std::move(status));
  }
  void Fail(const Status& status, int32_t node) {
    const Status error = Annotate(
        status, StrCat("\n\t [[{{node ", program_.graph_.nodes()[node].kernel->name(), "}}]]"));
    {
      MutexLock lock(&mu_);
      if (!status_.ok()) return;
      status_ = error;
    }
    base_->StartAbort(MarkDerived(error));
    if (args_.env->cancellation != nullptr) args_.env->cancellation->StartCancel(error);
  }

  void RunOrdinarily() {
    if (program_.plan_.heads.empty()) {
      const ExecutorArgs args = args_;
      const DoneCallback done = done_;
      const CapturedProgram& program = program_;
      delete this;
      return program.RunOrdinarily(args, done);
    }
    again_ = MakeRef<DeviceRendezvous>(inputs_, RefPtr<DeviceWork>::Share(work()));
    args_.env->rendezvous = again_.get();
    args_.caller_runs = true;
    program_.RunOrdinarily(args_, {[](void* arg, Status status) {
                                     auto* const step = static_cast<Step*>(arg);
                                     step->args_.env->rendezvous = step->base_;
                                     const DoneCallback done = step->done_;
                                     delete step;
                                     done(std::move(status));
                                   },
                                   this});
  }

  CapturedProgram& program_;
  ExecutorArgs args_;
  const DoneCallback done_;
  Rendezvous* const base_;
  RefPtr<CapturedInputs> inputs_;
  RefPtr<DeviceRendezvous> again_;  // what the executor receives from
  std::atomic<int> missing_{0};     // of the last receives
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

CapturedProgram::CapturedProgram(const CompiledGraph* graph, StatusOr<CapturePlan> plan)
    : graph_(*graph),
      plan_(plan.ok() ? *std::move(plan) : CapturePlan()),
      recordings_left_(kMostRecordings) {
  {
    MutexLock lock(&report_mu_);
    report_.device = graph->device()->name();
    report_.nodes = static_cast<int64_t>(graph->nodes().size());
    if (!plan.ok()) report_.reason = Message(plan.status());
    if (plan.ok() && RecorderOf(AcceleratorOf(graph->device())) == nullptr) {
      report_.reason = "the device records nothing";
    }
    active_ = report_.reason.empty();
    for (const int32_t n : plan_.order) {
      const Kernel* const kernel = graph->nodes()[n].kernel;
      const auto* const capturable = dynamic_cast<const CapturableKernel*>(kernel);
      if (capturable != nullptr) capturable_.emplace_back(kernel, capturable);
    }
    MR_LOG(kDebug, "steps of ", report_.nodes, " nodes on ", report_.device,
           active_ ? " may be recorded" : " are not recorded: ", report_.reason);
  }
  Programs& programs = AllPrograms();
  MutexLock lock(&programs.mu);
  programs.all.push_back(this);
}

CapturedProgram::~CapturedProgram() {
  Programs& programs = AllPrograms();
  MutexLock lock(&programs.mu);
  std::erase(programs.all, this);
}

std::vector<CaptureReport> CaptureReports() {
  Programs& programs = AllPrograms();
  MutexLock lock(&programs.mu);
  std::vector<CaptureReport> reports;
  for (const CapturedProgram* program : programs.all) reports.push_back(program->Report());
  return reports;
}

CaptureReport CapturedProgram::Report() const {
  MutexLock lock(&report_mu_);
  return report_;
}

void CapturedProgram::NoteOrdinary(std::string_view reason, bool waits) {
  MutexLock lock(&report_mu_);
  ++report_.ordinary_steps;
  report_.reason = reason;
  if (!waits && ++fruitless_ == kMostFruitless) {
    active_ = false;
    report_.reason += "; none of the latest steps could be launched, so no more are tried";
    MR_LOG(kDebug, "steps on ", report_.device, " are not recorded any more: ", report_.reason);
  }
}

void CapturedProgram::RunOrdinarily(const ExecutorArgs& args, DoneCallback done) const {
  Executor(&graph_).RunAsync(args, done);
}

void CapturedProgram::RunAsync(const ExecutorArgs& args, DoneCallback done) {
  // A step that is looked at closely runs node by node.
  const bool is_watched = args.stats != nullptr || args.memory != nullptr;
  if (!active_.load(std::memory_order_relaxed) || is_watched ||
      WorkOf(args.env->rendezvous) == nullptr) {
    return RunOrdinarily(args, done);
  }
  Step::Start(this, args, done);
}

// ---- which recording ----

CapturedProgram::Variant* CapturedProgram::FindVariant(const Step& step) {
  const auto num_heads = static_cast<int>(plan_.heads.size());
  for (int i = 0; i < num_heads; ++i) {
    const Tensor& value = step.input(i);
    if (plan_.heads[i].on_device) continue;
    if (InDeviceMemory(value) || value.num_bytes() > kMostHostBytes) {
      NoteOrdinary("an input in host memory is too large to be compared");
      return nullptr;
    }
  }
  const auto is_same = [&](const std::unique_ptr<Variant>& variant) {
    for (int i = 0; i < num_heads; ++i) {
      const Tensor& a = step.input(i);
      const Tensor& b = variant->inputs[i];
      if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
      if (!plan_.heads[i].on_device && !SameBytes(a, b)) return false;
    }
    return true;
  };
  const auto found = std::find_if(variants_.begin(), variants_.end(), is_same);
  if (found != variants_.end()) {
    std::rotate(found, found + 1, variants_.end());
    return variants_.back().get();
  }
  // The one that was met longest ago makes room.
  if (variants_.size() == kMostKinds) variants_.erase(variants_.begin());
  variants_.push_back(std::make_unique<Variant>());
  for (int i = 0; i < num_heads; ++i) {
    const Tensor& value = step.input(i);
    Tensor known(value.dtype(), value.shape(), nullptr, nullptr);
    if (!plan_.heads[i].on_device) {
      // A copy: who fed it may change its own.
      // Bounded: by a value that is there, in host memory.
      known = Tensor(value.dtype(), value.shape());
      if (value.num_bytes() > 0) std::memcpy(known.raw_data(), value.raw_data(), value.num_bytes());
    }
    variants_.back()->inputs.push_back(std::move(known));
  }
  return variants_.back().get();
}

const Kernel* CapturedProgram::FindUnsettled() const {
  for (const auto& [kernel, capturable] : capturable_) {
    if (!capturable->IsSettled()) return kernel;
  }
  return nullptr;
}

std::shared_ptr<RecordedStep> CapturedProgram::Find(const Step& step) {
  Variant* const variant = FindVariant(step);
  if (variant == nullptr) return nullptr;
  if (variant->recording != nullptr) return variant->recording;
  if (!variant->obstacle.ok()) {
    NoteOrdinary(Message(variant->obstacle));
    return nullptr;
  }
  if (variant->steps < kOrdinarySteps) {
    ++variant->steps;
    NoteOrdinary("inputs of these shapes, or values in host memory, are new");
    return nullptr;
  }
  if (recordings_left_ == 0) {
    NoteOrdinary("it was recorded too often");
    return nullptr;
  }
  if (const Kernel* const unsettled = FindUnsettled(); unsettled != nullptr) {
    NoteOrdinary(StrCat("{{node ", unsettled->name(), "}} (", unsettled->def().name(),
                        ") is still being compiled"),
                 /*waits=*/true);
    return nullptr;
  }
  StatusOr<std::shared_ptr<RecordedStep>> made =
      RecordStep(graph_, plan_, step.args().env, variant->inputs);
  if (!made.ok()) {
    MR_LOG(kDebug, "a step on ", graph_.device()->name(),
           " was not recorded: ", Message(made.status()));
    // What is in the way may be gone next time, as another who records will be.
    const bool waits = errors::IsUnavailable(made.status());
    NoteOrdinary(Message(made.status()), waits);
    if (waits) return nullptr;
    --recordings_left_;
    if (++variant->failures == kMostFailures) variant->obstacle = made.status();
    return nullptr;
  }
  --recordings_left_;
  variant->recording = *std::move(made);
  MutexLock lock(&report_mu_);
  ++report_.recordings;
  report_.recorded_operations = variant->recording->operations->num_operations();
  report_.recorded_bytes = variant->recording->block_bytes;
  return variant->recording;
}

// ---- launching ----

Status CapturedProgram::Launch(const Step& step, const std::shared_ptr<RecordedStep>& recording,
                               std::vector<Tensor>* sent) {
  Device* const device = graph_.device();
  if (recording->in_use.load(std::memory_order_acquire) != 0) {
    return errors::FailedPrecondition("values that an earlier step sent are in use");
  }
  FoundVariables found;
  bool moved = false;
  for (const UsedVariable& used : recording->variables) {
    StatusOr<RefPtr<ResourceVariable>> variable =
        device->resource_manager()->Lookup<ResourceVariable>(used.container, used.name);
    moved = moved || !variable.ok();
    if (variable.ok()) found.push_back(*std::move(variable));
  }
  const VariableLocks locks(found);
  for (std::size_t i = 0; i < found.size() && !moved; ++i) {
    const UsedVariable& used = recording->variables[i];
    const Tensor& value = found[i]->value;
    moved = value.raw_data() != used.data || value.dtype() != used.dtype ||
            !(value.shape() == used.shape);
    if (!moved && used.is_updated && value.num_elements() > 0 && !value.OwnsBufferAlone()) {
      return errors::FailedPrecondition("somebody has a share of the variable ", used.name);
    }
  }
  if (moved) {
    // It is recorded anew, once the variables have come to rest.
    for (const auto& variant : variants_) {
      if (variant->recording != recording) continue;
      variant->recording = nullptr;
      variant->steps = 0;
    }
    return errors::FailedPrecondition("a variable lies elsewhere, or is gone");
  }
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (std::size_t i = 0; i < plan_.heads.size(); ++i) {
    if (!plan_.heads[i].on_device) continue;
    copies.emplace_back(step.input(static_cast<int>(i)), recording->inputs[i]);
  }
  if (!recording->draws.empty()) {
    // Bounded: by the nodes that draw.
    Tensor drawn(kUint64, recording->drawn.shape());
    uint64_t* to = drawn.data<uint64_t>();
    for (const auto& draw : recording->draws) *to++ = draw();
    copies.emplace_back(std::move(drawn), recording->drawn);
  }
  Accelerator* const machine = AcceleratorOf(device);
  // Devices that cannot tell one operation from the other name both ends.
  const std::string node = StrCat(recording->first_node, " ... ", recording->last_node);
  CopyIn(machine, copies, step.work(), recording->first_node);
  recording->operations->Launch(RefPtr<DeviceWork>::Share(step.work()), node);
  for (const RecordedStep::Sent& one : recording->sends) {
    if (one.variable >= 0) {
      const Tensor& value = found[one.variable]->value;
      sent->push_back(Tensor(one.dtype, one.shape, RefPtr<Buffer>::Share(value.buffer()),
                             const_cast<void*>(value.raw_data())));
    } else {
      sent->push_back(one.data != nullptr ? RecordedStep::Lend(recording, one) : one.value);
    }
  }
  MutexLock lock(&report_mu_);
  ++report_.launched_steps;
  fruitless_ = 0;
  return OkStatus();
}

}  // namespace millrace
