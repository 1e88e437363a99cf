// SPDX-License-Identifier: Apache-2.0
// Groups of ranks: who is in them, and how they begin.
#include <algorithm>
#include <thread>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/cluster.h"
#include "millrace/preemption.h"
#include "ranks/group_numbers.h"
#include "ranks/group_state.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

// Each group has as many instance keys, of collectives of tensors and of those in graphs. A sum's
// derivative has a key beyond those of all groups.
constexpr int64_t kKeysOfGroup = 65'536, kKeysOfTensors = 100;
constexpr int64_t kFirstGroupKey = 1000;
constexpr milliseconds kDefaultLimit{60'000};
constexpr milliseconds kBetweenMeetings{50};

std::vector<std::string> TasksOf(const World& world, const std::vector<int>& ranks) {
  std::vector<std::string> tasks;
  for (const int member : ranks) {
    tasks.push_back(world.members.empty() ? ""
                                          : world.members[static_cast<std::size_t>(member)].task);
  }
  return tasks;
}

MemberNodes::Group KeysOf(const World& world, int index, const std::vector<int>& ranks, int rank,
                          bool of_tensors) {
  const int64_t first = (index + 1) * kKeysOfGroup;
  return {.size = static_cast<int>(ranks.size()),
          .rank = rank,
          .key = kFirstGroupKey + 2 * index + (of_tensors ? 0 : 1),
          .first_instance_key = of_tensors ? first : first + kKeysOfTensors,
          .instance_keys = of_tensors ? kKeysOfTensors : kKeysOfGroup - kKeysOfTensors,
          .places = PlacesOf(TasksOf(world, ranks))};
}

// Whether a meeting may yet succeed: one of the others gave up, and perhaps comes again.
bool MayMeetYet(const Status& status) {
  return errors::IsUnavailable(status) || errors::IsDeadlineExceeded(status) ||
         errors::IsAborted(status) || errors::IsCancelled(status);
}

// At least a moment.
milliseconds Left(std::chrono::steady_clock::time_point end) {
  return std::max(milliseconds(1),
                  std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now()));
}

milliseconds LimitOf(const CommunicationOptions& options) {
  if (options.timeout_seconds <= 0) return kDefaultLimit;
  return milliseconds(
      std::max<int64_t>(1, static_cast<int64_t>(std::min(options.timeout_seconds, 1e6) * 1000)));
}

void FindNeighbours(const ResolvedTask& task, World* world) {
  if (task.local_size > 1) {
    world->local_rank = task.local_rank;
    world->local_size = task.local_size;
    return;
  }
  std::vector<std::string> hosts;
  for (const GroupMember& member : world->members) {
    std::string host;
    int port = 0;
    hosts.push_back(SplitAddress(member.address, &host, &port).ok() ? host : member.address);
  }
  const auto self = hosts.begin() + world->rank;
  world->local_rank = static_cast<int>(std::count(hosts.begin(), self, *self));
  world->local_size = static_cast<int>(std::count(hosts.begin(), hosts.end(), *self));
}

StatusOr<std::shared_ptr<World>> WorldOf(const ProcessGroupOptions& options) {
  auto world = std::make_shared<World>();
  world->communication = options.communication;
  ResolvedTask task = options.task;
  if (task.cluster.jobs().empty()) {
    MR_ASSIGN_OR_RETURN(task, ResolveFromEnvironment());
  }
  MR_RETURN_IF_ERROR(CheckCommunication(options.communication, options.device));
  if (task.cluster.jobs().empty()) {
    world->device = options.device;
    return world;
  }
  if (task.job_name == "evaluator") {
    return errors::InvalidArgument("an evaluator is no rank: chiefs and workers are");
  }
  MR_ASSIGN_OR_RETURN(world->size, WorkerCount(task));
  MR_ASSIGN_OR_RETURN(world->rank, WorkerRank(task));
  for (const char* job : {"chief", "worker"}) {
    const auto tasks = task.cluster.jobs().find(job);
    if (tasks == task.cluster.jobs().end()) continue;
    for (const auto& [index, address] : tasks->second) {
      const std::string name = StrCat("/job:", job, "/replica:0/task:", index);
      world->members.push_back(
          {StrCat("rank ", world->members.size(), " (", name, ")"), name, address});
    }
  }
  if (world->rank < 0 || world->rank >= static_cast<int>(world->members.size())) {
    return errors::InvalidArgument("tasks of the cluster ", task.cluster.ToString(),
                                   " must be numbered without gaps to be ranks");
  }
  FindNeighbours(task, world.get());
  const std::string& own = world->members[static_cast<std::size_t>(world->rank)].task;
  world->device = StrCat(own, options.device.empty() ? "/device:CPU:0" : options.device);
  MR_ASSIGN_OR_RETURN(world->server, TargetFor(options.target, task, 1, options.server));
  return world;
}

}  // namespace

