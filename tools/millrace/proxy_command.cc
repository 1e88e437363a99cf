// `millrace proxy`: lets clients in that know no certificates, on this host alone.
#include "tools/millrace/proxy_command.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"
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
  // Signals are taken by this thread alone; gRPC's threads inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<CallProxy> proxy, CallProxy::Start(options));
  MR_LOG(kInfo, "passing calls to grpc://", proxy->address(), " on to ", flags.target);
  int number = 0;
  sigwait(&signals, &number);
  MR_LOG(kInfo, "stopping");
  // A second signal ends the process at once.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
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
  command->add_option("--tls_cert", flags->credentials.tls_cert, "PEM file with a certificate")
      ->envname("MILLRACE_TLS_CERT");
  command->add_option("--tls_key", flags->credentials.tls_key, "PEM file with its private key")
      ->envname("MILLRACE_TLS_KEY");
  command
      ->add_option("--tls_ca", flags->credentials.tls_ca,
                   "PEM file with the authorities whose certificates are believed")
      ->envname("MILLRACE_TLS_CA");
  command
      ->add_option("--token_file", flags->credentials.token_file,
                   "file (mode 0600) with the secret of the cluster")
      ->envname("MILLRACE_TOKEN_FILE");
  command->footer(kFooter);
}

}  // namespace millrace
