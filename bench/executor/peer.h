// SPDX-License-Identifier: Apache-2.0
// Other engines' programs that measure the same workloads: each prints a line of JSON for each,
// {"name": "A.null_chain.single", "value": 22.5, ...}.
#ifndef BENCH_EXECUTOR_PEER_H_
#define BENCH_EXECUTOR_PEER_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Not thread-safe.
class Peer {
 public:
  // Runs a shell command and keeps what it prints. Its environment has PERF_REPS=1, no wait for
  // an idle machine, and ITEM, so that a command may leave out what is not asked for. False if
  // it fails.
  bool RunCommand(const std::string& command, const std::string& item = "");

  // A way of a peer to run a workload, and what it took in each round.
  struct Way {
    std::string name;
    std::vector<double> values;
  };
  // Those named `name`, or `name` with a dot and more behind.
  std::vector<Way> Ways(const std::string& name) const;
  // Of all that was printed, by name.
  std::map<std::string, double> Medians() const;

 private:
  std::map<std::string, std::vector<double>> values_;
};

// The upper of two middle ones; not of nothing.
double Median(std::vector<double> values);

// Prints a line for each way of the peers to run the workloads of these names: its median, in
// `unit`, and how many times that ours is, with the least and most of any round. And which of
// them is the best.
void PrintWays(const Peer& peer, const std::vector<std::string>& names,
               const std::vector<double>& ours, const std::string& unit);

// "0.512 [0.490, 0.530]": the ratio of the medians, and the least and most of a round; of rounds
// only where both have as many.
std::string RatioText(const std::vector<double>& ours, const std::vector<double>& theirs);

}  // namespace millrace

#endif  // BENCH_EXECUTOR_PEER_H_
