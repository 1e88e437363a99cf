// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/sync_tokens.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "graph/dataflow_graph.h"
#include "millrace/attr_value.h"
#include "millrace/ops.h"
#include "millrace/variables.h"
#include "training/preemption_wait.h"

namespace millrace::hooks {
namespace {

using std::chrono::milliseconds;

// Between looks for a token of one's own; each time in a row twice as long.
constexpr milliseconds kPause{1}, kLongestPause{20};
constexpr milliseconds kLook{10};  // how often a chief is looked for
constexpr milliseconds kShortestTake{1'000};
// For ops that have nothing to wait for.
constexpr milliseconds kShortly{10'000};
constexpr int32_t kManyWorkers = 64;  // where the graph does not tell how many there are

std::vector<Operation> InputsOf(const Operation& op) {
  std::vector<Operation> inputs;
  for (const Edge* edge : op.node()->in_edges()) {
    if (edge->src->IsOp()) inputs.emplace_back(op.graph(), edge->src);
  }
  return inputs;
}

milliseconds Left(Deadline deadline) {
  return std::max(std::chrono::duration_cast<milliseconds>(deadline - SteadyClock::now()),
                  milliseconds(1));
}

Output Counter(const Scope& s, const std::string& name) {
  return ops::FIFOQueueV2(
      s.WithOpName(name), {kBool},
      {.shapes = {PartialShape({})}, .capacity = -1, .shared_name = StrCat("sync_token_q/", name)});
}

}  // namespace

// Counters are queues: their size is there from the start, and counting is one op that no other
// worker comes between.
Status SyncTokens::Build(Graph& graph, const SyncReplicas& sync) {
  MR_ASSIGN_OR_RETURN(const Operation apply, sync.chief_queue_op());
  MR_ASSIGN_OR_RETURN(local_init_, sync.local_step_init_op());
  MR_ASSIGN_OR_RETURN(const Operation chief_init, sync.chief_init_op());
  queue_ = apply.input(0);
  global_step_ = local_init_.input(1);
  const PartialShape given = apply.input(1).shape();
  const bool is_known = given.has_rank() && given.rank() == 1 && given.dim(0) > 0;
  const int32_t count = is_known ? static_cast<int32_t>(given.dim(0)) : kManyWorkers;
  // One for each worker, or for each gradient where these are more.
  are_owned_ = queue_.op().node()->attrs().GetOr<int64_t>("_total_num_replicas", 0) == count;
  FindTake(graph);
  const Scope root = graph.root();
  const Scope s = root.ColocateWith(queue_).Named("sync_tokens");
  value_ = Placeholder(s.WithOpName("value"), kInt64, {});
  BuildView(s, count);
  put_back_ = ops::QueueEnqueueV2(s, queue_, {value_});
  const std::vector<Output> all = ops::QueueDequeueManyV2(s, queue_, view_[3], {kInt64});
  const std::vector<Output> token = ops::QueueDequeueV2(s, queue_, {kInt64});
  MR_RETURN_IF_ERROR(graph.status());
  drop_tokens_ = all[0];
  const Scope here = root.ColocateWith(local_init_);
  retake_ = ops::Assign(here.WithOpName("sync_tokens/retake"), local_init_.input(0), token[0]);
  BuildDrain(root, chief_init);
  if (are_owned_ && !fetches_.empty()) fetches_.push_back(view_[2]);
  return graph.status();
}

void SyncTokens::BuildView(const Scope& s, int32_t count) {
  const auto number = [&s](const std::string& name) {
    return ops::VarHandleOp(s.WithOpName(name), kInt64, PartialShape({}),
                            {.shared_name = StrCat("sync_token_q/", name)});
  };
  const Output first_at = number("first_at"), is_open = number("is_open");
  const Output leaves = Counter(s, "leaves"), restarts = Counter(s, "restarts");
  view_ = {global_step_, ops::QueueSizeV2(s, leaves), ops::QueueSizeV2(s, restarts),
           ops::QueueSizeV2(s, queue_), ops::VarIsInitializedOp(s, is_open)};
  led_ = {ops::ReadVariableOp(s, first_at, kInt64), ops::ReadVariableOp(s, is_open, kInt64)};
  first_at_value_ = Placeholder(s.WithOpName("first_at_value"), kInt64, {});
  const Operation set = ops::AssignVariableOp(s, first_at, first_at_value_);
  open_ = ops::AssignVariableOp(s.WithControlDependencies({set}), is_open, Input(int64_t{1}));
  close_ = ops::AssignVariableOp(s, is_open, Input(int64_t{0}));
  const auto give_after = [&](const Operation& counted) {
    const Scope after = s.WithControlDependencies({counted});
    return ops::QueueEnqueueManyV2(after.WithOpName("give"), queue_,
                                   {ops::Fill(s, {count}, global_step_)});
  };
  leave_ = give_after(ops::QueueEnqueueV2(s, leaves, {Input(true)}));
  restart_ = give_after(ops::QueueEnqueueV2(s, restarts, {Input(true)}));
}

// The node by which a step takes its token; it waits for the gradients, which name the step that
// they were computed from.
void SyncTokens::FindTake(const Graph& graph) {
  for (const Operation& op : graph.operations()) {
    if (op.type() != "QueueDequeueV2" || !(op.input(0) == queue_)) continue;
    for (const Operation& push : InputsOf(op)) {
      if (push.type() != "ResourceAccumulatorApplyGradient") continue;
      take_ = op;
      fetches_ = {op.output(0), push.input(1)};
    }
  }
  if (!take_.valid()) are_owned_ = false;
  if (!are_owned_) return;
  std::vector<Node*> open = {take_.node()};
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!after_take_.insert(node).second) continue;
    for (const Edge* edge : node->out_edges()) {
      if (edge->dst->IsOp()) open.push_back(edge->dst);
    }
  }
}

// An accumulator is emptied by a zero, with which there is something to take for certain. A kernel
// of another engine may keep what it made: destroying it would leave the workers without one.
void SyncTokens::BuildDrain(const Scope& root, const Operation& chief_init) {
  for (const Operation& set : InputsOf(chief_init)) {
    if (set.type() != "ResourceAccumulatorSetGlobalStep") continue;
    const Operation accumulator = set.input(0).op();
    const AttrMap& attrs = accumulator.node()->attrs();
    const auto shape = attrs.GetOr<PartialShape>("shape", PartialShape()).AsShape();
    if (!shape) continue;
    const auto dtype = attrs.GetOr<DataType>("dtype", kFloat);
    const Scope s = root.ColocateWith(accumulator).Named("sync_tokens_drain");
    const Operation push = ops::ResourceAccumulatorApplyGradient(
        s, set.input(0), Input(std::numeric_limits<int64_t>::max()), Zeros(s, *shape, dtype));
    const Output taken = ops::ResourceAccumulatorTakeGradient(s.WithControlDependencies({push}),
                                                              set.input(0), 1, dtype);
    drain_.push_back(taken.op());
  }
}

bool SyncTokens::AreTakenBy(std::span<const Output> fetches,
                            std::span<const Operation> targets) const {
  if (!are_owned_) return false;
  const auto asks = [this](const Operation& op) { return after_take_.contains(op.node()); };
  return std::any_of(fetches.begin(), fetches.end(),
                     [&](const Output& output) { return asks(output.op()); }) ||
         std::any_of(targets.begin(), targets.end(), asks);
}

StatusOr<SyncTokens::View> SyncTokens::Look(Session& session) const {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> seen, session.Run({}, std::span(view_)));
  View view{.step = seen[0].scalar<int64_t>(),
            .leaves = seen[1].scalar<int32_t>(),
            .restarts = seen[2].scalar<int32_t>(),
            .tokens = seen[3].scalar<int32_t>(),
            .is_led = seen[4].scalar<bool>()};
  if (!view.is_led) return view;
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> led, session.Run({}, std::span(led_)));
  view.first_at = led[0].scalar<int64_t>();
  view.is_open = led[1].scalar<int64_t>() != 0;
  return view;
}

