// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/nccl_link.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "kernels/cuda/nccl_communicator.h"

namespace millrace {
namespace {

// Which machine this is, so that GPUs of two are told apart.
const std::string& ThisHost() {
  static const auto* const host = [] {
    auto* const text = new std::string;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> *text;
    return text;
  }();
  return *host;
}

// The members, and whether any of them was started again.
std::string IdentityOf(const CollectiveGroup& group) {
  std::string text = StrCat(group.key);
  for (const DeviceAttributes& member : group.members) {
    StrAppend(&text, " ", member.name, ":", member.incarnation);
  }
  return text;
}

std::string ToHex(const ncclUniqueId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : id.internal) {
    text.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}
bool FromHex(std::string_view text, ncclUniqueId* id) {
  if (text.size() != 2 * sizeof(id->internal)) return false;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < sizeof(id->internal); ++i) {
    id->internal[i] = static_cast<char>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  }
  return true;
}

// What NCCL does not compute; "" if it does.
std::string Obstacle(const LinkedRun& run) {
  const CollectiveParams& params = run.resolved->params;
  if (run.hint == "ring") return "communication_hint is 'ring'";
  if (params.kind != CollectiveKind::kReduce) return "";
  const bool floats = params.dtype == kFloat || params.dtype == kHalf ||
                      params.dtype == kBfloat16 || params.dtype == kDouble;
  if (!floats && params.dtype != kInt32 && params.dtype != kInt64) {
    return StrCat("NCCL does not reduce ", DataTypeName(params.dtype));
  }
  if (params.final == FinalOp::kDiv && (!floats || params.merge != MergeOp::kAdd)) {
    return StrCat("NCCL does not compute ", ReductionName(params.merge, params.final), " of ",
                  DataTypeName(params.dtype));
  }
  return "";
}

int64_t ToNumber(std::string_view text) {
  return std::strtoll(std::string(text).c_str(), nullptr, 10);
}

constexpr std::string_view kHost = "host", kNccl = "nccl";

class NcclLink final : public DeviceLink, public std::enable_shared_from_this<NcclLink> {
 public:
  NcclLink(CudaMachine* machine, NcclSource source) : machine_(machine), source_(source) {}

  void RunAsync(LinkedRun run, std::function<void(const Outcome&)> ended) override {
    const std::string group = IdentityOf(*run.resolved->group);
    std::string note = Note(run, group);
    CollectiveExecutor& executor = *run.executor;
    auto resolved = run.resolved;
    const std::string key = run.key;
    executor.AgreeAsync(
        resolved, key, std::move(note),
        [self = shared_from_this(), resolved, group](const std::vector<std::string>& notes) {
          return self->Decide(*resolved->group, group, notes);
        },
        [self = shared_from_this(), run = std::move(run), group,
         ended = std::move(ended)](StatusOr<std::string> answer) mutable {
          self->Answered(std::move(run), group, answer, std::move(ended));
        });
  }

 private:
  struct Plan {  // of the member of rank 0
    std::string group;
    int64_t epoch = 0;
    ncclUniqueId id{};
    int64_t next = 0;
  };

  // Three lines: why not, which GPU, up to which epoch communicators have broken here.
  std::string Note(const LinkedRun& run, const std::string& group) {
    std::string why_not = Obstacle(run);
    const StatusOr<const NcclLibrary*> nccl = source_();
    if (!nccl.ok()) why_not = StrCat(machine_->name(), ": ", Message(nccl.status()));
    std::shared_ptr<NcclCommunicator> stale;
    int64_t broken = 0;
    {
      MutexLock lock(&mu_);
      if (group_ != group && !group_.empty()) {
        const std::string_view other = group_;
        const bool same_key =
            other.substr(0, other.find(' ')) == std::string_view(group).substr(0, group.find(' '));
        if (asking_ > 0 || (communicator_ != nullptr && !same_key && !communicator_->broken())) {
          why_not = StrCat(machine_->name(), " uses NCCL in the group ",
                           other.substr(0, other.find(' ')), ", and only there");
        } else {
          stale = std::exchange(communicator_, nullptr);
          group_.clear();
        }
      }
      if (group_.empty() && why_not.empty()) group_ = group;
      if (group_ == group) ++asking_;
      broken = NoteBroken();
    }
    if (stale != nullptr) stale->Break(errors::Cancelled("its group was formed anew"));
    std::replace(why_not.begin(), why_not.end(), '\n', ' ');
    return StrCat(why_not.substr(0, 700), "\n", ThisHost(), "/", machine_->properties().pci_bus_id,
                  "\n", broken);
  }

  int64_t NoteBroken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (communicator_ != nullptr && communicator_->broken()) {
      broken_ = std::max(broken_, communicator_->epoch());
      communicator_ = nullptr;
    }
    return broken_;
  }

