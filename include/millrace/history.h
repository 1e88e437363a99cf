// SPDX-License-Identifier: Apache-2.0
// What the loops of a Model (millrace/model.h) log, and the history that Fit returns.
#ifndef MILLRACE_HISTORY_H_
#define MILLRACE_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

// Numbers by name, in order: a model gives them in the order of their names, what a callback adds
// comes last. A metric with several results has them as "<name>_0", "<name>_1", ...
class Logs {
 public:
  using Entry = std::pair<std::string, double>;  // name and value
  Logs() = default;
  Logs(std::initializer_list<Entry> entries) : entries_(entries) {}            // in this order
  explicit Logs(std::vector<Entry> entries) : entries_(std::move(entries)) {}  // in this order

  // Changes a value where it stands, or adds it at the end.
  void Set(std::string_view name, double value);
  std::optional<double> Find(std::string_view name) const;  // empty if there is none
  // NaN if there is none of the name.
  double operator[](std::string_view name) const;
  // Whether there is a value of this name.
  bool contains(std::string_view name) const { return Find(name).has_value(); }
  bool empty() const { return entries_.empty(); }       // nothing was logged
  std::size_t size() const { return entries_.size(); }  // number of values

  // Entries in order.
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  // End of the entries.
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }
  // "loss, accuracy".
  std::string Names() const;

 private:
  std::vector<Entry> entries_;
};

// kAuto: a live bar on a terminal, one line per epoch anywhere else.
enum class Verbose { kAuto = -1, kSilent = 0, kBar = 1, kLines = 2 };

// What a loop is about to do.
struct LoopParams {
  Verbose verbose = Verbose::kSilent;  // form of what is printed
  int64_t epochs = 1;                  // the number of the last one; 1 for Evaluate and Predict
  int64_t steps = -1;                  // of an epoch; -1: until the data end
};

// What a training run has logged, epoch by epoch.
class History {
 public:
  // What one epoch has logged.
  struct Epoch {
    int64_t epoch;  // counts from 0
    Logs logs;      // with "val_" values where it was validated
  };
  const LoopParams& params() const { return params_; }          // of the call of Fit
  const std::vector<Epoch>& epochs() const { return epochs_; }  // in order, as far as they ended
  // In the order in which they were first logged.
  std::vector<std::string> names() const;
  // Of those epochs that logged it; empty for an unknown name.
  std::vector<double> values(std::string_view name) const;

  // One row per epoch. A value that an epoch has not is left blank, or is null in JSON, as NaN and
  // infinities are.
  std::string ToTable() const;
  std::string ToCsv() const;   // a header, then rows
  std::string ToJson() const;  // {"epoch": [0, 1], "loss": [0.5, 0.4]}

  void set_params(const LoopParams& params) { params_ = params; }  // called by Fit

  // Appends an epoch, called by Fit.
  void Add(int64_t epoch, Logs logs) { epochs_.push_back({epoch, std::move(logs)}); }

 private:
  LoopParams params_;
  std::vector<Epoch> epochs_;
};

}  // namespace millrace

#endif  // MILLRACE_HISTORY_H_
