// SPDX-License-Identifier: Apache-2.0
// Whose the tokens of a synchronous job are.
//
// Tokens have no names: a worker that is fast finds that of one which has not come for it yet, one
// that was restarted that of the process before it, and the next training on the same parameter
// servers what this one has left. Whoever goes on with such a token computes a second gradient of
// one step, and another worker's is missing. So a worker takes one token of each step: one that is
// no newer than what it has trained with goes back, or is dropped once it is of no use to anybody.
// Its gradients carry its name, and accumulators count one of them in each step: a step that is
// begun again, by this process or the one after it, adds nothing to what it had brought.
//
// That asks for as many workers as gradients, or more. Where workers compute several gradients of a
// step (replicas_to_aggregate > total_num_replicas), tokens belong to nobody, as in TensorFlow.
#ifndef TRAINING_SYNC_TOKENS_H_
#define TRAINING_SYNC_TOKENS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

// For the chief of a training that follows another one on the same parameter servers.
inline constexpr std::chrono::seconds kSyncChiefWait{30};

// By what a graph with SyncReplicas is driven, as SyncReplicas gives it.
struct SyncOps {
  Operation apply;  // chief_queue_op
  Operation local_init, chief_init;
};
// Those of the one SyncReplicas whose nodes the graph has; nothing if there are none, or several.
std::optional<SyncOps> FindSyncOps(const Graph& graph);

// Of one worker. One thread at a time.
class SyncTokens {
 public:
  // Adds nodes to a graph, or finds those that it has been given before; marks those that push
  // gradients. No session may have the graph yet that is to know of it.
  Status Build(Graph& graph, const SyncOps& ops);

  // Whether a step takes a token that is to be looked at: it then fetches fetches() besides.
  bool AreTakenBy(std::span<const Output> fetches, std::span<const Operation> targets) const;
  const std::vector<Output>& fetches() const { return fetches_; }
  // Whether this yields the step that the worker computes from next.
  bool IsLocalStep(const Output& fetch) const;

  // A step has ended with these values of fetches(). Returns the step to compute from next once
  // there is a token for this worker; DeadlineExceeded after `limit` (0: none). At once where a
  // worker has left, who gives its tokens to all, or where no chief owns tokens. Nothing if the
  // chief has begun again meanwhile: what was pushed may be lost, and the step is to be made again
  // from the newest values.
  StatusOr<std::optional<int64_t>> Own(Session& session, std::span<const Tensor> values,
                                       std::chrono::milliseconds limit);

  // A session of a worker begins, before its local init op is run. Where the training before this
  // one has ended, waits for the chief of this one, at most for `limit`.
  Status Follow(Session& session, std::chrono::milliseconds limit);
  // A session of the chief begins; runs its init op, and the first in the life of the queue gives
  // tokens (InitTokensOp; either may be missing). A later one throws away what was pushed for a
  // chief that is gone and lets all that wait compute it again: nobody misses what was lost with
  // that one, and nobody goes on with tokens of a training that has ended.
  Status Lead(Session& session, const Operation& chief_init, const Operation& first_tokens,
              bool are_any);
  // Whether no update comes without a gradient of this worker: all workers' are needed, each brings
  // one of a step, and none has left, for whom others bring several.
  StatusOr<bool> IsEachNeeded(Session& session) const;
  // What a step that has ended in vain is to be told: whether the chief has ended, and who has
  // left.
  Status Explain(Session& session, const Status& late) const;
  // This worker makes no further step: frees those that wait, who take any token from now on, and
  // so do those that are restarted later, until it comes again or another training begins.
  Status Leave(Session& session);
  // The chief's last call: there is no chief any more.
  Status Resign(Session& session);

 private:
  // What is beside the queue, and goes with it. Asked for in few ways: each is planned once.
  struct View {
    int64_t step = 0;      // the global one
    int32_t leaves = 0;    // how many workers have left
    int32_t restarts = 0;  // how often a chief has begun again
    int32_t tokens = 0;    // in the queue
    bool is_led = false;   // a chief has been there: then the last two are known
    int64_t gone = 0;      // workers that have left and not come again
    int64_t first_at = 0;  // the global step of the first tokens; -1: there were none
    bool is_open = false;  // a chief leads a training
  };

  void FindTake(const Graph& graph);
  void MakeNodes(Graph& graph, int32_t num_tokens);
  void MakeView(const Scope& scope, int32_t num_tokens);
  void MakeDrain(const Scope& root);
  Status FindNodes(const Graph& graph);
  StatusOr<View> Look(Session& session) const;
  bool IsFirst(const View& seen, int64_t token, int64_t begun_at);
  StatusOr<int64_t> TakeAny(Session& session) const;
  Status Late(Session& session, int64_t begun_at) const;
  Status Return(Session& session) const;

  bool are_owned_ = false;    // at least as many workers as gradients
  bool are_as_many_ = false;  // as many workers as gradients
  SyncOps ops_;
  Output queue_;
  Operation take_;                    // what takes the token of a step
  std::vector<Operation> pushes_;     // of a step's gradients
  std::vector<Output> fetches_;       // the token, the step before it, restarts
  Output value_, global_step_;        // value_ is fed
  std::vector<Output> view_, led_;    // the parts of a View
  Operation open_, close_;            // set what is_led, first_at (value_) and is_open say
  Output retake_;                     // takes another token, which is then the local step
  Operation put_back_;                // value_, as a token
  Operation wait_;                    // for nothing
  std::string worker_;                // its name; "": its devices name none
  Output names_of_gone_;              // of those that have left
  Operation add_gone_, remove_gone_;  // this worker
  Operation remove_and_give_;         // remove_gone_, then gives a token for each worker
  Operation clear_gone_;
  Operation leave_, restart_;         // count one more, then give a token to each worker
  std::vector<Operation> drain_;      // of what was pushed
  std::vector<Operation> again_;      // let this worker push a second gradient of a step
  Output drop_tokens_;                // all that there are
  std::set<const Node*> after_take_;  // what a step that takes a token may ask for
  int32_t leaves_at_begin_ = 0;
  bool is_without_chief_ = false;  // it has not come
  bool may_take_first_ = true;     // no token was taken yet
};

}  // namespace millrace

#endif  // TRAINING_SYNC_TOKENS_H_
