// Whether the masters that have sessions here are still there.
#ifndef WORKER_MASTER_WATCH_H_
#define WORKER_MASTER_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline_timer.h"
#include "millrace/status.h"
#include "session/worker_env.h"

namespace millrace {

// A task that has opened sessions, and which process of it: one of its devices' incarnations.
using MasterId = std::pair<std::string, int64_t>;

// Asks the masters of a worker for their status, three times in a limit. One that has not answered
// for the limit is lost, and so is one whose devices are those of another process. Thread-safe.
class MasterWatch {
 public:
  // The masters that have sessions now, without those of the worker's own task.
  using List = std::function<std::vector<MasterId>()>;
  // On a thread of its own, at most once for each master unless it is listed again.
  using Lost = std::function<void(const MasterId& master, const Status& why)>;

  // What `env` points to must outlive this. Both functions are called until the destructor returns.
  MasterWatch(const WorkerEnv& env, std::chrono::milliseconds limit, List list, Lost lost);
  ~MasterWatch();
  MasterWatch(const MasterWatch&) = delete;
  MasterWatch& operator=(const MasterWatch&) = delete;

  // There may be a master that is not watched yet.
  void Wake();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace

#endif  // WORKER_MASTER_WATCH_H_
