// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/cell_job.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/strings.h"

namespace millrace::testing {
namespace {

constexpr char kProgram[] = "tests/fault/cells/cell_task";
constexpr char kPort[] = ":2222";
// A host that does not exist.
constexpr int kNobody = 99;

int Millis(double seconds) { return static_cast<int>(seconds * 1e3); }

}  // namespace

CellJob::CellJob(Network* network, Job job, const Limits& limits, std::string folder)
    : network_(network), job_(job), limits_(limits), folder_(std::move(folder)) {}

CellJob::~CellJob() {
  for (const auto& [role, process] : processes_) process->Signal(SIGKILL);
}

int CellJob::HostOf(Role role) { return 1 + static_cast<int>(role); }

std::string CellJob::AddressOf(Role role) { return StrCat(Network::Address(HostOf(role)), kPort); }

std::string CellJob::TaskOf(Role role) const {
  switch (role) {
    case Role::kPs:
      return "/job:ps/replica:0/task:0";
    case Role::kChief:
      return "/job:worker/replica:0/task:0";
    case Role::kWorker:
      return "/job:worker/replica:0/task:1";
    case Role::kOther:
      return "/job:worker/replica:0/task:2";
    case Role::kReader:
      return "";
  }
  return "";
}

// A wrong address is that of another task of the job.
std::string CellJob::Spec(Role role, bool wrong_address) const {
  std::string ps = AddressOf(Role::kPs), chief = AddressOf(Role::kChief),
              worker = AddressOf(Role::kWorker), other = AddressOf(Role::kOther);
  if (job_ == Job::kAllReduce) {
    if (wrong_address) std::swap(role == Role::kChief ? worker : chief, other);
    return StrCat("worker|", chief, ";", worker, ";", other);
  }
  if (wrong_address && role == Role::kPs) std::swap(chief, worker);
  if (wrong_address && role == Role::kChief) std::swap(ps, worker);
  if (wrong_address && role == Role::kWorker) std::swap(ps, chief);
  return StrCat("ps|", ps, ",worker|", chief, ";", worker);
}

std::string CellJob::LogOf(Role role) const {
  return StrCat(folder_, "/host", HostOf(role), ".log");
}

void CellJob::Start(Role role, bool wrong_address) {
  std::string command = StrCat(network_->RunAt(HostOf(role)), kProgram,
                               " --peer_timeout_ms=", Millis(limits_.peer_timeout),
                               " --step_timeout_ms=", Millis(limits_.step_timeout),
                               " --ready_timeout_ms=", Millis(limits_.ready_timeout));
  if (role == Role::kReader) {
    const Role read = job_ == Job::kAllReduce ? Role::kChief : Role::kPs;
    const std::string at =
        wrong_address ? StrCat(Network::Address(kNobody), kPort) : AddressOf(read);
    StrAppend(&command, " --role=reader --target=grpc://", at, " --reads=", TaskOf(read));
  } else {
    const int index = role == Role::kWorker ? 1 : role == Role::kOther ? 2 : 0;
    StrAppend(&command, " --index=", index, " --sync=", job_ == Job::kSync ? 1 : 0, " --role=",
              job_ == Job::kAllReduce ? "member"
              : role == Role::kPs     ? "ps"
                                      : "worker",
              " '--spec=", Spec(role, wrong_address), "'");
  }
  StrAppend(&command, " >>", LogOf(role), " 2>&1");
  processes_[role] = std::make_unique<Process>("/bin/sh", std::vector<std::string>{"-c", command});
}

void CellJob::Kill(Role role) { processes_.erase(role); }

void CellJob::StartAll() {
  for (const Role role : RolesOf(job_)) Start(role, false);
}

void CellJob::Inject(Role role, Fault fault) {
  switch (fault) {
    case Fault::kKill:
      return Kill(role);
    case Fault::kStop:
      return processes_.at(role)->Freeze();
    case Fault::kBlackHole:
      return void(network_->Cut(HostOf(role)));
    case Fault::kRestart:
      return Kill(role);
    case Fault::kWrongAddress:
      Kill(role);
      return Start(role, true);
  }
}

void CellJob::Heal(Role role, Fault fault) {
  switch (fault) {
    case Fault::kKill:
    case Fault::kRestart:
      return Start(role, false);
    case Fault::kStop:
      return processes_.at(role)->Signal(SIGCONT);
    case Fault::kBlackHole:
      return void(network_->Heal(HostOf(role)));
    case Fault::kWrongAddress:
      Kill(role);
      return Start(role, false);
  }
}

std::vector<Event> CellJob::EventsOf(Role role) const { return ReadEvents(LogOf(role)); }

std::string CellJob::AwaitSteps(double since, int steps, double limit) const {
  std::string missing;
  for (const double deadline = NowSeconds() + limit; NowSeconds() < deadline;) {
    missing.clear();
    for (const Role role : RolesOf(job_)) {
      if (role == Role::kPs) continue;
      const int wanted = role == Role::kReader ? (steps + 4) / 5 : steps;
      const int made = CountSteps(EventsOf(role), since);
      if (made < wanted) {
        StrAppend(&missing, RoleName(job_, role), " has made ", made, " of ", wanted, " steps; ");
      }
    }
    if (missing.empty()) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return missing;
}

std::string CellJob::Story() const {
  std::string story;
  for (const Role role : RolesOf(job_)) {
    StrAppend(&story, "== ", RoleName(job_, role), "\n", OtherLines(LogOf(role)));
    std::string last;  // the same again and again is told once
    for (const Event& event : EventsOf(role)) {
      if ((event.kind == "step" && event.took < 1) || event.kind + event.code == last) continue;
      last = event.kind + event.code;
      StrAppend(&story, "   ", event.kind, " after ", event.took, " s, at ", event.at, ": ",
                event.code, " ", event.text, "\n");
    }
  }
  return story;
}

}  // namespace millrace::testing
