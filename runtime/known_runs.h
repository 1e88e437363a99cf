// SPDX-License-Identifier: Apache-2.0
// The requests that a session has seen before: by the handles of their feeds, fetches and targets,
// so that a repeated one makes no name and looks none up.
#ifndef RUNTIME_KNOWN_RUNS_H_
#define RUNTIME_KNOWN_RUNS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "millrace/session.h"
#include "runtime/feed_spec.h"
#include "session/client_session.h"

namespace millrace {

// Of one session, whose outputs and operations they all are. Thread-safe.
class KnownRuns {
 public:
  struct Known {
    std::vector<FeedSpec> feeds;
    std::shared_ptr<PreparedRun> run;  // null: it is run by name
  };

  // Null if it is not known. Stays valid as long as this object. Takes no memory.
  const Known* Find(std::span<const Feed> feeds, std::span<const Output> fetches,
                    std::span<const Operation> targets) const;
  // To be told of every request that went well and was not known. Prepares it for the next time,
  // if its session's master can.
  void Remember(ClientSession* session, std::span<const Feed> feeds,
                std::span<const Output> fetches, std::span<const Operation> targets);

 private:
  struct Entry {
    std::vector<uint64_t> request;
    Known known;
  };
  mutable Mutex mu_;
  int num_entries_ ABSL_GUARDED_BY(mu_) = 0;
  // By hash of the request.
  absl::flat_hash_map<uint64_t, std::vector<std::unique_ptr<Entry>>> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // RUNTIME_KNOWN_RUNS_H_
