// SPDX-License-Identifier: Apache-2.0
#include "serving/served_model.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"

namespace millrace {
namespace {

constexpr char kGraphFile[] = "saved_model.pb";

struct Found {
  std::string directory, name;
  int64_t version = 1;
};

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

StatusOr<Found> FindModel(const std::string& given) {
  const std::string directory = WithoutSlashes(given);
  FileSystem* const files = PosixFileSystem();
  Found found{directory, std::string(BaseName(directory)), 1};
  if (files->FileExists(JoinPath(directory, kGraphFile))) {
    int64_t version = 0;
    if (ParseInt64(found.name, &version) && version >= 0) {
      found.version = version;
      found.name = BaseName(DirectoryName(directory));
    }
    return found;
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(directory));
  int64_t newest = -1;
  for (const std::string& name : names) {
    int64_t version = -1;
    if (!ParseInt64(name, &version) || version <= newest) continue;
    const std::string below = JoinPath(directory, name);
    if (!files->FileExists(JoinPath(below, kGraphFile))) continue;
    newest = version;
    found.directory = below;
  }
  if (newest < 0) {
    return errors::NotFound(directory, " has neither ", kGraphFile,
                            " nor folders with numbers for names that have one");
  }
  found.version = newest;
  return found;
}

}  // namespace

bool HasRows(const ModelSignature& signature) {
  const auto has_rows = [](const auto& named) {
    const PartialShape& shape = named.second.shape;
    return shape.rank() > 0 && shape.dim(0) == -1;
  };
  return !signature.inputs.empty() &&
         std::all_of(signature.inputs.begin(), signature.inputs.end(), has_rows) &&
         std::all_of(signature.outputs.begin(), signature.outputs.end(), has_rows);
}

StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const ServedModelOptions& options) {
  if (options.batching.max_rows < 1 || options.batching.steps_at_once < 1 ||
      options.batching.max_waiting < 1) {
    return errors::InvalidArgument(
        "rows of a step, steps at once and waiting calls must be at least 1");
  }
  MR_ASSIGN_OR_RETURN(const Found found, FindModel(options.directory));
  std::unique_ptr<ServedModel> served(new ServedModel());
  served->name_ = options.name.empty() ? found.name : options.name;
  served->version_ = found.version;
  MR_ASSIGN_OR_RETURN(served->model_, LoadSavedModel(found.directory, options.load));
  MR_RETURN_IF_ERROR(served->Prepare(options.batching));
  return served;
}

Status ServedModel::Prepare(const BatchingOptions& options) {
  pool_ = std::make_unique<ThreadPool>("predict", options.steps_at_once);
  for (const auto& [name, signature] : model_->signatures()) {
    auto entry = std::make_unique<Entry>();
    MR_ASSIGN_OR_RETURN(entry->call, model_->Prepare(name));
    const SignatureCall* const call = &entry->call;
    entry->batcher = std::make_unique<Batcher>(
        [call](std::span<const Tensor> inputs, std::vector<Tensor>* outputs) {
          return call->Run(inputs, outputs);
        },
        HasRows(signature), options, pool_.get());
    entries_.emplace(name, std::move(entry));
  }
  return OkStatus();
}

Status ServedModel::CheckIs(std::string_view name, std::optional<int64_t> version) const {
  if ((name.empty() || name == name_) && (!version || *version == version_)) return OkStatus();
  return errors::NotFound("Servable not found for request: ",
                          version ? StrCat("Specific(", CEscape(name), ", ", *version, ")")
                                  : StrCat("Latest(", CEscape(name), ")"),
                          "; this server has version ", version_, " of ", name_);
}

void ServedModel::Predict(std::string_view signature, const std::map<std::string, Tensor>& inputs,
                          const std::set<std::string>& only, Deadline deadline, Done done) {
  const std::string_view wanted = signature.empty() ? kServingDefault : signature;
  const auto it = entries_.find(wanted);
  if (it == entries_.end()) return done(model_->FindSignature(wanted).status(), {});
  const SignatureCall& call = it->second->call;
  for (const std::string& output : only) {
    if (call.signature().outputs.contains(output)) continue;
    return done(errors::InvalidArgument("there is no output '", CEscape(output), "', but ",
                                        StrJoin(call.outputs(), ", ")),
                {});
  }
  StatusOr<std::vector<Tensor>> values = call.InOrder(inputs);
  if (!values.ok()) return done(values.status(), {});
  it->second->batcher->Submit(
      *std::move(values), deadline,
      [&call, only, done = std::move(done)](const Status& status, std::vector<Tensor> outputs) {
        Outputs named;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          const std::string& name = call.outputs()[i];
          if (only.empty() || only.contains(name)) named.emplace(name, std::move(outputs[i]));
        }
        done(status, std::move(named));
      });
}

}  // namespace millrace
