// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/device_name.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxIdSize = 128;
constexpr std::chrono::milliseconds kPause{100};
// For so long a task that did not answer is not asked again for the same process.
constexpr std::chrono::seconds kSilence{60};

bool IsIdCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

// The next word of a text, up to the next space.
std::string_view TakeWord(std::string_view* text) {
  const std::size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

bool ParseHex16(std::string_view text, uint64_t* value) {
  if (text.size() != 16) return false;
  *value = 0;
  for (const char c : text) {
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return false;
    }
    *value = *value << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

std::string Quoted(std::string_view id) {
  return id.empty() ? std::string("without a name") : StrCat("'", id, "'");
}

}  // namespace

std::string PeerIdentity::ToString() const {
  return StrCat(Hex16(incarnation), " ", task, " ", expected_task, " ", cluster_id);
}

bool PeerIdentity::Parse(std::string_view text, PeerIdentity* identity) {
  if (std::count(text.begin(), text.end(), ' ') != 3) return false;
  if (!ParseHex16(TakeWord(&text), &identity->incarnation)) return false;
  identity->task = std::string(TakeWord(&text));
  identity->expected_task = std::string(TakeWord(&text));
  identity->cluster_id = std::string(TakeWord(&text));
  return !identity->task.empty();
}

Status CheckClusterId(std::string_view id) {
  if (id.size() <= kMaxIdSize && std::all_of(id.begin(), id.end(), IsIdCharacter)) {
    return OkStatus();
  }
  return errors::InvalidArgument("the cluster's name (cluster_id) must be up to ", kMaxIdSize,
                                 " letters, digits, dots, dashes and underscores, not '", id, "'");
}

// One process that somebody asks about.
struct PeerTable::Inquiry {
  std::string task;
  uint64_t incarnation = 0;
  Admitted done;
  Deadline deadline = kNoDeadline;
  Devices devices;
};

PeerTable::PeerTable(PeerIdentity own, std::map<std::string, std::string> addresses,
                     ThreadPool* pool)
    : own_(std::move(own)), addresses_(std::move(addresses)), pool_(pool) {}

PeerTable::~PeerTable() = default;

std::string PeerTable::IdentityFor(std::string_view task) const {
  PeerIdentity identity = own_;
  identity.expected_task = std::string(task);
  return identity.ToString();
}

std::string PeerTable::Address(std::string_view task) const {
  const auto it = addresses_.find(std::string(task));
  return it == addresses_.end() ? "" : it->second;
}

Status PeerTable::CheckNames(const PeerIdentity& caller) const {
  const auto here = [this] { return StrCat(own_.task, " at ", Address(own_.task)); };
  if (!caller.cluster_id.empty() && !own_.cluster_id.empty() &&
      caller.cluster_id != own_.cluster_id) {
    return errors::FailedPrecondition(
        here(), " is a task of the cluster ", Quoted(own_.cluster_id), ", and ", caller.task,
        ", which calls it, is one of the cluster ", Quoted(caller.cluster_id), ": the address of ",
        caller.expected_task, " is wrong in that cluster's specification");
  }
  if (!caller.expected_task.empty() && caller.expected_task != own_.task) {
    return errors::FailedPrecondition(
        "the address at which ", caller.task, " expects ", caller.expected_task, " is that of ",
        here(), ": one of the two has a wrong address in its cluster specification");
  }
  return OkStatus();
}

PeerTable::Standing PeerTable::StandingOf(std::string_view task, uint64_t incarnation) const {
  MutexLock lock(&mu_);
  const auto it = peers_.find(task);
  if (it == peers_.end() || it->second.confirmed == 0) return Standing::kUnknown;
  return it->second.confirmed == incarnation ? Standing::kConfirmed : Standing::kRefuted;
}

Status PeerTable::Contradiction(const std::string& task) const {
  return errors::FailedPrecondition(
      own_.task, " at ", Address(own_.task), " refuses a caller that says it is ", task,
      ": at the address of that task, ", Address(task),
      ", another process answers. Two jobs use the same address, or the caller's is wrong");
}

void PeerTable::Admit(const std::string& task, uint64_t incarnation, Admitted done) {
  const auto address = addresses_.find(task);
  // A port that was chosen as the server started is known to nobody.
  if (task == own_.task || ask_ == nullptr || address == addresses_.end() ||
      address->second.ends_with(":0")) {
    return done(Standing::kUnknown);
  }
  bool known = false, silent = false;
  {
    MutexLock lock(&mu_);
    const auto it = peers_.find(task);
    if (it != peers_.end()) {
      known = it->second.confirmed == incarnation;
      silent = it->second.confirmed == 0 && it->second.unknown == incarnation &&
               SteadyClock::now() < it->second.ask_again;
    }
  }
  if (known) return done(Standing::kConfirmed);
  if (silent) return done(Standing::kUnknown);
  auto inquiry = std::make_shared<Inquiry>();
  inquiry->task = task;
  inquiry->incarnation = incarnation;
  inquiry->done = std::move(done);
  inquiry->deadline = DeadlineAfter(kAskTimeout);
  Send(std::move(inquiry));
}

void PeerTable::Send(std::shared_ptr<Inquiry> inquiry) {
  inquiry->devices.clear();
  Inquiry* const raw = inquiry.get();
  ask_(raw->task, {.deadline = raw->deadline, .cancellation = &stopping_}, &raw->devices,
       [this, inquiry = std::move(inquiry)](const Status& status) { Answered(inquiry, status); });
}

void PeerTable::Answered(const std::shared_ptr<Inquiry>& inquiry, const Status& status) {
  const Inquiry& asked = *inquiry;
  if (stopping_.IsCancelled()) {
    return inquiry->done(errors::Unavailable("the server ", own_.task, " is stopping"));
  }
  bool of_task = false, same = false;
  for (const pb::DeviceAttributes& device : asked.devices) {
    const StatusOr<DeviceName> name = DeviceName::Parse(device.name());
    of_task = of_task || (name.ok() && TaskName(*name) == asked.task);
    same = same || device.incarnation() == asked.incarnation;
  }
  StatusOr<Standing> standing = Standing::kUnknown;
  bool again = false;
  {
    MutexLock lock(&mu_);
    Peer& peer = peers_[asked.task];
    if (status.ok() && of_task) {
      peer.confirmed = same ? asked.incarnation : asked.devices.front().incarnation();
      standing = same ? StatusOr<Standing>(Standing::kConfirmed) : Contradiction(asked.task);
    } else {
      // Two processes have said that they are this task: one has just restarted, or is another
      // job's.
      const uint64_t other = peer.confirmed != 0 ? peer.confirmed : peer.unknown;
      again = other != 0 && other != asked.incarnation && errors::IsUnavailable(status) &&
              SteadyClock::now() + kPause < asked.deadline;
      if (peer.confirmed != 0 && peer.confirmed != asked.incarnation) {
        standing = errors::Unavailable(own_.task, " does not know yet whether the caller is ",
                                       asked.task, ": another process was, and nobody answers at ",
                                       Address(asked.task), " (", Message(status), ")");
      } else if (!again) {
        peer.unknown = asked.incarnation;
        peer.ask_again = DeadlineAfter(kSilence);
      }
    }
  }
  if (again) {
    DeadlineTimer::Global().Schedule(DeadlineAfter(kPause), [this, inquiry] {
      pool_->Schedule([this, inquiry] { Send(inquiry); });
    });
    return;
  }
  if (!standing.ok()) MR_LOG(kWarning, Message(standing.status()));
  inquiry->done(std::move(standing));
}

void PeerTable::Stop() {
  stopping_.StartCancel(errors::Unavailable("the server ", own_.task, " is stopping"));
}

}  // namespace millrace
