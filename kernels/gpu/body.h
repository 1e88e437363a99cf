// SPDX-License-Identifier: Apache-2.0
// What a GPU's kernels do with the operands they are given: sizes and options are worked out on
// the host, loops (loops.h) do the rest, wherever they run.
#ifndef KERNELS_GPU_BODY_H_
#define KERNELS_GPU_BODY_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/accelerator/stream_kernel.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/move_plan.h"
#include "kernels/kernel.h"
#include "millrace/status.h"

namespace millrace::gpu {

// Addresses in a call are those that the loops use.
class Body : public BodyOf<const Loops&, Queue> {
 public:
  // By shapes and host values alone.
  virtual int64_t ScratchBytes(const StreamCall&, const Loops&) const { return 0; }
};

// For a kernel: what the host is asked for is asked of the body, what is launched is left to those
// who know the machine.
class BodyOnMachine : public StreamBody {
 public:
  StatusOr<Tensor> Stage(const StreamCall& call) const override { return body_->Stage(call); }
  bool stages() const override { return body_->stages(); }
  int64_t ReportBytes() const override { return body_->ReportBytes(); }
  Status Judge(const Tensor& report) const override { return body_->Judge(report); }
  int64_t num_counts() const override { return body_->num_counts(); }
  StatusOr<std::vector<Shape>> CountedShapes(const StreamCall& call) const override {
    return body_->CountedShapes(call);
  }
  RecordedState recorded_state() const override { return body_->recorded_state(); }
  uint64_t Draw(const StreamCall& call) const override { return body_->Draw(call); }

 protected:
  explicit BodyOnMachine(std::unique_ptr<Body> body) : body_(std::move(body)) {}
  const Body& body() const { return *body_; }

 private:
  const std::unique_ptr<Body> body_;
};

// Null with an error recorded, or without one where the attributes ask for what it does not do.
using BodyMaker = std::unique_ptr<Body> (*)(KernelConstruction& c);

struct BodyDef {
  std::string op;
  // What attributes may be; those that are not named may be anything.
  std::vector<std::pair<std::string, std::vector<DataType>>> types;
  BodyMaker make = nullptr;
};

// All of them. Constant.
const std::vector<BodyDef>& AllBodies();
// The one for the node; null if its op or types have none.
const BodyDef* FindBody(const KernelConstruction& c);

// --- For bodies ------------------------------------------------------------------------------

void AddCheckBodies(std::vector<BodyDef>* bodies);
void AddElementwiseBodies(std::vector<BodyDef>* bodies);
void AddMoveBodies(std::vector<BodyDef>* bodies);
void AddReduceBodies(std::vector<BodyDef>* bodies);
void AddIndexBodies(std::vector<BodyDef>* bodies);
void AddSegmentBodies(std::vector<BodyDef>* bodies);
void AddPartitionBodies(std::vector<BodyDef>* bodies);
void AddUniqueBodies(std::vector<BodyDef>* bodies);
void AddRandomBodies(std::vector<BodyDef>* bodies);
void AddNetworkBodies(std::vector<BodyDef>* bodies);
void AddPoolBodies(std::vector<BodyDef>* bodies);
void AddBatchNormBodies(std::vector<BodyDef>* bodies);
void AddWindowBodies(std::vector<BodyDef>* bodies);
void AddVariableBodies(std::vector<BodyDef>* bodies);

inline std::vector<DataType> FloatTypes() { return {kFloat, kDouble, kHalf, kBfloat16}; }
inline std::vector<DataType> FloatAndInt64Types() {
  return {kFloat, kDouble, kHalf, kBfloat16, kInt64};
}
std::vector<DataType> MovableTypes();

Status ToStatus(Outcome outcome);
Status TooManyAxes();
// Internal if the output, whose shape the op's shape function gave, is not of the shape that the
// op's plan gave: both are from the same operands.
Status CheckRoom(const Shape& planned, const Tensor& out);
inline int SizeOf(const Tensor& t) { return static_cast<int>(DataTypeSize(t.dtype())); }
// The address of element `index`.
inline void* At(const Tensor& t, int64_t index) {
  return static_cast<char*>(t.raw_data()) + index * SizeOf(t);
}

// See move_plan.h. Unimplemented for too many axes.
Status Move(const Loops& loops, Queue queue, int size, const void* from, void* to,
            const std::vector<MoveAxis>& axes);
// As many elements, one behind the other.
Status MoveAll(const Loops& loops, Queue queue, const Tensor& from, const Tensor& to);
Status FillZeros(const Loops& loops, Queue queue, const Tensor& to);

template <typename B>
std::unique_ptr<Body> MakeBody(KernelConstruction& c) {
  return std::make_unique<B>(c);
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_BODY_H_
