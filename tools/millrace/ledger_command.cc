// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/ledger_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "millrace/ledger.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kOutOfBalance = 3;

constexpr char kFooter[] =
    R"(Asks the task at TARGET (grpc://host:port or host:port) and all tasks of its cluster what became of the
updates of their variables: for each variable and each worker's process, how many were pushed,
applied and dropped, and how old they were. Nothing is stopped or changed. docs/ledger.md

The exit code is 0 if pushed = applied + held + dropped everywhere, 3 if not, and 1 if the task at
TARGET does not answer.

Example: millrace ledger grpc://ps0:2222 --json)";

struct Flags {
  std::string target;
  double timeout = 5;
  bool as_json = false, this_task = false;
};

const char* KindText(LedgerKind kind) {
  switch (kind) {
    case LedgerKind::kVariable:
      return "variable";
    case LedgerKind::kAccumulator:
      return "accumulator";
    case LedgerKind::kTokens:
      return "tokens";
    case LedgerKind::kBound:
      break;
  }
  return "staleness bound";
}

Json ToJson(const UpdateAccount& account, LedgerKind kind) {
  if (kind == LedgerKind::kTokens) {
    return {{"handed_out", account.handed_out}, {"taken", account.taken}};
  }
  return {{"pushed", account.pushed},
          {"applied", account.applied},
          {"held", account.held},
          {"dropped",
           {{"stale", account.stale},
            {"duplicate", account.duplicate},
            {"cancelled", account.cancelled},
            {"failed", account.failed}}},
          {"not_arrived", account.not_arrived},
          {"awaited", account.awaited},
          {"ages", account.ages},
          {"age_not_known", account.age_not_known},
          {"oldest", account.oldest},
          {"balances", account.Balances()}};
}

std::string JsonText(const Ledger& ledger) {
  Json all;
  all["balances"] = ledger.Balances();
  all["asked"] = ledger.asked;
  all["not_reached"] = ledger.not_reached;
  all["left_out"] = ledger.left_out;
  all["entries"] = Json::array();
  for (const LedgerEntry& entry : ledger.entries) {
    Json line = {{"kind", KindText(entry.kind)}, {"name", entry.name}, {"device", entry.device}};
    line["total"] = ToJson(entry.Total(), entry.kind);
    line["workers"] = Json::array();
    for (const UpdateAccount& account : entry.accounts) {
      Json worker = {{"task", account.task.empty() ? "unknown" : account.task},
                     {"incarnation", account.incarnation}};
      worker.update(ToJson(account, entry.kind));
      worker["last_step_id"] = account.last_step_id;
      line["workers"].push_back(std::move(worker));
    }
    all["entries"].push_back(std::move(line));
  }
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int PrintLedger(const Flags& flags) {
  LedgerOptions options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout * 1000));
  options.whole_cluster = !flags.this_task;
  const bool has_scheme = flags.target.starts_with("grpc://");
  const StatusOr<Ledger> ledger =
      ReadLedger(has_scheme ? flags.target : "grpc://" + flags.target, options);
  if (!ledger.ok()) {
    return Complain("ledger", ledger.status(), 1);
  }
  std::fputs((flags.as_json ? JsonText(*ledger) : LedgerToText(*ledger)).c_str(), stdout);
  return ledger->Balances() ? 0 : kOutOfBalance;
}

}  // namespace

void AddLedgerCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command =
      app->add_subcommand("ledger", "say what became of the updates of a running cluster");
  command->add_option("target", flags->target, "a task of the cluster: grpc://host:port")
      ->required();
  command->add_option("--timeout", flags->timeout, "seconds for all answers (5)")
      ->check(CLI::Range(0.1, 60.0));
  command->add_flag("--json", flags->as_json, "for programs");
  command->add_flag("--this_task", flags->this_task, "of the task at TARGET only");
  command->footer(kFooter);
  command->callback([flags, chosen] { *chosen = [flags] { return PrintLedger(*flags); }; });
}

}  // namespace millrace
