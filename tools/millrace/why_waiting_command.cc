// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/why_waiting_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "distributed_runtime/service/control_service.h"
#include "millrace/cluster.h"
#include "session/wait_report.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFooter[] =
    R"(Asks the task at TARGET (grpc://host:port or host:port), which asks all tasks of its cluster, and
prints what every step waits for, the likeliest culprit first: tasks that do not answer, kernels
and loops that do not end, then gradients, members of collectives, turns and elements that nobody
brings, and last values of tasks that wait themselves. Nothing is stopped or changed.

The exit code is 0, also if nothing waits, 1 if the task at TARGET does not answer,
and 2 if TARGET is no address.

Example: millrace why-waiting grpc://ps0:2222 --json)";

struct Flags {
  std::string target;
  double timeout = 5;
  bool as_json = false;
};

Json ToJson(const pb::Wait& wait) {
  Json json;
  std::string kind = pb::Wait::Kind_Name(wait.kind());
  std::transform(kind.begin(), kind.end(), kind.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  json["task"] = wait.task();
  json["kind"] = kind;
  json["text"] = wait.text();
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) json[name] = value;
  };
  add("node", wait.node());
  add("op", wait.op());
  add("device", wait.device());
  add("line", wait.origin());
  add("name", wait.name());
  add("peer", wait.peer());
  if (wait.seconds() > 0) json["seconds"] = wait.seconds();
  if (wait.step_id() != 0) json["step"] = wait.step_id();
  return json;
}

std::string JsonText(const pb::WaitReport& report) {
  Json json;
  json["asked"] = Json::array();
  for (const std::string& task : report.asked()) json["asked"].push_back(task);
  json["waits"] = Json::array();
  for (const pb::Wait& wait : report.wait()) json["waits"].push_back(ToJson(wait));
  json["left_out"] = report.left_out();
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Text(const pb::WaitReport& report) {
  if (report.wait_size() == 0) {
    return "no step waits for anything in " + std::to_string(report.asked_size()) + " task(s)\n";
  }
  return "waiting for, culprit first:" +
         WaitLines(report, static_cast<std::size_t>(report.wait_size())) + "\n";
}

int WhyWaiting(const Flags& flags) {
  constexpr std::string_view kScheme = "grpc://";
  std::string address = flags.target, host;
  if (address.starts_with(kScheme)) address.erase(0, kScheme.size());
  int port = 0;
  if (const Status status = SplitAddress(address, &host, &port); !status.ok()) {
    return Complain("why-waiting", status, 2);
  }
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(flags.timeout));
  const StatusOr<pb::WaitReport> report = GetWhyWaiting(address, DeadlineAfter(limit));
  if (!report.ok()) {
    return Complain("why-waiting", report.status(), 1);
  }
  std::fputs((flags.as_json ? JsonText(*report) : Text(*report)).c_str(), stdout);
  return 0;
}

}  // namespace

void AddWhyWaitingCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command =
      app->add_subcommand("why-waiting", "say what the steps of a running cluster wait for");
  command->add_option("target", flags->target, "a task of the cluster: grpc://host:port")
      ->required();
  command->add_option("--timeout", flags->timeout, "seconds for all answers (5)")
      ->check(CLI::Range(0.1, 50.0));
  command->add_flag("--json", flags->as_json, "for programs");
  command->footer(kFooter);
  command->callback([flags, chosen] { *chosen = [flags] { return WhyWaiting(*flags); }; });
}

}  // namespace millrace
