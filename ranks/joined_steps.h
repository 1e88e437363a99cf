// SPDX-License-Identifier: Apache-2.0
// What a rank without data has to take part in.
#ifndef RANKS_JOINED_STEPS_H_
#define RANKS_JOINED_STEPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/collectives.h"
#include "millrace/graph.h"
#include "ranks/member_nodes.h"

namespace millrace::dp {

// The collectives of a step that another rank may stand aside from. Before all, each rank tells
// whether it trains: a vector of as many numbers as there are ranks, with a one in its place.
struct JoinedSteps {
  std::shared_ptr<ProcessGroup> group{};
  ReducePack active{};
  std::vector<ReducePack> packs{};
};

// Of the gradients made last. A second one, or one that cannot be joined, makes it impossible.
void RememberSteps(const JoinedSteps& steps);
void ForgetSteps();

}  // namespace millrace::dp

#endif  // RANKS_JOINED_STEPS_H_
