// SPDX-License-Identifier: Apache-2.0
// Data sets as graphs that are data: written, made from them; and the options that they carry.
#include <climits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/background.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/captured_function.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/graphs.h"
#include "kernels/data/pipeline.h"
#include "proto/dataset_options.pb.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// What these graphs say of themselves; graph/graph_def_io.h has the number.
constexpr int kGraphProducer = 2474;

class DatasetWriter {
 public:
  DatasetWriter(int64_t policy, bool strip_devices)
      : policy_(policy), strip_devices_(strip_devices) {}

  StatusOr<pb::GraphDef> Write(const DatasetValue& dataset) {
    MR_ASSIGN_OR_RETURN(const std::string last, Add(dataset));
    pb::NodeDef* const result = graph_.add_node();
    result->set_name("dataset");
    result->set_op("_Retval");
    result->add_input(last);
    AttrToProto(int64_t{0}, &(*result->mutable_attr())["index"]);
    AttrToProto(kVariant, &(*result->mutable_attr())["T"]);
    for (auto& [name, function] : functions_) {
      if (strip_devices_) {
        for (pb::NodeDef& node : *function.mutable_node_def()) node.clear_device();
      }
      graph_.mutable_library()->add_function()->Swap(&function);
    }
    graph_.mutable_versions()->set_producer(kGraphProducer);
    return std::move(graph_);
  }

 private:
  // The name of the node that gives `dataset`. Stages are few enough for it to call itself.
  StatusOr<std::string> Add(const DatasetValue& dataset) {
    const auto known = written_.find(&dataset);
    if (known != written_.end()) return known->second;
    const StageOrigin* const origin = OriginOf(dataset);
    if (origin == nullptr) {
      return errors::Unimplemented("a data set that is an element of another one has no graph");
    }
    std::vector<std::string> inputs;
    for (const Tensor& arg : origin->args) {
      MR_ASSIGN_OR_RETURN(inputs.emplace_back(), AddArg(arg, origin->op->name));
    }
    if (origin->functions.get() != nullptr) MR_RETURN_IF_ERROR(AddFunctions(*origin));
    pb::NodeDef* const node = NewNode(origin->op->name);
    for (std::string& input : inputs) node->add_input(std::move(input));
    for (const auto& [name, value] : origin->op->attrs) {
      AttrToProto(value, &(*node->mutable_attr())[name]);
    }
    return written_.emplace(&dataset, node->name()).first->second;
  }

  StatusOr<std::string> AddArg(const Tensor& arg, const std::string& op) {
    const auto* const dataset = VariantCast<DatasetValue>(arg);
    if (dataset != nullptr) return Add(*dataset);
    if (arg.dtype() == kVariant || !arg.IsInitialized()) {
      return errors::Unimplemented("an input of a ", op, " is a variant that is no data set: it ",
                                   "cannot be written into a graph");
    }
    pb::NodeDef* const node = NewNode("Const");
    AttrToProto(arg, &(*node->mutable_attr())["value"]);
    AttrToProto(arg.dtype(), &(*node->mutable_attr())["dtype"]);
    return node->name();
  }

  Status AddFunctions(const StageOrigin& origin) {
    pb::FunctionDefLibrary library;
    origin.functions->ExportFunctions(origin.op->attrs, &library);
    for (pb::FunctionDef& function : *library.mutable_function()) {
      const std::string& name = function.signature().name();
      if (function.signature().is_stateful()) MR_RETURN_IF_ERROR(MeetState(name, origin.op->name));
      const auto [at, added] = functions_.try_emplace(name);
      if (added) {
        at->second.Swap(&function);
      } else if (at->second.DebugString() != function.DebugString()) {
        return errors::InvalidArgument("two functions of the data set are called ", name,
                                       ": a graph can have only one of them");
      }
    }
    for (pb::GradientDef& gradient : *library.mutable_gradient()) {
      if (gradients_.insert(gradient.function_name()).second) {
        graph_.mutable_library()->add_gradient()->Swap(&gradient);
      }
    }
    return OkStatus();
  }

  Status MeetState(const std::string& function, const std::string& op) const {
    if (policy_ == kStateFails) {
      return errors::FailedPrecondition("function ", function, " of a ", op,
                                        " is stateful: what it keeps is not in the graph");
    }
    if (policy_ == kStateWarns) {
      MR_LOG(kDebug, "function ", function, " of a ", op,
             " is stateful: the graph of the data set does not have what it keeps");
    }
    return OkStatus();
  }

  pb::NodeDef* NewNode(const std::string& op) {
    pb::NodeDef* const node = graph_.add_node();
    node->set_name(StrCat(op, "/_", graph_.node_size() - 1));
    node->set_op(op);
    return node;
  }

