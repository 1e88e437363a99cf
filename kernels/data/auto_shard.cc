// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/auto_shard.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/data/graphs.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

// In order.
constexpr std::string_view kReaders[] = {"FixedLengthRecordDataset", "FixedLengthRecordDatasetV2",
                                         "TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset"};

// Puts a ShardDataset into the graph of a data set.
class GraphSharder {
 public:
  GraphSharder(pb::GraphDef* graph, ShardOf shard) : graph_(graph), shard_(shard) {
    for (int i = 0; i < graph->node_size(); ++i) by_name_[graph->node(i).name()] = i;
    for (const pb::FunctionDef& function : graph->library().function()) {
      functions_[function.signature().name()] = &function;
    }
  }

  // Before the stages that only make elements ahead.
  void ShardElements() {
    std::string* edge = ResultEdge();
    while (node(*edge).op() == "PrefetchDataset" || node(*edge).op() == "OptionsDataset") {
      edge = graph_->mutable_node(by_name_[*edge])->mutable_input(0);
    }
    const std::string before = *edge;
    // Adding nodes may move the one that the edge is of.
    const std::string after = AddShard(before);
    Redirect(before, after);
  }

  // Where the names of files come from.
  Status ShardFiles() {
    MR_ASSIGN_OR_RETURN(const std::string sharded, Shard(*ResultEdge()));
    *ResultEdge() = sharded;
    return OkStatus();
  }

 private:
  const pb::NodeDef& node(const std::string& name) const { return graph_->node(by_name_.at(name)); }
  // Of the node that WriteGraph puts last.
  std::string* ResultEdge() {
    return graph_->mutable_node(by_name_.at("dataset"))->mutable_input(0);
  }

  // The name of a node that gives this worker's part of what `name` gives.
  StatusOr<std::string> Shard(const std::string& name) {
    const auto known = sharded_.find(name);
    if (known != sharded_.end()) return known->second;
    const pb::NodeDef stage = node(name);
    std::string result = name;
    std::vector<int> inputs;
    for (int i = 0; i < stage.input_size(); ++i) {
      if (node(stage.input(i)).op() != "Const") inputs.push_back(i);
    }
    if (inputs.empty()) {
      return errors::NotFound("Found an unshardable source dataset: ", stage.op(),
                              ". Deal out elements (auto shard policy DATA) or nothing (OFF)");
    }
    if (stage.op() == "AssertCardinalityDataset") {
      MR_ASSIGN_OR_RETURN(result, Shard(stage.input(0)));  // what it asserts is of the whole
    } else if (FunctionsRead(stage)) {
      SetInput(name, inputs[0], ShardNames(stage.input(inputs[0])));
    } else {
      for (const int i : inputs) {
        MR_ASSIGN_OR_RETURN(const std::string part, Shard(stage.input(i)));
        SetInput(name, i, part);
      }
    }
    sharded_[name] = result;
    return result;
  }

  // A shuffle of names comes after the shard: all workers must deal out the same order.
  std::string ShardNames(const std::string& name) {
    if (node(name).op() != "ShuffleDatasetV3") return AddShard(name);
    SetInput(name, 0, ShardNames(std::string(node(name).input(0))));
    return name;
  }

  bool FunctionsRead(const pb::NodeDef& stage) const {
    std::set<std::string> seen;
    return std::any_of(stage.attr().begin(), stage.attr().end(), [&](const auto& attr) {
      return attr.second.has_func() && Reads(attr.second.func().name(), &seen);
    });
  }
  // Functions are few enough for this to call itself: WriteGraph has written them all.
  bool Reads(const std::string& function, std::set<std::string>* seen) const {
    const auto found = functions_.find(function);
    if (found == functions_.end() || !seen->insert(function).second) return false;
    for (const pb::NodeDef& inner : found->second->node_def()) {
      if (std::binary_search(std::begin(kReaders), std::end(kReaders), inner.op())) return true;
      if (Reads(inner.op(), seen)) return true;
      for (const auto& [name, value] : inner.attr()) {
        if (value.has_func() && Reads(value.func().name(), seen)) return true;
      }
    }
    return false;
  }

  std::string AddShard(const std::string& input) {
    const pb::NodeDef source = node(input);
    const std::string shards = AddConst(shard_.workers), index = AddConst(shard_.index);
    pb::NodeDef* const made = AddNode("ShardDataset");
    made->add_input(input);
    made->add_input(shards);
    made->add_input(index);
    auto& attrs = *made->mutable_attr();
    const std::string required = "require_non_empty";
    attrs[required].set_b(true);
    for (const char* types : {"output_types", "Toutput_types"}) {
      const auto found = source.attr().find(types);
      if (found != source.attr().end()) attrs["output_types"] = found->second;
    }
    const auto shapes = source.attr().find("output_shapes");
    if (shapes != source.attr().end()) attrs["output_shapes"] = shapes->second;
    if (attrs.find("output_types") == attrs.end()) {  // a reader of files
      attrs["output_types"].mutable_list()->add_type(pb::DT_STRING);
      attrs["output_shapes"].mutable_list()->add_shape();
    }
    return made->name();
  }

  std::string AddConst(int64_t value) {
    pb::NodeDef* const made = AddNode("Const");
    (*made->mutable_attr())["dtype"].set_type(pb::DT_INT64);
    TensorToProto(Tensor::Scalar<int64_t>(value),
                  (*made->mutable_attr())["value"].mutable_tensor());
    return made->name();
  }

  pb::NodeDef* AddNode(const std::string& op) {
    pb::NodeDef* const made = graph_->add_node();
    made->set_name(StrCat(op, "/_shard_", graph_->node_size()));
    made->set_op(op);
    by_name_[made->name()] = graph_->node_size() - 1;
    return made;
  }

  void SetInput(const std::string& name, int i, const std::string& input) {
    graph_->mutable_node(by_name_.at(name))->set_input(i, input);
  }
  // All that read `before` but the new node itself.
  void Redirect(const std::string& before, const std::string& after) {
    for (pb::NodeDef& reader : *graph_->mutable_node()) {
      if (reader.name() == after) continue;
      for (std::string& input : *reader.mutable_input()) {
        if (input == before) input = after;
      }
    }
  }

  pb::GraphDef* const graph_;
  const ShardOf shard_;
  std::map<std::string, int> by_name_;
  std::map<std::string, const pb::FunctionDef*> functions_;
  std::map<std::string, std::string> sharded_;
};

}  // namespace

StatusOr<Tensor> AutoShard(KernelContext& ctx, const DatasetValue& dataset, ShardOf shard,
                           int64_t policy) {
  if (policy == kShardHint) {
    return errors::Unimplemented("auto_shard_policy HINT: no op here takes the number of shards ",
                                 "that marks where to shard. Use FILE, DATA or OFF");
  }
  MR_ASSIGN_OR_RETURN(const pb::GraphDef whole,
                      WriteGraph(dataset, kStateIgnored, /*strip_devices=*/false));
  pb::GraphDef part = whole;
  if (policy != kShardElements) {
    const Status by_files = GraphSharder(&part, shard).ShardFiles();
    if (by_files.ok()) return MakeFromGraph(ctx, part);
    if (policy == kShardFiles || !errors::IsNotFound(by_files)) return by_files;
    part = whole;
  }
  GraphSharder(&part, shard).ShardElements();
  return MakeFromGraph(ctx, part);
}

}  // namespace millrace
