// SPDX-License-Identifier: Apache-2.0
// Which checkpoints of a directory stay.
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "training/checkpoint/checkpoint_files.h"
#include "training/checkpoint/checkpoint_impl.h"

namespace millrace {
namespace {

constexpr double kSecondsPerHour = 3600;

}  // namespace

struct CheckpointManager::Impl {
  Checkpoint* checkpoint;
  std::shared_ptr<Checkpoint::Impl> inside;  // of the checkpoint; lives as long as a write
  CheckpointManagerOptions options;
  std::string latest;
  std::vector<std::pair<std::string, double>> may_delete;  // oldest first
  double last_preserved = 0;                               // seconds since 1970
  std::optional<int64_t> last_step;                        // that was saved
  // Complete ones whose saves have failed at the state file: no list has them.
  std::set<std::string> unnamed;

  // A write aside uses this.
  ~Impl() {
    if (inside) inside->background.Wait();
  }

  void Recover() {
    const double now = options.clock();
    const std::optional<CheckpointState> state =
        RecoverCheckpointState(options.directory, options.checkpoint_name);
    if (!state) {
      // So that what is saved at once is later than this.
      last_preserved = now - 1;
      return;
    }
    latest = state->model_checkpoint_path;
    last_preserved = state->last_preserved_timestamp;
    const std::vector<double>& times = state->all_model_checkpoint_timestamps;
    if (last_preserved == 0 && !times.empty()) {
      // Recovered from the files. Which were kept for good is found again from the oldest on,
      // which stays where any was.
      const double oldest = std::min(times.front(), now);
      last_preserved = options.keep_checkpoint_every_n_hours ? oldest : oldest - 1;
    }
    if (now < last_preserved) {
      MR_LOG(kWarning, "the time is before that of the last checkpoint in ", options.directory,
             " that was kept for good; was the clock set back?");
      last_preserved = now;
    }
    for (std::size_t i = 0; i < state->all_model_checkpoint_paths.size(); ++i) {
      const double time = i < times.size() ? std::min(times[i], now) : last_preserved;
      if (time > last_preserved)
        may_delete.emplace_back(state->all_model_checkpoint_paths[i], time);
    }
  }

  // True if there is something to save; `step` is where the program is.
  StatusOr<bool> IsTime(Session& session, bool check_interval, std::optional<int64_t>* step) {
    if (!options.step_counter) return true;
    MR_ASSIGN_OR_RETURN(const Tensor value, session.Eval(options.step_counter->read));
    if (value.dtype() == kInt32) {
      MR_ASSIGN_OR_RETURN(*step, value.TryScalar<int32_t>());
    } else {
      MR_ASSIGN_OR_RETURN(*step, value.TryScalar<int64_t>());
    }
    if (!last_step) return true;
    if (**step == *last_step) return false;
    return !check_interval || !options.checkpoint_interval ||
           **step >= *last_step + *options.checkpoint_interval;
  }

  // Writes the state file.
  Status Record(const std::string& newest,
                std::span<const std::pair<std::string, double>> checkpoints) const {
    CheckpointState state;
    state.model_checkpoint_path = newest;
    for (const auto& [path, time] : checkpoints) {
      state.all_model_checkpoint_paths.push_back(path);
      state.all_model_checkpoint_timestamps.push_back(time);
    }
    state.last_preserved_timestamp = last_preserved;
    return UpdateCheckpointState(options.directory, std::move(state), "checkpoint",
                                 /*relative=*/true);
  }

  void Sweep() {
    if (!options.max_to_keep) return;
    while (static_cast<int>(may_delete.size()) > *options.max_to_keep) {
      const auto [path, time] = may_delete.front();
      may_delete.erase(may_delete.begin());
      const std::optional<double> hours = options.keep_checkpoint_every_n_hours;
      if (hours && time - *hours * kSecondsPerHour >= last_preserved) {
        last_preserved = time;
      } else {
        RemoveOldCheckpoint(path, "meta");
      }
    }
  }

  // Those that failed saves have left, once the state file is known to name none of them.
  void DeleteUnnamed() {
    for (const auto& [path, time] : may_delete) unnamed.erase(path);
    for (const std::string& path : std::exchange(unnamed, {})) {
      if (options.max_to_keep) RemoveOldCheckpoint(path, "meta");
    }
  }

