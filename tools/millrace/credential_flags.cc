// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/credential_flags.h"

#include <CLI/CLI.hpp>
#include <string>

namespace millrace {

void AddCredentialFlags(CLI::App* command, Credentials* credentials, const char* certificate,
                        const char* token) {
  const auto add = [command](const char* flag, std::string* file, const char* what,
                             const char* variable) {
    command->add_option(flag, *file, what)->envname(variable);
  };
  add("--tls_cert", &credentials->tls_cert, certificate, "MILLRACE_TLS_CERT");
  add("--tls_key", &credentials->tls_key, "PEM file with its private key", "MILLRACE_TLS_KEY");
  add("--tls_ca", &credentials->tls_ca,
      "PEM file with the authorities whose certificates are believed", "MILLRACE_TLS_CA");
  add("--token_file", &credentials->token_file, token, "MILLRACE_TOKEN_FILE");
}

}  // namespace millrace
