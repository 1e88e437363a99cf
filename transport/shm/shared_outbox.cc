// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shared_outbox.h"

#include "base/errors.h"

namespace millrace {

bool SharedOutbox::Lend(RefPtr<SharedLease> lease) {
  const bool is_new = told_.try_emplace(lease->place().slab, lease->slab()).second;
  const Key key(lease->place().slab, lease->place().block);
  lent_[key] = std::move(lease);
  return is_new;
}

std::vector<uint32_t> SharedOutbox::TakeDropped() {
  std::vector<uint32_t> dropped;
  absl::erase_if(told_, [&](const auto& slab) {
    if (slab.second->dropped()) dropped.push_back(slab.first);
    return slab.second->dropped();
  });
  return dropped;
}

Status SharedOutbox::GiveBack(const SharedPlace& place) {
  if (lent_.erase(Key(place.slab, place.block)) == 0) {
    return errors::InvalidArgument("a link's peer gives back memory that it was not lent");
  }
  return OkStatus();
}

void SharedOutbox::AbandonAll() {
  for (const auto& [key, lease] : lent_) lease->Abandon();
  lent_.clear();
  told_.clear();
}

}  // namespace millrace
