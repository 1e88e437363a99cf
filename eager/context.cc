// SPDX-License-Identifier: Apache-2.0
#include "eager/context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kTellTimeout(10);

// Of a context: what an error of one op must not end for all others.
class SharedRendezvous : public Rendezvous {
 public:
  explicit SharedRendezvous(RefPtr<Rendezvous> rendezvous) : rendezvous_(std::move(rendezvous)) {}

  Status Send(std::string_view key, Tensor value, bool is_dead) override {
    return rendezvous_->Send(key, std::move(value), is_dead);
  }
  void RecvAsync(std::string_view key, CancellationManager* cancellation, RecvDone done) override {
    rendezvous_->RecvAsync(key, cancellation, std::move(done));
  }
  void StartAbort(const Status&) override {}
  void ListWaits(std::size_t limit, std::vector<std::string>* keys) const override {
    rendezvous_->ListWaits(limit, keys);
  }

 private:
  const RefPtr<Rendezvous> rendezvous_;
};

// The same text for equal calls only.
std::string PlanKey(const FunctionName& function, const Device& device,
                    const std::vector<std::string>& arg_devices, const std::vector<int>& arg_widths,
                    bool is_component) {
  std::string key = StrCat(is_component ? "part " : "", device.name(), " ");
  for (const int width : arg_widths) StrAppend(&key, width, ",");
  StrAppend(&key, StrJoin(arg_devices, ","), " ", FunctionKey(function));
  return key;
}

}  // namespace

EagerContext::EagerContext(const EagerEnv& env, uint64_t id, std::string task,
                           std::shared_ptr<SessionResources> resources, const EagerLimits& limits,
                           Later later)
    : env_(env),
      id_(id),
      limits_(limits),
      later_(std::move(later)),
      resources_(std::move(resources)),
      worker_(*env.task),
      handles_(StrCat("_eager_", Hex16(id), "_", Hex16(RandomId()), "_"), limits.tensors,
               limits.memory_bytes),
      memory_quota_(limits.memory_bytes > 0 ? MakeRef<MemoryQuota>(limits.memory_bytes)
                                            : RefPtr<MemoryQuota>()) {
  worker_.task = std::move(task);
  worker_.devices = resources_->devices;
  worker_.workers = nullptr;  // they change with the cluster
  worker_.collectives = nullptr;
  worker_.make_session_devices = nullptr;
  rendezvous_ = env_.transport->NewRendezvous(
      worker_.task, [this](std::string_view peer) { return FindWorker(peer); });
  worker_.rendezvous = rendezvous_.get();
  program_env_ = {&worker_, resources_, env_.admit};
  shared_rendezvous_ = MakeRef<SharedRendezvous>(rendezvous_->Find(static_cast<int64_t>(id_)));
}

EagerContext::~EagerContext() {
  const Status reason = errors::Cancelled("the context is gone");
  Close(reason);
  telling_->StartCancel(reason);
}

uint64_t EagerContext::view_id() const {
  MutexLock lock(&mu_);
  return view_id_;
}

StatusOr<Device*> EagerContext::FindDevice(std::string_view name) const {
  if (name.empty()) return device();
  const StatusOr<std::string> full = CanonicalDeviceName(name, device()->parsed_name());
  Device* const found = full.ok() ? resources_->FindDevice(*full) : nullptr;
  if (found != nullptr) return found;
  return errors::InvalidArgument(name, " unknown device: ", worker_.task, " has ",
                                 resources_->devices.size(), ", the first one is ",
                                 device()->name());
}

bool EagerContext::HasDevice(std::string_view name) const {
  MutexLock lock(&mu_);
  return devices_ != nullptr && devices_->incarnations.contains(name);
}

