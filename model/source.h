// SPDX-License-Identifier: Apache-2.0
// Where batches come from: samples in memory, or a data set whose iterator lies in the model's
// graph.
#ifndef MODEL_SOURCE_H_
#define MODEL_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "model/batches.h"
#include "model/steps.h"

namespace millrace::model {

// One way through batches, again and again, by steps of one kind. Belongs to one call of a loop.
class Source {
 public:
  static constexpr int64_t kUnknown = -1, kInfinite = -2;

  virtual ~Source() = default;
  // Batches of one pass, or one of the two above.
  virtual int64_t count() const = 0;
  // "21 samples", for messages.
  virtual std::string Size() const = 0;
  // Back to the first batch.
  virtual Status Restart() = 0;
  // Known to be at the end; a step says OutOfRange there in any case.
  virtual bool at_end() const = 0;
  // Whether the data have ended, and nothing has failed, where a step ended so.
  virtual bool IsEnd(const Status& status) const;
  // One step on the next batch.
  virtual Status Step(Logs* logs) = 0;
  // At most `limit` steps, fewer where the batches end; *done is how many there were, also where
  // one of them failed. `logs`, if it is not null, gets the results after the last.
  virtual Status Execute(int64_t limit, Logs* logs, int64_t* done);
  virtual StatusOr<std::vector<Tensor>> Predict() = 0;
  // Where it is, as a vector: without elements before the first Restart.
  virtual StatusOr<Tensor> Position() = 0;
  // To be called instead of Restart, with the position of a source of the same data.
  // InvalidArgument if it is not one.
  virtual Status SetPosition(const Tensor& position) = 0;
};

// Samples that were checked (CheckSamples). Prepares the function of this kind.
StatusOr<std::unique_ptr<Source>> MakeSource(Steps* steps, Kind kind,
                                             std::unique_ptr<Batches> batches);
// Elements of the data set are batches: the model's inputs, then y, then weights of samples. With
// `class_weight`, those take the place of weights.
StatusOr<std::unique_ptr<Source>> MakeSource(Steps* steps, Kind kind, const Dataset& dataset,
                                             const std::map<int64_t, double>& class_weight = {});

}  // namespace millrace::model

#endif  // MODEL_SOURCE_H_
