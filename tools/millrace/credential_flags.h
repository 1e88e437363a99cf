// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_MILLRACE_CREDENTIAL_FLAGS_H_
#define TOOLS_MILLRACE_CREDENTIAL_FLAGS_H_

#include "millrace/credentials.h"

namespace CLI {
class App;
}

namespace millrace {

// --tls_cert, --tls_key, --tls_ca and --token_file, or what the environment says in their place;
// `certificate` and `token` say what the files are of.
void AddCredentialFlags(CLI::App* command, Credentials* credentials, const char* certificate,
                        const char* token);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_CREDENTIAL_FLAGS_H_
