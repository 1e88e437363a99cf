// SPDX-License-Identifier: Apache-2.0
// What kernels see of collectives: one step's, on all devices of this task.
#ifndef COLLECTIVE_COLLECTIVE_EXECUTOR_H_
#define COLLECTIVE_COLLECTIVE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/collective_types.h"
#include "collective/ring.h"
#include "device/device.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// What an op asks for.
struct CollectiveParams {
  std::string node;  // for errors
  CollectiveKind kind = CollectiveKind::kReduce;
  DataType dtype = DataType::kInvalid;
  Shape shape;  // of the result
  int32_t group_key = 0;
  int32_t group_size = 0;
  int32_t instance_key = 0;
  bool is_source = false;               // of a broadcast
  MergeOp merge = MergeOp::kAdd;        // of a reduction
  FinalOp final = FinalOp::kId;         // of a reduction
  std::vector<int32_t> subdiv_offsets;  // of a reduction; empty: chosen
  int max_subdivs_per_device = 0;       // if they are chosen
  // Whether members are added up in the order of their ranks, wherever in the tensor an element
  // lies, which rings do not. TensorFlow's nodes do not ask for it, and get its servers' bits.
  bool in_rank_order = false;   // of a reduction
  bool anew_each_step = false;  // the members agree in every step, not once for all
  double timeout_seconds = 0;   // 0: the step's own deadline only
};

// The same, once the members have found each other. Constant.
struct ResolvedCollective {
  CollectiveParams params;
  std::string device;
  std::shared_ptr<const CollectiveGroup> group;
  int rank = 0;
  int source_rank = -1;
  std::vector<Ring> rings;  // of a reduction or gather
};

// Thread-safe. Callbacks are called once, possibly before the call returns or on a thread of
// another member's step. An error of any collective, and the end of the step for another reason,
// ends all of the step's collectives here and, through the members that wait for this task, there:
// the others get a derived error that repeats the first one. Errors name the node, its group, its
// rank and, if a member was lost, that member's task.
class CollectiveExecutor : public RefCounted {
 public:
  using Resolved = std::function<void(StatusOr<std::shared_ptr<const ResolvedCollective>>)>;
  using Done = std::function<void(const Status&)>;

  // Waits for the group's members at its leader, and there for their agreement.
  // DeadlineExceeded after the op's timeout.
  virtual void ResolveAsync(const CollectiveParams& params, const Device& device,
                            Resolved resolved) = 0;
  // Whether the group of an earlier step is still the one that is known here.
  virtual bool IsCurrent(const ResolvedCollective& resolved) const = 0;
  // `key` names this execution: the same at all members, never twice in a step. The result is
  // in `output`, of the resolved shape, whose elements nobody else may use meanwhile; it may be
  // `input` itself. Ends when no member needs anything of this one any more.
  virtual void RunAsync(std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                        const Tensor& input, const Tensor& output, Done done) = 0;

  // For runs that take another way than this executor, such as links between devices.

  // All members say something, and get one answer: at the member of rank 0, `decide` makes it of
  // what they said, in the order of their ranks. Ends when all have come. Texts without zeros, of
  // at most kMaxNote bytes. `key` as for RunAsync, of which a run may follow.
  static constexpr std::size_t kMaxNote = 1023;
  using Decide = std::function<std::string(const std::vector<std::string>& notes)>;
  using Agreed = std::function<void(StatusOr<std::string>)>;
  virtual void AgreeAsync(std::shared_ptr<const ResolvedCollective> resolved,
                          const std::string& key, std::string note, Decide decide,
                          Agreed agreed) = 0;

  class Guard {
   public:
    virtual ~Guard() = default;
    // Not needed after `stop`. An error ends the step's collectives. Gives what the member ends
    // with.
    virtual Status End(const Status& status) = 0;
  };
  // Looks after such a run: `stop` is called at most once, and not after End, when the step's
  // collectives end for an error: this op's timeout, a member whose task is gone, any other. It
  // gets what the member ends with, on any thread, before this returns too, and must not wait.
  virtual std::shared_ptr<Guard> GuardRun(std::shared_ptr<const ResolvedCollective> resolved,
                                          std::function<void(const Status&)> stop) = 0;
  // Ends the step's collectives. The first reason counts.
  virtual void Abort(const Status& reason) = 0;
};

}  // namespace millrace

#endif  // COLLECTIVE_COLLECTIVE_EXECUTOR_H_
