// SPDX-License-Identifier: Apache-2.0
// `millrace proxy`: lets clients in that know no certificates, on this host alone.
#include "tools/millrace/proxy_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tools/millrace/credential_flags.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"
#include "tools/millrace/stop_signals.h"
#include "transport/grpc/call_proxy.h"
#include "transport/grpc/credentials.h"

namespace millrace {
namespace {

constexpr char kFooter[] =
    "TensorFlow's clients know neither TLS nor tokens. With\n"
    "  millrace proxy grpc://10.0.0.1:2222 --listen=127.0.0.1:4000 \\\n"
    "      --tls_cert=certs/client.pem --tls_key=certs/client.key --tls_ca=certs/ca.pem\n"
    "tf.compat.v1.Session(\"grpc://127.0.0.1:4000\") is a session at 10.0.0.1:2222. Whoever can\n"
    "connect to the proxy's port has the rights of its certificate and token: every process of\n"
    "this host, so use a network namespace where that is too many.";

struct Flags {
  std::string target, listen = "127.0.0.1:0";
  Credentials credentials;
};

// Until a signal ends it.
Status Serve(const Flags& flags) {
  CallProxyOptions options;
  MR_ASSIGN_OR_RETURN(options.target, AddressOf(flags.target));
  options.listen = flags.listen;
  if (flags.credentials.empty()) {
    return errors::InvalidArgument(
        "a proxy shows somebody's certificate or token: use --tls_cert, --tls_key and --tls_ca, or "
        "--token_file (a server that asks for neither is called directly)");
  }
  MR_ASSIGN_OR_RETURN(options.credentials, LoadedCredentials::Load(flags.credentials));
  StopSignals signals;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<CallProxy> proxy, CallProxy::Start(options));
  MR_LOG(kInfo, "passing calls to grpc://", proxy->address(), " on to ", flags.target);
  signals.Wait();
  return OkStatus();
}

int Run(const Flags& flags) {
  const Status status = Serve(flags);
  if (status.ok()) return kDone;
  return Complain("proxy", status, errors::IsInvalidArgument(status) ? kWrongInput : kImpossible);
}

}  // namespace

void AddProxyCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "proxy", "let clients without certificates reach a task, from this host alone",
      [flags] { return Run(*flags); }, chosen);
  command->add_option("target", flags->target, "grpc://host:port of the task")->required();
  command
      ->add_option(
          "--listen", flags->listen,
          "address of loopback to listen on; port 0: one that is free, which the log names")
      ->capture_default_str();
  AddCredentialFlags(command, &flags->credentials,
                     "PEM file with the certificate that is shown to the task",
                     "file (mode 0600) with the secret of the cluster");
  command->footer(kFooter);
}

}  // namespace millrace
