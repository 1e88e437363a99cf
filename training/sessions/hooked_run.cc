// SPDX-License-Identifier: Apache-2.0
#include "training/sessions/hooked_run.h"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// The names of what both feed; "" if there is nothing.
std::string Conflicts(std::span<const Feed> a, std::span<const Feed> b) {
  std::vector<std::string> names;
  for (const Feed& x : a) {
    for (const Feed& y : b) {
      if (x.first == y.first) names.push_back(x.first.name());
    }
  }
  return StrJoin(names, ", ");
}

void Merge(const RunOptions& asked, RunOptions* options) {
  options->timeout = std::max(options->timeout, asked.timeout);
  options->inter_op_pool = std::max(options->inter_op_pool, asked.inter_op_pool);
  options->trace |= asked.trace;
  options->partition_graphs |= asked.partition_graphs;
}

// What a run computes for everybody, and where each hook finds its part.
struct Combined {
  SessionRunArgs args;
  std::vector<std::size_t> first_fetch;  // by hook
  std::vector<std::size_t> num_fetches;
};

StatusOr<Combined> Combine(std::span<const HookPtr> hooks, SessionRunContext& context) {
  const SessionRunArgs& caller = context.original_args();
  Combined all{.args = caller, .first_fetch = {}, .num_fetches = {}};
  std::vector<Feed> hook_feeds;
  for (const HookPtr& hook : hooks) {
    MR_ASSIGN_OR_RETURN(const SessionRunArgs asked,
                        Guarded([&] { return hook->BeforeRun(context); }));
    if (const std::string both = Conflicts(hook_feeds, asked.feeds); !both.empty()) {
      return errors::InvalidArgument("Same tensor is fed by two hooks. Conflict(s): ", both);
    }
    hook_feeds.insert(hook_feeds.end(), asked.feeds.begin(), asked.feeds.end());
    all.first_fetch.push_back(all.args.fetches.size());
    all.num_fetches.push_back(asked.fetches.size());
    all.args.fetches.insert(all.args.fetches.end(), asked.fetches.begin(), asked.fetches.end());
    all.args.targets.insert(all.args.targets.end(), asked.targets.begin(), asked.targets.end());
    Merge(asked.options, &all.args.options);
  }
  if (const std::string both = Conflicts(caller.feeds, hook_feeds); !both.empty()) {
    return errors::InvalidArgument("Same tensor is fed by a SessionRunHook and user. Conflict(s): ",
                                   both);
  }
  all.args.feeds.insert(all.args.feeds.end(), hook_feeds.begin(), hook_feeds.end());
  return all;
}

}  // namespace

StatusOr<std::vector<Tensor>> RunHooked(Session& session, std::span<const HookPtr> hooks,
                                        const SessionRunArgs& args,
                                        std::chrono::milliseconds timeout, RunMetadata* metadata,
                                        bool* stop) {
  SessionRunContext context(args, session);
  MR_ASSIGN_OR_RETURN(Combined all, Combine(hooks, context));
  if (all.args.options.timeout.count() == 0) all.args.options.timeout = timeout;
  RunMetadata own;
  if (metadata == nullptr) metadata = &own;
  MR_ASSIGN_OR_RETURN(
      std::vector<Tensor> results,
      session.Run(all.args.feeds, all.args.fetches, all.args.targets, all.args.options, metadata));
  Status status;
  for (std::size_t i = 0; i < hooks.size() && status.ok(); ++i) {
    const SessionRunValues values{
        .results = std::span<const Tensor>(results).subspan(all.first_fetch[i], all.num_fetches[i]),
        .options = all.args.options,
        .metadata = *metadata};
    status = Guarded([&] { return hooks[i]->AfterRun(context, values); });
  }
  *stop = context.stop_requested();
  MR_RETURN_IF_ERROR(status);
  results.resize(args.fetches.size());
  return results;
}

}  // namespace millrace
