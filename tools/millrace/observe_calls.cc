// SPDX-License-Identifier: Apache-2.0
// What the subcommands that look at a running cluster ask of its tasks.
#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "distributed_runtime/service/observe_service.h"
#include "millrace/cluster.h"
#include "tools/millrace/observe_commands.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kPageLimit(60);

}  // namespace

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

StatusOr<std::string> ReadPageOf(const std::string& address, const std::string& path) {
  MR_ASSIGN_OR_RETURN(Page page, ReadPage(address, path, DeadlineAfter(kPageLimit)));
  if (page.status == 200) return std::move(page.body);
  return errors::NotFound("the task at ", address, " has no page ", path, " (", page.status, ")");
}

}  // namespace millrace
