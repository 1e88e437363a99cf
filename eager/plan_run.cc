// SPDX-License-Identifier: Apache-2.0
#include "eager/plan_run.h"

#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "eager/eager_run.h"
#include "eager/operation_inputs.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// Says less than whatever it followed from.
bool Follows(const Status& status) { return errors::IsCancelled(status) || IsDerived(status); }

}  // namespace

PlanRun::PlanRun(std::shared_ptr<EagerContext> context, std::shared_ptr<const FunctionPlan> plan,
                 const pb::Operation& operation, pb::QueueResponse* answer, EagerDone done)
    : context_(std::move(context)),
      plan_(std::move(plan)),
      operation_(operation),
      answer_(answer),
      done_(std::move(done)),
      // As TensorFlow has it: no one else's ids are below zero.
      step_id_(static_cast<int64_t>(RandomId() | uint64_t{1} << 63)),
      shapes_(plan_->result_devices.size()) {}

void PlanRun::Start(const CallOptions& options) {
  step_ = context_->BeginStep(operation_, step_id_);
  StatusOr<std::vector<Tensor>> args = TakeInputs(context_.get(), operation_, plan_->own_args);
  if (!args.ok()) {
    if (step_ != nullptr) step_->Ends(args.status());
    return std::exchange(done_, nullptr)(args.status());
  }
  Ref();  // dropped by Finish
  pending_.store(static_cast<int>(plan_->remote.size()) + 1, std::memory_order_relaxed);
  if (!plan_->remote.empty()) {
    rendezvous_ = context_->worker().rendezvous->Find(step_id_);
    // Only refused where it would never be cleaned up.
    (void)context_->AddStep(step_id_);
  }
  Link(options.cancellation);
  for (const auto& part : plan_->remote) StartPart(part.get());
  StartOwn(*std::move(args));
}

void PlanRun::StartPart(RemotePart* part) {
  const StatusOr<std::shared_ptr<EagerPeer>> peer = context_->FindPeer(part->task);
  if (!peer.ok()) return PartEnded(peer.status());
  if (part->is_registered.load(std::memory_order_acquire)) return RunPart(part, *peer);
  pb::EnqueueRequest request;
  request.set_context_id(context_->id());
  *request.add_queue()->mutable_register_function() = part->registration;
  (*peer)->EnqueueAsync({.cancellation = get()}, request,
                        [self = RefPtr<PlanRun>::Share(this), part, peer = *peer](Status status) {
                          if (!status.ok()) return self->PartEnded(std::move(status));
                          part->is_registered.store(true, std::memory_order_release);
                          self->RunPart(part, peer);
                        });
}

void PlanRun::RunPart(RemotePart* part, const std::shared_ptr<EagerPeer>& peer) {
  pb::RunComponentFunctionRequest request;
  request.set_context_id(context_->id());
  pb::Operation& operation = *request.mutable_operation();
  operation.set_id(operation_.id());
  operation.set_name(part->name);
  operation.set_device(part->device);
  operation.set_is_component_function(true);
  operation.set_is_function(true);
  operation.set_func_step_id(step_id_);
  for (const int arg : part->args) {
    *operation.add_op_inputs() = InputForTask(*context_, operation_, arg, part->task);
  }
  for (const int result : part->results) request.add_output_num(result);
  auto response = std::make_shared<pb::RunComponentFunctionResponse>();
  if (step_ != nullptr) request.set_record_timeline(step_->PartBegins(part->task));
  peer->RunComponentFunctionAsync(
      {.cancellation = get()}, request, response.get(),
      [self = RefPtr<PlanRun>::Share(this), part, response, peer](Status status) {
        if (self->step_ != nullptr) {
          self->step_->PartEnds(part->task, response->mutable_step_stats());
        }
        const std::size_t count = part->results.size();
        if (status.ok() && static_cast<std::size_t>(response->shape_size()) != count) {
          status = errors::Internal(part->task, " gave ", response->shape_size(), " shapes for ",
                                    count, " results of ", part->name);
        }
        for (std::size_t i = 0; status.ok() && i < count; ++i) {
          self->shapes_[part->results[i]].Swap(response->mutable_shape(static_cast<int>(i)));
        }
        self->PartEnded(std::move(status));
      });
}

void PlanRun::StartOwn(std::vector<Tensor> args) {
  if (plan_->own == nullptr) return PartEnded(OkStatus());
  const std::string container =
      plan_->own->is_stateful() ? context_->handles()->NewContainer() : "";
  MakeRef<EagerRun>(context_, plan_->own, std::move(args))
      ->Start(
          {.cancellation = get()}, step_id_, rendezvous_, container,
          [self = RefPtr<PlanRun>::Share(this)](Status status, std::span<Tensor> results) {
            if (status.ok()) status = self->TakeOwnResults(results);
            self->PartEnded(std::move(status));
          },
          step_);
}

Status PlanRun::TakeOwnResults(std::span<Tensor> results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    ShapeToProto(PartialShape(results[i].shape()), &shapes_[plan_->own_results[i]]);
  }
  return StoreOutputs(context_.get(), operation_.id(), plan_->own_results, results);
}

void PlanRun::PartEnded(Status status) {
  if (!status.ok()) {
    {
      MutexLock lock(&mu_);
      if (error_.ok() || (Follows(error_) && !Follows(status))) error_ = status;
    }
    if (rendezvous_) rendezvous_->StartAbort(MarkDerived(status));
    get()->StartCancel(status);
  }
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
}

void PlanRun::Finish() {
  Unlink();
  if (rendezvous_) {
    context_->worker().rendezvous->Cleanup(step_id_);
    context_->ForgetStep(step_id_);
    pb::EnqueueRequest request;
    request.set_context_id(context_->id());
    request.add_queue()->mutable_cleanup_function()->set_step_id(step_id_);
    for (const auto& part : plan_->remote) context_->Tell(part->task, request);
  }
  Status status;
  {
    MutexLock lock(&mu_);
    status = error_;
  }
  if (status.ok()) {
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      answer_->add_shape()->Swap(&shapes_[i]);
      answer_->add_device(plan_->result_devices[i]);
    }
  }
  if (step_ != nullptr) step_->Ends(status);
  const EagerDone done = std::exchange(done_, nullptr);
  done(std::move(status));
  Unref();
}

}  // namespace millrace
