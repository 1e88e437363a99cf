// SPDX-License-Identifier: Apache-2.0
// Models as directories that programs of any language load: a graph, the values of its variables,
// and signatures, which say by name what is fed and what comes back. The files are TensorFlow's
// SavedModel; either reads the other's. docs/saved_models.md is the guide.
//
//   MR_ASSIGN_OR_RETURN(SavedModel model, LoadSavedModel("/models/digits/1"));
//   MR_ASSIGN_OR_RETURN(auto answers, model.Run("serving_default", {{"images", images}}));
#ifndef MILLRACE_SAVED_MODEL_H_
#define MILLRACE_SAVED_MODEL_H_

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/dtype.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

class Model;  // millrace/model.h

inline constexpr char kServingDefault[] = "serving_default";  // the signature of most models
inline constexpr char kServeTag[] = "serve";                  // of graphs that are made to predict
inline constexpr char kPredictMethod[] = "tensorflow/serving/predict";  // as in TensorFlow

// A tensor of the graph that a signature has a name for.
struct SignatureTensor {
  std::string tensor;                   // "serving_default_x:0"
  DataType dtype = DataType::kInvalid;  // of what is fed or comes back
  PartialShape shape{};                 // -1 and unknown ranks: anything

  friend bool operator==(const SignatureTensor&, const SignatureTensor&) = default;
};

// What can be asked of a model. A sparse tensor x is three, "x/indices", "x/values" and
// "x/dense_shape"; other composite ones are "x/0", "x/1", ...
struct ModelSignature {
  std::map<std::string, SignatureTensor> inputs;   // by the names that callers use
  std::map<std::string, SignatureTensor> outputs;  // by the names that results have
  std::string method_name = kPredictMethod;        // kind of signature, for servers
  std::map<std::string, Tensor> defaults{};        // of inputs that may be left out
};

// A signature that was prepared: the way for programs that ask often. As thread-safe as a Callable.
class SignatureCall {
 public:
  // Of Run's arguments and results, in order: those of the names.
  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }  // names of results
  const ModelSignature& signature() const { return *signature_; }       // the one that was prepared

  // Named inputs in Run's order, with the signature's defaults for what is left out.
  // InvalidArgument names an input that is missing, not in the signature, or of another type or
  // shape.
  StatusOr<std::vector<Tensor>> InOrder(const std::map<std::string, Tensor>& inputs) const;
  // InvalidArgument for another number of inputs and for types and shapes that do not fit; the
  // step's own errors. `outputs` is replaced.
  Status Run(std::span<const Tensor> inputs, std::vector<Tensor>* outputs,
             const RunOptions& options = {}) const;

 private:
  friend class SavedModel;
  std::shared_ptr<const ModelSignature> signature_;
  std::vector<std::string> inputs_, outputs_;
  Callable callable_;
};

// Choice of the graph to load, and the session that it gets.
struct LoadSavedModelOptions {
  // A directory may have several graphs; this is the one with exactly these tags.
  std::set<std::string> tags{kServeTag};  // under which the graph can be loaded
  // Graphs that ask for devices that there are not here run on those that there are.
  SessionOptions session{.allow_soft_placement = true};
};

// A loaded model: its graph, a session with the values of its variables, its signatures.
// Thread-safe, but for moves, destruction, and what Graph and Session say of themselves.
class SavedModel {
 public:
  SavedModel(SavedModel&&) noexcept;  // leaves what may be assigned to or destroyed
  SavedModel& operator=(SavedModel&&) noexcept;
  ~SavedModel();

  const std::map<std::string, ModelSignature>& signatures() const;  // by name
  // NotFound lists the names that there are. Valid as long as the model.
  StatusOr<const ModelSignature*> FindSignature(std::string_view name) const;
  const std::set<std::string>& tags() const;  // of the graph that was loaded
  const std::string& directory() const;       // that it was loaded from

  // Computes a signature's outputs. Errors as SignatureCall::InOrder and FindSignature.
  StatusOr<std::map<std::string, Tensor>> Run(std::string_view signature,
                                              const std::map<std::string, Tensor>& inputs,
                                              const RunOptions& options = {}) const;
  // The same, for many calls: names are looked up once. May outlive the model, and then says
  // FailedPrecondition.
  StatusOr<SignatureCall> Prepare(std::string_view signature) const;

