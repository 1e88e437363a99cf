// SPDX-License-Identifier: Apache-2.0
// One task of the jobs that the failure cells are tried on: docs/failures.md, "The table".
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/fault/cells/task_flags.h"

namespace millrace::testing {

StatusOr<TaskFlags> ParseTaskFlags(int argc, char** argv) {
  TaskFlags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string_view::npos) {
      return errors::InvalidArgument("'", argument, "' is not --name=value");
    }
    const std::string_view name = argument.substr(2, equals - 2);
    const std::string value(argument.substr(equals + 1));
    const auto millis = [&value] { return std::chrono::milliseconds(std::atoll(value.c_str())); };
    if (name == "role") {
      flags.role = value;
    } else if (name == "index") {
      flags.index = std::atoi(value.c_str());
    } else if (name == "spec") {
      flags.spec = value;
    } else if (name == "target") {
      flags.target = value;
    } else if (name == "reads") {
      flags.reads = value;
    } else if (name == "sync") {
      flags.sync = value == "1";
    } else if (name == "peer_timeout_ms") {
      flags.peer_timeout = millis();
    } else if (name == "step_timeout_ms") {
      flags.step_timeout = millis();
    } else if (name == "ready_timeout_ms") {
      flags.ready_timeout = millis();
    } else {
      return errors::InvalidArgument("there is no flag --", name);
    }
  }
  return flags;
}

StatusOr<std::unique_ptr<Server>> StartTask(const TaskFlags& flags) {
  ServerOptions options;
  MR_ASSIGN_OR_RETURN(options.cluster, ClusterSpec::Parse(flags.spec));
  options.job_name = flags.role == "ps" ? "ps" : "worker";
  options.task_index = flags.index;
  options.insecure = true;  // the addresses are those of a network of the test's own
  options.inter_op_threads = 2;
  options.intra_op_threads = 1;
  options.peer_timeout = flags.peer_timeout;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Create(options));
  MR_RETURN_IF_ERROR(server->Start());
  return server;
}

void Reporter::Begin() { begun_ = std::chrono::steady_clock::now(); }
void Reporter::Step(int64_t global_step, float loss) {
  Print("step", global_step, loss, OkStatus());
}
void Reporter::Ready() { Print("ready", 0, 0, OkStatus()); }
void Reporter::Error(const char* kind, const Status& status) { Print(kind, 0, 0, status); }

void Reporter::Print(const char* kind, int64_t step, float loss, const Status& status) const {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> at = now.time_since_epoch(), took = now - begun_;
  std::string text(Message(status));
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  std::printf("@ %s %.4f %.4f %lld %g %s %s\n", kind, at.count(), took.count(),
              static_cast<long long>(step), static_cast<double>(loss),
              std::string(StatusCodeName(status.code())).c_str(), text.c_str());
  std::fflush(stdout);
}

namespace {

Status RunPs(const TaskFlags& flags) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, StartTask(flags));
  Reporter().Ready();
  server->WaitForShutdown();
  return OkStatus();
}

Status RunRole(int argc, char** argv) {
  MR_ASSIGN_OR_RETURN(const TaskFlags flags, ParseTaskFlags(argc, argv));
  if (flags.role == "ps") return RunPs(flags);
  if (flags.role == "worker") return RunTrainingWorker(flags);
  if (flags.role == "reader") return RunReader(flags);
  if (flags.role == "member") return RunMember(flags);
  return errors::InvalidArgument("there is no role '", flags.role, "'");
}

}  // namespace
}  // namespace millrace::testing

int main(int argc, char** argv) {
  const millrace::Status status = millrace::testing::RunRole(argc, argv);
  std::fprintf(stderr, "ended: %s\n", status.ToString().c_str());
  return 1;
}
