// SPDX-License-Identifier: Apache-2.0
#include "eager/operation.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "eager/eager_run.h"
#include "eager/operation_inputs.h"
#include "eager/plan_run.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// The name by which TensorFlow's clients ask for a resource that belongs to its handle alone.
constexpr std::string_view kOwnedByHandle = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";

// How TensorFlow's clients say that a tensor shall be taken to a device, and nothing done to it.
constexpr std::string_view kTakeToDevice = "_EagerConst";

// Tells a step of its end, and then `done`. Null steps are of nobody's interest.
EagerDone EndingStep(std::shared_ptr<EagerStep> step, EagerDone done) {
  if (step == nullptr) return done;
  return [step = std::move(step), done = std::move(done)](Status status) {
    step->Ends(status);
    done(std::move(status));
  };
}

// A part of a function, whose caller wants what was recorded of it in the answer.
class ComponentStep : public EagerStep {
 public:
  ComponentStep(std::shared_ptr<EagerStep> own, pb::RunComponentFunctionResponse* answer)
      : own_(std::move(own)), answer_(answer) {}

  bool PartBegins(const std::string& task) override {
    if (own_ != nullptr) (void)own_->PartBegins(task);
    return true;
  }
  void PartEnds(const std::string& task, pb::StepStats* stats) override {
    *answer_->mutable_step_stats() = *stats;
    if (own_ != nullptr) own_->PartEnds(task, stats);
  }
  void Ends(const Status& status) override {
    if (own_ != nullptr) own_->Ends(status);
  }

 private:
  const std::shared_ptr<EagerStep> own_;
  pb::RunComponentFunctionResponse* const answer_;
};

// An op with everything that its run needs.
struct ReadyOp {
  std::shared_ptr<const EagerProgram> program;
  std::vector<Tensor> args;
  std::string container;  // "" if it keeps nothing
};

StatusOr<ReadyOp> PrepareOp(EagerContext* context, const pb::Operation& operation) {
  MR_ASSIGN_OR_RETURN(const Device* const device, context->FindDevice(operation.device()));
  MR_ASSIGN_OR_RETURN(AttrMap attrs, OperationAttrs(operation));
  const std::string name = operation.name() == kTakeToDevice ? "Identity" : operation.name();
  MR_ASSIGN_OR_RETURN(const OpInfo* const op, context->worker().ops->Lookup(name));
  ReadyOp ready;
  if (op->def.is_stateful()) ready.container = context->handles()->NewContainer();
  const bool is_owned = attrs.GetOr<std::string>("shared_name", "") == kOwnedByHandle;
  if (is_owned) attrs.Set("container", ready.container);
  MR_ASSIGN_OR_RETURN(ready.program,
                      context->FindProgram(name, std::move(attrs), *device, /*keep=*/!is_owned));
  MR_ASSIGN_OR_RETURN(ready.args, TakeInputs(context, operation));
  return ready;
}

void RunOp(const std::shared_ptr<EagerContext>& context, const pb::Operation& operation,
           const CallOptions& options, pb::QueueResponse* answer, EagerDone done) {
  std::shared_ptr<EagerStep> step;
  // What only hands a tensor over is no step.
  if (operation.name() != "_Send" && operation.name() != "_Recv") {
    step = context->BeginStep(operation, static_cast<int64_t>(RandomId() | uint64_t{1} << 63));
  }
  done = EndingStep(step, std::move(done));
  StatusOr<ReadyOp> ready = PrepareOp(context.get(), operation);
  if (!ready.ok()) return done(ready.status());
  RefPtr<Rendezvous> rendezvous;
  if (ready->program->communicates()) rendezvous = context->shared_rendezvous();
  auto run = MakeRef<EagerRun>(context, std::move(ready->program), std::move(ready->args));
  run->Start(
      options, static_cast<int64_t>(context->id()), std::move(rendezvous),
      std::move(ready->container),
      [context, &operation, answer, done = std::move(done)](Status status,
                                                            std::span<Tensor> results) {
        if (status.ok()) {
          status =
              StoreOutputs(context.get(), operation.id(), FirstNumbers(results.size()), results);
        }
        for (std::size_t i = 0; status.ok() && i < results.size(); ++i) {
          ShapeToProto(PartialShape(results[i].shape()), answer->add_shape());
        }
        done(std::move(status));
      },
      std::move(step));
}