  // For what goes on from here: the collections "variables" and "trainable_variables" are there
  // if the file has them (a graph saved by functions has none).
  Graph& graph();
  Session& session();  // where the variables have their values
  // Writes the same graph and signatures with the values that the variables have now; assets are
  // copied. As ExportSavedModel. FailedPrecondition if the file did not say how it is saved.
  Status Save(const std::string& directory) const;

 private:
  friend StatusOr<SavedModel> LoadSavedModel(const std::string& directory,
                                             const LoadSavedModelOptions& options);
  struct Impl;
  explicit SavedModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads DIRECTORY/saved_model.pb, restores the variables of DIRECTORY/variables and runs what the
// model wants to be run first (tables are filled from DIRECTORY/assets). What is in the file is
// code: load only models that you trust.
// NotFound: no such directory or tags, which are listed, and ops that this build has not, which are
// named. InvalidArgument: a file that is no SavedModel, a graph that cannot be, signatures of
// tensors that there are not. DataLoss: damaged values. All name the file.
StatusOr<SavedModel> LoadSavedModel(const std::string& directory,
                                    const LoadSavedModelOptions& options = {});

// A graph of a SavedModel as it is in the file, without loading it.
struct SavedModelInfo {
  std::set<std::string> tags;  // that LoadSavedModelOptions::tags choose the graph by
  std::map<std::string, ModelSignature> signatures;  // by name
  std::vector<std::string> missing_ops;  // that some node or function wants and this build has not
  int num_nodes = 0,                     // of the graph, without those of functions
      num_functions = 0;                 // in the graph's library
  std::string written_by;                // a version, "" if it does not say
};
// All graphs of a directory. Errors as LoadSavedModel.
StatusOr<std::vector<SavedModelInfo>> ReadSavedModelInfo(const std::string& directory);

// A signature over outputs of a graph.
struct GraphSignature {
  std::map<std::string, Output> inputs;      // fed, by the names that callers use
  std::map<std::string, Output> outputs;     // fetched, by the names that results have
  std::string method_name = kPredictMethod;  // kind of signature, for servers
  std::map<std::string, Tensor> defaults{};  // of inputs that may be left out
};

// A file that the graph reads, such as a vocabulary: it is copied into the SavedModel, and
// `filename`, a string tensor, is its path there when the model is loaded.
struct SavedModelAsset {
  Output filename;   // string tensor of the path
  std::string path;  // file to copy
};

// What ExportSavedModel writes besides graph, values and signatures.
struct SavedModelExportOptions {
  std::set<std::string> tags{kServeTag};  // under which the graph can be loaded
  std::vector<SavedModelAsset> assets{};  // copied into the directory
  // Is run once when the model is loaded, after the variables have their values.
  Operation init{};
  // Nodes ask for no devices: the model is loaded on other machines than it was made on.
  bool clear_devices = true;
};

// Writes what the signatures need of a graph, and the values that its variables have in `session`,
// to a directory, which is made if need be. A SavedModel that is there is replaced; its graph is
// the last that is written, so that a directory without one is not complete. Neither graph nor
// session changes. InvalidArgument: no signatures, outputs of other graphs, two assets of one name.
Status ExportSavedModel(const Graph& graph, Session& session,
                        const std::map<std::string, GraphSignature>& signatures,
                        const std::string& directory, const SavedModelExportOptions& options = {});

// Names and further options of a Model's export.
struct ModelExportOptions {
  // Empty: Keras' names, "keras_tensor", "keras_tensor_1", ..., and "output_0".
  std::vector<std::string> input_names{};
  std::string output_name{};                // of the model's one output
  std::string signature = kServingDefault;  // name of the only signature
  SavedModelExportOptions options{};        // tags, assets and devices
};

// Writes how a model predicts, as keras.Model.export does. Adds that pass to the model's graph the
// first time. Model::LoadWeights(DIRECTORY + "/variables/variables") has the weights back.
// FailedPrecondition before the model has seen data or Build was called.
Status ExportSavedModel(Model& model, const std::string& directory,
                        const ModelExportOptions& options = {});

}  // namespace millrace

#endif  // MILLRACE_SAVED_MODEL_H_
