// SPDX-License-Identifier: Apache-2.0
// The nodes by which one member of a group takes part in collectives, in a graph of its own.
#ifndef RANKS_MEMBER_NODES_H_
#define RANKS_MEMBER_NODES_H_

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/collectives.h"
#include "millrace/graph.h"

namespace millrace {

// InvalidArgument if the options cannot be: a negative number, NCCL for a member that is not on a
// GPU.
Status CheckCommunication(const CommunicationOptions& options, std::string_view device);

// Gathered parts are in the order of the names of the tasks, in which 10 comes before 2: the place
// of each of them.
std::vector<int> PlacesOf(std::span<const std::string> tasks);

// InvalidArgument for the mean of integers, which would have to be rounded. (The op between tasks
// knows one: it truncates, as TensorFlow's does.)
Status CheckMean(ReduceOp op, DataType dtype);

// As the ops spell it.
const char* CommunicationHint(CommunicationImplementation implementation);

// One collective: of a tensor, or of several of one type, flat and behind each other.
struct ReducePack {
  DataType dtype = DataType::kInvalid;
  Shape shape{};
  int64_t instance_key = 0;
  ReduceOp op = ReduceOp::kSum;
};

// Not thread-safe. All members make the same calls in the same order: each takes the next instance
// key.
class MemberNodes {
 public:
  struct Group {
    int size = 1, rank = 0;
    int64_t key = 1;
    int64_t first_instance_key = 100, instance_keys = 65'000;  // and how many there are
    // Where each rank's part is in what is gathered; {}: in their order.
    std::vector<int> places{};

    int place(int of) const { return places.empty() ? of : places[static_cast<std::size_t>(of)]; }
  };
  MemberNodes(const Group& group, const CommunicationOptions& communication)
      : group_(group),
        communication_(communication),
        next_instance_key_(group.first_instance_key) {}

  const Group& group() const { return group_; }

  // Sums, or another reduction, of values of known shapes, which are InvalidArgument otherwise in
  // the graph's status. Those of one type travel in packs, the last first. Values that are not
  // valid are left out. `packs`, unless it is null, gets what was made.
  std::vector<Output> Reduce(const Scope& scope, ReduceOp op, std::span<const Output> values,
                             std::source_location where, std::vector<ReducePack>* packs = nullptr);
  // All members' rows behind each other, however many each has.
  std::vector<Output> Gather(const Scope& scope, std::span<const Output> values,
                             std::source_location where);
  // Of the same shape everywhere.
  Output GatherEqual(const Scope& scope, const Output& value, std::source_location where);
  // The value of a member.
  Output Broadcast(const Scope& scope, const Output& value, int root, std::source_location where);

  // One reduction of one value, with the key given or, without one, the next.
  Output ReduceOne(const Scope& scope, ReduceOp op, const Output& value, std::source_location where,
                   int64_t instance_key = 0);

 private:
  using Attrs = std::vector<std::pair<std::string, AttrValue>>;
  Attrs Member(const Scope& scope, std::source_location where, int64_t instance_key = 0);
  void Pack(const Scope& scope, ReduceOp op, std::span<const Output> values,
            std::span<const std::size_t> pack, std::vector<Output>* sums,
            std::source_location where);
  Output GatherRows(const Scope& scope, const Output& value, const Output& rows_of_all, int i,
                    std::source_location where);

  const Group group_;
  const CommunicationOptions communication_;
  int64_t next_instance_key_;
};

}  // namespace millrace

#endif  // RANKS_MEMBER_NODES_H_