void EagerContext::SetCluster(
    uint64_t view_id, const pb::ClusterDef& cluster,
    const google::protobuf::RepeatedPtrField<pb::DeviceAttributes>& devices,
    const CallerHost& caller) {
  std::map<std::string, std::string> addresses;
  for (const pb::JobDef& job : cluster.job()) {
    for (const auto& [index, address] : job.tasks()) {
      addresses[MakeTaskName(job.name(), index)] = address;
    }
  }
  auto known = std::make_shared<ContextDevices>();
  const auto add = [&known](const std::string& name, const std::string& type,
                            uint64_t incarnation) {
    if (known->incarnations.try_emplace(name, incarnation).second) {
      known->devices.emplace_back(name, type);
    }
  };
  for (const Device* own : resources_->devices) add(own->name(), own->type(), own->incarnation());
  for (const pb::DeviceAttributes& device : devices) {
    add(device.name(), device.device_type(), device.incarnation());
  }
  std::vector<KeptPlan> forgotten;
  std::shared_ptr<EagerCluster> replaced;
  {
    MutexLock lock(&mu_);
    forgotten = TakePlans("");
    view_id_ = view_id;
    devices_ = std::move(known);
    if (cluster_ == nullptr || addresses != addresses_) {
      replaced = std::exchange(cluster_, Connect(addresses, caller));
      addresses_ = std::move(addresses);
    }
  }
  for (const KeptPlan& kept : forgotten) Withdraw(*kept.plan);
}

std::shared_ptr<EagerCluster> EagerContext::Connect(
    const std::map<std::string, std::string>& addresses, const CallerHost& caller) const {
  // The last to use it may be the callback of one of its calls, whose end it waits for.
  return {env_.transport->Connect(addresses, worker_.task, caller).release(),
          [later = later_](EagerCluster* unused) { later([unused] { delete unused; }); }};
}

void EagerContext::SetView(uint64_t view_id) {
  MutexLock lock(&mu_);
  view_id_ = view_id;
}

StatusOr<std::shared_ptr<EagerPeer>> EagerContext::FindPeer(const std::string& task) const {
  MutexLock lock(&mu_);
  EagerPeer* const peer = cluster_ == nullptr ? nullptr : cluster_->FindPeer(task);
  if (peer != nullptr) return std::shared_ptr<EagerPeer>(cluster_, peer);
  return errors::InvalidArgument("the context has no task ", task);
}

std::shared_ptr<WorkerInterface> EagerContext::FindWorker(std::string_view task) const {
  MutexLock lock(&mu_);
  WorkerInterface* const worker =
      cluster_ == nullptr ? nullptr : cluster_->workers()->GetWorker(task);
  return worker == nullptr ? nullptr : std::shared_ptr<WorkerInterface>(cluster_, worker);
}

void EagerContext::Tell(const std::string& task, const pb::EnqueueRequest& request) const {
  const StatusOr<std::shared_ptr<EagerPeer>> peer = FindPeer(task);
  if (!peer.ok()) return;
  (*peer)->EnqueueAsync({DeadlineAfter(kTellTimeout), telling_.get()}, request,
                        [kept = *peer, telling = telling_](const Status&) {});
}

Status EagerContext::RegisterFunction(const pb::RegisterFunctionOp& op) {
  const std::string& name = op.function_def().signature().name();
  pb::FunctionDefLibrary added = op.library();
  *added.add_function() = op.function_def();
  const bool is_component = op.is_component_function();
  std::vector<KeptPlan> forgotten;
  {
    MutexLock lock(&mu_);
    if (closed_) return errors::Aborted("the context is closed");
    const std::shared_ptr<const FunctionLibrary> base = is_component ? nullptr : library_;
    MR_ASSIGN_OR_RETURN(std::shared_ptr<const FunctionLibrary> extended,
                        FunctionLibrary::Extend(base, added));
    FunctionSize size = size_;
    // An extension has what is new behind what was there.
    size.Add(extended->functions().subspan(base == nullptr ? 0 : base->functions().size()), +1);
    const auto component = is_component ? components_.find(name) : components_.end();
    if (component != components_.end()) size.Add(component->second->functions(), -1);
    MR_RETURN_IF_ERROR(CheckSize(size, name));
    size_ = size;
    if (component != components_.end()) forgotten = TakePlans(name);
    (is_component ? components_[name] : library_) = std::move(extended);
  }
  for (const KeptPlan& kept : forgotten) Withdraw(*kept.plan);
  return OkStatus();
}

