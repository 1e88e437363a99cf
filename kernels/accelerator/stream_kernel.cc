// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/stream_kernel.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/capture.h"
#include "device/copy.h"
#include "kernels/accelerator/counting_kernel.h"
#include "kernels/accelerator/pending_output.h"
#include "kernels/accelerator/stream_operand.h"
#include "kernels/capturable_kernel.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_source.h"
#include "kernels/state/variable.h"
#include "ops/shape_inference.h"
#include "rendezvous/device_rendezvous.h"

namespace millrace {
namespace {

class StreamKernel final : public Kernel, public CapturableKernel {
 public:
  StreamKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body)
      : Kernel(c), op_(*CurrentKernelOp()), attrs_(c.attrs()), body_(std::move(body)) {
    for (const DataType type : c.input_types()) {
      if (type != kResource && !IsRefType(type)) break;
      references_ = references_ || IsRefType(type);
      ++num_variables_;
    }
    variable_type_ = attrs_.GetOr<DataType>("T", attrs_.GetOr<DataType>("dtype", kFloat));
    updates_ = num_variables_ > 0 && (references_ || c.output_types().empty());
  }
  bool IsExpensive() const override { return false; }

  Traits capture_traits() const override {
    // As random numbers do: where their bits begin is decided when they are enqueued.
    const bool keeps_state = op_.def.is_stateful() && num_variables_ == 0;
    const RecordedState state = keeps_state ? body_->recorded_state() : RecordedState::kMovesOn;
    return {.obstacle = state == RecordedState::kLost ? "it keeps a state of its own"
                        : references_                 ? "it updates a variable by reference"
                        : body_->stages()             ? "it has something copied to the device"
                                                      : nullptr,
            .enqueues = true,
            .num_updated = updates_ ? num_variables_ : 0,
            .draws = state == RecordedState::kDrawn};
  }

  Status Compute(KernelContext& ctx) override {
    return Enqueue(ctx, std::make_shared<StreamCall>());
  }

  Status RecordDrawn(KernelContext& ctx, const uint64_t* drawn,
                     std::function<uint64_t()>* draw) override {
    auto call = std::make_shared<StreamCall>();
    call->drawn = drawn;
    MR_RETURN_IF_ERROR(Enqueue(ctx, call));
    *draw = [call, body = body_] { return body->Draw(*call); };
    return OkStatus();
  }

