// Another engine's program that measures the same workloads: it prints a line of JSON for each,
// {"name": "A.null_chain.single", "value": 22.5, ...}.
#ifndef BENCH_EXECUTOR_PEER_H_
#define BENCH_EXECUTOR_PEER_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class Peer {
 public:
  // `program ITEM graphs` is run with PERF_REPS=1 and no wait for an idle machine. Without a
  // program there is no peer, and every value is 0.
  Peer(std::string program, std::string graphs)
      : program_(std::move(program)), graphs_(std::move(graphs)) {}

  bool present() const { return !program_.empty(); }
  // Runs one item, with `more` words behind, and keeps what it prints. False if it fails.
  bool Run(const std::string& item, const std::string& more = "");
  // The same for any shell command that prints such lines.
  bool RunCommand(const std::string& command);
  // Of all values whose names begin so: their names and medians.
  std::map<std::string, double> Medians(std::string_view prefix) const;
  // The best median of all values whose names begin so; 0 if there is none.
  double Best(std::string_view prefix) const;

 private:
  const std::string program_, graphs_;
  std::map<std::string, std::vector<double>> values_;
};

double Median(std::vector<double> values);

}  // namespace millrace

#endif  // BENCH_EXECUTOR_PEER_H_