void EagerContext::FunctionSize::Add(std::span<const std::shared_ptr<const Function>> added,
                                     int sign) {
  for (const std::shared_ptr<const Function>& function : added) {
    functions += sign;
    nodes += sign * function->def.node_def_size();
    bytes += sign * static_cast<int64_t>(function->def.ByteSizeLong());
  }
}

Status EagerContext::CheckSize(const FunctionSize& size, const std::string& last) const {
  const auto refusal = [&](int64_t most, const char* what, const char* flag, int64_t would) {
    return errors::ResourceExhausted("the functions of an eager context at ", worker_.task,
                                     " may have ", most, " ", what, flag, "; with ", last,
                                     " this one would have ", would, ": remove some");
  };
  if (size.functions > static_cast<int64_t>(limits_.functions)) {
    return refusal(static_cast<int64_t>(limits_.functions), "definitions", "", size.functions);
  }
  if (limits_.graph_nodes > 0 && size.nodes > limits_.graph_nodes) {
    return refusal(limits_.graph_nodes, "nodes", " (--max_graph_nodes)", size.nodes);
  }
  if (limits_.graph_bytes > 0 && size.bytes > limits_.graph_bytes) {
    return refusal(limits_.graph_bytes, "bytes", " (--max_graph_size)", size.bytes);
  }
  return OkStatus();
}

Status EagerContext::RemoveFunction(const std::string& name) {
  std::vector<KeptPlan> forgotten;
  {
    MutexLock lock(&mu_);
    if (const auto component = components_.find(name); component != components_.end()) {
      size_.Add(component->second->functions(), -1);
      components_.erase(component);
    } else {
      MR_RETURN_IF_ERROR(RemoveFromLibrary(name));
    }
    forgotten = TakePlans(name);
  }
  for (const KeptPlan& kept : forgotten) Withdraw(*kept.plan);
  return OkStatus();
}

Status EagerContext::RemoveFromLibrary(const std::string& name) {
  if (library_ == nullptr || library_->Find(name) == nullptr) {
    return errors::NotFound("the context has no function ", name);
  }
  pb::FunctionDefLibrary all, left;
  library_->ToProto(&all);
  for (pb::FunctionDef& function : *all.mutable_function()) {
    if (function.signature().name() != name) left.add_function()->Swap(&function);
  }
  for (pb::GradientDef& gradient : *all.mutable_gradient()) {
    if (gradient.function_name() != name) left.add_gradient()->Swap(&gradient);
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const FunctionLibrary> smaller,
                      FunctionLibrary::Extend(nullptr, left));
  for (const std::shared_ptr<const Function>& function : library_->functions()) {
    if (function->name() == name) size_.Add({&function, 1}, -1);
  }
  library_ = std::move(smaller);
  return OkStatus();
}

bool EagerContext::IsFunction(std::string_view name) const {
  MutexLock lock(&mu_);
  return library_ != nullptr && library_->Find(name) != nullptr;
}

std::shared_ptr<const FunctionLibrary> EagerContext::LibraryFor(
    const std::vector<std::string>& names) const {
  std::shared_ptr<const FunctionLibrary> library;
  {
    MutexLock lock(&mu_);
    library = library_;
  }
  return library == nullptr || names.empty() ? nullptr : library->Reachable(names);
}

