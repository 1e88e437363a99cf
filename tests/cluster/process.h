// SPDX-License-Identifier: Apache-2.0
// A program under test as a process of its own: what it prints, how it ends, whom it leaves.
#ifndef TESTS_CLUSTER_PROCESS_H_
#define TESTS_CLUSTER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace millrace::testing {

// Makes this process inherit the orphans of its descendants, so that none can hide. Once, first.
void AdoptOrphans();
// Waits until this process has no child left, not even an adopted one. False if one is still
// there after `limit`: it is then killed.
bool NoProcessIsLeft(std::chrono::seconds limit);
// The live children of a process whose command line contains `phrase`.
std::vector<pid_t> ChildrenOf(pid_t parent, const std::string& phrase = "");
// SIGSTOP; returns once all threads of the process stand still: a signal takes its time. A failure
// of the test that runs if they do not within ten seconds.
void FreezeProcess(pid_t process);

// Not thread-safe. A process that still runs is killed by the destructor.
class Process {
 public:
  Process(const std::string& program, const std::vector<std::string>& arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number);
  void Freeze() {
    if (!ended_) FreezeProcess(pid_);
  }
  // Reads on until `phrase` has been printed, on either stream. False if it has not been by
  // `limit`, or never will.
  bool WaitForOutput(const std::string& phrase, std::chrono::seconds limit);
  // The exit code, minus the number of the signal that ended it, or kStillRunning.
  static constexpr int kStillRunning = -1000;
  int WaitForEnd(std::chrono::seconds limit);
  // Both streams so far.
  const std::string& output() const { return output_; }

 private:
  bool ReadSome(std::chrono::milliseconds limit);  // false: there will be nothing more

  pid_t pid_ = -1;
  int fd_ = -1;
  bool ended_ = false;
  int result_ = kStillRunning;
  std::string output_;
};

}  // namespace millrace::testing

#endif  // TESTS_CLUSTER_PROCESS_H_
