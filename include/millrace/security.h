// SPDX-License-Identifier: Apache-2.0
// Credentials for whatever in this process is given none. docs/security.md
#ifndef MILLRACE_SECURITY_H_
#define MILLRACE_SECURITY_H_

#include "millrace/credentials.h"
#include "millrace/status.h"

namespace millrace {

// For the servers and sessions whose options have no credentials, and for ShutdownTask, from now
// on. Until it is called, MILLRACE_TLS_CERT, MILLRACE_TLS_KEY, MILLRACE_TLS_CA and
// MILLRACE_TOKEN_FILE in the environment say the same; without any of them there is neither
// encryption nor proof.
//
// InvalidArgument, naming the file and what to do, if only some of the three files of TLS are
// given, if one cannot be used (unreadable, expired, of another key or authority, naming nobody),
// or if the token cannot be one; the credentials are then those of before. Thread-safe.
Status SetDefaultCredentials(const Credentials& credentials);

}  // namespace millrace

#endif  // MILLRACE_SECURITY_H_
