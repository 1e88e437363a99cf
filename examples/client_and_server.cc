// SPDX-License-Identifier: Apache-2.0
// A server that keeps a counter, and clients that add to it. With no argument both are in one
// process; `client_and_server grpc://HOST:PORT N` is a client of a server elsewhere, such as
// `millrace server --cluster_spec='worker|127.0.0.1:2222' --insecure`.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "millrace/core.h"

namespace mr = millrace;

// Adds `amount` to the variable "counter" of the server, which outlives every session, and returns
// what it is then.
mr::StatusOr<float> Add(const std::string& target, float amount) {
  mr::Graph graph;
  const mr::Scope worker = graph.root().WithDevice("/job:worker/task:0");
  const mr::Variable counter = mr::MakeVariable(worker, "counter", mr::Zeros(worker, {}));
  const mr::Output is_there = mr::IsInitialized(worker, counter);
  const mr::Operation add = mr::AssignAdd(worker, counter, amount);
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph, {.target = target}));
  MR_ASSIGN_OR_RETURN(const mr::Tensor known, session.Eval(is_there));
  if (!known.scalar<bool>()) MR_RETURN_IF_ERROR(session.RunTargets({counter.initializer}));
  MR_RETURN_IF_ERROR(session.RunTargets({add}));
  MR_ASSIGN_OR_RETURN(const mr::Tensor value, session.Eval(counter.read));
  return value.scalar<float>();
}

// A cluster of one task at a port that is free. Only this host reaches a loopback address; others
// ask for credentials (docs/security.md).
mr::StatusOr<std::unique_ptr<mr::Server>> StartServer() {
  mr::ServerOptions options;
  MR_RETURN_IF_ERROR(options.cluster.AddJob("worker", {"127.0.0.1:0"}));
  options.job_name = "worker";
  MR_ASSIGN_OR_RETURN(std::unique_ptr<mr::Server> server, mr::Server::Create(options));
  MR_RETURN_IF_ERROR(server->Start());
  return server;
}

mr::Status Run(int argc, char** argv) {
  if (argc > 2) {
    MR_ASSIGN_OR_RETURN(const float now, Add(argv[1], std::strtof(argv[2], nullptr)));
    std::printf("the counter is %g\n", now);
    return mr::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<mr::Server> server, StartServer());
  MR_ASSIGN_OR_RETURN(const float first, Add(server->target(), 40));
  MR_ASSIGN_OR_RETURN(const float second, Add(server->target(), 2));
  std::printf("one client made it %g, the next %g\n", first, second);
  return second == 42 ? mr::OkStatus()
                      : mr::Status(mr::StatusCode::kInternal, "the counter was lost");
}

int main(int argc, char** argv) {
  const mr::Status status = Run(argc, argv);
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
