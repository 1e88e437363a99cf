// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/verdict.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/strings.h"

namespace millrace::testing {
namespace {

// Beyond a deadline, by what is promised.
constexpr double kGrace = 1;

enum class Notice { kMust, kMay, kMustNot };

bool IsMember(Role role) { return role != Role::kReader && role != Role::kPs; }

// Whether the failure of one is a matter for the other.
Notice NoticeOf(const Cell& cell, Role survivor) {
  if (cell.victim == Role::kReader) return Notice::kMustNot;
  if (cell.job == Job::kAllReduce) {
    if (survivor == Role::kReader && cell.victim != Role::kChief) return Notice::kMustNot;
    return cell.fault == Fault::kRestart ? Notice::kMay : Notice::kMust;
  }
  if (cell.victim == Role::kPs) {
    // A ps that has wrong addresses of the workers serves its own clients.
    return Notice::kMust;
  }
  if (cell.job == Job::kAsync || survivor == Role::kReader) return Notice::kMustNot;
  return cell.fault == Fault::kRestart ? Notice::kMay : Notice::kMust;
}

// What the survivor's step is bounded by, in seconds.
double LimitOf(const Cell& cell, const Limits& limits, Role survivor) {
  const bool silent = cell.fault == Fault::kStop || cell.fault == Fault::kBlackHole;
  const bool calls_it = cell.job == Job::kAllReduce || cell.victim == Role::kPs;
  return silent && calls_it && IsMember(survivor) ? limits.peer_timeout : limits.step_timeout;
}

// What was going on when it failed.
bool TellsPhase(const std::string& text) {
  constexpr const char* kPhases[] = {"/tensorflow.", "accumulator", "queue",  "Queue",
                                     "ollective",    "waiting for", "expects"};
  return std::any_of(std::begin(kPhases), std::end(kPhases),
                     [&text](const char* phase) { return text.find(phase) != std::string::npos; });
}

// What a late step says first that it waited for; of other errors all.
std::string RootCause(const std::string& text) {
  constexpr std::string_view kList = "it was waiting for:", kEntry = "   /job:";
  const std::size_t list = text.find(kList);
  if (list == std::string::npos) return text;
  const std::size_t first = text.find(kEntry, list);
  if (first == std::string::npos) return text.substr(list);
  return text.substr(first, text.find(kEntry, first + 1) - first);
}

// Empty, or what the error lacks. A client knows the task at its target by the address.
std::string Lacks(const Event& error, const std::string& task, const std::string& address) {
  std::string lacks;
  if (RootCause(error.text).find(task) == std::string::npos) {
    StrAppend(&lacks, " first of all about ", task);
  }
  if (error.text.find(address) == std::string::npos) StrAppend(&lacks, " the address ", address);
  if (!TellsPhase(error.text)) lacks += " the phase";
  return lacks;
}

class Judgement {
 public:
  Judgement(const Cell& cell, const CellJob& job, const Limits& limits, const Times& times)
      : cell_(cell), job_(job), limits_(limits), times_(times) {}

  Verdict Make() {
    for (const Role role : RolesOf(cell_.job)) {
      if (role == Role::kPs) continue;
      if (role == cell_.victim) {
        LookAtVictim(role);
      } else {
        LookAtSurvivor(role);
      }
      if (IsMember(role)) CheckTraining(role);
    }
    if (verdict_.noticed.empty()) verdict_.noticed = "nobody: they train on";
    return verdict_;
  }

 private:
  // Once for each promise, however often it was broken.
  void Break(const std::string& promise, const Event& event) {
    if (!broken_.insert(StrCat(promise, event.code)).second) return;
    verdict_.broken.push_back(
        StrCat(promise, ": ", event.code, " after ", event.took, " s: ", event.text));
  }

