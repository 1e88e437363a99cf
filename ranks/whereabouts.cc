// SPDX-License-Identifier: Apache-2.0
// What is known of ranks that did not come: each says at its own task what it calls.
#include <atomic>
#include <chrono>
#include <thread>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/session.h"
#include "millrace/variables.h"
#include "ranks/exchange.h"

namespace millrace {
namespace {

// Tasks that are asked at once, and how long for.
constexpr std::size_t kThreads = 16;
constexpr std::chrono::milliseconds kPatience{1000};

struct Whereabouts {
  bool answers = false;
  int64_t number = 0;  // 0: in no call
  std::string text{};  // with 0: of the call that it has given up; "": of none
};

Whereabouts LookUp(const GroupMember& member, const std::string& variable) {
  Whereabouts found;
  Graph graph;
  const Scope scope = graph.root().WithDevice(StrCat(member.task, "/device:CPU:0"));
  const Variable said = MakeVariable(scope, variable, Constant(scope, Tensor::String("")),
                                     {.trainable = false, .use_resource = true});
  const Output value = ops::ReadVariableOp(scope, said.handle, kString);
  SessionOptions options;
  options.target = StrCat("grpc://", member.address);
  options.device_filters = {member.task};
  options.start_timeout = kPatience;
  options.step_timeout = kPatience;
  StatusOr<Session> session = Session::Create(graph, options);
  if (!session.ok()) return found;
  const StatusOr<std::vector<Tensor>> read = session->Run({}, {value});
  // A variable without a value is an answer too.
  found.answers =
      read.ok() || errors::IsFailedPrecondition(read.status()) || errors::IsNotFound(read.status());
  if (!read.ok()) return found;
  const StatusOr<std::string> text = (*read)[0].TryScalar<std::string>();
  if (!text.ok()) return found;
  const std::size_t space = text->find(' ');
  if (space == std::string::npos ||
      !ParseInt64(std::string_view(*text).substr(0, space), &found.number)) {
    return found;
  }
  found.text = text->substr(space + 1);
  return found;
}

std::vector<Whereabouts> LookUpAll(std::span<const GroupMember> members, int self,
                                   const std::string& variable) {
  std::vector<Whereabouts> all(members.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(kThreads, members.size()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t k; (k = next.fetch_add(1)) < members.size();) {
        if (static_cast<int>(k) != self) all[k] = LookUp(members[k], variable);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

}  // namespace

Status AddWhereabouts(const Status& error, std::span<const GroupMember> members, int self,
                      const std::string& variable, int64_t number) {
  if (error.ok()) return error;
  const std::vector<Whereabouts> all = LookUpAll(members, self, variable);
  std::string lost, late, gone;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Whereabouts& of = all[i];
    if (static_cast<int>(i) == self) continue;
    if (!of.answers) {
      StrAppend(&lost, lost.empty() ? "" : ", ", members[i].name, " at ", members[i].address);
    } else if (of.number == 0 && !of.text.empty()) {
      StrAppend(&gone, gone.empty() ? "" : ", ", members[i].name, " has given up ", of.text);
    } else if (of.number < number) {
      StrAppend(&late, late.empty() ? "" : ", ", members[i].name,
                of.number == 0 ? " has made no call yet"
                               : StrCat(" was last in call ", of.number, ", ", of.text));
    }
  }
  std::string text;
  if (!lost.empty()) StrAppend(&text, "lost, or not started: ", lost, "; ");
  if (!late.empty()) StrAppend(&text, "did not come to call ", number, ": ", late, "; ");
  if (text.empty() && !gone.empty()) StrAppend(&text, "waits no longer: ", gone, "; ");
  if (text.empty()) return error;
  const StatusCode code = errors::IsDeadlineExceeded(error) || errors::IsUnavailable(error)
                              ? error.code()
                          : lost.empty() ? StatusCode::kDeadlineExceeded
                                         : StatusCode::kUnavailable;
  return MakeStatus(code, StrCat(text, Message(error)));
}

}  // namespace millrace
