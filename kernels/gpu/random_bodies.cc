// SPDX-License-Identifier: Apache-2.0
// Random numbers: the CPU's own generators and their bits.
#include <algorithm>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/kernel_util.h"
#include "kernels/gpu/body.h"
#include "kernels/random/random_order.h"
#include "kernels/random/random_plan.h"
#include "tensor/allocator.h"

namespace millrace::gpu {
namespace {

// Blocks of four words that a call of a stateful op takes per output.
constexpr uint64_t kReservedPerOutput = 256;

// Where a generator stands: Philox(seed_lo, seed_hi) after `skipped` blocks.
void SetGenerator(uint64_t seed_lo, uint64_t seed_hi, uint64_t skipped, RandomParams* p) {
  p->key[0] = static_cast<uint32_t>(seed_lo);
  p->key[1] = static_cast<uint32_t>(seed_lo >> 32);
  p->counter[0] = static_cast<uint32_t>(skipped);
  p->counter[1] = static_cast<uint32_t>(skipped >> 32);
  p->counter[2] = static_cast<uint32_t>(seed_hi);
  p->counter[3] = static_cast<uint32_t>(seed_hi >> 32);
}

RandomKind KindOf(std::string_view op) {
  if (op.ends_with("TruncatedNormal")) return RandomKind::kTruncatedNormal;
  if (op.ends_with("Normal")) return RandomKind::kNormal;
  return op.ends_with("Int") ? RandomKind::kUniformInt : RandomKind::kUniform;
}

Status Fill(const Tensor& out, const Loops& loops, Queue queue, RandomParams* p) {
  p->type = out.dtype();
  p->out = out.raw_data();
  p->n = out.num_elements();
  return ToStatus(loops.Random(queue, *p));
}

// An op with a generator of its own; each call takes the next part of its sequence.
class StatefulBody final : public Body {
 public:
  explicit StatefulBody(KernelConstruction& c)
      : kind_(KindOf(c.def().name())),
        seed_(static_cast<uint64_t>(c.attrs().GetOr<int64_t>("seed", 0))),
        seed2_(static_cast<uint64_t>(c.attrs().GetOr<int64_t>("seed2", 0))) {
    if (seed_ == 0 && seed2_ == 0) {
      seed_ = RandomId();
      seed2_ = RandomId();
    }
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& out = call.outputs[0];
    RandomParams p;
    p.kind = kind_;
    if (kind_ == RandomKind::kUniformInt) {
      MR_RETURN_IF_ERROR(CheckBoundShapes(call.inputs[1].shape(), call.inputs[2].shape()));
      if (out.num_elements() == 0) return OkStatus();
      MR_ASSIGN_OR_RETURN(p.low, IntScalar(call.inputs[1], "minval"));
      MR_ASSIGN_OR_RETURN(const int64_t high, IntScalar(call.inputs[2], "maxval"));
      MR_RETURN_IF_ERROR(CheckIntRange<int64_t>(p.low, high));
      p.range = static_cast<uint64_t>(high) - static_cast<uint64_t>(p.low);
    }
    SetGenerator(seed_, seed2_, call.drawn != nullptr ? 0 : Draw(call), &p);
    p.skipped = call.drawn;
    return Fill(out, loops, queue, &p);
  }

  RecordedState recorded_state() const override { return RecordedState::kDrawn; }
  // The blocks that came before.
  uint64_t Draw(const StreamCall& call) const override {
    return Reserve(call.outputs[0].num_elements());
  }

 private:
  uint64_t Reserve(int64_t outputs) const {
    MutexLock lock(&mu_);
    const uint64_t at = skipped_;
    skipped_ += static_cast<uint64_t>(outputs) * kReservedPerOutput;
    return at;
  }

  const RandomKind kind_;
  uint64_t seed_, seed2_;
  mutable Mutex mu_;
  mutable uint64_t skipped_ ABSL_GUARDED_BY(mu_) = 0;
};

// A function of a seed.
class StatelessBody final : public Body {
 public:
  explicit StatelessBody(KernelConstruction& c) : kind_(KindOf(c.def().name())) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_ASSIGN_OR_RETURN(const KeyCounter at, KeyFromSeed(call.inputs[1]));
    RandomParams p;
    p.kind = kind_;
    SetGenerator(at.key, at.counter_high, at.counter_low, &p);
    return Fill(call.outputs[0], loops, queue, &p);
  }

 private:
  const RandomKind kind_;
};

// A function of a key and a counter, all in host memory.
class KeyedBody final : public Body {
 public:
  explicit KeyedBody(KernelConstruction& c) : kind_(KindOf(Version1(c.def().name()))) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_ASSIGN_OR_RETURN(const KeyCounter at,
                        ReadKeyCounter(call.inputs[1], call.inputs[2], call.inputs[3]));
    RandomParams p;
    p.kind = kind_;
    SetGenerator(at.key, at.counter_high, at.counter_low, &p);
    return Fill(call.outputs[0], loops, queue, &p);
  }

 private:
  static std::string_view Version1(std::string_view op) {
    op.remove_suffix(std::string_view("V2").size());
    return op;
  }
  const RandomKind kind_;
};

// Rows of the first axis in an order that the host draws.
class ShuffleBody final : public Body {
 public:
  explicit ShuffleBody(KernelConstruction& c) : generator_(c) {}

  StatusOr<Tensor> Stage(const StreamCall& call) const override {
    const Tensor& in = call.inputs[0];
    if (in.rank() == 0 || in.num_elements() <= 1 || in.dim(0) <= 1) return Tensor();
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> order, DrawOrder(&generator_, in.dim(0)));
    MR_ASSIGN_OR_RETURN(Tensor staged,
                        Tensor::Allocate(HostAllocator(), kInt64, Shape({in.dim(0)})));
    std::copy(order.begin(), order.end(), staged.data<int64_t>());
    return staged;
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &out = call.outputs[0];
    if (!call.staged.IsInitialized()) return MoveAll(loops, queue, in, out);
    GatherParams p;
    p.size = SizeOf(in);
    p.index_type = kInt64;
    p.in = in.raw_data();
    p.indices = call.staged.raw_data();
    p.out = out.raw_data();
    p.per_batch = p.limit = in.dim(0);
    p.inner = in.num_elements() / in.dim(0);
    return ToStatus(loops.Gather(queue, p));
  }

 private:
  mutable SharedPhilox generator_;
};

}  // namespace

void AddRandomBodies(std::vector<BodyDef>* bodies) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    bodies->push_back({op, {{"dtype", FloatTypes()}}, &MakeBody<StatefulBody>});
  }
  bodies->push_back({"RandomUniformInt", {{"Tout", {kInt32, kInt64}}}, &MakeBody<StatefulBody>});
  bodies->push_back({"RandomShuffle", {{"T", MovableTypes()}}, &MakeBody<ShuffleBody>});
  for (const char* op :
       {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"}) {
    bodies->push_back({op, {{"dtype", FloatTypes()}}, &MakeBody<StatelessBody>});
    bodies->push_back({StrCat(op, "V2"), {{"dtype", FloatTypes()}}, &MakeBody<KeyedBody>});
  }
}

}  // namespace millrace::gpu