 private:
  Status Enqueue(KernelContext& ctx, const std::shared_ptr<StreamCall>& call) {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) return errors::Internal("the step keeps no account of its device's work");
    call->machine = AcceleratorOf(ctx.device());
    LockedVariables locked;  // until it is enqueued: the streams see updates in this order
    if (num_variables_ > 0) {
      MR_RETURN_IF_ERROR(locked.Lock(ctx, num_variables_, variable_type_));
      MR_RETURN_IF_ERROR(TakeVariables(ctx, work, locked, call.get()));
    }
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const bool is_variable = references_ && i < num_variables_;
      const Tensor value = is_variable ? Tensor() : ctx.input(i);
      call->inputs.push_back(Operand(value));
      call->input_on_device.push_back(InDeviceMemory(value));
    }
    MR_RETURN_IF_ERROR(TakeOutputs(ctx, locked, call.get()));
    Tensor scratch;  // until it is enqueued
    if (const int64_t bytes = body_->ScratchBytes(*call); bytes > 0) {
      MR_ASSIGN_OR_RETURN(scratch, ctx.AllocateTemp(kUint8, Shape({bytes})));
      call->scratch = Operand(scratch);
    }
    Tensor staged;  // likewise
    MR_ASSIGN_OR_RETURN(const Tensor on_host, body_->Stage(*call));
    if (on_host.IsInitialized()) {
      MR_ASSIGN_OR_RETURN(staged,
                          CopyToDevice(call->machine, ctx.allocator(), on_host, work, name()));
      call->staged = Operand(staged);
    }
    call->machine->stream(StreamKind::kCompute)
        ->Enqueue({RefPtr<DeviceWork>::Share(work), name(),
                   [call, body = body_] { return body->Run(*call); }});
    return OkStatus();
  }

  Status TakeVariables(KernelContext& ctx, DeviceWork* work, const LockedVariables& locked,
                       StreamCall* call) {
    for (int i = 0; i < num_variables_; ++i) {
      Tensor* const value = locked.value(i);
      if (updates_ && value->num_elements() > 0 && !value->OwnsBufferAlone()) {
        // The copy would not be made now.
        if (IsRecording(call->machine)) {
          return errors::FailedPrecondition("somebody has a share of the variable in input ", i);
        }
        MR_ASSIGN_OR_RETURN(
            *value, CopyOnDevice(call->machine, call->machine->allocator(), *value, work, name()));
      }
      if (references_) {
        call->variables.push_back({{}, Operand(*value), true});
        continue;
      }
      MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, i));
      call->variables.push_back({*handle, Operand(*value)});
    }
    return OkStatus();
  }

  static bool IsRecording(Accelerator* machine) {
    const RecordingAccelerator* const recording = RecorderOf(machine);
    return recording != nullptr && recording->IsRecording();
  }

  Status TakeOutputs(KernelContext& ctx, const LockedVariables& locked, StreamCall* call) {
    std::vector<InferenceContext::Input> inputs(ctx.num_inputs());
    std::vector<HandleShape> handles(num_variables_);
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const bool is_reference = references_ && i < num_variables_;
      const Tensor& value = is_reference ? *locked.value(i) : ctx.input(i);
      inputs[i].shape = PartialShape(value.shape());
      if (is_reference) continue;
      if (!InDeviceMemory(value)) inputs[i].constant = &value;
      if (i >= num_variables_) continue;
      handles[i] = {locked.value(i)->dtype(), PartialShape(locked.value(i)->shape())};
      inputs[i].handle = &handles[i];
    }
    InferenceContext shapes(op_.def, attrs_, inputs, ctx.num_outputs());
    if (op_.shape_fn != nullptr) MR_RETURN_IF_ERROR(op_.shape_fn(shapes));
    if (references_) {
      ForwardFirstRef(ctx);
      return OkStatus();
    }
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      std::optional<Shape> shape = shapes.output(i).AsShape();
      if (!shape) shape = body_->OutputShape(*call, i);
      // What batch normalization keeps for the gradient of some libraries; nothing by default.
      if (!shape && i == 5 && def().name() == "FusedBatchNormV3") shape = Shape();
      if (!shape) {
        return errors::Unimplemented(
            "the shape of output ", i, " of ", def().name(),
            " is not known before it is computed: ", shapes.output(i).DebugString());
      }
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, *shape));
      call->outputs.push_back(Operand(*out));
    }
    return OkStatus();
  }

  const OpInfo& op_;
  const AttrMap attrs_;
  const std::shared_ptr<StreamBody> body_;
  int num_variables_ = 0;
  DataType variable_type_ = kFloat;
  bool references_ = false;  // to variables, not handles
  bool updates_ = false;
};

// Hands its input on once the device's judgement of it has come.
class CheckingKernel final : public Kernel {
 public:
  CheckingKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body)
      : Kernel(c), body_(std::move(body)) {}
  bool IsExpensive() const override { return false; }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return CompletesAsynchronously(def().name()); }

  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    DeviceWork* const work = WorkOf(ctx.rendezvous());
    if (work == nullptr) {
      return done(errors::Internal("the step keeps no account of its device's work"));
    }
    auto report = ctx.AllocateTemp(kUint8, Shape({body_->ReportBytes()}));
    if (!report.ok()) return done(report.status());
    const Tensor input = ctx.input(0);
    auto call = std::make_shared<StreamCall>();
    call->machine = AcceleratorOf(ctx.device());
    call->inputs.push_back(Operand(input));
    call->input_on_device.push_back(InDeviceMemory(input));
    call->scratch = Operand(*report);
    Accelerator* const machine = call->machine;
    // Nothing of the step is touched once it may be over.
    const auto account = RefPtr<DeviceWork>::Share(work);
    const std::string node = name();
    const std::shared_ptr<StreamBody> body = body_;
    const auto pending = MakeRef<PendingOutput>(&ctx, done);
    if (!pending->Watch()) return pending->End(PendingOutput::Cancelled(), Tensor());
    machine->stream(StreamKind::kCompute)->Enqueue({account, node, [call, body] {
                                                      return body->Run(*call);
                                                    }});
    CopyToHost(machine, *report, account.get(), node,
               [pending, input, body, device = machine->name()](const Status& status,
                                                                const Tensor& found) {
                 if (!status.ok()) return pending->End(status, Tensor());
                 const Status judged = body->Judge(found);
                 pending->End(judged.ok() ? judged : Annotate(judged, StrCat("\n\t on ", device)),
                              input);
               });
  }

 private:
  const std::shared_ptr<StreamBody> body_;
};

}  // namespace

std::unique_ptr<Kernel> MakeStreamKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body) {
  if (body->num_counts() > 0) return MakeCountingKernel(c, std::move(body));
  if (body->ReportBytes() > 0) return std::make_unique<CheckingKernel>(c, std::move(body));
  return std::make_unique<StreamKernel>(c, std::move(body));
}

}  // namespace millrace
