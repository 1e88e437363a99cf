// SPDX-License-Identifier: Apache-2.0
// The ops that take Example and SequenceExample messages apart.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/io/example_parser.h"
#include "kernels/kernel_context.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

// The inputs or outputs that an argument of the op stands for.
struct Range {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
};
Range RangeOf(KernelConstruction& c, const char* name, bool is_input) {
  Range range;
  Status status = ArgRange(c.def(), c.attrs(), name, is_input, &range.begin, &range.end);
  if (!status.ok()) c.SetError(std::move(status));
  return range;
}

StatusOr<std::vector<std::string>> Keys(const Tensor& t, const char* what, std::size_t count) {
  if (t.rank() != 1 || t.num_elements() != static_cast<int64_t>(count)) {
    return errors::InvalidArgument("Expected ", what, " to be a vector of ", count,
                                   " keys, got shape ", t.shape().DebugString());
  }
  const auto keys = t.flat<std::string>();
  return std::vector<std::string>(keys.begin(), keys.end());
}

void Put(KernelContext& ctx, const Range& range, std::vector<Tensor> values) {
  for (int i = 0; i < range.size(); ++i) ctx.SetOutput(range.begin + i, std::move(values[i]));
}

// A default must be empty, one value, or a whole row.
Status CheckStandard(const DenseFeature& f) {
  if (f.standard.dtype() != f.dtype) {
    return errors::InvalidArgument("dense_defaults of ", f.key, " is of type ",
                                   DataTypeName(f.standard.dtype()), ", not ",
                                   DataTypeName(f.dtype));
  }
  const int64_t n = f.standard.num_elements();
  const auto shape = f.shape.AsShape();
  if (n == 0 || n == 1 || (shape && shape->num_elements() == n)) return OkStatus();
  return errors::InvalidArgument("dense_defaults of ", f.key, " has shape ",
                                 f.standard.shape().DebugString(), ", expected ",
                                 f.shape.DebugString());
}

