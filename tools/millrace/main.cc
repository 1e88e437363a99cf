// SPDX-License-Identifier: Apache-2.0
// The `millrace` command: one subcommand per task that people have.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "base/text/log_format.h"
#include "millrace/credentials.h"
#include "millrace/security.h"
#include "millrace/status.h"
#include "millrace/version.h"
#include "tools/millrace/certs_command.h"
#include "tools/millrace/ckpt_command.h"
#include "tools/millrace/credential_flags.h"
#include "tools/millrace/devices_command.h"
#include "tools/millrace/flag_texts.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/ledger_command.h"
#include "tools/millrace/model_command.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"
#include "tools/millrace/proxy_command.h"
#include "tools/millrace/run_command.h"
#include "tools/millrace/server_command.h"
#include "tools/millrace/shell_pages.h"
#include "tools/millrace/why_waiting_command.h"

namespace {

// What is on its way to standard output may fail to arrive: the disk is full, the descriptor
// closed.
int AfterFlush(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush()) return code;
  millrace::WriteBesideLog(
      millrace::LogLevel::kError,
      millrace::StrCat("millrace: cannot write to standard output: ", std::strerror(errno), "\n"));
  return code == 0 ? 1 : code;
}

// Of every command. An environment variable carries it to the log and to programs that are started.
void AddLogFlag(CLI::App* app) {
  const std::function<void(const std::string&)> set = [](const std::string& format) {
    setenv("MILLRACE_LOG_FORMAT", format.c_str(), 1);
  };
  app->add_option_function("--log_format", set,
                           "log lines as text or as JSON, one object a line (default: what "
                           "MILLRACE_LOG_FORMAT says, text without it)")
      ->check(CLI::IsMember({"text", "json"}));
  for (CLI::App* const command : app->get_subcommands(nullptr)) AddLogFlag(command);
}

// Of commands that call tasks and have no such flags of their own: the flags that errors speak of.
void AddCallersFlags(CLI::App* app, millrace::Credentials* credentials) {
  for (CLI::App* const command : app->get_subcommands(nullptr)) {
    for (const std::string_view name :
         {"page", "top", "trace", "profile", "doctor", "why-waiting", "ledger"}) {
      if (command->get_name() != name) continue;
      millrace::AddCredentialFlags(command, credentials,
                                   "PEM file with the certificate of whoever asks: of a task or an "
                                   "administrator (millrace certs; docs/security.md)",
                                   "file with the token of the cluster");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Millrace: dataflow graphs on one or many machines.", "millrace");
  app.set_version_flag("--version", "millrace " MILLRACE_VERSION " (compiler " __VERSION__ ")");
  app.require_subcommand(1);
  std::function<int()> chosen;
  millrace::AddServerCommand(&app, &chosen);
  millrace::AddRunCommand(&app, &chosen);
  millrace::AddCertsCommand(&app, &chosen);
  millrace::AddProxyCommand(&app, &chosen);
  millrace::AddDevicesCommand(&app, &chosen);
  millrace::AddPlaceCommand(&app, &chosen);
  millrace::AddWhyCommand(&app, &chosen);
  millrace::AddPartitionCommand(&app, &chosen);
  millrace::AddDumpCommand(&app, &chosen);
  millrace::AddDiffCommand(&app, &chosen);
  millrace::AddPlanCommand(&app, &chosen);
  millrace::AddCkptCommand(&app, &chosen);
  millrace::AddPageCommand(&app, &chosen);
  millrace::AddTopCommand(&app, &chosen);
  millrace::AddTraceCommands(&app, &chosen);
  millrace::AddWhyWaitingCommand(&app, &chosen);
  millrace::AddLedgerCommand(&app, &chosen);
  millrace::AddModelCommand(&app, &chosen);
  millrace::AddShellPagesCommands(&app, &chosen);
  AddLogFlag(&app);
  millrace::Credentials credentials;
  AddCallersFlags(&app, &credentials);
  std::vector<char*> arguments(argv, argv + argc);
  millrace::DropRunSeparator(&arguments);
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::Success& help) {
    return AfterFlush(app.exit(help));
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
      std::fprintf(stderr, "millrace: unknown subcommand '%s' (see millrace --help)\n", argv[1]);
      return 2;
    }
    std::fprintf(stderr, "millrace: %s (see millrace --help)\n",
                 millrace::FlagText(error.what()).c_str());
    return 2;
  }
  // With the environment alone, whoever calls a task reads it and says what is wrong.
  if (!credentials.empty()) {
    const millrace::Status taken = millrace::SetDefaultCredentials(credentials);
    if (!taken.ok()) {
      return millrace::Complain(app.get_subcommands().front()->get_name(), taken,
                                millrace::kImpossible);
    }
  }
  (void)millrace::LogIsJson();  // says so at once if MILLRACE_LOG_FORMAT is no format
  return AfterFlush(chosen());
}
