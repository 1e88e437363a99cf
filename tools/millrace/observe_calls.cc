// SPDX-License-Identifier: Apache-2.0
// What the subcommands that look at a running cluster ask of its tasks.
#include <CLI/CLI.hpp>
#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "distributed_runtime/service/observe_service.h"
#include "millrace/cluster.h"
#include "observe/page.h"
#include "tools/millrace/observe_commands.h"

namespace millrace {
StatusOr<std::string> AddressOf(const std::string& target) {
  constexpr std::string_view kScheme = "grpc://";
  if (!target.starts_with(kScheme)) {
    return errors::InvalidArgument("'", target, "' is not of the form grpc://host:port");
  }
  std::string address = target.substr(kScheme.size()), host;
  int port = 0;
  MR_RETURN_IF_ERROR(SplitAddress(address, &host, &port));
  return address;
}

StatusOr<std::string> ReadPageOf(const std::string& address, const std::string& path,
                                 std::chrono::nanoseconds limit) {
  StatusOr<Page> page = ReadPage(address, path, DeadlineAfter(limit));
  if (errors::IsDeadlineExceeded(page.status())) {
    return errors::DeadlineExceeded("no answer within ",
                                    DurationText(std::chrono::duration<double>(limit).count()));
  }
  MR_RETURN_IF_ERROR(page.status());
  if (page->status == 200) return std::move(page->body);
  return errors::NotFound("the task at ", address, " has no page ", path, " (", page->status, ")");
}

void AddTimeoutFlag(CLI::App* command, double* seconds) {
  command->add_option("--timeout", *seconds, "seconds for the answer of one task")
      ->check(CLI::Range(0.05, 600.0))
      ->capture_default_str();
}

std::chrono::nanoseconds Nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

}  // namespace millrace
