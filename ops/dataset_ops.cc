// SPDX-License-Identifier: Apache-2.0
// Data sets and iterators.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Components have the shapes that the node declares.
Status DeclaredShapes(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const auto shapes, c.attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return errors::InvalidArgument("`output_shapes` must be the same length as `output_types` (",
                                   shapes.size(), " vs. ", c.num_outputs(), ")");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return OkStatus();
}

Status VectorShape(InferenceContext& c) {
  c.set_output(0, PartialShape({-1}));
  return OkStatus();
}

Status SeedGeneratorShape(InferenceContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  return ScalarShape(c);
}

constexpr OpSpec kOps[] = {
    {"AnonymousIterator", "", "handle: resource",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape, kStateful},
    {"AnonymousIteratorV2", "", "handle: resource, deleter: variant",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape, kStateful},
    {"AnonymousIteratorV3", "", "handle: resource",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape, kStateful},
    {"AnonymousMemoryCache", "", "handle: resource, deleter: variant", "", ScalarShape, kStateful},
    {"AnonymousMultiDeviceIterator", "", "handle: resource, deleter: variant",
     "devices: list(string) >= 1; output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
     ScalarShape, kStateful},
    {"AnonymousMultiDeviceIteratorV3", "", "handle: resource",
     "devices: list(string) >= 1; output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
     ScalarShape, kStateful},
    {"AnonymousRandomSeedGenerator", "seed: int64, seed2: int64",
     "handle: resource, deleter: variant", "", SeedGeneratorShape, kStateful},
    {"AnonymousSeedGenerator", "seed: int64, seed2: int64, reshuffle: bool",
     "handle: resource, deleter: variant", "", SeedGeneratorShape, kStateful},
    {"AssertCardinalityDataset", "input_dataset: variant, cardinality: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"AutoShardDataset", "input_dataset: variant, num_workers: int64, index: int64",
     "handle: dataset(output_types)",
     "auto_shard_policy: int = 0; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
     "num_replicas: int = 0",
     ScalarShape},
    {"BatchDataset", "input_dataset: variant, batch_size: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"BatchDatasetV2", "input_dataset: variant, batch_size: int64, drop_remainder: bool",
     "handle: dataset(output_types)",
     "parallel_copy: bool = false; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
     "metadata: string = ''",
     ScalarShape},
    {"CacheDataset", "input_dataset: variant, filename: string", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"CacheDatasetV2", "input_dataset: variant, filename: string, cache: resource",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"ConcatenateDataset", "input_dataset: variant, another_dataset: variant",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"DatasetCardinality", "input_dataset: variant", "cardinality: int64",
     "cardinality_options: string = ''", ScalarShape},
    {"DatasetFromGraph", "graph_def: string", "handle: dataset", "", ScalarShape},
    {"DatasetToGraph", "input_dataset: variant", "graph: string",
     "stateful_whitelist: list(string) >= 0 = []; allow_stateful: bool = false; "
     "strip_device_assignment: bool = false",
     ScalarShape},
    {"DatasetToGraphV2", "input_dataset: variant", "graph: string",
     "external_state_policy: int = 0; strip_device_assignment: bool = false", ScalarShape},
    {"DatasetToSingleElement", "dataset: variant", "components: output_types",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     DeclaredShapes, kStateful},
    {"DeleteIterator", "handle: resource, deleter: variant", "", "", NoOutputs, kStateful},
    {"DeleteMemoryCache", "handle: resource, deleter: variant", "", "", NoOutputs, kStateful},
    {"DeleteMultiDeviceIterator",
     "multi_device_iterator: resource, iterators: N * resource, deleter: variant", "",
     "N: int >= 0", NoOutputs, kStateful},
    {"DeleteRandomSeedGenerator", "handle: resource, deleter: variant", "", "", NoOutputs,
     kStateful},
    {"DeleteSeedGenerator", "handle: resource, deleter: variant", "", "", NoOutputs, kStateful},
    {"DeserializeIterator", "resource_handle: resource, serialized: variant", "", "", NoOutputs,
     kStateful},
    {"DirectedInterleaveDataset",
     "selector_input_dataset: variant, data_input_datasets: N * variant",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1; "
     "stop_on_empty_dataset: bool = false",
     ScalarShape},
    {"DummyMemoryCache", "", "handle: resource", "", ScalarShape, kStateful},
    {"DummySeedGenerator", "", "handle: resource", "", ScalarShape, kStateful},
    {"FilterDataset", "input_dataset: variant, other_arguments: Targuments",
     "handle: dataset(output_types)",
     "predicate: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"FixedLengthRecordDatasetV2",
     "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, "
     "buffer_size: int64, compression_type: string",
     "handle: dataset_of(string)", "metadata: string = ''", ScalarShape, kStateful},
    {"FlatMapDataset", "input_dataset: variant, other_arguments: Targuments",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"GeneratorDataset",
     "init_func_other_args: Tinit_func_args, next_func_other_args: Tnext_func_args, "
     "finalize_func_other_args: Tfinalize_func_args",
     "handle: dataset(output_types)",
     "init_func: func; next_func: func; finalize_func: func; Tinit_func_args: list(type) >= 0; "
     "Tnext_func_args: list(type) >= 0; Tfinalize_func_args: list(type) >= 0; output_types: "
     "list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"GetOptions", "input_dataset: variant", "serialized_options: string", "", ScalarShape},
    {"GroupByWindowDataset",
     "input_dataset: variant, key_func_other_arguments: Tkey_func_other_arguments, "
     "reduce_func_other_arguments: Treduce_func_other_arguments, window_size_func_other_arguments: "
     "Twindow_size_func_other_arguments",
     "handle: dataset(output_types)",
     "key_func: func; reduce_func: func; window_size_func: func; Tkey_func_other_arguments: "
     "list(type) >= 0; Treduce_func_other_arguments: list(type) >= 0; "
     "Twindow_size_func_other_arguments: list(type) >= 0; output_types: list(type) >= 1; "
     "output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"IgnoreErrorsDataset", "input_dataset: variant", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; log_warning: bool = false",
     ScalarShape},
    {"InterleaveDataset",
     "input_dataset: variant, other_arguments: Targuments, cycle_length: int64, block_length: "
     "int64",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"Iterator", "", "handle: resource",
     "shared_name: string; container: string; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1",
     ScalarShape, kStateful},
    {"IteratorFromStringHandle", "string_handle: string", "resource_handle: resource",
     "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []", ScalarShape,
     kStateful},
    {"IteratorFromStringHandleV2", "string_handle: string", "resource_handle: resource",
     "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []", ScalarShape,
     kStateful},
    {"IteratorGetDevice", "resource: resource", "device: string", "", ScalarShape, kStateful},
    {"IteratorGetNext", "iterator: resource", "components: output_types",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", DeclaredShapes, kStateful},
    {"IteratorGetNextAsOptional", "iterator: resource", "optional: optional(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape, kStateful},
    {"IteratorGetNextSync", "iterator: resource", "components: output_types",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", DeclaredShapes, kStateful},
    {"IteratorToStringHandle", "resource_handle: resource", "string_handle: string", "",
     ScalarShape, kStateful},
    {"IteratorV2", "", "handle: resource",
     "shared_name: string; container: string; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1",
     ScalarShape, kStateful},
    {"MakeIterator", "dataset: variant, iterator: resource", "", "", NoOutputs, kStateful},
    {"MapAndBatchDataset",
     "input_dataset: variant, other_arguments: Targuments, batch_size: int64, num_parallel_calls: "
     "int64, drop_remainder: bool",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; preserve_cardinality: bool = false; metadata: string = ''",
     ScalarShape},
    {"MapDataset", "input_dataset: variant, other_arguments: Targuments",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; use_inter_op_parallelism: bool = true; preserve_cardinality: bool = false; "
     "force_synchronous: bool = false; metadata: string = ''",
     ScalarShape},
    {"MaxIntraOpParallelismDataset", "input_dataset: variant, max_intra_op_parallelism: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"ModelDataset", "input_dataset: variant", "handle: dataset(output_types)",
     "algorithm: int = 0; cpu_budget: int = 0; ram_budget: int = 0; output_types: list(type) >= 1; "
     "output_shapes: list(shape) >= 1",
     ScalarShape},
    {"MultiDeviceIterator", "", "handle: resource",
     "devices: list(string) >= 1; shared_name: string; container: string; output_types: list(type) "
     ">= 1; output_shapes: list(shape) >= 1",
     ScalarShape, kStateful},
    {"MultiDeviceIteratorFromStringHandle", "string_handle: string",
     "multi_device_iterator: resource",
     "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []", ScalarShape,
     kStateful},
    {"MultiDeviceIteratorGetNextFromShard",
     "multi_device_iterator: resource, shard_num: int32, incarnation_id: int64",
     "components: output_types", "output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
     DeclaredShapes, kStateful},
    {"MultiDeviceIteratorInit",
     "dataset: variant, multi_device_iterator: resource, max_buffer_size: int64",
     "incarnation_id: int64", "", ScalarShape, kStateful},
    {"MultiDeviceIteratorToStringHandle", "multi_device_iterator: resource",
     "string_handle: string", "", ScalarShape, kStateful},
    {"OneShotIterator", "", "handle: resource",
     "dataset_factory: func; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
     "container: string = ''; shared_name: string = ''",
     ScalarShape, kStateful},
    {"OptimizeDatasetV2",
     "input_dataset: variant, optimizations_enabled: string, optimizations_disabled: string, "
     "optimizations_default: string",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; optimization_configs: "
     "list(string) = []",
     ScalarShape},
    {"OptionalFromValue", "components: Toutput_types", "optional: optional(Toutput_types)",
     "Toutput_types: list(type) >= 1", ScalarShape},
    {"OptionalGetValue", "optional: variant", "components: output_types",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", DeclaredShapes},
    {"OptionalHasValue", "optional: variant", "has_value: bool", "", ScalarShape},
    {"OptionalNone", "", "optional: variant", "", ScalarShape},
    {"OptionsDataset", "input_dataset: variant", "handle: dataset(output_types)",
     "serialized_options: string; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
     "metadata: string = ''",
     ScalarShape},
    {"PaddedBatchDataset",
     "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: "
     "Toutput_types",
     "handle: dataset(Toutput_types)",
     "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1; metadata: "
     "string = ''",
     ScalarShape},
    {"PaddedBatchDatasetV2",
     "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: "
     "Toutput_types, drop_remainder: bool",
     "handle: dataset(Toutput_types)",
     "parallel_copy: bool = false; Toutput_types: list(type) >= 1; output_shapes: list(shape) >= "
     "1; N: int >= 1; metadata: string = ''",
     ScalarShape},
    {"ParallelBatchDataset",
     "input_dataset: variant, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
     "handle: dataset(output_types)",
     "parallel_copy: bool = false; output_types: list(type) >= 1; output_shapes: list(shape) >= 1; "
     "deterministic: string = 'default'; metadata: string = ''",
     ScalarShape},
    {"ParallelInterleaveDatasetV2",
     "input_dataset: variant, other_arguments: Targuments, cycle_length: int64, block_length: "
     "int64, num_parallel_calls: int64",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; sloppy: bool = false; metadata: string = ''",
     ScalarShape},
    {"ParallelInterleaveDatasetV4",
     "input_dataset: variant, other_arguments: Targuments, cycle_length: int64, block_length: "
     "int64, buffer_output_elements: int64, prefetch_input_elements: int64, num_parallel_calls: "
     "int64",
     "handle: dataset(output_types)",
     "f: func; deterministic: string = 'default'; Targuments: list(type) >= 0; output_types: "
     "list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"ParallelMapDataset",
     "input_dataset: variant, other_arguments: Targuments, num_parallel_calls: int32",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; use_inter_op_parallelism: bool = true; sloppy: bool = false; "
     "preserve_cardinality: bool = false; metadata: string = ''",
     ScalarShape},
    {"ParallelMapDatasetV2",
     "input_dataset: variant, other_arguments: Targuments, num_parallel_calls: int64",
     "handle: dataset(output_types)",
     "f: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; use_inter_op_parallelism: bool = true; deterministic: string = 'default'; "
     "preserve_cardinality: bool = false; use_unbounded_threadpool: bool = false; metadata: string "
     "= ''",
     ScalarShape},
    {"PrefetchDataset", "input_dataset: variant, buffer_size: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; slack_period: int = 0; "
     "legacy_autotune: bool = true; buffer_size_min: int = 0; metadata: string = ''",
     ScalarShape},
    {"PrivateThreadPoolDataset", "input_dataset: variant, num_threads: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"RandomDataset", "seed: int64, seed2: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"RandomDatasetV2", "seed: int64, seed2: int64, seed_generator: resource",
     "handle: dataset(output_types)",
     "rerandomize_each_iteration: bool = false; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"RangeDataset", "start: int64, stop: int64, step: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''; "
     "replicate_on_split: bool = false",
     ScalarShape, kStateful},
    {"RebatchDataset", "input_dataset: variant, num_replicas: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; use_fallback: bool = true",
     ScalarShape},
    {"RebatchDatasetV2", "input_dataset: variant, batch_sizes: int64, drop_remainder: bool",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"ReduceDataset", "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
     "components: output_types",
     "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; output_types: list(type) >= "
     "1; output_shapes: list(shape) >= 1; use_inter_op_parallelism: bool = true; metadata: string "
     "= ''",
     DeclaredShapes, kStateful},
    {"RepeatDataset", "input_dataset: variant, count: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"RewriteDataset", "input_dataset: variant, rewrite_name: string",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"SamplingDataset", "input_dataset: variant, rate: float, seed: int64, seed2: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1", ScalarShape},
    {"ScanDataset", "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
     "handle: dataset(output_types)",
     "f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; output_types: list(type) >= "
     "1; output_shapes: list(shape) >= 1; preserve_cardinality: bool = false; use_default_device: "
     "bool = true; metadata: string = ''",
     ScalarShape},
    {"SerializeIterator", "resource_handle: resource", "serialized: variant",
     "external_state_policy: int = 0", VectorShape, kStateful},
    {"ShardDataset", "input_dataset: variant, num_shards: int64, index: int64",
     "handle: dataset(output_types)",
     "require_non_empty: bool = false; output_types: list(type) >= 1; output_shapes: list(shape) "
     ">= 1; metadata: string = ''",
     ScalarShape},
    {"ShuffleAndRepeatDataset",
     "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: int64",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; reshuffle_each_iteration: "
     "bool = true; metadata: string = ''",
     ScalarShape},
    {"ShuffleAndRepeatDatasetV2",
     "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, count: int64, "
     "seed_generator: resource",
     "handle: dataset(output_types)",
     "reshuffle_each_iteration: bool = true; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"ShuffleDataset", "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64",
     "handle: dataset(output_types)",
     "reshuffle_each_iteration: bool = true; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"ShuffleDatasetV2", "input_dataset: variant, buffer_size: int64, seed_generator: resource",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"ShuffleDatasetV3",
     "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64, seed_generator: "
     "resource",
     "handle: dataset(output_types)",
     "reshuffle_each_iteration: bool = true; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"SkipDataset", "input_dataset: variant, count: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"SparseTensorSliceDataset", "indices: int64, values: Tvalues, dense_shape: int64",
     "handle: dataset_of(Tvalues)", "Tvalues: type", ScalarShape, kStateful},
    {"TFRecordDataset", "filenames: string, compression_type: string, buffer_size: int64",
     "handle: dataset_of(string)", "metadata: string = ''", ScalarShape, kStateful},
    {"TFRecordDatasetV2",
     "filenames: string, compression_type: string, buffer_size: int64, byte_offsets: int64",
     "handle: dataset_of(string)", "metadata: string = ''", ScalarShape, kStateful},
    {"TakeDataset", "input_dataset: variant, count: int64", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"TakeWhileDataset", "input_dataset: variant, other_arguments: Targuments",
     "handle: dataset(output_types)",
     "predicate: func; Targuments: list(type) >= 0; output_types: list(type) >= 1; output_shapes: "
     "list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"TensorDataset", "components: Toutput_types", "handle: dataset(Toutput_types)",
     "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape, kStateful},
    {"TensorSliceDataset", "components: Toutput_types", "handle: dataset(Toutput_types)",
     "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; is_files: bool = false; "
     "metadata: string = ''; replicate_on_split: bool = false",
     ScalarShape, kStateful},
    {"TextLineDataset", "filenames: string, compression_type: string, buffer_size: int64",
     "handle: dataset_of(string)", "metadata: string = ''", ScalarShape, kStateful},
    {"UnbatchDataset", "input_dataset: variant", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"WindowDataset",
     "input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool",
     "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
    {"ZipDataset", "input_datasets: N * variant", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1; metadata: "
     "string = ''",
     ScalarShape},
    // Ours: a function of this process, by a key of io/local_generators.h.
    {"_GeneratorDataset", "", "handle: dataset(output_types)",
     "generator: string; output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
     ScalarShape, kStateful},
    // Ours: where an iterator stands (millrace/iterator_position.h).
    {"_IteratorPosition", "iterator: resource", "position: string", "", VectorShape, kStateful},
    {"_SetIteratorPosition", "iterator: resource, position: string", "", "", NoOutputs, kStateful},
    {"UniqueDataset", "input_dataset: variant", "handle: dataset(output_types)",
     "output_types: list(type) >= 1; output_shapes: list(shape) >= 1; metadata: string = ''",
     ScalarShape},
};

}  // namespace

Status RegisterDatasetOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
