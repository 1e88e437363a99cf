// SPDX-License-Identifier: Apache-2.0
// The shape functions of the op tables, and the small steps they are made of. See
// ops/shape_inference.h for what a shape function is.
#ifndef OPS_SHAPE_FNS_H_
#define OPS_SHAPE_FNS_H_

#include <cstdint>

#include "ops/shape_inference.h"

namespace millrace {

// -- Steps --

// `rank` dimensions, none known.
PartialShape UnknownDims(int rank);
// What two sizes have in common (-1: unknown). InvalidArgument if both are known and differ.
StatusOr<int64_t> MergeDim(int64_t a, int64_t b);
// `axis` in [0, rank), counted from the end if negative. InvalidArgument if out of range.
StatusOr<int> NormalizeAxis(int64_t axis, int rank);
// The dimensions [begin, end) of a shape of known rank; end < 0: to the last one.
PartialShape SubShape(const PartialShape& shape, int begin, int end = -1);
// All dimensions of `a`, then all of `b`; unknown if either rank is.
PartialShape ConcatShapes(const PartialShape& a, const PartialShape& b);
// An int32 or int64 constant as numbers; false if input i is not known statically.
bool ConstantInts(const InferenceContext& c, int i, Dims* values);

// -- Of more than one family --

Status MergedInputs(InferenceContext& c);     // output 0 = what all inputs have in common
Status MergeOfFirstTwo(InferenceContext& c);  // output 0 = what inputs 0 and 1 have in common
Status ShapeFromInput0(InferenceContext& c);  // input 0 holds the shape of output 0
Status ShapeFromInput1(InferenceContext& c);
Status ShapeFromAttr(InferenceContext& c);  // attr "shape"

// -- Math --
Status EqualityShape(InferenceContext& c);  // Equal, NotEqual
Status ReductionShape(InferenceContext& c);
Status ArgReductionShape(InferenceContext& c);
Status MatMulShape(InferenceContext& c);
Status BatchMatMulShape(InferenceContext& c);
Status SelectShape(InferenceContext& c);
Status SelectV2Shape(InferenceContext& c);
Status RangeShape(InferenceContext& c);
Status LinSpaceShape(InferenceContext& c);
Status UnsortedSegmentShape(InferenceContext& c);
Status SegmentShape(InferenceContext& c);  // over sorted ids
Status SparseSegmentShape(InferenceContext& c);
Status SparseSegmentGradShape(InferenceContext& c);
Status KeyCounterShape(InferenceContext& c);  // of a counter-based generator

// -- Neural networks --
Status BiasAddShape(InferenceContext& c);
Status BiasAddGradShape(InferenceContext& c);
Status SoftmaxShape(InferenceContext& c);
Status SoftmaxCrossEntropyShape(InferenceContext& c);
Status SparseSoftmaxCrossEntropyShape(InferenceContext& c);
Status Conv2DShape(InferenceContext& c);
Status DepthwiseConv2DShape(InferenceContext& c);
Status PoolShape(InferenceContext& c);  // every output
Status FusedBatchNormShape(InferenceContext& c);
Status FusedBatchNormGradShape(InferenceContext& c);
Status ResizeShape(InferenceContext& c);
Status InTopKShape(InferenceContext& c);
Status TopKShape(InferenceContext& c);

// -- Arrays --
Status ConstShape(InferenceContext& c);
Status IdentityNShape(InferenceContext& c);
Status ShapeOfShape(InferenceContext& c);  // Shape, ShapeN
Status BroadcastGradientArgsShape(InferenceContext& c);
Status ConcatShape(InferenceContext& c);       // the axis comes last
Status ConcatFirstShape(InferenceContext& c);  // the axis comes first
Status ConcatOffsetShape(InferenceContext& c);
Status ExpandDimsShape(InferenceContext& c);
Status SqueezeShape(InferenceContext& c);
Status ReshapeShape(InferenceContext& c);
Status GatherShape(InferenceContext& c);
Status GatherV2Shape(InferenceContext& c);
Status GatherNdShape(InferenceContext& c);
Status OneHotShape(InferenceContext& c);
Status PackShape(InferenceContext& c);
Status UnpackShape(InferenceContext& c);
Status PadShape(InferenceContext& c);
Status SliceShape(InferenceContext& c);
Status StridedSliceShape(InferenceContext& c);
Status SplitShape(InferenceContext& c);
Status SplitVShape(InferenceContext& c);
Status TileShape(InferenceContext& c);
Status TransposeShape(InferenceContext& c);
Status UniqueShape(InferenceContext& c);
Status WhereShape(InferenceContext& c);
Status EnsureShapeShape(InferenceContext& c);
Status ScatterNdShape(InferenceContext& c);
Status SameRankShape(InferenceContext& c);  // output 0 has input 0's rank
Status DiagShape(InferenceContext& c);
Status DiagPartShape(InferenceContext& c);

// -- Variables, control flow, data flow --
Status AssignShape(InferenceContext& c);
Status VarHandleShape(InferenceContext& c);
Status ReadVariableShape(InferenceContext& c);
Status AssignVariableShape(InferenceContext& c);
Status VariableShapeShape(InferenceContext& c);
Status ResourceGatherShape(InferenceContext& c);
Status SwitchShape(InferenceContext& c);
Status MergeShape(InferenceContext& c);
Status HandleVectorShape(InferenceContext& c);  // a queue or accumulator by reference: [2]
Status DynamicStitchShape(InferenceContext& c);
Status StringJoinShape(InferenceContext& c);

}  // namespace millrace

#endif  // OPS_SHAPE_FNS_H_
