// SPDX-License-Identifier: Apache-2.0
// Collectives of tensors that lie in this process: a session at the task's own server, with nodes
// that are made once and fed.
#ifndef RANKS_EXCHANGE_H_
#define RANKS_EXCHANGE_H_

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "millrace/collectives.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "ranks/member_nodes.h"
#include "ranks/rank_calls.h"

namespace millrace {

// A member of a group, as others find and name it.
struct GroupMember {
  std::string name{};     // "rank 2 (/job:worker/replica:0/task:2)"
  std::string task{};     // "/job:worker/replica:0/task:2"
  std::string address{};  // "host:port"
};

// Where each rank says which call it makes: a variable at its own task, which everybody may look
// up there without its help.
//
// The error with what is known of the members other than `self` that do not answer, or have not
// come to call `number`: Unavailable and DeadlineExceeded, unless it says so already. Those that
// came and gave up are named if there are no others.
Status AddWhereabouts(const Status& error, std::span<const GroupMember> members, int self,
                      const std::string& variable, int64_t number);

// Thread-safe; one exchange at a time. All members make the same ones in the same order.
class Exchange {
 public:
  using Milliseconds = std::chrono::milliseconds;
  struct Options {
    MemberNodes::Group group{};
    std::vector<GroupMember> members{};  // by rank
    std::string target{};
    CommunicationOptions communication{};
  };
  // Opens a session; waits for nobody.
  static StatusOr<std::unique_ptr<Exchange>> Open(const Options& options, Milliseconds limit);

  // Gives `call` its number. What all ranks call, in their order, once they have been compared.
  StatusOr<std::vector<RankCall>> Agree(RankCall call, Milliseconds limit);
  // The first call, in which ranks wait until all have started: Cancelled when this process is to
  // end, and so is what comes later.
  StatusOr<std::vector<RankCall>> Meet(RankCall call, Milliseconds limit);
  // Says that this rank is in no call any more, for whoever looks it up: it has given up `call`
  // unless that is "".
  void Leave(std::string_view call);
  // Everybody's bytes, each of as many as `calls` say.
  StatusOr<std::vector<std::string>> Gather(std::string_view bytes, std::span<const RankCall> calls,
                                            Milliseconds limit);
  // A vector.
  StatusOr<Tensor> Reduce(ReduceOp op, const Tensor& vector, Milliseconds limit);
  Status Explain(const Status& error) const;

 private:
  explicit Exchange(const Options& options);
  struct Node {
    Output in, out;
  };
  StatusOr<Tensor> Run(const Node& node, const Tensor& in, Milliseconds limit,
                       std::span<const Feed> feeds = {}, std::span<const Operation> targets = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Cancel();
  Node GatherNode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<Node> ReduceNode(ReduceOp op, DataType dtype) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Scope scope() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return graph_.root().WithDevice(device_); }

  const Options options_;
  const std::string device_;    // CPU 0 of this task
  const std::string variable_;  // where this rank says what it calls
  mutable Mutex mu_;
  Graph graph_ ABSL_GUARDED_BY(mu_);
  MemberNodes nodes_ ABSL_GUARDED_BY(mu_);
  Node calls_ ABSL_GUARDED_BY(mu_), bytes_ ABSL_GUARDED_BY(mu_);
  Output text_ ABSL_GUARDED_BY(mu_);
  Operation say_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<ReduceOp, DataType>, Node> reductions_ ABSL_GUARDED_BY(mu_);
  std::optional<Session> session_ ABSL_GUARDED_BY(mu_);  // constant once opened, but for Close
  int64_t number_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // RANKS_EXCHANGE_H_
