// SPDX-License-Identifier: Apache-2.0
// How tasks and clients prove who they are (docs/security.md).
#ifndef MILLRACE_CREDENTIALS_H_
#define MILLRACE_CREDENTIALS_H_

#include <string>

namespace millrace {

// Files in PEM and a token. All empty: nothing is proved, nothing is encrypted. The same struct
// serves both ends: a task shows its certificate to whom it calls and to who calls it.
struct Credentials {
  // TLS in both directions: this end's certificate (its chain), its key, and the authority that
  // signed the other end's. All three or none, else InvalidArgument. The files are read again when
  // they change.
  std::string tls_cert{};
  std::string tls_key{};  // path of this end's private key
  std::string tls_ca{};   // path of the certificates that the other end's must be signed by
  // A file that only its owner may read (mode 0600), with a secret that all tasks and clients of a
  // cluster share and that goes with every call. Without TLS whoever can listen learns it.
  std::string token_file{};

  // Whether any file of TLS is named; not whether all three are.
  bool tls() const { return !tls_cert.empty() || !tls_key.empty() || !tls_ca.empty(); }
  // Whether there is neither TLS nor a token: nothing is proved.
  bool empty() const { return !tls() && token_file.empty(); }
};

}  // namespace millrace

#endif  // MILLRACE_CREDENTIALS_H_