  // What follows when `prefix`, of the step `step`, is on the disk.
  Status Finish(const std::string& prefix, std::optional<int64_t> step) {
    auto with = may_delete;
    std::erase_if(with, [&](const auto& c) { return c.first == prefix; });
    with.emplace_back(prefix, options.clock());
    // Before anything is deleted: who reads meanwhile finds the new one. Until the file is written
    // the list is what it says.
    const Status named = Record(prefix, with);
    if (!named.ok()) {
      unnamed.insert(prefix);
      return Annotate(named, StrCat("; the checkpoint ", prefix,
                                    " is on the disk, but the state file does not name it, and no "
                                    "older one is deleted"));
    }
    may_delete = std::move(with);
    latest = prefix;
    last_step = step;
    Sweep();
    DeleteUnnamed();
    DeleteAbandonedParts(JoinPath(options.directory, options.checkpoint_name));
    MR_RETURN_IF_ERROR(Record(latest, may_delete));
    return inside->TellWritten(prefix);
  }
};

CheckpointManager::CheckpointManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointManager::~CheckpointManager() = default;

StatusOr<std::unique_ptr<CheckpointManager>> CheckpointManager::Create(
    Checkpoint* checkpoint, CheckpointManagerOptions options) {
  if (options.max_to_keep && *options.max_to_keep <= 0) {
    return errors::InvalidArgument("Expected a positive integer or `None` for `max_to_keep`, got ",
                                   *options.max_to_keep);
  }
  if (options.checkpoint_interval && !options.step_counter) {
    return errors::InvalidArgument("checkpoint_interval needs a step_counter, which is not given");
  }
  if (options.last_checkpoint_step && !options.step_counter) {
    return errors::InvalidArgument("last_checkpoint_step needs a step_counter, which is not given");
  }
  if (options.directory.empty()) {
    return errors::InvalidArgument("a checkpoint manager needs a directory, which is not given");
  }
  if (!options.clock) options.clock = NowSeconds;
  while (options.directory.size() > 1 && options.directory.ends_with('/')) {
    options.directory.pop_back();
  }
  auto impl = std::make_unique<Impl>();
  impl->checkpoint = checkpoint;
  impl->inside = checkpoint->impl().shared_from_this();
  impl->options = std::move(options);
  impl->last_step = impl->options.last_checkpoint_step;
  impl->Recover();
  return std::unique_ptr<CheckpointManager>(new CheckpointManager(std::move(impl)));
}

StatusOr<std::string> CheckpointManager::Save(Session& session,
                                              std::optional<int64_t> checkpoint_number,
                                              bool check_interval) {
  MR_RETURN_IF_ERROR(Sync());
  std::optional<int64_t> step;
  MR_ASSIGN_OR_RETURN(const bool is_time, impl_->IsTime(session, check_interval, &step));
  if (!is_time) return std::string();
  MR_ASSIGN_OR_RETURN(const int64_t count, impl_->inside->CountSave(session));
  const std::string prefix =
      JoinPath(impl_->options.directory,
               StrCat(impl_->options.checkpoint_name, "-", checkpoint_number.value_or(count)));
  if (impl_->options.asynchronous) {
    MR_RETURN_IF_ERROR(impl_->inside->WriteAside(
        session, prefix,
        [impl = impl_.get(), prefix, step] { return impl->Finish(prefix, step); }));
    return prefix;
  }
  MR_RETURN_IF_ERROR(impl_->inside->Write(session, prefix));
  MR_RETURN_IF_ERROR(impl_->Finish(prefix, step));
  return prefix;
}

StatusOr<std::string> CheckpointManager::RestoreOrInitialize(Session& session) {
  MR_RETURN_IF_ERROR(Sync());
  const std::string prefix = LatestCheckpoint(impl_->options.directory);
  if (prefix.empty()) {
    if (impl_->options.init_fn) MR_RETURN_IF_ERROR(impl_->options.init_fn(session));
    return std::string();
  }
  MR_ASSIGN_OR_RETURN(LoadStatus status, impl_->checkpoint->Restore(session, prefix));
  if (impl_->options.step_counter) {
    std::optional<int64_t> step;
    MR_RETURN_IF_ERROR(impl_->IsTime(session, true, &step).status());
    impl_->last_step = step;
  }
  return prefix;
}

Status CheckpointManager::Sync() { return impl_->inside->background.Sync(); }

const std::string& CheckpointManager::latest_checkpoint() const {
  impl_->inside->background.Wait();
  return impl_->latest;
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  impl_->inside->background.Wait();
  std::vector<std::string> prefixes;
  for (const auto& [prefix, time] : impl_->may_delete) prefixes.push_back(prefix);
  return prefixes;
}

const std::string& CheckpointManager::directory() const { return impl_->options.directory; }

}  // namespace millrace
