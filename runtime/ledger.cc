// SPDX-License-Identifier: Apache-2.0
#include "millrace/ledger.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/service/ledger_service.h"
#include "millrace/cluster.h"
#include "transport/grpc/credentials.h"

namespace millrace {
namespace {

constexpr std::string_view kScheme = "grpc://";

UpdateAccount FromProto(const pb::UpdateAccount& from) {
  UpdateAccount to;
  to.task = from.task();
  to.incarnation = from.incarnation();
  to.pushed = from.pushed();
  to.applied = from.applied();
  to.held = from.held();
  to.stale = from.stale();
  to.duplicate = from.duplicate();
  to.cancelled = from.cancelled();
  to.failed = from.failed();
  to.not_arrived = from.not_arrived();
  to.awaited = from.awaited();
  const int ages = std::min(from.ages_size(), kAgeBuckets);
  std::copy_n(from.ages().begin(), ages, to.ages.begin());
  to.age_not_known = from.age_not_known();
  to.oldest = from.oldest();
  to.handed_out = from.handed_out();
  to.taken = from.taken();
  to.last_step_id = from.last_step_id();
  return to;
}

StatusOr<LedgerKind> KindOf(const pb::LedgerEntry& entry) {
  if (pb::LedgerEntry::Kind_IsValid(entry.kind())) return static_cast<LedgerKind>(entry.kind());
  return errors::Unimplemented(
      "the ledger has an entry of a kind that this program does not know, ",
      static_cast<int>(entry.kind()), ": '", entry.name(), "'");
}

Status AddAnswer(const pb::LedgerResponse& answer, Ledger* ledger) {
  ledger->asked.push_back(answer.task());
  ledger->left_out += answer.left_out();
  for (const pb::LedgerEntry& from : answer.entry()) {
    LedgerEntry& entry = ledger->entries.emplace_back();
    MR_ASSIGN_OR_RETURN(entry.kind, KindOf(from));
    entry.name = from.name();
    entry.device = from.device();
    for (const pb::UpdateAccount& account : from.account()) {
      entry.accounts.push_back(FromProto(account));
    }
  }
  return OkStatus();
}

// As many at the same time as a process may have threads for, however long the list is.
std::vector<StatusOr<pb::LedgerResponse>> AskOthers(
    const pb::LedgerResponse& first, Deadline deadline,
    const std::shared_ptr<const LoadedCredentials>& credentials) {
  constexpr int kMostThreads = 64;
  std::vector<StatusOr<pb::LedgerResponse>> answers(static_cast<std::size_t>(first.other_size()),
                                                    errors::Unknown("not asked"));
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < std::min(kMostThreads, first.other_size()); ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < first.other_size(); i = next++) {
        answers[static_cast<std::size_t>(i)] =
            GetLedger(first.other(i).address(), deadline, credentials);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

// --- Text -------------------------------------------------------------------------------------

constexpr std::size_t kColumns = 13;
using Line = std::array<std::string, kColumns>;

// "/job:worker/replica:0/task:1" as people say it.
std::string ShortTask(const UpdateAccount& account) {
  if (account.task.empty()) return "unknown";
  std::string text = account.task;
  const std::size_t replica = text.find("/replica:0");
  if (replica != std::string::npos) text.erase(replica, std::string_view("/replica:0").size());
  if (account.incarnation != 0) StrAppend(&text, " ", Hex16(account.incarnation).substr(0, 6));
  return text;
}

// The age that so great a part of the updates does not exceed, as far as buckets tell.
std::string AgeAt(const UpdateAccount& account, double part) {
  int64_t known = 0, below = 0;
  for (const int64_t count : account.ages) known += count;
  if (known == 0) return "";
  for (int i = 0; i < kAgeBuckets; ++i) {
    below += account.ages[i];
    if (static_cast<double>(below) < part * static_cast<double>(known)) continue;
    return StrCat(std::min(account.oldest, i == 0 ? int64_t{0} : int64_t{1} << (i - 1)));
  }
  return StrCat(account.oldest);
}

Line MakeLine(std::string name, std::string worker, const UpdateAccount& a) {
  return {std::move(name),  std::move(worker),     StrCat(a.pushed),    StrCat(a.applied),
          StrCat(a.held),   StrCat(a.stale),       StrCat(a.duplicate), StrCat(a.cancelled),
          StrCat(a.failed), StrCat(a.not_arrived), StrCat(a.awaited),   AgeAt(a, 0.5),
          StrCat(a.oldest)};
}

std::string Aligned(const std::vector<Line>& lines) {
  std::array<std::size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      StrAppend(&row, i == 0 ? "" : "  ", i < 2 ? line[i] + padding : padding + line[i]);
    }
    text += row + "\n";
  }
  return text;
}

std::string Table(const Ledger& ledger, LedgerKind kind, std::string_view title) {
  std::vector<Line> lines = {{std::string(title), "worker", "pushed", "applied", "held", "stale",
                              "duplicate", "cancelled", "failed", "not arrived", "awaited",
                              "median age", "oldest"}};
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.kind != kind) continue;
    for (const UpdateAccount& account : entry.accounts) {
      lines.push_back(MakeLine(&account == entry.accounts.data() ? entry.name : std::string(),
                               ShortTask(account), account));
    }
  }
  if (lines.size() == 1) return "";
  const UpdateAccount total = ledger.Total(kind);
  lines.push_back(MakeLine("all", "", total));
  std::string text = Aligned(lines);
  StrAppend(&text, total.pushed, " pushed ", total.Balances() ? "=" : "IS NOT", " ", total.applied,
            " applied + ", total.held, " held + ", total.dropped(), " dropped\n\n");
  return text;
}