StatusOr<std::shared_ptr<const EagerProgram>> EagerContext::FindProgram(const std::string& op,
                                                                        AttrMap attrs,
                                                                        const Device& device,
                                                                        bool keep) {
  FunctionName call{op, {}};
  std::vector<std::string> functions;
  for (const auto& [name, value] : attrs) {
    call.attrs[name] = value;
    AddMentioned(value, &functions);
  }
  // Functions may be removed and made again under their names.
  keep = keep && functions.empty();
  const std::string key = StrCat(device.name(), " ", FunctionKey(call));
  if (keep) {
    MutexLock lock(&mu_);
    const auto known = programs_.find(key);
    if (known != programs_.end()) return known->second;
  }
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<FunctionBody> body,
      MakeOpBody(*worker_.ops, LibraryFor(functions), op, std::move(attrs), device.name()));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const EagerProgram> made,
                      EagerProgram::Make(program_env_, *body));
  if (!keep) return made;
  StringMap<std::shared_ptr<const EagerProgram>> forgotten;  // freed without the lock
  MutexLock lock(&mu_);
  if (programs_.size() >= limits_.programs) forgotten.swap(programs_);
  return programs_.try_emplace(key, std::move(made)).first->second;
}

StatusOr<std::shared_ptr<const FunctionPlan>> EagerContext::FindPlan(
    FunctionName function, const Device& device, std::vector<std::string> arg_devices,
    std::vector<int> arg_widths, bool is_component) {
  const std::string key = PlanKey(function, device, arg_devices, arg_widths, is_component);
  PlanInput input;
  std::shared_ptr<const ContextDevices> devices;
  int64_t plans_taken = 0;
  bool has_own = false;  // a component's library
  {
    MutexLock lock(&mu_);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second.plan;
    const auto component = components_.find(function.name);
    has_own = is_component && component != components_.end();
    input.library = has_own ? component->second : library_;
    devices = devices_;
    plans_taken = plans_taken_;
  }
  if (!has_own && input.library != nullptr) {
    input.library = input.library->Reachable(std::vector<std::string>{function.name});
  }
  input.function = std::move(function);
  input.device = device.name();
  input.arg_devices = std::move(arg_devices);
  input.arg_widths = std::move(arg_widths);
  input.cluster = devices.get();
  input.part_prefix = StrCat(input.function.name, "_millrace_", Hex16(RandomId()));
  MR_ASSIGN_OR_RETURN(
      std::shared_ptr<const FunctionPlan> made,
      is_component ? PlanComponent(program_env_, input) : PlanFunction(program_env_, input));
  std::vector<KeptPlan> forgotten;
  std::shared_ptr<const FunctionPlan> kept;
  {
    MutexLock lock(&mu_);
    // Made for a cluster, or of a function, that may be no more: for this call alone.
    if (plans_taken_ != plans_taken) return made;
    if (plans_.size() >= limits_.programs) {
      for (auto& [other, plan] : plans_) forgotten.push_back(std::move(plan));
      plans_.clear();
    }
    kept = plans_.try_emplace(key, KeptPlan{input.function.name, made}).first->second.plan;
  }
  for (const KeptPlan& plan : forgotten) Withdraw(*plan.plan);
  return kept;
}

std::vector<EagerContext::KeptPlan> EagerContext::TakePlans(std::string_view function) {
  std::vector<KeptPlan> taken;
  ++plans_taken_;
  for (auto it = plans_.begin(); it != plans_.end();) {
    const auto here = it++;
    if (!function.empty() && here->second.function != function) continue;
    taken.push_back(std::move(here->second));
    plans_.erase(here);
  }
  return taken;
}

void EagerContext::Withdraw(const FunctionPlan& plan) const {
  for (const auto& part : plan.remote) {
    if (!part->is_registered.load()) continue;
    pb::EnqueueRequest request;
    request.set_context_id(id_);
    request.add_queue()->mutable_remove_function()->set_function_name(part->name);
    Tell(part->task, request);
  }
}

