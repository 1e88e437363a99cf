// SPDX-License-Identifier: Apache-2.0
// Where services put their methods, whatever calls come in through.
#ifndef TRANSPORT_METHOD_SERVER_H_
#define TRANSPORT_METHOD_SERVER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "transport/server_call.h"

namespace millrace {

// Where the handler of a method runs.
enum class RpcLane {
  // What must be answered whatever the steps do. Short, and waits for nothing.
  kControl,
  // What computes: it waits its turn behind kernels. A call that was cancelled, or whose deadline
  // has passed, while it waited is not handled any more.
  kWork,
};

class MethodServer {
 public:
  using Handler = std::function<void(ServerCall* call)>;

  // Before calls are served. `path` is "/package.Service/Method". A transport that does not carry
  // the method leaves it out: callers take another one (ConnectedChannel::Carries).
  virtual void AddMethod(std::string path, Handler handler, RpcLane lane = RpcLane::kControl) = 0;

 protected:
  virtual ~MethodServer() = default;
};

// All ways into one task: a method is added once, to each of them.
class MethodServers final : public MethodServer {
 public:
  // The servers must outlive this object.
  explicit MethodServers(std::vector<MethodServer*> servers) : servers_(std::move(servers)) {}

  void AddMethod(std::string path, Handler handler, RpcLane lane = RpcLane::kControl) override {
    for (MethodServer* server : servers_) server->AddMethod(path, handler, lane);
  }

 private:
  const std::vector<MethodServer*> servers_;
};

}  // namespace millrace

#endif  // TRANSPORT_METHOD_SERVER_H_
