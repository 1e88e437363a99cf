// SPDX-License-Identifier: Apache-2.0
// What each replica of a function sees of the model's variables.
#ifndef MODEL_REPLICA_VIEWS_H_
#define MODEL_REPLICA_VIEWS_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/steps.h"

namespace millrace::model {

// What is trained, or only read, is read on the replica's device: where the strategy mirrors
// variables from a copy that lies there, else once a step from where the variable lies. Of a table
// that was cut each replica has handles of its own, by which it asks for rows. What layers
// change themselves, such as moving averages, is another copy for each replica, which begins every
// step with the variable's value; the mean of these becomes the variable's. Used for one function.
class Steps::ReplicaViews {
 public:
  using Copies = std::map<std::string, Variable, std::less<>>;

  // `copies` keeps those that earlier functions made, by their names; `training`: whether layers
  // change what they keep.
  ReplicaViews(Strategy* strategy, const Scope& root, Copies* copies, bool training)
      : strategy_(*strategy), root_(root), copies_(*copies), training_(training) {}

  // For the pass of a replica of this process, which makes its nodes through `scope`.
  Pass::LocalVariable Of(int local, const Scope& scope);
  // What the replica sees of a variable; the variable itself if its pass has not asked for it.
  Variable Find(int local, const Variable& variable) const;
  // Whether there is anything but weights that are trained.
  bool has_copies() const { return has_copies_; }

  // Ops that make what replicas have changed one: the mean over all replicas of all workers that
  // have samples, or what the first of all says; of integers always that of this process' first.
  // `rows` and `updates` of each replica.
  std::vector<Operation> Merge(const Scope& scope, std::span<const Output> rows,
                               std::span<const std::vector<Operation>> updates, bool only_first,
                               std::source_location where);

 private:
  struct Seen {
    Variable variable;
    std::map<int, Variable> own;  // by replica
    bool is_copied = false;
  };
  Seen& Entry(const Variable& variable);
  Variable Made(int local, const std::string& name, const Output& initial_value);
  Variable Mirror(int local, const Variable& variable);
  Variable Copy(int local, const Scope& scope, const Variable& variable);

  Strategy& strategy_;
  const Scope root_;
  Copies& copies_;
  const bool training_;
  bool has_copies_ = false;
  std::vector<Seen> seen_;
};

}  // namespace millrace::model

#endif  // MODEL_REPLICA_VIEWS_H_