StatusOr<std::shared_ptr<const FunctionPlan>> PlanOf(EagerContext* context,
                                                     const pb::Operation& operation,
                                                     std::vector<int> arg_widths,
                                                     bool is_component) {
  MR_ASSIGN_OR_RETURN(Device* const device, context->FindDevice(operation.device()));
  MR_ASSIGN_OR_RETURN(FunctionName function, OperationFunction(operation));
  return context->FindPlan(std::move(function), *device,
                           InputDevices(*context, operation, device->name()), std::move(arg_widths),
                           is_component);
}

void RunFunction(const std::shared_ptr<EagerContext>& context, const pb::Operation& operation,
                 const CallOptions& options, pb::QueueResponse* answer, EagerDone done,
                 std::vector<int> arg_widths = {}) {
  if (arg_widths.empty() && HasPackedInputs(*context, operation)) {
    const auto unpacked = std::make_shared<pb::Operation>(operation);
    std::vector<int> widths = UnpackInputs(*context, unpacked.get());
    // The operation lives until the call ends.
    return RunFunction(
        context, *unpacked, options, answer,
        [unpacked, done = std::move(done)](Status status) { done(std::move(status)); },
        std::move(widths));
  }
  StatusOr<std::shared_ptr<const FunctionPlan>> plan =
      PlanOf(context.get(), operation, std::move(arg_widths), /*is_component=*/false);
  if (!plan.ok()) return done(plan.status());
  MakeRef<PlanRun>(context, *std::move(plan), operation, answer, std::move(done))->Start(options);
}

Status SendTensors(EagerContext* context, const pb::SendTensorOp& op) {
  MR_RETURN_IF_ERROR(context->FindDevice(op.device_name()).status());
  std::vector<Tensor> values;
  for (const pb::TensorProto& proto : op.tensors()) {
    MR_ASSIGN_OR_RETURN(values.emplace_back(), TensorFromProto(proto));
  }
  const int count = static_cast<int>(op.op_id() < 0 ? 0 : values.size());
  for (int i = 0; i < count; ++i) {
    Status stored = context->handles()->PutSent(op.op_id(), i, std::move(values[i]));
    if (stored.ok()) continue;
    while (i-- > 0) (void)context->handles()->Drop(op.op_id(), i);
    return stored;
  }
  return OkStatus();
}

// Steps of calls of functions have numbers below zero; others are those of sessions.
Status CheckFunctionStep(int64_t step_id) {
  if (step_id < 0) return OkStatus();
  return errors::InvalidArgument("step ", step_id,
                                 " is not that of a call of a function: these are below zero");
}

// Whatever does not run anything.
Status Apply(EagerContext* context, const pb::QueueItem& item) {
  switch (item.item_case()) {
    case pb::QueueItem::kHandleToDecref:
      return context->Drop(item.handle_to_decref());
    case pb::QueueItem::kSendTensor:
      return SendTensors(context, item.send_tensor());
    case pb::QueueItem::kRegisterFunction:
      return context->RegisterFunction(item.register_function());
    case pb::QueueItem::kRemoveFunction:
      return context->RemoveFunction(item.remove_function().function_name());
    case pb::QueueItem::kCleanupFunction:
      MR_RETURN_IF_ERROR(CheckFunctionStep(item.cleanup_function().step_id()));
      context->worker().rendezvous->Cleanup(item.cleanup_function().step_id());
      context->ForgetStep(item.cleanup_function().step_id());
      return OkStatus();
    case pb::QueueItem::kSyncRemoteExecutorForStream:
      return OkStatus();  // items run in order, and are answered when they have
    case pb::QueueItem::kSendPackedHandle:
      return context->PutPacked(item.send_packed_handle());
    default:
      return errors::InvalidArgument("an item of the queue says nothing that is known here");
  }
}

// The items of one request under way. Items that end at once are followed by the next one in the
// same loop, whatever thread they end on.
class QueueRun : public RefCounted {
 public:
  QueueRun(std::shared_ptr<EagerContext> context, const pb::EnqueueRequest& request,
           const CallOptions& options, pb::EnqueueResponse* response, EagerDone done)
      : context_(std::move(context)),
        request_(request),
        options_(options),
        response_(response),
        done_(std::move(done)) {}

