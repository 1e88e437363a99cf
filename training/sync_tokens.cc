// SPDX-License-Identifier: Apache-2.0
#include "training/sync_tokens.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
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

namespace millrace {
namespace {

using std::chrono::milliseconds;

// Between looks for a token of one's own; each time in a row twice as long.
constexpr milliseconds kPause{1}, kLongestPause{20};
constexpr milliseconds kLook{10};  // how often a chief is looked for
constexpr milliseconds kShortestTake{1'000};
constexpr milliseconds kLastWait{50};  // after which it is told for whom
// For ops that have nothing to wait for.
constexpr milliseconds kShortly{10'000};
constexpr int32_t kManyWorkers = 64;  // where the graph does not tell how many there are
// Attributes by which accumulators know a worker (kernels/data_flow/conditional_accumulator.cc).
constexpr char kWorker[] = "_sync_worker", kWorkerAgain[] = "_sync_worker_again";

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
      s.WithOpName(StrCat(name, "/queue")), {kBool},
      {.shapes = {PartialShape({})}, .capacity = -1, .shared_name = StrCat("sync_token_q/", name)});
}

// Under this name in the scope of the nodes.
std::string NodeName(std::string_view name) { return StrCat("sync_tokens/", name); }

// The worker whose local step this is, by the task that it lives on; "" if its device names none:
// then the one cannot be told from others.
std::string WorkerOf(const Operation& local_init) {
  const std::string& device = local_init.input(0).op().device();
  const bool names_task =
      device.find("/job:") != std::string::npos && device.find("/task:") != std::string::npos;
  return names_task ? device : std::string();
}

}  // namespace

std::optional<SyncOps> FindSyncOps(const Graph& graph) {
  constexpr std::string_view kQueue = "sync_token_q";
  std::optional<SyncOps> found;
  for (const Operation& op : graph.operations()) {
    if (op.type() != "FIFOQueueV2" || !op.node()->attrs().Has("_total_num_replicas")) continue;
    if (found || !op.name().ends_with(kQueue)) return std::nullopt;
    const std::string scope = op.name().substr(0, op.name().size() - kQueue.size());
    found = SyncOps{graph.FindOperation(scope + "sync_op"),
                    graph.FindOperation(scope + "local_step_init"),
                    graph.FindOperation(scope + "chief_init")};
  }
  const bool is_whole =
      found && found->apply.valid() && found->local_init.valid() && found->chief_init.valid();
  return is_whole ? found : std::nullopt;
}

// Counters are queues: their size is there from the start, and counting is one op that no other
// worker comes between.
Status SyncTokens::Build(Graph& graph, const SyncOps& ops) {
  ops_ = ops;
  queue_ = ops.apply.input(0);
  global_step_ = ops.local_init.input(1);
  const PartialShape given = ops.apply.input(1).shape();
  const bool is_known = given.has_rank() && given.rank() == 1 && given.dim(0) > 0;
  const int32_t count = is_known ? static_cast<int32_t>(given.dim(0)) : kManyWorkers;
  // One for each worker, or for each gradient where these are more.
  const AttrMap& attrs = queue_.op().node()->attrs();
  const auto workers = attrs.GetOr<int64_t>("_total_num_replicas", 0);
  are_owned_ = workers == count;
  are_as_many_ = attrs.GetOr<int64_t>("_replicas_to_aggregate", 0) == workers;
  worker_ = WorkerOf(ops_.local_init);
  FindTake(graph);
  if (!graph.FindOperation(NodeName("put_back")).valid()) MakeNodes(graph, count);
  MR_RETURN_IF_ERROR(graph.status());
  return FindNodes(graph);
}

// The node by which a step takes its token; it waits for the gradients, which name the step that
// they were computed from.
void SyncTokens::FindTake(const Graph& graph) {
  for (const Operation& op : graph.operations()) {
    if (op.type() != "QueueDequeueV2" || !(op.input(0) == queue_)) continue;
    std::vector<Operation> pushes = InputsOf(op);
    std::erase_if(pushes, [](const Operation& input) {
      return input.type() != "ResourceAccumulatorApplyGradient";
    });
    if (pushes.empty()) continue;
    take_ = op;
    pushes_ = std::move(pushes);
    fetches_ = {op.output(0), pushes_[0].input(1)};
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

void SyncTokens::MakeNodes(Graph& graph, int32_t num_tokens) {
  const Scope root = graph.root();
  const Scope s = root.ColocateWith(queue_).Named("sync_tokens");
  value_ = Placeholder(s.WithOpName("value"), kInt64, {});
  MakeView(s, num_tokens);
  ops::QueueEnqueueV2(s.WithOpName("put_back"), queue_, {value_});
  ops::QueueDequeueManyV2(s.WithOpName("drop_tokens"), queue_,
                          ops::QueueSizeV2(s.WithOpName("tokens"), queue_), {kInt64});
  const std::vector<Output> token = ops::QueueDequeueV2(s, queue_, {kInt64});
  if (token.empty()) return;
  const Scope here = root.ColocateWith(ops_.local_init);
  ops::Assign(here.WithOpName(NodeName("retake")), ops_.local_init.input(0), token[0]);
  MakeDrain(root);
  const std::string worker = are_owned_ ? worker_ : std::string();
  if (worker.empty()) return;
  for (std::size_t i = 0; i < pushes_.size(); ++i) {
    const Operation again =
        ops::ResourceAccumulatorNumAccumulated(
            root.ColocateWith(pushes_[i]).WithOpName(NodeName(StrCat("again_", i))),
            pushes_[i].input(0))
            .op();
    if (!again.valid()) return;
    again.node()->mutable_attrs().Set(kWorkerAgain, worker);
    pushes_[i].node()->mutable_attrs().Set(kWorker, worker);
  }
}

void SyncTokens::MakeView(const Scope& s, int32_t num_tokens) {
  const auto number = [&s](const std::string& name) {
    return ops::VarHandleOp(s.WithOpName(StrCat(name, "/handle")), kInt64, PartialShape({}),
                            {.shared_name = StrCat("sync_token_q/", name)});
  };
  const Output first_at = number("first_at"), is_open = number("is_open");
  const Output leaves = Counter(s, "leaves"), restarts = Counter(s, "restarts");
  ops::QueueDequeueV2(s.WithOpName("wait"), Counter(s, "never"), {kBool});
  ops::QueueSizeV2(s.WithOpName("leaves"), leaves);
  ops::QueueSizeV2(s.WithOpName("restarts"), restarts);
  ops::VarIsInitializedOp(s.WithOpName("is_led"), is_open);
  ops::ReadVariableOp(s.WithOpName("first_at"), first_at, kInt64);
  ops::ReadVariableOp(s.WithOpName("is_open"), is_open, kInt64);
  const Operation set = ops::AssignVariableOp(s, first_at, value_);
  ops::AssignVariableOp(s.WithControlDependencies({set}).WithOpName("open"), is_open,
                        Input(int64_t{1}));
  ops::AssignVariableOp(s.WithOpName("close"), is_open, Input(int64_t{0}));
  const auto give_after = [&](const std::string& name, const Operation& counted) {
    const Scope after = s.WithControlDependencies({counted});
    ops::QueueEnqueueManyV2(after.WithOpName(name), queue_,
                            {ops::Fill(s, {num_tokens}, global_step_)});
  };
  give_after("leave", ops::QueueEnqueueV2(s, leaves, {Input(true)}));
  // Who has left, by name, unless the one has come again.
  const Output gone = ops::MutableHashTableV2(s.WithOpName("gone/table"), kString, kBool,
                                              {.shared_name = "sync_token_q/gone"});
  const Output worker = Constant(s.WithOpName("gone/worker"), Tensor::String(worker_));
  ops::LookupTableSizeV2(s.WithOpName("gone/size"), gone);
  const Output names =
      ops::LookupTableExportV2(s.WithOpName("gone/names"), gone, kString, kBool).keys;
  ops::LookupTableRemoveV2(s.WithOpName("gone/clear"), gone, names);
  ops::LookupTableInsertV2(s.WithOpName("gone/add"), gone, worker, Input(true));
  give_after("gone/give", ops::LookupTableRemoveV2(s.WithOpName("gone/remove"), gone, worker));
  give_after("restart", ops::QueueEnqueueV2(s, restarts, {Input(true)}));
}

// An accumulator is emptied by a zero, with which there is something to take for certain. A kernel
// of another engine may keep what it made: destroying it would leave the workers without one.
void SyncTokens::MakeDrain(const Scope& root) {
  int number = 0;
  for (const Operation& set : InputsOf(ops_.chief_init)) {
    if (set.type() != "ResourceAccumulatorSetGlobalStep") continue;
    const Operation accumulator = set.input(0).op();
    const AttrMap& attrs = accumulator.node()->attrs();
    const auto shape = attrs.GetOr<PartialShape>("shape", PartialShape()).AsShape();
    if (!shape) continue;
    const auto dtype = attrs.GetOr<DataType>("dtype", kFloat);
    const Scope s = root.ColocateWith(accumulator);
    const Operation push = ops::ResourceAccumulatorApplyGradient(
        s.WithOpName(NodeName("zero")), set.input(0), Input(std::numeric_limits<int64_t>::max()),
        Zeros(s.WithOpName(NodeName("zeros")), *shape, dtype));
    ops::ResourceAccumulatorTakeGradient(
        s.WithControlDependencies({push}).WithOpName(NodeName(StrCat("drain_", number++))),
        set.input(0), 1, dtype);
  }
}

Status SyncTokens::FindNodes(const Graph& graph) {
  const auto find = [&graph](std::string_view name) { return graph.FindOperation(NodeName(name)); };
  value_ = find("value").output(0);
  view_ = {global_step_,
           find("leaves").output(0),
           find("restarts").output(0),
           find("tokens").output(0),
           find("is_led").output(0),
           find("gone/size").output(0)};
  names_of_gone_ = find("gone/names").output(0);
  add_gone_ = find("gone/add");
  remove_gone_ = find("gone/remove");
  remove_and_give_ = find("gone/give");
  clear_gone_ = find("gone/clear");
  led_ = {find("first_at").output(0), find("is_open").output(0)};
  open_ = find("open");
  close_ = find("close");
  leave_ = find("leave");
  restart_ = find("restart");
  put_back_ = find("put_back");
  wait_ = find("wait");
  drop_tokens_ = find("drop_tokens").output(0);
  retake_ = find("retake").output(0);
  drain_.clear();
  for (Operation op; (op = find(StrCat("drain_", drain_.size()))).valid();) drain_.push_back(op);
  again_.clear();
  for (Operation op; (op = find(StrCat("again_", again_.size()))).valid();) again_.push_back(op);
  for (const Operation& op : {open_, close_, leave_, restart_, put_back_, wait_, add_gone_,
                              remove_gone_, remove_and_give_, clear_gone_}) {
    if (!op.valid()) return errors::Internal("the nodes of ", NodeName(""), " are not all there");
  }
  if (are_owned_) fetches_.push_back(view_[2]);
  return OkStatus();
}

bool SyncTokens::AreTakenBy(std::span<const Output> fetches,
                            std::span<const Operation> targets) const {
  if (!are_owned_) return false;
  const auto asks = [this](const Operation& op) { return after_take_.contains(op.node()); };
  return std::any_of(fetches.begin(), fetches.end(),
                     [&](const Output& output) { return asks(output.op()); }) ||
         std::any_of(targets.begin(), targets.end(), asks);
}

bool SyncTokens::IsLocalStep(const Output& fetch) const {
  if (!are_owned_) return false;
  if (fetch == take_.output(0)) return true;
  return fetch.index() == 0 && fetch.op().type() == "Assign" &&
         fetch.op().input(0) == ops_.local_init.input(0) && fetch.op().input(1) == take_.output(0);
}

StatusOr<SyncTokens::View> SyncTokens::Look(Session& session) const {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> seen, session.Run({}, std::span(view_)));
  View view{.step = seen[0].scalar<int64_t>(),
            .leaves = seen[1].scalar<int32_t>(),
            .restarts = seen[2].scalar<int32_t>(),
            .tokens = seen[3].scalar<int32_t>(),
            .is_led = seen[4].scalar<bool>(),
            .gone = seen[5].scalar<int64_t>()};
  if (!view.is_led) return view;
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> led, session.Run({}, std::span(led_)));
  view.first_at = led[0].scalar<int64_t>();
  view.is_open = led[1].scalar<int64_t>() != 0;
  return view;
}

// The tokens of the beginning are of the step that all begin with: each worker takes one of them,
// and none later.
bool SyncTokens::IsFirst(const View& seen, int64_t token, int64_t begun_at) {
  if (!may_take_first_ || token != begun_at) return false;
  may_take_first_ = false;
  return seen.first_at == begun_at;
}

// The newest step, of which this worker may have pushed a gradient already.
StatusOr<int64_t> SyncTokens::TakeAny(Session& session) const {
  if (!again_.empty()) MR_RETURN_IF_ERROR(session.Run({}, {}, again_).status());
  const Output step = ops_.local_init.output(0);
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> set, session.Run({}, std::span(&step, 1)));
  return set[0].scalar<int64_t>();
}

