// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/client_pool.h"

namespace millrace {

ThreadPool* ClientPool() {
  static auto* const pool = new ThreadPool("mr-client", 2);
  return pool;
}

}  // namespace millrace
