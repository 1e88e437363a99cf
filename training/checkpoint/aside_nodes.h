// SPDX-License-Identifier: Apache-2.0
// Saves in two halves: one that takes the values, which steps wait for, and one that writes them,
// which they do not. Values stay at the tasks where they live, as tensors of the session.
#ifndef TRAINING_CHECKPOINT_ASIDE_NODES_H_
#define TRAINING_CHECKPOINT_ASIDE_NODES_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/checkpoint_layout.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "training/checkpoint/save_nodes.h"

namespace millrace {

struct AsideNodes {
  std::vector<Output> taken;    // texts: by which name a task keeps each value
  std::vector<Output> handles;  // to be fed with these
  Output filename, saved;       // as of MakeSave
  std::string parts_folder;
  std::vector<Operation> drops;  // let go of what `handles` name
};
// Items without a variable behind them, constants, are written as they are.
AsideNodes MakeSaveAside(const Scope& scope, const std::string& filename,
                         std::span<const SaveItem> items, bool sharded,
                         const CheckpointLayout& layout = {});

// The values of one save. Variables share them until they are written to the next time, and then
// leave them as they are. Gone from the tasks when this is, or when the session is.
class TakenValues {
 public:
  // Runs the first half. To be called where steps may be added to the graph.
  static StatusOr<std::unique_ptr<TakenValues>> Take(Session& session, const AsideNodes& nodes,
                                                     const RunOptions& options);
  ~TakenValues();
  TakenValues(const TakenValues&) = delete;
  TakenValues& operator=(const TakenValues&) = delete;

  // On any thread, once: the graph may grow meanwhile. FailedPrecondition if the session is gone.
  Status Write(const std::string& prefix) const;

 private:
  TakenValues() = default;

  RunOptions options_;
  std::string parts_folder_;
  Callable write_, drop_;
  std::vector<Tensor> handles_;
};

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_ASIDE_NODES_H_