GroupState::GroupState(std::shared_ptr<const World> of, int i, std::vector<int> members)
    : world(std::move(of)),
      index(i),
      ranks(std::move(members)),
      rank([this] {
        const auto self = std::find(ranks.begin(), ranks.end(), world->rank);
        return self == ranks.end() ? -1 : static_cast<int>(self - ranks.begin());
      }()),
      limit(LimitOf(world->communication)),
      nodes(KeysOf(*world, i, ranks, std::max(rank, 0), false), world->communication) {}

StatusOr<std::unique_ptr<Exchange>> GroupState::OpenExchange(const MemberNodes::Group& group,
                                                             milliseconds start_limit) const {
  Exchange::Options options;
  options.group = group;
  for (const int member : ranks) {
    options.members.push_back(world->members[static_cast<std::size_t>(member)]);
  }
  options.target = world->server.target;
  // Tensors of this process lie in host memory.
  options.communication.implementation = CommunicationImplementation::kRing;
  return Exchange::Open(options, start_limit);
}

Status GroupState::Open(milliseconds start_limit) {
  if (size() <= 1 || rank < 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(exchange,
                      OpenExchange(KeysOf(*world, index, ranks, rank, true), start_limit));
  return OkStatus();
}

StatusOr<int> GroupState::MeetOn(int free, const RankCall& call, milliseconds start_limit) const {
  const std::vector<std::string> tasks = TasksOf(*world, ranks);
  MemberNodes::Group group = MeetingKeys(tasks);
  group.size = size();
  group.rank = rank;
  group.places = PlacesOf(tasks);
  RankCall own = call;
  own.payload_bytes = free;
  const auto end = std::chrono::steady_clock::now() + start_limit;
  for (;;) {
    const milliseconds left = Left(end);
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> meeting, OpenExchange(group, left));
    const StatusOr<std::vector<RankCall>> all = meeting->Meet(own, left);
    if (!all.ok() && MayMeetYet(all.status()) && CheckPreemption().ok() &&
        Left(end) > kBetweenMeetings) {
      std::this_thread::sleep_for(kBetweenMeetings);
      continue;
    }
    meeting->Leave(all.ok() ? "" : call.text);
    MR_RETURN_IF_ERROR(all.status());
    int64_t most = free;
    for (const RankCall& one : *all) most = std::max(most, one.payload_bytes);
    return static_cast<int>(std::min<int64_t>(most, kMostGroups));
  }
}

StatusOr<std::vector<RankCall>> GroupState::Agree(const RankCall& call) {
  return Agree(call, limit);
}

StatusOr<std::vector<RankCall>> GroupState::Agree(const RankCall& call, milliseconds call_limit) {
  if (rank < 0) {
    return errors::FailedPrecondition("rank ", world->rank, " is not in the group of the ranks ",
                                      StrJoin(ranks, ", "), " and calls ", call.text, " of it");
  }
  if (exchange != nullptr) return exchange->Agree(call, call_limit);
  if (call.refused) return errors::InvalidArgument(call.text);
  return std::vector<RankCall>{call};
}

StatusOr<std::vector<std::string>> GroupState::Gather(std::string_view bytes,
                                                      std::span<const RankCall> calls) {
  if (exchange == nullptr) return std::vector<std::string>{std::string(bytes)};
  return exchange->Gather(bytes, calls, limit);
}

StatusOr<Tensor> GroupState::Reduce(ReduceOp op, const Tensor& vector) {
  if (exchange == nullptr || vector.num_elements() == 0) return vector;
  return exchange->Reduce(op, vector, limit);
}

