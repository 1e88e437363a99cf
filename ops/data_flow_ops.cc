// SPDX-License-Identifier: Apache-2.0
// Queues, accumulators, and putting pieces together.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// Of staging areas and maps.
constexpr char kAreaAttrs[] =
    "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; dtypes: list(type) >= 1; "
    "container: string = ''; shared_name: string = ''";
constexpr char kAnyAreaAttrs[] =
    "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; dtypes: list(type); "
    "container: string = ''; shared_name: string = ''";
constexpr char kMapStageAttrs[] =
    "capacity: int >= 0 = 0; memory_limit: int >= 0 = 0; dtypes: list(type); "
    "fake_dtypes: list(type) >= 1; container: string = ''; shared_name: string = ''";

constexpr OpSpec kOps[] = {
    {"AccumulatorApplyGradient", "handle: Ref(string), local_step: int64, gradient: dtype", "",
     "dtype: numbers", NoOutputs},
    {"AccumulatorNumAccumulated", "handle: Ref(string)", "num_accumulated: int32", "", ScalarShape},
    {"AccumulatorSetGlobalStep", "handle: Ref(string), new_global_step: int64", "", "", NoOutputs},
    {"AccumulatorTakeGradient", "handle: Ref(string), num_required: int32", "average: dtype",
     "dtype: numbers", UnknownShape},
    {"ConditionalAccumulator", "", "handle: Ref(string)",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     HandleVectorShape, kStateful},
    {"DynamicPartition", "data: T, partitions: int32", "outputs: num_partitions * T",
     "num_partitions: int >= 1; T: type", UnknownShape},
    {"DynamicStitch", "indices: N * int32, data: N * T", "merged: T", "N: int >= 1; T: type",
     DynamicStitchShape},
    {"FIFOQueue", "", "handle: Ref(string)",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful},
    {"FIFOQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     ScalarShape, kStateful},
    {"PaddingFIFOQueue", "", "handle: Ref(string)",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful},
    {"PaddingFIFOQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     ScalarShape, kStateful},
    {"PriorityQueue", "", "handle: Ref(string)",
     "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful},
    {"PriorityQueueV2", "", "handle: resource",
     "component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     ScalarShape, kStateful},
    {"QueueClose", "handle: Ref(string)", "", "cancel_pending_enqueues: bool = false", NoOutputs},
    {"QueueCloseV2", "handle: resource", "", "cancel_pending_enqueues: bool = false", NoOutputs,
     kStateful},
    {"QueueDequeue", "handle: Ref(string)", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape},
    {"QueueDequeueMany", "handle: Ref(string), n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape},
    {"QueueDequeueManyV2", "handle: resource, n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape, kStateful},
    {"QueueDequeueUpTo", "handle: Ref(string), n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape},
    {"QueueDequeueUpToV2", "handle: resource, n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape, kStateful},
    {"QueueDequeueV2", "handle: resource", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", UnknownShape, kStateful},
    {"QueueEnqueue", "handle: Ref(string), components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", NoOutputs},
    {"QueueEnqueueMany", "handle: Ref(string), components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", NoOutputs},
    {"QueueEnqueueManyV2", "handle: resource, components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", NoOutputs, kStateful},
    {"QueueEnqueueV2", "handle: resource, components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", NoOutputs, kStateful},
    {"QueueIsClosed", "handle: Ref(string)", "is_closed: bool", "", ScalarShape},
    {"QueueIsClosedV2", "handle: resource", "is_closed: bool", "", ScalarShape, kStateful},
    {"QueueSize", "handle: Ref(string)", "size: int32", "", ScalarShape},
    {"QueueSizeV2", "handle: resource", "size: int32", "", ScalarShape, kStateful},
    {"RandomShuffleQueue", "", "handle: Ref(string)",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; container: string = ''; "
     "shared_name: string = ''",
     HandleVectorShape, kStateful},
    {"RandomShuffleQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; container: string = ''; "
     "shared_name: string = ''",
     ScalarShape, kStateful},
    {"ResourceAccumulatorApplyGradient", "handle: resource, local_step: int64, gradient: dtype", "",
     "dtype: numbers", NoOutputs, kStateful},
    {"ResourceAccumulatorSetGlobalStep", "handle: resource, new_global_step: int64", "", "",
     NoOutputs, kStateful},
    {"ResourceAccumulatorTakeGradient", "handle: resource, num_required: int32", "average: dtype",
     "dtype: numbers", UnknownShape, kStateful},
    {"ResourceConditionalAccumulator", "", "handle: resource",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     ScalarShape, kStateful},
    {"SparseAccumulatorApplyGradient",
     "handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, "
     "gradient_shape: int64",
     "", "dtype: numbers; has_known_shape: bool", NoOutputs},
    {"SparseAccumulatorTakeGradient", "handle: Ref(string), num_required: int32",
     "indices: int64, values: dtype, shape: int64", "dtype: numbers", UnknownShape},
    {"SparseConditionalAccumulator", "", "handle: Ref(string)",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     HandleVectorShape, kStateful},
    {"Barrier", "", "handle: Ref(string)",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful},
    {"BarrierClose", "handle: Ref(string)", "", "cancel_pending_enqueues: bool = false", NoOutputs},
    {"BarrierIncompleteSize", "handle: Ref(string)", "size: int32", "", ScalarShape},
    {"BarrierInsertMany", "handle: Ref(string), keys: string, values: T", "",
     "T: type; component_index: int", NoOutputs},
    {"BarrierReadySize", "handle: Ref(string)", "size: int32", "", ScalarShape},
    {"BarrierTakeMany", "handle: Ref(string), num_elements: int32",
     "indices: int64, keys: string, values: component_types",
     "component_types: list(type) >= 1; allow_small_batch: bool = false; wait_for_incomplete: bool "
     "= false; timeout_ms: int = -1",
     UnknownShape},
    {"DeleteSessionTensor", "handle: string", "", "", NoOutputs, kStateful},
    {"ConsumeMutexLock", "mutex_lock: variant", "", "", NoOutputs, kStateful},
    {"GetSessionHandle", "value: T", "handle: string", "T: type", ScalarShape, kStateful},
    {"GetSessionHandleV2", "value: T", "handle: resource", "T: type", ScalarShape, kStateful},
    {"GetSessionTensor", "handle: string", "value: dtype", "dtype: type", UnknownShape, kStateful},
    {"MutexLock", "mutex: resource", "mutex_lock: mutex_lock", "", ScalarShape, kStateful},
    {"MutexV2", "", "resource: resource", "container: string = ''; shared_name: string = ''",
     ScalarShape, kStateful},
    {"ParallelDynamicStitch", "indices: N * int32, data: N * T", "merged: T",
     "N: int >= 1; T: type", DynamicStitchShape},
    {"ResourceAccumulatorNumAccumulated", "handle: resource", "num_accumulated: int32", "",
     ScalarShape, kStateful},
    {"MapClear", "", "", kAnyAreaAttrs, NoOutputs, kStateful},
    {"MapIncompleteSize", "", "size: int32", kAnyAreaAttrs, ScalarShape, kStateful},
    {"MapPeek", "key: int64, indices: int32", "values: dtypes", kAreaAttrs, UnknownShape,
     kStateful},
    {"MapSize", "", "size: int32", kAnyAreaAttrs, ScalarShape, kStateful},
    {"MapStage", "key: int64, indices: int32, values: fake_dtypes", "", kMapStageAttrs, NoOutputs,
     kStateful},
    {"MapUnstage", "key: int64, indices: int32", "values: dtypes", kAreaAttrs, UnknownShape,
     kStateful},
    {"MapUnstageNoKey", "indices: int32", "key: int64, values: dtypes", kAreaAttrs, UnknownShape,
     kStateful},
    {"OrderedMapClear", "", "", kAnyAreaAttrs, NoOutputs, kStateful},
    {"OrderedMapIncompleteSize", "", "size: int32", kAnyAreaAttrs, ScalarShape, kStateful},
    {"OrderedMapPeek", "key: int64, indices: int32", "values: dtypes", kAreaAttrs, UnknownShape,
     kStateful},
    {"OrderedMapSize", "", "size: int32", kAnyAreaAttrs, ScalarShape, kStateful},
    {"OrderedMapStage", "key: int64, indices: int32, values: fake_dtypes", "", kMapStageAttrs,
     NoOutputs, kStateful},
    {"OrderedMapUnstage", "key: int64, indices: int32", "values: dtypes", kAreaAttrs, UnknownShape,
     kStateful},
    {"OrderedMapUnstageNoKey", "indices: int32", "key: int64, values: dtypes", kAreaAttrs,
     UnknownShape, kStateful},
    {"Stage", "values: dtypes", "", kAreaAttrs, NoOutputs, kStateful},
    {"StageClear", "", "", kAnyAreaAttrs, NoOutputs, kStateful},
    {"StagePeek", "index: int32", "values: dtypes", kAreaAttrs, UnknownShape, kStateful},
    {"StageSize", "", "size: int32", kAnyAreaAttrs, ScalarShape, kStateful},
    {"Unstage", "", "values: dtypes", kAreaAttrs, UnknownShape, kStateful},
};

}  // namespace

Status RegisterDataFlowOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
