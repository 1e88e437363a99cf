// SPDX-License-Identifier: Apache-2.0
#include "io/local_generators.h"

#include <unistd.h>

#include <cstdint>
#include <random>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "base/strings.h"

namespace millrace {
namespace {

struct Known {
  Mutex mu;
  StringMap<std::weak_ptr<const LocalGenerator>> generators ABSL_GUARDED_BY(mu);
  int64_t next ABSL_GUARDED_BY(mu) = 0;
};

Known& AllKnown() {
  static auto* const known = new Known();
  return *known;
}

// Another process may have had this one's number before.
const std::string& ThisProcess() {
  static const auto* const name = [] {
    std::random_device device;
    return new std::string(StrCat("process ", getpid(), " (", device(), device(), ")"));
  }();
  return *name;
}

}  // namespace

std::shared_ptr<const LocalGenerator> NewLocalGenerator(StartGenerator start, std::string made_at) {
  Known& known = AllKnown();
  auto* const made = new LocalGenerator{"", std::move(made_at), std::move(start)};
  MutexLock lock(&known.mu);
  made->key = StrCat("generator ", known.next++, " of ", ThisProcess());
  std::shared_ptr<const LocalGenerator> generator(made, [](const LocalGenerator* gone) {
    {
      MutexLock inner(&AllKnown().mu);
      AllKnown().generators.erase(gone->key);
    }
    delete gone;
  });
  known.generators[made->key] = generator;
  return generator;
}

StatusOr<std::shared_ptr<const LocalGenerator>> FindLocalGenerator(const std::string& key) {
  Known& known = AllKnown();
  {
    MutexLock lock(&known.mu);
    const auto found = known.generators.find(key);
    if (found != known.generators.end()) {
      if (auto generator = found->second.lock()) return generator;
    }
  }
  if (key.find(ThisProcess()) == std::string::npos) {
    return errors::FailedPrecondition(
        "the elements come from a function of another process (",
        std::string_view(key).substr(0, 100), "), and this is ", ThisProcess(),
        ". A generator cannot be sent: place the data set in the process that made it, or make it "
        "from files or tensors");
  }
  return errors::FailedPrecondition(
      "the function that the elements come from (", key,
      ") is gone: it lives as long as the graph that the data set was put into");
}

}  // namespace millrace