  // At rank 0: "host", a reason; or "nccl", epoch, number, id.
  std::string Decide(const CollectiveGroup& group_of, const std::string& group,
                     const std::vector<std::string>& notes) {
    std::set<std::string> gpus;
    int64_t broken = 0;
    for (const std::string& note : notes) {
      const std::vector<std::string_view> lines = StrSplit(note, '\n');
      if (lines.size() != 3) return StrCat(kHost, "\na member says nothing about NCCL");
      if (!lines[0].empty()) return StrCat(kHost, "\n", lines[0]);
      if (!gpus.emplace(lines[1]).second) {
        return StrCat(kHost, "\ntwo members are on one GPU, ", lines[1]);
      }
      broken = std::max(broken, ToNumber(lines[2]));
    }
    MutexLock lock(&mu_);
    broken = std::max(broken, NoteBroken());
    if (plan_.group != group || plan_.epoch <= broken) {
      const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::system_clock::now().time_since_epoch());
      Plan plan{group, std::max<int64_t>({plan_.epoch, broken, now.count()}) + 1, {}, 0};
      const StatusOr<const NcclLibrary*> nccl = source_();
      if (!nccl.ok()) return StrCat(kHost, "\n", Message(nccl.status()));
      const ncclResult_t result = (*nccl)->ncclGetUniqueId(&plan.id);
      if (result != ncclSuccess) {
        return StrCat(kHost, "\nncclGetUniqueId: ", (*nccl)->ncclGetErrorString(result));
      }
      plan_ = plan;
      MR_LOG(kInfo, "collective group ", group_of.key, ": ", notes.size(),
             " members reduce through NCCL");
    }
    return StrCat(kNccl, "\n", plan_.epoch, "\n", plan_.next++, "\n", ToHex(plan_.id));
  }

  void Answered(LinkedRun run, const std::string& group, const StatusOr<std::string>& answer,
                std::function<void(const Outcome&)> ended) {
    NcclCommunicator::Place place;
    int64_t number = 0;
    std::string why_not;
    const Status status = Read(answer, &place, &number, &why_not);
    place.rank = run.resolved->rank;
    place.size = run.resolved->group->size();
    std::shared_ptr<NcclCommunicator> communicator, stale;
    bool is_news = false;
    {
      MutexLock lock(&mu_);
      if (group_ == group) {
        --asking_;
        NoteBroken();
        if (!status.ok()) {
          // Others may have heard of an execution that this one knows nothing of.
          stale = communicator_;
        } else if (why_not.empty() && place.epoch > broken_) {
          if (communicator_ == nullptr || communicator_->epoch() < place.epoch) {
            stale = std::exchange(communicator_,
                                  std::make_shared<NcclCommunicator>(*source_(), machine_, place));
          }
          if (communicator_->epoch() == place.epoch) communicator = communicator_;
        }
        if (asking_ == 0 && communicator_ == nullptr) group_.clear();
      }
      if (!why_not.empty()) is_news = told_.insert(StrCat(group, why_not)).second;
    }
    if (stale != nullptr) stale->Break(errors::Cancelled("the members made a new communicator"));
    if (!status.ok()) return ended({status, false, ""});
    if (!why_not.empty()) {
      if (is_news) {
        MR_LOG(kWarning, "collective group ", run.resolved->group->key,
               " goes through host memory: ", why_not);
      }
      return ended({OkStatus(), false, why_not});
    }
    if (communicator == nullptr) {
      Status late = errors::Aborted("the NCCL communicator of group ", run.resolved->group->key,
                                    " was aborted before ", machine_->name(), " joined in");
      run.executor->Abort(late);
      return ended({late, false, ""});
    }
    communicator->Run(number, std::move(run),
                      [ended = std::move(ended)](const Status& end) { ended({end, true, ""}); });
  }

  static Status Read(const StatusOr<std::string>& answer, NcclCommunicator::Place* place,
                     int64_t* number, std::string* why_not) {
    if (!answer.ok()) return answer.status();
    const std::vector<std::string_view> lines = StrSplit(*answer, '\n');
    if (lines.size() == 2 && lines[0] == kHost) {
      *why_not = std::string(lines[1]);
      return OkStatus();
    }
    if (lines.size() != 4 || lines[0] != kNccl || !FromHex(lines[3], &place->id)) {
      return errors::Internal("the member of rank 0 gave an answer that is none");
    }
    place->epoch = ToNumber(lines[1]);
    *number = ToNumber(lines[2]);
    return OkStatus();
  }

  CudaMachine* const machine_;
  const NcclSource source_;
  Mutex mu_;
  std::string group_ ABSL_GUARDED_BY(mu_);  // that this machine uses NCCL for, or asks to
  int asking_ ABSL_GUARDED_BY(mu_) = 0;     // executions of it that are being agreed on
  std::shared_ptr<NcclCommunicator> communicator_ ABSL_GUARDED_BY(mu_);
  int64_t broken_ ABSL_GUARDED_BY(mu_) = 0;  // the latest epoch that broke
  Plan plan_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::shared_ptr<DeviceLink> NewNcclLink(CudaMachine* machine, NcclSource source) {
  return std::make_shared<NcclLink>(machine, source);
}

std::shared_ptr<DeviceLink> OpenNcclLink(Accelerator* machine) {
  struct Links {
    Mutex mu;
    std::map<Accelerator*, std::weak_ptr<DeviceLink>> by_machine ABSL_GUARDED_BY(mu);
  };
  static auto* const links = new Links;
  MutexLock lock(&links->mu);
  std::weak_ptr<DeviceLink>& entry = links->by_machine[machine];
  std::shared_ptr<DeviceLink> link = entry.lock();
  if (link == nullptr) entry = link = NewNcclLink(static_cast<CudaMachine*>(machine));
  return link;
}

}  // namespace millrace