std::string Tokens(const Ledger& ledger) {
  std::string text;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.kind != LedgerKind::kTokens) continue;
    const UpdateAccount total = entry.Total();
    StrAppend(&text, "tokens of ", entry.name, ": ", total.handed_out, " handed out, ", total.taken,
              " taken\n");
    for (const UpdateAccount& account : entry.accounts) {
      StrAppend(&text, "  ", ShortTask(account), ": ", account.handed_out, " handed out, ",
                account.taken, " taken\n");
    }
  }
  return text;
}

}  // namespace

void UpdateAccount::Add(const UpdateAccount& other) {
  pushed += other.pushed;
  applied += other.applied;
  held += other.held;
  stale += other.stale;
  duplicate += other.duplicate;
  cancelled += other.cancelled;
  failed += other.failed;
  not_arrived += other.not_arrived;
  awaited += other.awaited;
  for (std::size_t i = 0; i < ages.size(); ++i) ages[i] += other.ages[i];
  age_not_known += other.age_not_known;
  oldest = std::max(oldest, other.oldest);
  handed_out += other.handed_out;
  taken += other.taken;
}

UpdateAccount LedgerEntry::Total() const {
  UpdateAccount total;
  for (const UpdateAccount& account : accounts) total.Add(account);
  return total;
}

UpdateAccount Ledger::Total(LedgerKind kind) const {
  UpdateAccount total;
  for (const LedgerEntry& entry : entries) {
    if (entry.kind == kind) total.Add(entry.Total());
  }
  return total;
}

bool Ledger::Balances() const {
  for (const LedgerEntry& entry : entries) {
    for (const UpdateAccount& account : entry.accounts) {
      if (!account.Balances()) return false;
    }
  }
  return true;
}

StatusOr<Ledger> ReadLedger(const std::string& target, const LedgerOptions& options) {
  if (!target.starts_with(kScheme)) {
    return errors::InvalidArgument("'", target, "' is not of the form grpc://host:port");
  }
  const std::string address = target.substr(kScheme.size());
  std::string host;
  int port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(address, &host, &port));
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedCredentials> credentials,
                      CredentialsOrDefault(options.credentials));
  const Deadline deadline = DeadlineAfter(options.timeout);
  MR_ASSIGN_OR_RETURN(const pb::LedgerResponse first, GetLedger(address, deadline, credentials));
  Ledger ledger;
  MR_RETURN_IF_ERROR(AddAnswer(first, &ledger));
  if (!options.whole_cluster) return ledger;
  const std::vector<StatusOr<pb::LedgerResponse>> answers = AskOthers(first, deadline, credentials);
  for (int i = 0; i < first.other_size(); ++i) {
    const StatusOr<pb::LedgerResponse>& answer = answers[static_cast<std::size_t>(i)];
    if (answer.ok()) {
      MR_RETURN_IF_ERROR(AddAnswer(*answer, &ledger));
    } else {
      ledger.not_reached.push_back(StrCat(first.other(i).task(), ": ", Message(answer.status())));
    }
  }
  return ledger;
}

std::string LedgerToText(const Ledger& ledger) {
  std::string text;
  StrAppend(&text, Table(ledger, LedgerKind::kVariable, "variable"),
            Table(ledger, LedgerKind::kAccumulator, "accumulator"),
            Table(ledger, LedgerKind::kBound, "staleness bound"), Tokens(ledger));
  for (const std::string& task : ledger.not_reached) StrAppend(&text, "not reached: ", task, "\n");
  if (ledger.left_out > 0) StrAppend(&text, ledger.left_out, " updates are of names left out\n");
  if (ledger.entries.empty()) StrAppend(&text, "no updates at ", ledger.asked.size(), " tasks\n");
  if (!ledger.Balances()) StrAppend(&text, "AN ACCOUNT DOES NOT BALANCE: this is a defect\n");
  return text;
}

}  // namespace millrace
