// SPDX-License-Identifier: Apache-2.0
#include "millrace/security.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "transport/grpc/credentials.h"

namespace millrace {

Status SetDefaultCredentials(const Credentials& credentials) {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const LoadedCredentials> loaded,
                      LoadedCredentials::Load(credentials));
  SetLoadedCredentials(std::move(loaded));
  return OkStatus();
}

}  // namespace millrace
