// SPDX-License-Identifier: Apache-2.0
// `millrace page`: a page of a task without a browser, over the connection that all calls use.
#include <CLI/CLI.hpp>
#include <memory>

#include "base/errors.h"
#include "base/strings.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags {
  std::string target, path = "/statusz", output;
  double timeout = 10;  // a page of a large graph takes longer than metrics
};

int Run(const Flags& flags) {
  const StatusOr<std::string> address = AddressOf(flags.target);
  if (!address.ok()) return Complain("page", address.status(), kWrongInput);
  const Status writable = CheckOutput(flags.output);
  if (!writable.ok()) return Complain("page", writable, kWrongInput);
  const StatusOr<std::string> page = ReadPageOf(*address, flags.path, Nanoseconds(flags.timeout));
  if (errors::IsDeadlineExceeded(page.status())) {
    return Complain("page", Annotate(page.status(), StrCat(" of ", *address, " (--timeout)")),
                    kImpossible);
  }
  if (!page.ok()) return Complain("page", page.status(), kImpossible);
  return Write("page", flags.output, *page);
}

}  // namespace

void AddPageCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "page", "print a page of a task: /metrics, /statusz, /stepz, /rpcz, /memz, /graphz",
      [flags] { return Run(*flags); }, chosen);
  command->add_option("target", flags->target, "grpc://host:port of the task")->required();
  command->add_option("path", flags->path, "which page")->capture_default_str();
  AddTimeoutFlag(command, &flags->timeout);
  command->add_option("-o,--output", flags->output, "file (default: standard output)");
}

}  // namespace millrace