ProcessGroup::ProcessGroup(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
ProcessGroup::~ProcessGroup() = default;

StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::Create(const ProcessGroupOptions& options) {
  if (options.start_timeout.count() <= 0) {
    return errors::InvalidArgument("ProcessGroupOptions.start_timeout is ",
                                   options.start_timeout.count(), " ms, and must be positive");
  }
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<World> world, WorldOf(options));
  std::vector<int> ranks;
  for (int i = 0; i < world->size; ++i) ranks.push_back(i);
  if (world->size <= 1) {
    MR_ASSIGN_OR_RETURN(const int index, NextGroupNumber(world->server.target));
    return std::shared_ptr<ProcessGroup>(
        new ProcessGroup(std::make_shared<GroupState>(world, index, std::move(ranks))));
  }
  const auto end = std::chrono::steady_clock::now() + options.start_timeout;
  MR_LOG(kInfo, "rank ", world->rank, " of ", world->size, " at ", world->server.target,
         " waits for the others, for ", options.start_timeout.count(), " ms at most");
  const RankCall call = MakeCall(StrCat("ProcessGroup::Create of ", world->size, " ranks"), {}, "");
  MR_ASSIGN_OR_RETURN(
      const int index,
      AgreedGroupNumber(world->server.target, options.start_timeout,
                        [&](int free, milliseconds limit) {
                          return GroupState(world, 0, ranks).MeetOn(free, call, limit);
                        }));
  auto state = std::make_shared<GroupState>(world, index, std::move(ranks));
  MR_RETURN_IF_ERROR(state->Open(Left(end)));
  {
    MutexLock lock(&state->mu);
    MR_RETURN_IF_ERROR(state->exchange->Meet(call, Left(end)).status());
  }
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(state)));
}

StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::Subset(std::span<const int> ranks) {
  if (size() != state_->world->size) {
    return errors::FailedPrecondition("groups are made of the group of all ranks");
  }
  const std::string text = StrCat("Subset of ranks {", StrJoin(ranks, ","), "}");
  Status status;
  for (std::size_t i = 0; i < ranks.size() && status.ok(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size()) {
      status = errors::InvalidArgument("there is no rank ", ranks[i], " among ", size());
    } else if (i > 0 && ranks[i] <= ranks[i - 1]) {
      status = errors::InvalidArgument("rank ", ranks[i], " is named behind rank ", ranks[i - 1]);
    }
  }
  if (ranks.empty()) status = errors::InvalidArgument("a group needs a rank");
  MutexLock lock(&state_->mu);
  // Numbers are taken everywhere, whatever comes of it, so that they stay the same.
  const StatusOr<int> index = NextGroupNumber(state_->world->server.target);
  status.Update(index.status());
  MR_RETURN_IF_ERROR(state_
                         ->Agree(status.ok() ? MakeCall(StrCat(text, " as group ", *index), {}, "")
                                             : RefusedCall(text, status))
                         .status());
  auto state =
      std::make_shared<GroupState>(state_->world, *index, std::vector(ranks.begin(), ranks.end()));
  MR_RETURN_IF_ERROR(state->Open(state->limit));
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(state)));
}

int ProcessGroup::rank() const { return state_->rank; }
int ProcessGroup::size() const { return state_->size(); }
const std::vector<int>& ProcessGroup::ranks() const { return state_->ranks; }
int ProcessGroup::local_rank() const { return state_->world->local_rank; }
int ProcessGroup::local_size() const { return state_->world->local_size; }
std::string ProcessGroup::target() const { return state_->world->server.target; }

Status ProcessGroup::ConfigureSession(SessionOptions* options) const {
  const World& world = *state_->world;
  if (world.server.target.empty()) return OkStatus();
  if (!options->target.empty() && options->target != world.server.target) {
    return errors::InvalidArgument("SessionOptions.target is ", options->target,
                                   ", and this rank opens its sessions at ", world.server.target,
                                   ": leave the option out, or give ProcessGroupOptions.target");
  }
  options->target = world.server.target;
  if (options->device_filters.empty()) {
    options->device_filters = {world.members[static_cast<std::size_t>(world.rank)].task};
  }
  return OkStatus();
}

Status ProcessGroup::Barrier(std::string_view name) {
  MutexLock lock(&state_->mu);
  return state_->Agree(MakeCall("Barrier", {}, name)).status();
}

Status ProcessGroup::Explain(const Status& error) const {
  return error.ok() || state_->exchange == nullptr ? error : state_->exchange->Explain(error);
}

}  // namespace millrace
