// SPDX-License-Identifier: Apache-2.0
#include "master/collective_steps.h"

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/hash.h"

namespace millrace {
namespace {

// Where TensorFlow's hash of the instance keys begins; and all of it, if they are inputs.
constexpr uint64_t kKeyBase = 0x8774aa605c729c72ull;

constexpr std::string_view kWithKeys[] = {"CollectiveReduce", "CollectiveGather",
                                          "CollectiveBcastSend", "CollectiveBcastRecv"};
constexpr std::string_view kKeysAreInputs[] = {"CollectiveReduceV2", "CollectiveGatherV2",
                                               "CollectiveBcastSendV2", "CollectiveBcastRecvV2"};

template <std::size_t n>
bool IsOneOf(const std::string_view (&names)[n], std::string_view name) {
  for (const std::string_view other : names) {
    if (name == other) return true;
  }
  return false;
}

// Follows the caller, the session and the clock for as long as an id is waited for.
struct Wait : RefCounted {
  CancellationManager own;
  struct Parent {
    CancellationManager* manager = nullptr;
    CancellationManager::Token token = 0;
  } parents[2];
  std::atomic<bool> late{false};
  DeadlineTimer::Token timer = DeadlineTimer::kNone;

  void Follow(Parent* parent, CancellationManager* manager) {
    if (manager == nullptr) return;
    parent->manager = manager;
    parent->token = manager->NextToken();
    const auto cancel = [self = RefPtr<Wait>::Share(this)] {
      self->own.StartCancel(errors::Cancelled("the run was cancelled"));
    };
    if (manager->RegisterCallback(parent->token, cancel)) return;
    parent->manager = nullptr;
    cancel();
  }
  void Release() {
    DeadlineTimer::Global().Cancel(timer);
    for (const Parent& parent : parents) {
      if (parent.manager != nullptr) (void)parent.manager->TryDeregisterCallback(parent.token);
    }
  }
};

}  // namespace

int64_t CollectiveGraphKey(const DataflowGraph& graph) {
  std::set<int32_t> keys;
  bool keys_are_inputs = false;
  for (const Node* node : graph.OpNodes()) {
    if (!std::string_view(node->type()).starts_with("Collective")) continue;
    if (IsOneOf(kWithKeys, node->type())) {
      const StatusOr<int64_t> key = node->attrs().Get<int64_t>("instance_key");
      if (key.ok()) keys.insert(static_cast<int32_t>(*key));
    }
    keys_are_inputs = keys_are_inputs || IsOneOf(kKeysAreInputs, node->type());
  }
  if (graph.library() != nullptr) {
    for (const auto& function : graph.library()->functions()) {
      for (const pb::NodeDef& node : function->def.node_def()) {
        if (IsOneOf(kWithKeys, node.op())) {
          const auto key = node.attr().find("instance_key");
          if (key != node.attr().end()) keys.insert(static_cast<int32_t>(key->second.i()));
        }
        keys_are_inputs = keys_are_inputs || IsOneOf(kKeysAreInputs, node.op());
      }
    }
  }
  uint64_t hash = kKeyBase;
  for (const int32_t key : keys) {
    hash = Hash64Combine(static_cast<uint64_t>(static_cast<int64_t>(key)), hash);
  }
  return keys.empty() && !keys_are_inputs ? 0 : static_cast<int64_t>(hash);
}

namespace {

// An attribute as text; "" if the op does not have it.
std::string AttrText(const Node& node, std::string_view name) {
  const AttrMap& attrs = node.attrs();
  if (const auto text = attrs.Get<std::string>(name); text.ok()) return *text;
  if (const auto number = attrs.Get<int64_t>(name); number.ok()) return StrCat(*number);
  if (const auto type = attrs.Get<DataType>(name); type.ok()) return DataTypeName(*type);
  if (const auto shape = attrs.Get<PartialShape>(name); shape.ok()) return shape->DebugString();
  return "";
}

// Sends and receives are the two sides of one kind.
std::string_view KindOf(const Node& node) {
  return std::string_view(node.type()).starts_with("CollectiveBcast")
             ? "CollectiveBcast"
             : std::string_view(node.type());
}

Status Differ(const Node& node, const Node& first, std::string_view what, std::string_view a,
              std::string_view b) {
  return errors::Internal("collectives with group_key ", AttrText(node, "group_key"),
                          " and instance_key ", AttrText(node, "instance_key"),
                          " must agree on their ", what, ", but it is ", a, " for ", "{{node ",
                          node.name(), "}} at ", node.assigned_device(), " and ", b, " for {{node ",
                          first.name(), "}} at ", first.assigned_device());
}

}  // namespace

Status VerifyCollectives(const DataflowGraph& graph) {
  std::map<std::string, const Node*> groups;
  std::map<std::pair<std::string, std::string>, const Node*> instances;
  for (const Node* node : graph.OpNodes()) {
    if (!IsOneOf(kWithKeys, node->type())) continue;
    const std::string group = AttrText(*node, "group_key");
    const Node& of_group = *groups.try_emplace(group, node).first->second;
    const std::string size = AttrText(*node, "group_size");
    if (const std::string other = AttrText(of_group, "group_size"); size != other) {
      return Differ(*node, of_group, "group_size", size, other);
    }
    const Node& first =
        *instances.try_emplace({group, AttrText(*node, "instance_key")}, node).first->second;
    if (&first == node) continue;
    if (KindOf(*node) != KindOf(first)) {
      return Differ(*node, first, "kind", node->type(), first.type());
    }
    for (const char* attr : {"T", "merge_op", "final_op", "shape"}) {
      const std::string mine = AttrText(*node, attr), other = AttrText(first, attr);
      if (mine != other) return Differ(*node, first, attr, mine, other);
    }
  }
  return OkStatus();
}

void AgreeOnStepId(CollectiveManager* collectives, const std::string& leader, int64_t graph_key,
                   const Step::Limits& limits, CancellationManager* closing,
                   std::function<void(StatusOr<int64_t>)> done) {
  auto wait = MakeRef<Wait>();
  wait->Follow(&wait->parents[0], limits.caller);
  wait->Follow(&wait->parents[1], closing);
  wait->timer = DeadlineTimer::Global().Schedule(limits.deadline, [wait] {
    wait->late.store(true);
    wait->own.StartCancel(errors::DeadlineExceeded("the step's deadline has passed"));
  });
  collectives->NextStepId(
      leader, graph_key, &wait->own, [wait, leader, done = std::move(done)](StatusOr<int64_t> id) {
        wait->Release();
        if (!id.ok() && wait->late.load()) {
          return done(
              errors::DeadlineExceeded("the step did not end by its deadline; it was "
                                       "waiting for: ",
                                       Message(id.status()), "; its leader is ", leader));
        }
        done(std::move(id));
      });
}

}  // namespace millrace
