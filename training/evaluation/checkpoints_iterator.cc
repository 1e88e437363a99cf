// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "io/uri.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "training/preemption_wait.h"

namespace millrace {
namespace {

// Another one for files that have been written again under the name: the index is replaced as a
// whole.
std::string IdentityOf(const std::string& prefix) {
  struct stat index{};
  const StatusOr<std::string> file = LocalPath(prefix + ".index");
  if (!file.ok() || ::stat(file->c_str(), &index) != 0) return "";
  return StrCat(index.st_ino, " ", index.st_size, " ", index.st_mtim.tv_sec, " ",
                index.st_mtim.tv_nsec);
}

}  // namespace

StatusOr<TakeCheckpoints> ParseTakeCheckpoints(std::string_view word) {
  if (word == "latest") return TakeCheckpoints::kLatest;
  if (word == "every") return TakeCheckpoints::kEvery;
  return errors::InvalidArgument("checkpoints are taken 'latest' or 'every', not '", word, "'");
}

std::optional<int64_t> CheckpointNumber(std::string_view prefix) {
  const std::size_t dash = prefix.rfind('-');
  int64_t number = 0;
  if (dash == std::string_view::npos || !ParseInt64(prefix.substr(dash + 1), &number) ||
      number < 0) {
    return std::nullopt;
  }
  return number;
}

CheckpointsIterator::CheckpointsIterator(std::string directory, CheckpointsIteratorOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {}

bool CheckpointsIterator::IsTaken(const std::string& prefix) const {
  const auto taken = taken_.find(prefix);
  return taken != taken_.end() && taken->second == IdentityOf(prefix);
}

void CheckpointsIterator::Mark(const std::string& prefix) { taken_[prefix] = IdentityOf(prefix); }

// One that is there and was not taken; "" if there is none.
std::string CheckpointsIterator::Take() {
  const std::string newest = LatestCheckpoint(directory_);
  if (newest.empty() || IsTaken(newest)) return "";
  const int64_t number = CheckpointNumber(newest).value_or(-1);
  if (number >= 0 && number <= newest_number_) {
    MR_LOG(kInfo, "the job has gone back: ", newest, " was written after that of number ",
           newest_number_);
  }
  newest_number_ = number;
  std::vector<std::string> waiting;  // oldest first
  const auto state = GetCheckpointState(directory_);
  if (state.ok() && state->has_value()) {
    for (const std::string& prefix : (*state)->all_model_checkpoint_paths) {
      if (prefix == newest) break;
      if (!IsTaken(prefix) && CheckpointIsComplete(prefix)) waiting.push_back(prefix);
    }
  }
  waiting.push_back(newest);
  if (options_.take == TakeCheckpoints::kEvery) {
    Mark(waiting.front());
    return waiting.front();
  }
  // Those from before the first that is taken are no loss.
  if (!taken_.empty()) {
    for (std::size_t i = 0; i + 1 < waiting.size(); ++i) {
      MR_LOG(kInfo, "skipped ", waiting[i], ": ", newest, " is newer");
      ++skipped_;
    }
  }
  for (const std::string& prefix : waiting) Mark(prefix);
  return newest;
}

std::string CheckpointsIterator::Next() {
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(not_before_ - Clock::now());
  if (!SleepUnlessPreempted(pause).ok()) return "";
  auto since = Clock::now();
  while (true) {
    // Asked first: what was there by then is taken.
    const bool stop = options_.stop && options_.stop();
    std::string taken = Take();
    if (!taken.empty()) {
      not_before_ = Clock::now() + options_.min_interval;
      return taken;
    }
    if (stop) return "";
    if (options_.timeout && Clock::now() - since >= *options_.timeout) {
      if (!options_.timeout_fn || options_.timeout_fn()) return "";
      since = Clock::now();
    }
    if (!SleepUnlessPreempted(options_.poll).ok()) return "";
  }
}

std::string WaitForNewCheckpoint(const std::string& directory, const std::string& last,
                                 std::optional<std::chrono::milliseconds> timeout,
                                 std::chrono::milliseconds poll) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    std::string newest = LatestCheckpoint(directory);
    if (!newest.empty() && newest != last) return newest;
    if (timeout && std::chrono::steady_clock::now() - begin >= *timeout) return "";
    if (!SleepUnlessPreempted(poll).ok()) return "";
  }
}

}  // namespace millrace