  void LookAtSurvivor(Role role) {
    const std::vector<Event> events = job_.EventsOf(role);
    const std::vector<Event> errors = ErrorsBetween(events, times_.injected, times_.trained);
    const std::string who = RoleName(cell_.job, role);
    CheckWaits(who, events, LimitOf(cell_, limits_, role));
    const Notice notice = NoticeOf(cell_, role);
    if (notice == Notice::kMust && errors.empty()) {
      verdict_.broken.push_back(StrCat(who, " was told nothing"));
    }
    if (notice == Notice::kMustNot && !errors.empty()) {
      Break(StrCat(who, " was disturbed"), errors[0]);
    }
    for (const Event& error : errors) {
      // One that has wrong addresses may live on: which address is wrong is what is to be told, and
      // who waits for the chief is told of him.
      const bool wrong = cell_.fault == Fault::kWrongAddress;
      if (wrong && error.text.find("waiting for the chief") != std::string::npos) continue;
      const std::string address = wrong && error.code == "FAILED_PRECONDITION"
                                      ? CellJob::AddressOf(Role::kWorker)
                                      : CellJob::AddressOf(cell_.victim);
      const std::string lacks =
          Lacks(error, role == Role::kReader ? address : job_.TaskOf(cell_.victim), address);
      if (!lacks.empty()) Break(StrCat(who, " was not told", lacks), error);
    }
    if (!errors.empty()) {
      StrAppend(&verdict_.noticed, verdict_.noticed.empty() ? "" : "; ", who, ": ", errors[0].code);
    }
  }

  // Steps go up, and what was learned is better than nothing.
  void CheckTraining(Role role) {
    const std::vector<Event> events = job_.EventsOf(role);
    const Event *first = nullptr, *last = nullptr;
    double worst_loss = 0;
    for (const Event& event : events) {
      if (event.kind != "step") continue;
      worst_loss = std::max(worst_loss, event.loss);
      if (event.at < times_.healed) continue;
      if (first == nullptr) first = &event;
      last = &event;
    }
    const std::string who = RoleName(cell_.job, role);
    if (last == nullptr || last->step <= first->step) {
      verdict_.broken.push_back(StrCat(who, "'s steps do not go up after the failure"));
    } else if (!(last->loss < worst_loss)) {
      verdict_.broken.push_back(StrCat(who, " learns nothing after the failure"));
    }
  }

  // Of what begins after the failure no wait is longer than a session may take to be made; the
  // step that it met, than that step's limit.
  void CheckWaits(const std::string& who, const std::vector<Event>& events, double limit) {
    bool met = false;
    for (const Event& event : events) {
      if (event.at < times_.injected || event.at > times_.trained) continue;
      const bool of_session = event.kind == "ready" || event.kind == "error";
      double allowed = of_session ? limits_.ready_timeout : limits_.step_timeout;
      if (event.kind == "step_error" && !met) {
        met = true;
        allowed = limit;
      }
      allowed += kGrace;
      if (event.took > verdict_.longest_wait) {
        verdict_.longest_wait = event.took;
        verdict_.allowed = allowed;
      }
      if (event.took > allowed + times_.slack) {
        Break(StrCat(who, " waited longer than ", allowed, " s for ", event.kind), event);
      }
    }
  }

  // One that is cut off cannot know that it is the one; one that has a wrong address can.
  void LookAtVictim(Role role) {
    if (cell_.fault != Fault::kBlackHole && cell_.fault != Fault::kWrongAddress) return;
    const std::vector<Event> events = job_.EventsOf(role);
    const std::vector<Event> errors = ErrorsBetween(events, times_.injected, times_.trained);
    const std::string who = RoleName(cell_.job, role);
    CheckWaits(who, events, limits_.step_timeout);
    if (errors.empty()) {
      verdict_.broken.push_back(StrCat(who, ", which has failed, was told nothing"));
      return;
    }
    for (const Event& error : errors) {
      const bool named = error.text.find("10.9.0.") != std::string::npos && TellsPhase(error.text);
      if (!named) Break(StrCat(who, " was told no address or phase"), error);
    }
    StrAppend(&verdict_.noticed, verdict_.noticed.empty() ? "" : "; ", who,
              " itself: ", errors[0].code);
  }

  const Cell& cell_;
  const CellJob& job_;
  const Limits& limits_;
  const Times& times_;
  std::set<std::string> broken_;
  Verdict verdict_;
};

}  // namespace

Verdict Judge(const Cell& cell, const CellJob& job, const Limits& limits, const Times& times) {
  return Judgement(cell, job, limits, times).Make();
}

}  // namespace millrace::testing