  const int64_t policy_;
  const bool strip_devices_;
  pb::GraphDef graph_;
  std::map<const DatasetValue*, std::string> written_;
  std::map<std::string, pb::FunctionDef> functions_;
  std::set<std::string> gradients_;
};

// DatasetToGraph and its V2.
class DatasetToGraphKernel : public Kernel {
 public:
  explicit DatasetToGraphKernel(KernelConstruction& c)
      : Kernel(c), strip_devices_(c.attr<bool>("strip_device_assignment")) {
    if (c.attrs().Has("external_state_policy")) {
      policy_ = c.attr<int64_t>("external_state_policy");
    } else {
      policy_ = c.attrs().GetOr<bool>("allow_stateful", false) ? kStateIgnored : kStateFails;
    }
    if (policy_ < kStateWarns || policy_ > kStateFails) {
      c.SetError(errors::InvalidArgument("external_state_policy is ", policy_,
                                         ", it must be 0 (warn), 1 (ignore) or 2 (fail)"));
    }
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const pb::GraphDef graph, WriteGraph(*input, policy_, strip_devices_));
    if (graph.ByteSizeLong() > INT_MAX) {
      return errors::ResourceExhausted("the graph of the data set takes ", graph.ByteSizeLong(),
                                       " bytes, more than a message may: keep data in files, or ",
                                       "make the data set where it is used");
    }
    ctx.SetOutput(0, Tensor::String(graph.SerializeAsString()));
    return OkStatus();
  }

 private:
  const bool strip_devices_;
  int64_t policy_ = kStateWarns;
};

class DatasetFromGraphKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Give(ctx); });
  }

 private:
  Status Give(KernelContext& ctx) const {
    const Tensor& text = ctx.input(0);
    pb::GraphDef graph;
    if (text.num_elements() != 1 || !graph.ParseFromString(text.data<std::string>()[0])) {
      return errors::InvalidArgument("graph_def of ", name(),
                                     " must be a scalar that holds a serialized GraphDef");
    }
    MR_ASSIGN_OR_RETURN(Tensor dataset, MakeFromGraph(ctx, graph));
    ctx.SetOutput(0, std::move(dataset));
    return OkStatus();
  }
};

// What its input gives, with options: how it should run, which nothing here depends on, and what
// clients keep there for themselves.
class OptionsDataset : public DatasetValue, public HasOptions {
 public:
  OptionsDataset(DatasetPtr input, std::string options)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        options_(std::move(options)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  StatusOr<DatasetWalkPtr> NewIterator() const override { return input_->NewIterator(); }
  const std::string& options() const override { return options_; }

 private:
  const DatasetPtr input_;
  const std::string options_;
};

class OptionsKernel : public DatasetKernel {
 public:
  explicit OptionsKernel(KernelConstruction& c)
      : DatasetKernel(c), options_(c.attr<std::string>("serialized_options")) {
    if (!pb::data::Options().ParseFromString(options_)) {
      c.SetError(errors::InvalidArgument("serialized_options of ", c.name(),
                                         " are not the options of a data set"));
    }
  }

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    return RefPtr<DatasetValue>(MakeRef<OptionsDataset>(std::move(input), options_));
  }

 private:
  const std::string options_;
};

class GetOptionsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(ctx, 0));
    ctx.SetOutput(0, Tensor::String(OptionsOf(*input)));
    return OkStatus();
  }
};

}  // namespace

StatusOr<pb::GraphDef> WriteGraph(const DatasetValue& dataset, int64_t policy, bool strip_devices) {
  return DatasetWriter(policy, strip_devices).Write(dataset);
}

StatusOr<Tensor> MakeFromGraph(KernelContext& ctx, const pb::GraphDef& graph) {
  FunctionRunner* const runner = ctx.env().functions;
  if (runner == nullptr) {
    return errors::Unimplemented(ctx.node_name(), ": nothing here can run a graph that is data");
  }
  MR_ASSIGN_OR_RETURN(const FunctionRunner::GraphFunction made,
                      runner->MakeGraph(graph, ctx.device()));
  const auto function =
      MakeRef<CapturedFunction>(made.runner, made.function, ctx.device(), std::vector<Tensor>());
  DatasetElement results;
  MR_RETURN_IF_ERROR(function->Call({ctx.allocator(), ctx.cancellation()}, {}, &results));
  MR_RETURN_IF_ERROR(ResultDataset(results).status());
  return std::move(results[0]);
}

void RegisterDatasetGraphs(KernelRegistry& r) {
  RegisterCpu<DatasetToGraphKernel>(r, "DatasetToGraph");
  RegisterCpu<DatasetToGraphKernel>(r, "DatasetToGraphV2");
  RegisterCpu<DatasetFromGraphKernel>(r, "DatasetFromGraph");
  RegisterCpu<OptionsKernel>(r, "OptionsDataset");
  RegisterCpu<GetOptionsKernel>(r, "GetOptions");
}

}  // namespace millrace