// The tokens of the beginning are of the step that all begin with: each worker takes one of them,
// and none later. Before the chief has been there, it is about to say.
bool SyncTokens::IsFirst(const View& seen, int64_t token, int64_t begun_at) {
  if (!may_take_first_ || token != begun_at || !seen.is_led) return false;
  may_take_first_ = false;
  return seen.first_at == begun_at;
}

Status SyncTokens::Own(Session& session, std::span<const Tensor> values, milliseconds limit) {
  auto token = values[0].scalar<int64_t>();
  const auto begun_at = values[1].scalar<int64_t>();
  const auto restarts = values[2].scalar<int32_t>();
  const bool has_limit = limit.count() > 0;
  const Deadline deadline = DeadlineAfter(limit);
  milliseconds pause = kPause;
  for (int in_a_row = 1;; ++in_a_row) {
    if (token > begun_at) {
      may_take_first_ = false;
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const View seen, Look(session));
    if (IsFirst(seen, token, begun_at)) return OkStatus();
    if (is_without_chief_ || seen.leaves > leaves_at_begin_ || seen.restarts != restarts) {
      return session.RunTargets({local_init_});
    }
    // Every worker that is behind finds one of the newest step.
    if (token >= seen.step) {
      const Feed feed[] = {{value_, Tensor::Scalar<int64_t>(token)}};
      MR_RETURN_IF_ERROR(session.Run(feed, {}, std::span(&put_back_, 1)).status());
      if (in_a_row > seen.tokens) {
        MR_RETURN_IF_ERROR(SleepUnlessPreempted(pause));
        pause = std::min(2 * pause, kLongestPause);
      }
    }
    if (has_limit && SteadyClock::now() >= deadline) {
      return errors::DeadlineExceeded("no token of a step after ", begun_at, " has come within ",
                                      limit.count(), " ms: only such as other workers wait for");
    }
    // Never so short that a token is lost with a step that has just taken it.
    const RunOptions run{.timeout =
                             has_limit ? std::max(Left(deadline), kShortestTake) : milliseconds(0)};
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> taken,
                        session.Run({}, std::span(&retake_, 1), {}, run));
    token = taken[0].scalar<int64_t>();
  }
}

