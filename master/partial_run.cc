// SPDX-License-Identifier: Apache-2.0
#include "master/partial_run.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"

namespace millrace {
namespace {

// The index of `name` in the sorted list, or -1.
int Find(const std::vector<std::string>& sorted, const std::string& name) {
  const auto it = std::lower_bound(sorted.begin(), sorted.end(), name);
  return it == sorted.end() || *it != name ? -1 : static_cast<int>(it - sorted.begin());
}

// The name of the tensor that a client send or receive node stands for.
std::string ClientTensor(const Node& node) {
  return CanonicalTensorName(node.attrs().GetOr<std::string>("tensor_name", ""));
}

bool IsClientNode(const Node& node, std::string_view type) {
  return node.type() == type && node.attrs().GetOr<bool>("client_terminated", false);
}

}  // namespace

PartialRun::PartialRun(std::string handle, std::shared_ptr<Plan> plan, int64_t step_id)
    : handle_(std::move(handle)),
      plan_(std::move(plan)),
      step_id_(step_id),
      fed_(plan_->signature.feeds.size()),
      fetched_(plan_->signature.fetches.size()) {}

StatusOr<PartialRun::Round> PartialRun::Begin(std::span<const std::pair<std::string, Tensor>> feeds,
                                              std::span<const std::string> fetches) {
  MutexLock lock(&mu_);
  const RunSignature& signature = plan_->signature;
  std::vector<int> fed, fetched;
  for (const auto& [given, value] : feeds) {
    const int i = Find(signature.feeds, CanonicalTensorName(given));
    if (i < 0) {
      return errors::InvalidArgument("The feed ", given,
                                     " was not specified in partial_run_setup.");
    }
    if (fed_[i] || std::find(fed.begin(), fed.end(), i) != fed.end()) {
      return errors::InvalidArgument("The feed ", given, " has already been fed.");
    }
    fed.push_back(i);
  }
  for (const std::string& given : fetches) {
    const int i = Find(signature.fetches, CanonicalTensorName(given));
    if (i < 0) {
      return errors::InvalidArgument("The fetch ", given,
                                     " was not specified in partial_run_setup.");
    }
    if (fetched_[i] || std::find(fetched.begin(), fetched.end(), i) != fetched.end()) {
      return errors::InvalidArgument("The fetch ", given, " has already been fetched.");
    }
    fetched.push_back(i);
  }
  for (int i : fed) fed_[i] = true;
  if (Status computable = CheckFetches(fetched); !computable.ok()) {
    for (int i : fed) fed_[i] = false;
    return computable;
  }
  for (int i : fetched) fetched_[i] = true;

  Round round;
  round.step = plan_->NewStep();
  const auto all = [](const std::vector<bool>& v) {
    return std::find(v.begin(), v.end(), false) == v.end();
  };
  round.is_last = last_begun_ = all(fed_) && all(fetched_);
  for (Step::Part& part : round.step->parts()) {
    part.args.sends.clear();
    part.args.recv_keys.clear();
    part.args.is_partial = true;
    part.args.is_last_partial = round.is_last;
  }
  for (size_t k = 0; k < fed.size(); ++k) {
    const Plan::Slot slot = plan_->feed_slots[fed[k]];
    round.step->parts()[slot.part].args.sends.emplace_back(
        plan_->parts[slot.part].feed_keys[slot.index], feeds[k].second);
  }
  for (int i : fetched) {
    const Plan::Slot slot = plan_->fetch_slots[i];
    auto& keys = round.step->parts()[slot.part].args.recv_keys;
    round.fetches.push_back({slot.part, static_cast<int>(keys.size())});
    keys.push_back(plan_->parts[slot.part].fetch_keys[slot.index]);
  }
  rounds_.push_back(round.step);
  return round;
}

Status PartialRun::CheckFetches(const std::vector<int>& fetches) const {
  StringSet missing;
  for (size_t i = 0; i < fed_.size(); ++i) {
    if (!fed_[i]) missing.insert(plan_->signature.feeds[i]);
  }
  if (missing.empty()) return OkStatus();
  for (int fetch : fetches) {
    const std::string& name = plan_->signature.fetches[fetch];
    std::vector<const Node*> stack;
    for (const Node* node : plan_->client_graph->OpNodes()) {
      if (IsClientNode(*node, "_Send") && ClientTensor(*node) == name) stack.push_back(node);
    }
    std::vector<bool> seen(plan_->client_graph->num_node_ids());
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (seen[node->id()]) continue;
      seen[node->id()] = true;
      if (IsClientNode(*node, "_Recv") && missing.contains(ClientTensor(*node))) {
        return errors::InvalidArgument(
            "Fetch ", name, " can't be computed from the feeds that have been fed so far.");
      }
      for (const Edge* edge : node->in_edges()) stack.push_back(edge->src);
    }
  }
  return OkStatus();
}

bool PartialRun::End(Step* round, const Status& status) {
  std::vector<RefPtr<Step>> others;
  bool over;
  {
    MutexLock lock(&mu_);
    std::erase_if(rounds_, [round](const RefPtr<Step>& r) { return r.get() == round; });
    over = !status.ok() || (last_begun_ && rounds_.empty());
    if (!status.ok()) others = rounds_;
  }
  for (const RefPtr<Step>& other : others) other->Abort(status);
  return over;
}

void PartialRun::Cleanup() { plan_->CleanupStep(step_id_); }

}  // namespace millrace
