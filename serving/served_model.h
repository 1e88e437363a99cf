// SPDX-License-Identifier: Apache-2.0
// A SavedModel that many callers ask: found below its folder, known by name and version, its
// signatures prepared.
#ifndef SERVING_SERVED_MODEL_H_
#define SERVING_SERVED_MODEL_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/notification.h"
#include "base/thread_pool.h"
#include "millrace/saved_model.h"
#include "serving/batcher.h"

namespace millrace {

struct ServedModelOptions {
  // A SavedModel, or a folder of them with numbers for names, of which the greatest is served.
  std::string directory;
  std::string name{};  // "": that of the folder, or of the one around it for a number
  LoadSavedModelOptions load{};
  BatchingOptions batching{};
};

// Thread-safe.
class ServedModel {
 public:
  using Outputs = std::map<std::string, Tensor>;
  using Done = std::function<void(const Status& status, Outputs outputs)>;

  // Errors as LoadSavedModel; NotFound for a folder with neither.
  static StatusOr<std::unique_ptr<ServedModel>> Load(const ServedModelOptions& options);

  const std::string& name() const { return name_; }
  int64_t version() const { return version_; }
  const SavedModel& model() const { return *model_; }

  // NotFound unless this is what a caller asks for; "" and no version are any.
  Status CheckIs(std::string_view name, std::optional<int64_t> version) const;

  // Computes a signature ("": serving_default), of which `done` gets all outputs, or those in
  // `only`. InvalidArgument names inputs that do not fit and outputs that there are not; otherwise
  // as Batcher::Submit.
  void Predict(std::string_view signature, const std::map<std::string, Tensor>& inputs,
               const std::set<std::string>& only, Deadline deadline, Done done);

 private:
  struct Entry {
    SignatureCall call;
    std::unique_ptr<Batcher> batcher;
  };

  ServedModel() = default;
  Status Prepare(const BatchingOptions& options);

  std::string name_;
  int64_t version_ = 1;
  std::optional<SavedModel> model_;
  std::unique_ptr<ThreadPool> pool_;
  std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries_;  // go before the pool
};

// Whether rows of several calls may go through one step: all tensors have a first axis of any size.
bool HasRows(const ModelSignature& signature);

}  // namespace millrace

#endif  // SERVING_SERVED_MODEL_H_