// A step that waits in vain is told by its master for whom all of them do.
Status SyncTokens::Late(Session& session, int64_t begun_at) const {
  const RunOptions shortly{.timeout = kLastWait};
  const Status late = session.Run({}, {}, std::span(&wait_, 1), shortly).status();
  if (!errors::IsDeadlineExceeded(late)) return late;
  return Annotate(late, StrCat("; no token of a step after ", begun_at,
                               " has come in time, only such as other workers wait for"));
}

StatusOr<bool> SyncTokens::IsEachNeeded(Session& session) const {
  if (!are_owned_ || !are_as_many_) return false;
  MR_ASSIGN_OR_RETURN(const View seen, Look(session));
  return seen.gone == 0 && seen.leaves <= leaves_at_begin_;
}

Status SyncTokens::Explain(Session& session, const Status& late) const {
  if (!errors::IsDeadlineExceeded(late)) return late;
  std::string why;
  if (is_without_chief_) {
    why =
        "; the chief of the synchronous training has ended, and without one no step does: start "
        "it again, or end this worker as well";
  }
  const RunOptions shortly{.timeout = kLastWait};
  const auto seen = session.Run({}, std::span(&names_of_gone_, 1), {}, shortly);
  if (seen.ok() && seen->front().num_elements() > 0) {
    const auto names = seen->front().flat<std::string>();
    StrAppend(&why, "; these have left the synchronous training, and not come again: ",
              StrJoin(std::vector<std::string>(names.begin(), names.end()), ", "));
  }
  return why.empty() ? late : Annotate(late, why);
}

