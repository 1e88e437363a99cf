// SPDX-License-Identifier: Apache-2.0
// The token that all processes of a cluster share.
#ifndef TRANSPORT_SECURITY_SECRET_H_
#define TRANSPORT_SECURITY_SECRET_H_

#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// Metadata of every call, where there is a token.
inline constexpr char kTokenMetadata[] = "millrace-token";

// Takes as long for any two texts of a size.
bool SameSecret(std::string_view a, std::string_view b);

// Whether nobody but this user and root can use a file that holds a secret, such as a private key;
// the group of a file of root's may read it where this process is not root's, as Kubernetes mounts
// secrets. InvalidArgument, naming the file after `what`, and what to do, if not. A file that is
// not there is no error of this.
Status CheckOwnFile(std::string_view what, const std::string& path);

// The token in a file: one line of 16 to 1024 printable characters without spaces.
// InvalidArgument, naming the file, if it is not that, not a regular file of this user (or root),
// or if others may read or write it.
StatusOr<std::string> ReadTokenFile(const std::string& path);

}  // namespace millrace

#endif  // TRANSPORT_SECURITY_SECRET_H_