Status EagerContext::PutPacked(const pb::SendPackedHandleOp& op) {
  if (op.handles_size() == 0) {
    return errors::InvalidArgument("a packed handle of no tensors, op ", op.op_id());
  }
  auto kept = std::make_shared<const pb::SendPackedHandleOp>(op);
  MutexLock lock(&mu_);
  if (packed_.size() >= limits_.tensors) {
    return errors::ResourceExhausted("the context keeps ", packed_.size(),
                                     " packed handles, the most that one may");
  }
  if (packed_.try_emplace(op.op_id(), std::move(kept)).second) return OkStatus();
  return errors::InvalidArgument("the context has a packed handle of op ", op.op_id(), " already");
}

std::shared_ptr<const pb::SendPackedHandleOp> EagerContext::FindPacked(int64_t op_id) const {
  MutexLock lock(&mu_);
  const auto it = packed_.find(op_id);
  return it == packed_.end() ? nullptr : it->second;
}

Status EagerContext::Drop(const pb::RemoteTensorHandle& handle) {
  {
    MutexLock lock(&mu_);
    if (handle.output_num() == 0 && packed_.erase(handle.op_id()) > 0) return OkStatus();
  }
  return handles_.Drop(handle.op_id(), handle.output_num());
}

Status EagerContext::AddStep(int64_t step_id) {
  MutexLock lock(&mu_);
  if (steps_.size() < limits_.tensors || steps_.contains(step_id)) {
    steps_.insert(step_id);
    return OkStatus();
  }
  return errors::ResourceExhausted("the context knows ", steps_.size(),
                                   " calls of functions that were not cleaned up, the most that "
                                   "one may");
}

void EagerContext::ForgetStep(int64_t step_id) {
  MutexLock lock(&mu_);
  steps_.erase(step_id);
}

bool EagerContext::HasStep(int64_t step_id) const {
  MutexLock lock(&mu_);
  return steps_.contains(step_id);
}

Status EagerContext::Enter(EagerRun* run, const std::string& what) {
  MutexLock lock(&mu_);
  if (closed_) return errors::Aborted("the context ", Hex16(id_), " was closed");
  if (limits_.runs > 0 && static_cast<int64_t>(runs_.size()) >= limits_.runs) {
    return errors::ResourceExhausted("{{node ", what, "}} the context ", Hex16(id_), " at ",
                                     worker_.task, " already runs ", runs_.size(),
                                     " ops and functions, as many as it may (--max_steps): wait "
                                     "for some of them");
  }
  runs_.insert(run);
  return OkStatus();
}

void EagerContext::Leave(EagerRun* run) {
  std::vector<std::function<void()>> idle;
  {
    MutexLock lock(&mu_);
    runs_.erase(run);
    if (runs_.empty()) idle.swap(when_idle_);
  }
  for (const auto& done : idle) done();
}

bool EagerContext::is_busy() const {
  MutexLock lock(&mu_);
  return !runs_.empty();
}

void EagerContext::WhenIdle(std::function<void()> done) {
  {
    MutexLock lock(&mu_);
    if (!runs_.empty()) {
      when_idle_.push_back(std::move(done));
      return;
    }
  }
  done();
}

void EagerContext::Close(const Status& reason) {
  std::vector<RefPtr<EagerRun>> runs;
  {
    MutexLock lock(&mu_);
    if (std::exchange(closed_, true)) return;
    for (EagerRun* run : runs_) runs.push_back(RefPtr<EagerRun>::Share(run));
  }
  for (const RefPtr<EagerRun>& run : runs) run->get()->StartCancel(reason);
  rendezvous_->CleanupAll(reason);
  handles_.Clear();
  // Freed without the lock. The other tasks of the context forget their parts with it.
  std::vector<KeptPlan> plans;
  StringMap<std::shared_ptr<const EagerProgram>> programs;
  MutexLock lock(&mu_);
  plans = TakePlans("");
  programs.swap(programs_);
}

}  // namespace millrace
