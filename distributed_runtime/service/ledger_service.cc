// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/ledger_service.h"

#include <utility>

#include "base/status_macros.h"
#include "kernels/state/update_ledger.h"
#include "transport/grpc/blocking_call.h"
#include "transport/methods.h"

namespace millrace {
namespace {

static_assert(static_cast<int>(LedgerKind::kVariable) == pb::LedgerEntry::VARIABLE &&
              static_cast<int>(LedgerKind::kAccumulator) == pb::LedgerEntry::ACCUMULATOR &&
              static_cast<int>(LedgerKind::kTokens) == pb::LedgerEntry::TOKENS &&
              static_cast<int>(LedgerKind::kBound) == pb::LedgerEntry::BOUND);

void ToProto(UpdateAccount* from, pb::UpdateAccount* to) {
  to->set_task(std::move(from->task));
  to->set_incarnation(from->incarnation);
  to->set_pushed(from->pushed);
  to->set_applied(from->applied);
  to->set_held(from->held);
  to->set_stale(from->stale);
  to->set_duplicate(from->duplicate);
  to->set_cancelled(from->cancelled);
  to->set_failed(from->failed);
  to->set_not_arrived(from->not_arrived);
  to->set_awaited(from->awaited);
  to->mutable_ages()->Add(from->ages.begin(), from->ages.end());
  to->set_age_not_known(from->age_not_known);
  to->set_oldest(from->oldest);
  to->set_handed_out(from->handed_out);
  to->set_taken(from->taken);
  to->set_last_step_id(from->last_step_id);
}

}  // namespace

void AddLedgerMethod(RpcServer* server, std::string task, std::vector<Device*> devices,
                     std::function<std::map<std::string, std::string>()> others) {
  server->AddMethod(methods::kControlLedger, [task = std::move(task), devices = std::move(devices),
                                              others = std::move(others)](ServerCall* call) {
    pb::LedgerRequest request;
    const Status parsed = call->Parse(&request);
    if (!parsed.ok()) return call->Finish(parsed);
    pb::LedgerResponse response;
    response.set_task(task);
    for (const Device* device : devices) {
      const RefPtr<UpdateLedger> ledger = UpdateLedger::Of(device->resource_manager());
      response.set_left_out(response.left_out() + ledger->left_out());
      for (LedgerEntry& entry : ledger->Snapshot()) {
        pb::LedgerEntry& line = *response.add_entry();
        line.set_kind(static_cast<pb::LedgerEntry::Kind>(entry.kind));
        line.set_name(std::move(entry.name));
        line.set_device(device->name());
        for (UpdateAccount& account : entry.accounts) ToProto(&account, line.add_account());
      }
    }
    for (auto& [peer, address] : others()) {
      pb::LedgerResponse::Peer& other = *response.add_other();
      other.set_task(peer);
      other.set_address(address);
    }
    call->Finish(response);
  });
}

StatusOr<pb::LedgerResponse> GetLedger(const std::string& address, Deadline deadline,
                                       std::shared_ptr<const LoadedCredentials> credentials) {
  pb::LedgerResponse response;
  MR_RETURN_IF_ERROR(CallAndWait(address, methods::kControlLedger, pb::LedgerRequest(), deadline,
                                 std::move(credentials), &response));
  return response;
}

}  // namespace millrace