  void Advance() {
    while (next_ < request_.queue_size()) {
      const pb::QueueItem& item = request_.queue(next_++);
      pb::QueueResponse* const answer = response_->add_queue_response();
      if (item.item_case() != pb::QueueItem::kOperation) {
        Status applied = Apply(context_.get(), item);
        if (!applied.ok()) return done_(std::move(applied));
        continue;
      }
      turn_.store(0, std::memory_order_relaxed);
      RunOperation(context_, item.operation(), options_, answer,
                   [self = RefPtr<QueueRun>::Share(this)](Status status) {
                     self->status_ = std::move(status);
                     self->TakeTurn();
                   });
      // Whoever comes second goes on: the end of the operation, or this loop.
      if (turn_.fetch_add(1, std::memory_order_acq_rel) == 0) return;
      if (!status_.ok()) return done_(status_);
    }
    done_(OkStatus());
  }

 private:
  void TakeTurn() {
    if (turn_.fetch_add(1, std::memory_order_acq_rel) == 0) return;
    if (!status_.ok()) return done_(status_);
    Advance();
  }

  const std::shared_ptr<EagerContext> context_;
  const pb::EnqueueRequest& request_;
  const CallOptions options_;
  pb::EnqueueResponse* const response_;
  const EagerDone done_;
  int next_ = 0;
  std::atomic<int> turn_{0};
  Status status_;
};

}  // namespace

void RunOperation(const std::shared_ptr<EagerContext>& context, const pb::Operation& operation,
                  const CallOptions& options, pb::QueueResponse* answer, EagerDone done) {
  const LogRequest named(EagerRequestId(context->id(), operation));
  const bool is_call = operation.is_function() || context->IsFunction(operation.name());
  if (is_call) return RunFunction(context, operation, options, answer, std::move(done));
  RunOp(context, operation, options, answer, std::move(done));
}

void RunComponent(const std::shared_ptr<EagerContext>& context,
                  const pb::RunComponentFunctionRequest& request, const CallOptions& options,
                  pb::RunComponentFunctionResponse* answer, EagerDone done) {
  const pb::Operation& operation = request.operation();
  const LogRequest named(EagerRequestId(context->id(), operation));
  std::shared_ptr<EagerStep> step = context->BeginStep(operation, operation.func_step_id());
  if (request.record_timeline()) step = std::make_shared<ComponentStep>(std::move(step), answer);
  done = EndingStep(step, std::move(done));
  StatusOr<std::shared_ptr<const FunctionPlan>> plan =
      PlanOf(context.get(), operation, {}, /*is_component=*/true);
  if (!plan.ok()) return done(plan.status());
  StatusOr<std::vector<Tensor>> args = TakeInputs(context.get(), operation);
  if (!args.ok()) return done(args.status());
  const std::shared_ptr<const EagerProgram>& program = (*plan)->own;
  std::vector<int> outputs(request.output_num().begin(), request.output_num().end());
  if (outputs.empty()) outputs = FirstNumbers(program->result_types().size());
  if (outputs.size() != program->result_types().size()) {
    return done(errors::InvalidArgument(operation.name(), " has ", program->result_types().size(),
                                        " results, the call has numbers for ", outputs.size()));
  }
  const int64_t step_id = operation.func_step_id();
  Status added = CheckFunctionStep(step_id);
  if (added.ok()) added = context->AddStep(step_id);
  if (!added.ok()) return done(std::move(added));
  MakeRef<EagerRun>(context, program, *std::move(args))
      ->Start(
          options, step_id, context->worker().rendezvous->Find(step_id),
          program->is_stateful() ? context->handles()->NewContainer() : "",
          [context, &operation, outputs = std::move(outputs), answer, done = std::move(done)](
              Status status, std::span<Tensor> results) {
            if (status.ok()) {
              status = StoreOutputs(context.get(), operation.id(), outputs, results);
            }
            for (std::size_t i = 0; status.ok() && i < results.size(); ++i) {
              ShapeToProto(PartialShape(results[i].shape()), answer->add_shape());
              if (operation.id() < 0) TensorToProto(results[i], answer->add_tensor());
            }
            done(std::move(status));
          },
          std::move(step));
}

void RunQueue(const std::shared_ptr<EagerContext>& context, const pb::EnqueueRequest& request,
              const CallOptions& options, pb::EnqueueResponse* response, EagerDone done) {
  MakeRef<QueueRun>(context, request, options, response, std::move(done))->Advance();
}

}  // namespace millrace