Status SyncTokens::Follow(Session& session, milliseconds limit) {
  const Deadline deadline = DeadlineAfter(limit);
  is_without_chief_ = false;
  while (true) {
    MR_ASSIGN_OR_RETURN(const View seen, Look(session));
    leaves_at_begin_ = seen.leaves;
    if (!seen.is_led || seen.is_open) return OkStatus();
    if (SteadyClock::now() >= deadline) {
      MR_LOG(kWarning,
             "the chief of the synchronous training has ended, and no other has come within ",
             limit.count(), " ms");
      is_without_chief_ = true;
      return OkStatus();
    }
    MR_RETURN_IF_ERROR(SleepUnlessPreempted(kLook));
  }
}

Status SyncTokens::Lead(Session& session, const Operation& chief_init,
                        const Operation& first_tokens, bool are_any) {
  MR_ASSIGN_OR_RETURN(const View seen, Look(session));
  leaves_at_begin_ = seen.leaves;
  const bool drops_tokens = !are_owned_ && seen.is_led && !seen.is_open && seen.tokens > 0;
  const RunOptions shortly{.timeout = kShortly};
  if (seen.is_led && are_owned_) {
    const Status drained = session.Run({}, {}, drain_, shortly).status();
    if (errors::IsDeadlineExceeded(drained)) {
      MR_LOG(kWarning, "a chief before this one still takes gradients: ", Message(drained));
    } else {
      MR_RETURN_IF_ERROR(drained);
    }
  } else if (drops_tokens) {
    MR_RETURN_IF_ERROR(session.Run({}, std::span(&drop_tokens_, 1), {}, shortly).status());
  }
  MR_RETURN_IF_ERROR(session.RunTargets({chief_init}));
  int64_t first_at = seen.first_at;
  if (!seen.is_led) {
    MR_RETURN_IF_ERROR(session.RunTargets({first_tokens}));
    first_at = are_any ? seen.step : -1;
  } else if (are_owned_ || drops_tokens) {
    MR_RETURN_IF_ERROR(session.RunTargets({restart_}));
  }
  const Feed feed[] = {{first_at_value_, Tensor::Scalar<int64_t>(first_at)}};
  return session.Run(feed, {}, std::span(&open_, 1)).status();
}

Status SyncTokens::Leave(Session& session, bool is_chief) {
  const RunOptions shortly{.timeout = kShortly};
  if (is_chief) {
    MR_RETURN_IF_ERROR(session.Run({}, {}, std::span(&close_, 1), shortly).status());
  }
  return session.Run({}, {}, std::span(&leave_, 1), shortly).status();
}

}  // namespace millrace::hooks