// ParseExample, its V2, and ParseSingleExample: they differ in where keys come from.
class ParseExampleKernel : public Kernel {
 public:
  explicit ParseExampleKernel(KernelConstruction& c)
      : Kernel(c),
        v2_(c.def().name() == "ParseExampleV2"),
        single_(c.def().name() == "ParseSingleExample"),
        dense_types_(c.attr<std::vector<DataType>>("Tdense")),
        sparse_types_(c.attr<std::vector<DataType>>("sparse_types")),
        shapes_(c.attr<std::vector<PartialShape>>("dense_shapes")) {
    if (v2_) {
      ragged_types_ = c.attr<std::vector<DataType>>("ragged_value_types");
      split_types_ = c.attr<std::vector<DataType>>("ragged_split_types");
      ragged_values_ = RangeOf(c, "ragged_values", false);
      ragged_splits_ = RangeOf(c, "ragged_row_splits", false);
    }
    if (single_) {
      sparse_keys_ = c.attr<std::vector<std::string>>("sparse_keys");
      dense_keys_ = c.attr<std::vector<std::string>>("dense_keys");
    } else if (!v2_) {
      sparse_key_args_ = RangeOf(c, "sparse_keys", true);
      dense_key_args_ = RangeOf(c, "dense_keys", true);
    }
    standards_ = RangeOf(c, "dense_defaults", true);
    indices_ = RangeOf(c, "sparse_indices", false);
    values_ = RangeOf(c, "sparse_values", false);
    sparse_shapes_ = RangeOf(c, "sparse_shapes", false);
    dense_ = RangeOf(c, "dense_values", false);
    if (shapes_.size() != dense_types_.size() || standards_.size() != dense_.size() ||
        sparse_types_.size() != static_cast<std::size_t>(indices_.size()) ||
        ragged_types_.size() != split_types_.size() ||
        (single_ && (sparse_keys_.size() != sparse_types_.size() ||
                     dense_keys_.size() != dense_types_.size()))) {
      c.SetError(errors::InvalidArgument("the lists of keys, types, shapes and defaults do not ",
                                         "have the same lengths"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ExampleSpec spec, Spec(ctx));
    const Tensor& serialized = ctx.input(0);
    const bool one = serialized.rank() == 0;
    if (serialized.rank() > (v2_ || !single_ ? 1 : 0) || (one && !v2_ && !single_)) {
      return errors::InvalidArgument("Expected serialized to be a ", single_ ? "scalar" : "vector",
                                     ", got shape: ", serialized.shape().DebugString());
    }
    std::span<const std::string> names;
    if (!single_) {
      names = ctx.input(1).flat<std::string>();
      if (!names.empty() && static_cast<int64_t>(names.size()) != serialized.num_elements()) {
        return errors::InvalidArgument("Expected len(names) == len(serialized), but got: ",
                                       names.size(), " vs. ", serialized.num_elements());
      }
    }
    MR_ASSIGN_OR_RETURN(ParsedExamples parsed,
                        ParseExamples(ctx, spec, serialized.flat<std::string>(), names, one));
    Put(ctx, indices_, std::move(parsed.sparse_indices));
    Put(ctx, values_, std::move(parsed.sparse_values));
    Put(ctx, sparse_shapes_, std::move(parsed.sparse_shapes));
    Put(ctx, dense_, std::move(parsed.dense));
    Put(ctx, ragged_values_, std::move(parsed.ragged_values));
    Put(ctx, ragged_splits_, std::move(parsed.ragged_splits));
    return OkStatus();
  }

 private:
  StatusOr<ExampleSpec> Spec(const KernelContext& ctx) const {
    std::vector<std::string> sparse = sparse_keys_, dense = dense_keys_, ragged;
    if (v2_) {
      MR_ASSIGN_OR_RETURN(sparse, Keys(ctx.input(2), "sparse_keys", sparse_types_.size()));
      MR_ASSIGN_OR_RETURN(dense, Keys(ctx.input(3), "dense_keys", dense_types_.size()));
      MR_ASSIGN_OR_RETURN(ragged, Keys(ctx.input(4), "ragged_keys", ragged_types_.size()));
    } else if (!single_) {
      MR_RETURN_IF_ERROR(ScalarKeys(ctx, sparse_key_args_, &sparse));
      MR_RETURN_IF_ERROR(ScalarKeys(ctx, dense_key_args_, &dense));
    }
    ExampleSpec spec;
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      spec.sparse.push_back({sparse[i], sparse_types_[i], kInt64});
    }
    for (std::size_t i = 0; i < ragged.size(); ++i) {
      spec.ragged.push_back({ragged[i], ragged_types_[i], split_types_[i]});
    }
    for (std::size_t i = 0; i < dense.size(); ++i) {
      spec.dense.push_back({dense[i], dense_types_[i], shapes_[i],
                            ctx.locked_input(standards_.begin + static_cast<int>(i))});
      MR_RETURN_IF_ERROR(CheckStandard(spec.dense.back()));
    }
    return spec;
  }

  static Status ScalarKeys(const KernelContext& ctx, const Range& range,
                           std::vector<std::string>* keys) {
    for (int i = range.begin; i < range.end; ++i) {
      if (ctx.input(i).num_elements() != 1) {
        return errors::InvalidArgument("a key must be a scalar, got shape ",
                                       ctx.input(i).shape().DebugString());
      }
      keys->push_back(ctx.input(i).scalar<std::string>());
    }
    return OkStatus();
  }

  const bool v2_, single_;
  const std::vector<DataType> dense_types_, sparse_types_;
  const std::vector<PartialShape> shapes_;
  std::vector<DataType> ragged_types_, split_types_;
  std::vector<std::string> sparse_keys_, dense_keys_;
  Range sparse_key_args_, dense_key_args_, standards_;
  Range indices_, values_, sparse_shapes_, dense_, ragged_values_, ragged_splits_;
};

// --- SequenceExample --------------------------------------------------------------------------

using Sequences = std::vector<const pb::SequenceExample*>;
using Names = std::span<const std::string>;

const pb::FeatureList* FindList(const pb::SequenceExample& example, const std::string& key) {
  const auto it = example.feature_lists().feature_list().find(key);
  return it == example.feature_lists().feature_list().end() ? nullptr : &it->second;
}

// Which features are asked for, by key; and of each dense list whether it may be missing.
struct SequenceKeys {
  std::vector<std::string> context_sparse, context_dense, context_ragged;
  std::vector<std::string> list_sparse, list_dense, list_ragged;
  std::vector<bool> may_miss;
};

bool HasArg(const pb::OpDef& def, std::string_view name) {
  const auto is = [&](const auto& arg) { return arg.name() == name; };
  return std::any_of(def.output_arg().begin(), def.output_arg().end(), is);
}

std::vector<DataType> TypesAttr(KernelConstruction& c, const char* name) {
  return c.attrs().GetOr<std::vector<DataType>>(name, {});
}

// ParseSequenceExample, which has its keys in attributes, V2, which has vectors of them, and
// ParseSingleSequenceExample, which has an input for each: a batch of messages, or one.
class ParseSequenceExampleKernel : public Kernel {
 public:
  explicit ParseSequenceExampleKernel(KernelConstruction& c)
      : Kernel(c),
        form_(c.def().name() == "ParseSequenceExampleV2" ? Form::kVectors
              : c.def().name() == "ParseSequenceExample" ? Form::kAttributes
                                                         : Form::kInputs),
        context_dense_types_(TypesAttr(c, "Tcontext_dense")),
        context_sparse_types_(TypesAttr(c, "context_sparse_types")),
        context_ragged_types_(TypesAttr(c, "context_ragged_value_types")),
        context_split_types_(TypesAttr(c, "context_ragged_split_types")),
        context_shapes_(c.attr<std::vector<PartialShape>>("context_dense_shapes")),
        list_dense_types_(TypesAttr(c, "feature_list_dense_types")),
        list_sparse_types_(TypesAttr(c, "feature_list_sparse_types")),
        list_ragged_types_(TypesAttr(c, "feature_list_ragged_value_types")),
        list_split_types_(TypesAttr(c, "feature_list_ragged_split_types")),
        list_shapes_(c.attr<std::vector<PartialShape>>("feature_list_dense_shapes")) {
    standards_ = RangeOf(c, "context_dense_defaults", true);
    if (form_ == Form::kAttributes) ReadKeys(c);
    if (form_ == Form::kInputs) {
      static constexpr const char* kInputs[] = {"context_sparse_keys", "context_dense_keys",
                                                "feature_list_sparse_keys",
                                                "feature_list_dense_keys"};
      for (int i = 0; i < 4; ++i) key_inputs_[i] = RangeOf(c, kInputs[i], true);
    }
    static constexpr const char* kOutputs[kNumOutputs] = {"context_sparse_indices",
                                                          "context_sparse_values",
                                                          "context_sparse_shapes",
                                                          "context_dense_values",
                                                          "context_ragged_values",
                                                          "context_ragged_row_splits",
                                                          "feature_list_sparse_indices",
                                                          "feature_list_sparse_values",
                                                          "feature_list_sparse_shapes",
                                                          "feature_list_dense_values",
                                                          "feature_list_dense_lengths",
                                                          "feature_list_ragged_values",
                                                          "feature_list_ragged_outer_splits",
                                                          "feature_list_ragged_inner_splits"};
    for (int i = 0; i < kNumOutputs; ++i) {
      if (HasArg(c.def(), kOutputs[i])) outputs_[i] = RangeOf(c, kOutputs[i], false);
    }
    if (context_shapes_.size() != context_dense_types_.size() ||
        list_shapes_.size() != list_dense_types_.size() ||
        context_ragged_types_.size() != context_split_types_.size() ||
        list_ragged_types_.size() != list_split_types_.size() ||
        list_dense_types_.size() != static_cast<std::size_t>(outputs_[9].size()) ||
        (form_ != Form::kInputs && outputs_[9].size() != outputs_[10].size()) ||
        list_sparse_types_.size() != static_cast<std::size_t>(outputs_[6].size()) ||
        context_sparse_types_.size() != static_cast<std::size_t>(outputs_[0].size())) {
      c.SetError(errors::InvalidArgument("the lists of types and shapes do not have the same ",
                                         "lengths"));
    }
    for (const PartialShape& shape : list_shapes_) {
      if (const auto known = shape.AsShape()) {
        list_elements_.push_back(*known);
      } else {
        c.SetError(errors::InvalidArgument("feature_list_dense_shapes must be fully defined and ",
                                           "not too large, got ", shape.DebugString()));
      }
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& serialized = ctx.input(0);
    const bool single = serialized.rank() == 0;
    if (form_ == Form::kInputs && !single) {
      return errors::InvalidArgument("Expected serialized to be a scalar, got shape: ",
                                     serialized.shape().DebugString());
    }
    if (serialized.rank() > 1) {
      return errors::InvalidArgument("Expected serialized to be a scalar or vector, got shape: ",
                                     serialized.shape().DebugString());
    }
    std::vector<pb::SequenceExample> messages(serialized.num_elements());
    Sequences examples;
    std::vector<const pb::Features*> contexts;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].ParseFromString(serialized.data<std::string>()[i])) {
        return errors::InvalidArgument("Could not parse example input, value ", i);
      }
      examples.push_back(&messages[i]);
      contexts.push_back(&messages[i].context());
    }
    const int name = form_ == Form::kInputs ? ctx.num_inputs() - 1 : 1;
    const auto names = ctx.input(name).flat<std::string>();
    SequenceKeys keys = keys_;
    if (form_ == Form::kVectors) MR_RETURN_IF_ERROR(ReadVectors(ctx, &keys));
    if (form_ == Form::kInputs) MR_RETURN_IF_ERROR(ReadInputs(ctx, &keys));
    MR_RETURN_IF_ERROR(ParseContext(ctx, keys, contexts, names, single));
    return ParseLists(ctx, keys, examples, names, single);
  }

 private:
  enum class Form { kVectors, kAttributes, kInputs };
  static constexpr int kNumOutputs = 14;

  void ReadKeys(KernelConstruction& c) {
    using Names = std::vector<std::string>;
    keys_.context_sparse = c.attr<Names>("context_sparse_keys");
    keys_.context_dense = c.attr<Names>("context_dense_keys");
    keys_.list_sparse = c.attr<Names>("feature_list_sparse_keys");
    keys_.list_dense = c.attr<Names>("feature_list_dense_keys");
    const auto may_miss = c.attr<Names>("feature_list_dense_missing_assumed_empty");
    for (const std::string& key : keys_.list_dense) {
      keys_.may_miss.push_back(std::find(may_miss.begin(), may_miss.end(), key) != may_miss.end());
    }
    if (keys_.context_sparse.size() != context_sparse_types_.size() ||
        keys_.context_dense.size() != context_dense_types_.size() ||
        keys_.list_sparse.size() != list_sparse_types_.size() ||
        keys_.list_dense.size() != list_dense_types_.size()) {
      c.SetError(errors::InvalidArgument("there must be as many keys as types"));
    }
  }

  Status ReadVectors(const KernelContext& ctx, SequenceKeys* keys) const {
    MR_ASSIGN_OR_RETURN(keys->context_sparse,
                        Keys(ctx.input(2), "context_sparse_keys", context_sparse_types_.size()));
    MR_ASSIGN_OR_RETURN(keys->context_dense,
                        Keys(ctx.input(3), "context_dense_keys", context_dense_types_.size()));
    MR_ASSIGN_OR_RETURN(keys->context_ragged,
                        Keys(ctx.input(4), "context_ragged_keys", context_ragged_types_.size()));
    MR_ASSIGN_OR_RETURN(keys->list_sparse,
                        Keys(ctx.input(5), "feature_list_sparse_keys", list_sparse_types_.size()));
    MR_ASSIGN_OR_RETURN(keys->list_dense,
                        Keys(ctx.input(6), "feature_list_dense_keys", list_dense_types_.size()));
    MR_ASSIGN_OR_RETURN(keys->list_ragged,
                        Keys(ctx.input(7), "feature_list_ragged_keys", list_ragged_types_.size()));
    const Tensor& may_miss = ctx.input(8);
    if (may_miss.num_elements() != static_cast<int64_t>(keys->list_dense.size())) {
      return errors::InvalidArgument("feature_list_dense_missing_assumed_empty must have ",
                                     keys->list_dense.size(), " elements, got ",
                                     may_miss.shape().DebugString());
    }
    for (const bool may : may_miss.flat<bool>()) keys->may_miss.push_back(may);
    return OkStatus();
  }

  Status ReadInputs(const KernelContext& ctx, SequenceKeys* keys) const {
    const std::array<std::vector<std::string>*, 4> to = {
        &keys->context_sparse, &keys->context_dense, &keys->list_sparse, &keys->list_dense};
    for (int i = 0; i < 4; ++i) {
      for (int k = key_inputs_[i].begin; k < key_inputs_[i].end; ++k) {
        if (ctx.input(k).num_elements() != 1) {
          return errors::InvalidArgument("each key must be a scalar, got shape ",
                                         ctx.input(k).shape().DebugString());
        }
        to[static_cast<std::size_t>(i)]->push_back(ctx.input(k).data<std::string>()[0]);
      }
    }
    const auto may_miss = ctx.input(1).flat<std::string>();
    for (const std::string& key : keys->list_dense) {
      keys->may_miss.push_back(std::find(may_miss.begin(), may_miss.end(), key) != may_miss.end());
    }
    return OkStatus();
  }

  Status ParseContext(KernelContext& ctx, const SequenceKeys& keys,
                      const std::vector<const pb::Features*>& rows,
                      std::span<const std::string> names, bool single) const {
    ExampleSpec spec;
    spec.is_context = true;
    const auto &sparse = keys.context_sparse, &dense = keys.context_dense,
               &ragged = keys.context_ragged;
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      spec.sparse.push_back({sparse[i], context_sparse_types_[i], kInt64});
    }
    for (std::size_t i = 0; i < ragged.size(); ++i) {
      spec.ragged.push_back({ragged[i], context_ragged_types_[i], context_split_types_[i]});
    }
    for (std::size_t i = 0; i < dense.size(); ++i) {
      spec.dense.push_back({dense[i], context_dense_types_[i], context_shapes_[i],
                            ctx.locked_input(standards_.begin + static_cast<int>(i))});
      MR_RETURN_IF_ERROR(CheckStandard(spec.dense.back()));
      // The form for one message says it in words of its own.
      if (form_ == Form::kInputs && spec.dense.back().standard.num_elements() == 0 &&
          !rows[0]->feature().contains(dense[i])) {
        return errors::InvalidArgument("Name: ", Name(names, 0), ", Context feature '", dense[i],
                                       "' is required but could not be found.");
      }
    }
    MR_ASSIGN_OR_RETURN(ParsedExamples parsed, ParseFeatures(spec, rows, names, single));
    Put(ctx, outputs_[0], std::move(parsed.sparse_indices));
    Put(ctx, outputs_[1], std::move(parsed.sparse_values));
    Put(ctx, outputs_[2], std::move(parsed.sparse_shapes));
    Put(ctx, outputs_[3], std::move(parsed.dense));
    Put(ctx, outputs_[4], std::move(parsed.ragged_values));
    Put(ctx, outputs_[5], std::move(parsed.ragged_splits));
    return OkStatus();
  }

  Status ParseLists(KernelContext& ctx, const SequenceKeys& keys, const Sequences& examples,
                    Names names, bool single) const {
    const auto &sparse = keys.list_sparse, &dense = keys.list_dense, &ragged = keys.list_ragged;
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      MR_RETURN_IF_ERROR(SparseList(ctx, examples, names, sparse[i], static_cast<int>(i), single));
    }
    for (std::size_t i = 0; i < dense.size(); ++i) {
      MR_RETURN_IF_ERROR(
          DenseList(ctx, examples, names, dense[i], keys.may_miss[i], static_cast<int>(i), single));
    }
    for (std::size_t i = 0; i < ragged.size(); ++i) {
      MR_RETURN_IF_ERROR(RaggedList(ctx, examples, names, ragged[i], static_cast<int>(i), single));
    }
    return OkStatus();
  }

  static std::string_view Name(Names names, std::size_t row) {
    return row < names.size() ? std::string_view(names[row]) : "<unknown>";
  }

  // Adds what a step of a list has.
  static Status Add(const pb::FeatureList& list, int step, const std::string& key,
                    std::string_view name, DataType type, FeatureColumn* column, int64_t* count) {
    if (column->Add(list.feature(step), count)) return OkStatus();
    return errors::InvalidArgument(
        "Name: ", name, ", Feature list: ", key, ", Index: ", step,
        ".  Data types don't match. Expected type: ", DataTypeName(type));
  }

  Status SparseList(KernelContext& ctx, const Sequences& examples, Names names,
                    const std::string& key, int i, bool single) const {
    FeatureColumn column(list_sparse_types_[i]);
    std::vector<int64_t> indices;
    int64_t steps = 0, widest = 0, total = 0;
    for (std::size_t r = 0; r < examples.size(); ++r) {
      const pb::FeatureList* list = FindList(*examples[r], key);
      const int n = list == nullptr ? 0 : list->feature_size();
      steps = std::max<int64_t>(steps, n);
      for (int step = 0; step < n; ++step) {
        int64_t count;
        MR_RETURN_IF_ERROR(
            Add(*list, step, key, Name(names, r), list_sparse_types_[i], &column, &count));
        widest = std::max(widest, count);
        total += count;
        for (int64_t k = 0; k < count; ++k) {
          if (!single) indices.push_back(static_cast<int64_t>(r));
          indices.push_back(step);
          indices.push_back(k);
        }
      }
    }
    ctx.SetOutput(outputs_[6].begin + i,
                  Tensor::FromValues<int64_t>(indices, Shape({total, single ? 2 : 3})));
    MR_ASSIGN_OR_RETURN(Tensor values, column.Take(Shape({total})));
    ctx.SetOutput(outputs_[7].begin + i, std::move(values));
    const auto batch = static_cast<int64_t>(examples.size());
    ctx.SetOutput(outputs_[8].begin + i, single
                                             ? Tensor::FromValues<int64_t>({steps, widest})
                                             : Tensor::FromValues<int64_t>({batch, steps, widest}));
    return OkStatus();
  }

  // The values of the longest list make whole elements: what is looked at before each step.
  static Status CheckTotal(const Sequences& examples, const std::string& key, DataType type,
                           const Shape& element) {
    int64_t most = 0;
    for (const pb::SequenceExample* example : examples) {
      const pb::FeatureList* list = FindList(*example, key);
      int64_t total = 0;
      for (int step = 0; list != nullptr && step < list->feature_size(); ++step) {
        const pb::Feature& feature = list->feature(step);
        const int64_t count = FeatureCount(feature);
        if (count > 0 && FeatureType(feature) != type) return OkStatus();  // said later
        total += count;
      }
      most = std::max(most, total);
    }
    const int64_t size = element.num_elements();
    if (size == 0 ? most == 0 : most % size == 0) return OkStatus();
    Dims dims = {-1};
    dims.insert(dims.end(), element.dims().begin(), element.dims().end());
    return errors::InvalidArgument(
        "Feature list '", key, "' has an unexpected number of values.  Total values size: ", most,
        " is not consistent with output shape: ",
        PartialShape({dims.data(), dims.size()}).DebugString());
  }

  Status DenseList(KernelContext& ctx, const Sequences& examples, Names names,
                   const std::string& key, bool may_miss, int i, bool single) const {
    const Shape& element = list_elements_[i];
    std::vector<int64_t> lengths;
    int64_t steps = 0;
    for (std::size_t r = 0; r < examples.size(); ++r) {
      const pb::FeatureList* list = FindList(*examples[r], key);
      if (list == nullptr && !may_miss) {
        return errors::InvalidArgument(
            "Name: ", Name(names, r), ", Feature list '", key,
            "' is required but could not be found.  Did you mean to include it in "
            "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?");
      }
      lengths.push_back(list == nullptr ? 0 : list->feature_size());
      steps = std::max(steps, lengths.back());
    }
    MR_RETURN_IF_ERROR(CheckTotal(examples, key, list_dense_types_[i], element));
    Dims dims;
    if (!single) dims.push_back(static_cast<int64_t>(examples.size()));
    dims.push_back(steps);
    dims.insert(dims.end(), element.dims().begin(), element.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    if (shape.num_elements() > (1 << 16)) {  // before its values are made one by one
      MR_RETURN_IF_ERROR(ctx.AllocateTemp(list_dense_types_[i], shape).status());
    }
    FeatureColumn column(list_dense_types_[i]);
    for (std::size_t r = 0; r < examples.size(); ++r) {
      for (int64_t step = 0; step < lengths[r]; ++step) {
        int64_t count;
        MR_RETURN_IF_ERROR(Add(*FindList(*examples[r], key), static_cast<int>(step), key,
                               Name(names, r), list_dense_types_[i], &column, &count));
        if (count != element.num_elements()) {
          return errors::InvalidArgument("Name: ", Name(names, r), ", Key: ", key,
                                         ", Index: ", step, ".  Number of values != expected.  ",
                                         "values size: ", count,
                                         " but output shape: ", element.DebugString());
        }
      }
      column.AddStandard(Tensor(list_dense_types_[i], Shape({0})),
                         (steps - lengths[r]) * element.num_elements());
    }
    MR_ASSIGN_OR_RETURN(Tensor values, column.Take(shape));
    ctx.SetOutput(outputs_[9].begin + i, std::move(values));
    if (outputs_[10].size() == 0) return OkStatus();  // the one message has no other length
    const auto batch = static_cast<int64_t>(lengths.size());
    ctx.SetOutput(outputs_[10].begin + i,
                  Tensor::FromValues<int64_t>(lengths, single ? Shape() : Shape({batch})));
    return OkStatus();
  }

  Status RaggedList(KernelContext& ctx, const Sequences& examples, Names names,
                    const std::string& key, int i, bool single) const {
    FeatureColumn column(list_ragged_types_[i]);
    std::vector<int64_t> outer = {0}, inner = {0};
    for (std::size_t r = 0; r < examples.size(); ++r) {
      const pb::FeatureList* list = FindList(*examples[r], key);
      const int n = list == nullptr ? 0 : list->feature_size();
      for (int step = 0; step < n; ++step) {
        int64_t count;
        MR_RETURN_IF_ERROR(
            Add(*list, step, key, Name(names, r), list_ragged_types_[i], &column, &count));
        inner.push_back(inner.back() + count);
      }
      outer.push_back(outer.back() + n);
    }
    MR_ASSIGN_OR_RETURN(Tensor values, column.Take(Shape({inner.back()})));
    ctx.SetOutput(outputs_[11].begin + i, std::move(values));
    if (single) outer.clear();
    ctx.SetOutput(outputs_[12].begin + i, IndexTensor(list_split_types_[i], outer));
    ctx.SetOutput(outputs_[13].begin + i, IndexTensor(list_split_types_[i], inner));
    return OkStatus();
  }

  const Form form_;
  const std::vector<DataType> context_dense_types_, context_sparse_types_;
  const std::vector<DataType> context_ragged_types_, context_split_types_;
  const std::vector<PartialShape> context_shapes_;
  const std::vector<DataType> list_dense_types_, list_sparse_types_;
  const std::vector<DataType> list_ragged_types_, list_split_types_;
  const std::vector<PartialShape> list_shapes_;
  std::vector<Shape> list_elements_;  // of `list_shapes_`
  SequenceKeys keys_;                 // of attributes
  Range standards_, key_inputs_[4], outputs_[kNumOutputs];
};

}  // namespace

void RegisterParseExampleKernels(KernelRegistry& r) {
  for (const char* op : {"ParseExample", "ParseExampleV2", "ParseSingleExample"}) {
    RegisterCpu<ParseExampleKernel>(r, op);
  }
  for (const char* op :
       {"ParseSequenceExample", "ParseSequenceExampleV2", "ParseSingleSequenceExample"}) {
    RegisterCpu<ParseSequenceExampleKernel>(r, op);
  }
}

}  // namespace millrace
