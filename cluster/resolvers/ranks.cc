// SPDX-License-Identifier: Apache-2.0
// Launchers that tell a process its rank and not where the others are: MPI's and torchrun.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/resolvers/rank_layout.h"
#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

using resolvers::RequiredNumber;

struct Ranks {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string first_host{};  // of rank 0, where the launcher says so
  int port_base = 0;
  std::string_view source{};
};

StatusOr<std::vector<std::string>> HostsOf(const Ranks& ranks, const RankOptions& options,
                                           const Environment& environment) {
  if (!options.hosts.empty()) return options.hosts;
  if (const std::optional<std::string> text = environment("MILLRACE_HOSTS")) {
    return ExpandHostList(*text);
  }
  if (ranks.local_size != ranks.size) {
    return errors::FailedPrecondition(
        ranks.source, " runs ", ranks.size, " tasks, ", ranks.local_size,
        " of them on this host, and does not tell where the others are; name the hosts in order of "
        "their ranks: MILLRACE_HOSTS=a,b");
  }
  return std::vector<std::string>{ranks.first_host};
}

StatusOr<ResolvedTask> Resolve(const Ranks& ranks, const RankOptions& options,
                               const Environment& environment) {
  if (ranks.rank >= ranks.size || ranks.local_rank >= ranks.local_size) {
    return errors::InvalidArgument(ranks.source, ": rank ", ranks.rank, " of ", ranks.size,
                                   ", on its host ", ranks.local_rank, " of ", ranks.local_size,
                                   ", cannot be");
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOf(ranks, options, environment));
  const int per_host = ranks.local_size;
  if (static_cast<int64_t>(hosts.size()) * per_host != ranks.size) {
    return errors::InvalidArgument(ranks.source, " runs ", ranks.size, " tasks, but ", hosts.size(),
                                   " hosts with ", per_host, " each are named");
  }
  const int port = options.port_base != 0 ? options.port_base : ranks.port_base;
  std::vector<std::string> addresses;
  for (const std::string& host : hosts) {
    for (int local = 0; local < per_host; ++local) {
      addresses.push_back(resolvers::JoinAddress(host, port + local));
    }
  }
  MR_ASSIGN_OR_RETURN(ResolvedTask resolved,
                      resolvers::AssignRanks(options.jobs, addresses, ranks.rank, ranks.source));
  resolved.local_rank = ranks.local_rank;
  resolved.local_size = ranks.local_size;
  return resolved;
}

}  // namespace

StatusOr<ResolvedTask> ResolveMpi(const RankOptions& options, const Environment& environment) {
  constexpr char kLauncher[] = "mpirun";
  const bool open_mpi = environment("OMPI_COMM_WORLD_RANK").has_value();
  const char* const names[2][4] = {{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}};
  const char* const* const name = names[open_mpi ? 1 : 0];
  Ranks ranks{.first_host = "127.0.0.1", .port_base = 8888, .source = "MPI"};
  MR_ASSIGN_OR_RETURN(ranks.rank, RequiredNumber(environment, name[0], 0, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.size, RequiredNumber(environment, name[1], 1, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.local_rank, RequiredNumber(environment, name[2], 0, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.local_size, RequiredNumber(environment, name[3], 1, kLauncher));
  return Resolve(ranks, options, environment);
}

StatusOr<ResolvedTask> ResolveTorchrun(const RankOptions& options, const Environment& environment) {
  constexpr char kLauncher[] = "torchrun";
  Ranks ranks{.source = "torchrun"};
  MR_ASSIGN_OR_RETURN(ranks.rank, RequiredNumber(environment, "RANK", 0, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.size, RequiredNumber(environment, "WORLD_SIZE", 1, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.local_rank, RequiredNumber(environment, "LOCAL_RANK", 0, kLauncher));
  MR_ASSIGN_OR_RETURN(ranks.local_size,
                      RequiredNumber(environment, "LOCAL_WORLD_SIZE", 1, kLauncher));
  // torchrun itself listens on MASTER_PORT.
  MR_ASSIGN_OR_RETURN(ranks.port_base, RequiredNumber(environment, "MASTER_PORT", 1, kLauncher));
  ++ranks.port_base;
  const std::optional<std::string> address = environment("MASTER_ADDR");
  if (!address.has_value() || address->empty()) {
    return errors::FailedPrecondition("MASTER_ADDR not found in environment. Not running inside ",
                                      kLauncher, "?");
  }
  ranks.first_host = *address;
  return Resolve(ranks, options, environment);
}

}  // namespace millrace