// Who comes again is not gone. Of those that are gone nothing comes any more: this worker, which
// may have been killed with a token in its hands, gets some to bring their gradients with.
Status SyncTokens::Return(Session& session) const {
  if (!worker_.empty()) MR_RETURN_IF_ERROR(session.RunTargets({remove_gone_}));
  MR_ASSIGN_OR_RETURN(const View seen, Look(session));
  return seen.gone > 0 && seen.is_open ? session.RunTargets({remove_and_give_}) : OkStatus();
}

StatusOr<std::optional<int64_t>> SyncTokens::Own(Session& session, std::span<const Tensor> values,
                                                 milliseconds limit) {
  auto token = values[0].scalar<int64_t>();
  const auto begun_at = values[1].scalar<int64_t>();
  const auto restarts = values[2].scalar<int32_t>();
  const bool has_limit = limit.count() > 0;
  const Deadline deadline = DeadlineAfter(limit);
  milliseconds pause = kPause;
  for (int in_a_row = 1;; ++in_a_row) {
    if (token > begun_at) {
      may_take_first_ = false;
      return token;
    }
    MR_ASSIGN_OR_RETURN(const View seen, Look(session));
    if (seen.is_led && IsFirst(seen, token, begun_at)) return token;
    if (!seen.is_led || is_without_chief_ || seen.leaves > leaves_at_begin_ || seen.gone > 0) {
      return TakeAny(session);
    }
    if (seen.restarts != restarts) {
      MR_RETURN_IF_ERROR(session.RunTargets({ops_.local_init}));
      return std::nullopt;
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
    if (has_limit && SteadyClock::now() >= deadline) return Late(session, begun_at);
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
    if (!seen.is_led || seen.is_open) return Return(session);
    if (SteadyClock::now() >= deadline) {
      MR_LOG(kWarning,
             "the chief of the synchronous training has ended, and no other has come within ",
             limit.count(), " ms");
      is_without_chief_ = true;
      return Return(session);
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
  if (chief_init.valid()) MR_RETURN_IF_ERROR(session.RunTargets({chief_init}));
  // Of the training before this one nobody is missed.
  if (!seen.is_open) MR_RETURN_IF_ERROR(session.RunTargets({clear_gone_}));
  const bool was_led = seen.is_led;
  if (was_led && (are_owned_ || drops_tokens)) {
    MR_RETURN_IF_ERROR(session.RunTargets({restart_}));
  }
  const int64_t first_at = was_led ? seen.first_at : are_any ? seen.step : -1;
  const Feed feed[] = {{value_, Tensor::Scalar<int64_t>(first_at)}};
  MR_RETURN_IF_ERROR(session.Run(feed, {}, std::span(&open_, 1)).status());
  // Whoever finds a token knows by then that there is a chief.
  if (!was_led && first_tokens.valid()) return session.RunTargets({first_tokens});
  return Return(session);
}

Status SyncTokens::Leave(Session& session) {
  const RunOptions shortly{.timeout = kShortly};
  if (!worker_.empty()) {
    MR_RETURN_IF_ERROR(session.Run({}, {}, std::span(&add_gone_, 1), shortly).status());
  }
  return session.Run({}, {}, std::span(&leave_, 1), shortly).status();
}

Status SyncTokens::Resign(Session& session) {
  const RunOptions shortly{.timeout = kShortly};
  return session.Run({}, {}, std::span(&close_, 1), shortly).status();
}

}  // namespace millrace
