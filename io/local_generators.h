// SPDX-License-Identifier: Apache-2.0
// Functions of this process that make elements of data sets, and the keys by which ops of its
// graphs find them.
#ifndef IO_LOCAL_GENERATORS_H_
#define IO_LOCAL_GENERATORS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// True and an element, or false at the end. `is_abandoned`: nobody will ask for it any more.
using NextElement =
    std::function<StatusOr<bool>(const std::function<bool()>& is_abandoned, std::vector<Tensor>*)>;
// From the beginning.
using StartGenerator = std::function<StatusOr<NextElement>()>;

// Known by its key for as long as it lives. The key is of no use in another process.
struct LocalGenerator {
  std::string key;
  std::string made_at;  // "net.cc:12"
  StartGenerator start;
};
std::shared_ptr<const LocalGenerator> NewLocalGenerator(StartGenerator start, std::string made_at);

// FailedPrecondition for a key of another process, and for a generator that is gone. Thread-safe.
StatusOr<std::shared_ptr<const LocalGenerator>> FindLocalGenerator(const std::string& key);

}  // namespace millrace

#endif  // IO_LOCAL_GENERATORS_H_
