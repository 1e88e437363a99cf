// SPDX-License-Identifier: Apache-2.0
// The host's side of a kernel that computes on an accelerator, whatever its machine is.
#ifndef KERNELS_ACCELERATOR_STREAM_KERNEL_H_
#define KERNELS_ACCELERATOR_STREAM_KERNEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/stream.h"
#include "kernels/kernel.h"
#include "millrace/tensor.h"

namespace millrace {

// What an enqueued computation works on. Tensors in device memory have an address, a type and a
// shape, and no share, as memory is freed in the order of the stream; those in host memory have
// their share. Outlives the step.
struct StreamCall {
  struct Variable {
    ResourceHandle handle;  // of nothing for a reference
    Tensor value;           // in device memory; the one to update in place
    bool is_reference = false;
  };

  Accelerator* machine = nullptr;
  std::vector<Tensor> inputs, outputs;  // as many as the op has
  std::vector<bool> input_on_device;
  // Behind the leading inputs that are handles or references; inputs are empty for references.
  std::vector<Variable> variables;
  Tensor scratch;                // bytes in device memory; not initialised for 0
  Tensor staged;                 // what the body staged, in device memory
  Tensor counts;                 // of a body that counts: where to, int64 in device memory
  std::vector<int64_t> counted;  // the same on the host, once it is known
  // Of a recorded call of a body whose state is drawn: where in device memory its launches find
  // the number. Null for all other calls.
  const uint64_t* drawn = nullptr;
};

// Where launches of one recorded call go on, if the op has a state of its own (random numbers).
enum class RecordedState {
  kLost,     // nowhere: each would be the same, so that the call is not recorded
  kMovesOn,  // the body runs for each of them, and moves its state on
  kDrawn,    // where the host tells each of them to, see StreamBody::Draw
};

// What is computed. One body serves many calls at a time; thread-safe. `Launch` is what Run and
// Count enqueue by besides the call, where a family of bodies has no machine of its own.
template <typename... Launch>
class BodyOf {
 public:
  virtual ~BodyOf() = default;
  // What a call wants from the host besides its inputs: asked on the thread of the kernel, in the
  // order of the calls, and copied to the device. Not initialised for nothing.
  virtual StatusOr<Tensor> Stage(const StreamCall&) const { return Tensor(); }
  // True if it may want something. Such calls are not recorded: copies have a stream of their own.
  virtual bool stages() const { return false; }
  // For a body that only looks at input 0, and has no outputs in its calls: bytes of scratch that
  // tell what it found, which the kernel waits for. Input 0 becomes output 0 if Judge, called on a
  // host thread of the device, thinks that it is well.
  virtual int64_t ReportBytes() const { return 0; }
  virtual Status Judge(const Tensor& /*report*/) const { return OkStatus(); }
  // For a body whose outputs have sizes that only the device can tell, if it is more than 0: so
  // many numbers Count writes to call.counts, as Run without outputs, in the same scratch. When
  // they have come to the host, CountedShapes is asked, with call.counted, on a host thread of the
  // device, for the shapes of all outputs; then it is Run's turn.
  virtual int64_t num_counts() const { return 0; }
  virtual Status Count(const StreamCall&, Launch...) const { return OkStatus(); }
  virtual StatusOr<std::vector<Shape>> CountedShapes(const StreamCall&) const {
    return std::vector<Shape>();
  }
  // In the call's turn in the compute stream: see Stream::Operation.
  virtual Status Run(const StreamCall& call, Launch... launch) const = 0;

  // Of an op with a state of its own.
  virtual RecordedState recorded_state() const { return RecordedState::kLost; }
  // kDrawn: what the next launch of a recorded call is to find at call.drawn. Moves the state on as
  // one Run of the call would that is not recorded.
  virtual uint64_t Draw(const StreamCall&) const { return 0; }
};

// As a kernel sees it.
class StreamBody : public BodyOf<> {
 public:
  // Device memory that a call needs besides its outputs, by shapes and host values alone.
  virtual int64_t ScratchBytes(const StreamCall&) const { return 0; }
  // Of an output that the op's shape function does not know, by shapes and host values alone:
  // asked on the thread of the kernel, with all inputs and the outputs before it in the call.
  // Nothing where this does not know either.
  virtual std::optional<Shape> OutputShape(const StreamCall&, int /*output*/) const {
    return std::nullopt;
  }
};

// A kernel that takes the memory of the outputs, whose shapes the op's shape function knows, and
// enqueues the body; or, for a body that reports or counts, one that is done when that has come:
// nothing that depends on it is enqueued before. Leading inputs that are handles of variables, or
// references to them, are locked and updated in place, or, if others share their value, in a copy;
// those of an op that only reads them are left alone. Unimplemented, at run time, where a shape
// depends on data in device memory and the body does not count.
std::unique_ptr<Kernel> MakeStreamKernel(KernelConstruction& c, std::shared_ptr<StreamBody> body);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_STREAM_KERNEL_H_
