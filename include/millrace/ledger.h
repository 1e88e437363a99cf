// SPDX-License-Identifier: Apache-2.0
// What became of every update that workers brought to the variables of a job. docs/ledger.md
#ifndef MILLRACE_LEDGER_H_
#define MILLRACE_LEDGER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/credentials.h"
#include "millrace/status.h"

namespace millrace {

// What an entry accounts for.
enum class LedgerKind {
  kVariable,     // updates by the ops of optimizers and by additions to rows
  kAccumulator,  // gradients of synchronous training
  kTokens,       // a queue of tokens of synchronous training
  kBound,        // steps that updated within a staleness bound
};
// Number of kinds in LedgerKind.
inline constexpr int kLedgerKinds = 4;

// Bucket 0 counts age 0, bucket i ages above 2^(i-2) up to 2^(i-1), the last whatever is older.
inline constexpr int kAgeBuckets = 12;

// Of one process of one task, with one variable. Counts of updates since the server started.
struct UpdateAccount {
  std::string task{};        // whose master ran the steps: "/job:J/replica:0/task:T"; "": not known
  uint64_t incarnation = 0;  // of its process; 0: not known
  // That came to their op. Each has one fate, of those that follow.
  int64_t pushed = 0;
  int64_t applied = 0;    // to the variable, or, from an accumulator, in an average that was taken
  int64_t held = 0;       // in an accumulator still
  int64_t stale = 0;      // dropped: of an older step than the accumulator collects
  int64_t duplicate = 0;  // dropped: the step had been run before
  int64_t cancelled = 0;  // dropped: the step, or the accumulator, was given up by then
  int64_t failed = 0;     // dropped: did not fit
  // That did not come to their op: of steps that failed before, and of steps that run.
  int64_t not_arrived = 0, awaited = 0;  // expected by steps that run
  // How old updates were: for a variable, by how many updates of other steps since the step began
  // at its server, counted up to 1024; for an accumulator, by how many global steps.
  std::array<int64_t, kAgeBuckets> ages{};
  int64_t age_not_known = 0;  // applied ones that no step of a session began
  int64_t oldest = 0;         // greatest age, in the unit of `ages`
  // Tokens that were put into the queue.
  int64_t handed_out = 0, taken = 0;  // tokens, into and out of the queue
  int64_t last_step_id = 0;           // of what was pushed last

  // Updates that came and were not used: the sum of the four counts marked "dropped".
  int64_t dropped() const { return stale + duplicate + cancelled + failed; }
  // pushed = applied + held + dropped
  bool Balances() const { return pushed == applied + held + dropped(); }
  // The sums; the older of both ages. Task and step remain.
  void Add(const UpdateAccount& other);
};

// The accounts of one variable, accumulator, queue or bound.
struct LedgerEntry {
  LedgerKind kind = LedgerKind::kVariable;  // what the counts are of
  std::string name{};                       // of the variable or resource
  std::string device{};                     // where it is
  std::vector<UpdateAccount> accounts{};    // one for each process that brought updates

  // The sum of the accounts, with no task; ages as UpdateAccount::Add says.
  UpdateAccount Total() const;
};

// What ReadLedger has found.
struct Ledger {
  std::vector<LedgerEntry> entries{};      // by device, kind and name
  std::vector<std::string> asked{};        // tasks that answered
  std::vector<std::string> not_reached{};  // "TASK: why"; what they know is not here
  int64_t left_out = 0;                    // of names beyond those that a device keeps

  // The sum of all entries of a kind; zeros if there are none.
  UpdateAccount Total(LedgerKind kind) const;
  bool Balances() const;  // every account does
};

// How ReadLedger asks.
struct LedgerOptions {
  std::chrono::milliseconds timeout{5000};  // for all tasks together
  Credentials credentials{};                // empty: those of the process
  bool whole_cluster = true;                // false: of the one task only
};

// Asks the task at "grpc://host:port", and all others of its cluster, at the same time. Nothing is
// stopped: an entry is exact by itself, those of different tasks are not of one moment. Blocks for
// `timeout` at most. InvalidArgument for another target; Unavailable, DeadlineExceeded or
// PermissionDenied, naming the address, if the first task does not answer. Thread-safe.
StatusOr<Ledger> ReadLedger(const std::string& target, const LedgerOptions& options = {});

// A table for people, with the sum of each kind and whether the accounts balance.
std::string LedgerToText(const Ledger& ledger);

}  // namespace millrace

#endif  // MILLRACE_LEDGER_H_
