#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"AccumulatorApplyGradient", "handle: Ref(string), local_step: int64, gradient: dtype", "",
     "dtype: numbers"},
    {"AccumulatorNumAccumulated", "handle: Ref(string)", "num_accumulated: int32", ""},
    {"AccumulatorSetGlobalStep", "handle: Ref(string), new_global_step: int64", "", ""},
    {"AccumulatorTakeGradient", "handle: Ref(string), num_required: int32", "average: dtype",
     "dtype: numbers"},
    {"ConditionalAccumulator", "", "handle: Ref(string)",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     nullptr, kStateful},
    {"DynamicStitch", "indices: N * int32, data: N * T", "merged: T", "N: int >= 1; T: type"},
    {"FIFOQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     nullptr, kStateful},
    {"PaddingFIFOQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "container: string = ''; shared_name: string = ''",
     nullptr, kStateful},
    {"QueueCloseV2", "handle: resource", "", "cancel_pending_enqueues: bool = false", nullptr,
     kStateful},
    {"QueueDequeueManyV2", "handle: resource, n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", nullptr, kStateful},
    {"QueueDequeueUpToV2", "handle: resource, n: int32", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", nullptr, kStateful},
    {"QueueDequeueV2", "handle: resource", "components: component_types",
     "component_types: list(type) >= 1; timeout_ms: int = -1", nullptr, kStateful},
    {"QueueEnqueueManyV2", "handle: resource, components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", nullptr, kStateful},
    {"QueueEnqueueV2", "handle: resource, components: Tcomponents", "",
     "Tcomponents: list(type) >= 1; timeout_ms: int = -1", nullptr, kStateful},
    {"QueueIsClosedV2", "handle: resource", "is_closed: bool", "", nullptr, kStateful},
    {"QueueSizeV2", "handle: resource", "size: int32", "", nullptr, kStateful},
    {"RandomShuffleQueueV2", "", "handle: resource",
     "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; "
     "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0; container: string = ''; "
     "shared_name: string = ''",
     nullptr, kStateful},
    {"ResourceAccumulatorApplyGradient", "handle: resource, local_step: int64, gradient: dtype", "",
     "dtype: numbers", nullptr, kStateful},
    {"ResourceAccumulatorSetGlobalStep", "handle: resource, new_global_step: int64", "", "",
     nullptr, kStateful},
    {"ResourceAccumulatorTakeGradient", "handle: resource, num_required: int32", "average: dtype",
     "dtype: numbers", nullptr, kStateful},
    {"ResourceConditionalAccumulator", "", "handle: resource",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     nullptr, kStateful},
    {"SparseAccumulatorApplyGradient",
     "handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, "
     "gradient_shape: int64",
     "", "dtype: numbers; has_known_shape: bool"},
    {"SparseAccumulatorTakeGradient", "handle: Ref(string), num_required: int32",
     "indices: int64, values: dtype, shape: int64", "dtype: numbers"},
    {"SparseConditionalAccumulator", "", "handle: Ref(string)",
     "dtype: numbers; shape: shape; container: string = ''; shared_name: string = ''; "
     "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
     nullptr, kStateful},
};

}  // namespace

Status RegisterDataFlowOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
