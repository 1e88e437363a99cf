#include "kernels/fake/fake_kernels.h"

#include <string>
#include <string_view>
#include <vector>

#include "kernels/accelerator/accelerator_kernels.h"
#include "kernels/fake/stream_kernel.h"

namespace millrace {
namespace {

struct Row {
  std::string_view op;
  std::vector<std::string> host_args;
};

// Operands that shapes, axes and indices are read from lie in host memory, as they do for
// TensorFlow's GPU kernels.
const std::vector<Row>& Computing() {
  static const auto* const rows = new std::vector<Row>{
      // Elementwise.
      {"Abs", {}},
      {"Neg", {}},
      {"Exp", {}},
      {"Expm1", {}},
      {"Log", {}},
      {"Log1p", {}},
      {"Sqrt", {}},
      {"Rsqrt", {}},
      {"Square", {}},
      {"Reciprocal", {}},
      {"Inv", {}},
      {"Tanh", {}},
      {"Sigmoid", {}},
      {"Sin", {}},
      {"Cos", {}},
      {"Tan", {}},
      {"Erf", {}},
      {"Erfc", {}},
      {"Floor", {}},
      {"Ceil", {}},
      {"Rint", {}},
      {"Round", {}},
      {"Sign", {}},
      {"IsNan", {}},
      {"IsInf", {}},
      {"IsFinite", {}},
      {"LogicalNot", {}},
      {"SqrtGrad", {}},
      {"RsqrtGrad", {}},
      {"InvGrad", {}},
      {"ReciprocalGrad", {}},
      {"TanhGrad", {}},
      {"SigmoidGrad", {}},
      {"Add", {}},
      {"AddV2", {}},
      {"Sub", {}},
      {"Mul", {}},
      {"Div", {}},
      {"RealDiv", {}},
      {"DivNoNan", {}},
      {"MulNoNan", {}},
      {"FloorDiv", {}},
      {"FloorMod", {}},
      {"Mod", {}},
      {"Maximum", {}},
      {"Minimum", {}},
      {"Pow", {}},
      {"SquaredDifference", {}},
      {"Atan2", {}},
      {"Less", {}},
      {"LessEqual", {}},
      {"Greater", {}},
      {"GreaterEqual", {}},
      {"Equal", {}},
      {"NotEqual", {}},
      {"LogicalAnd", {}},
      {"LogicalOr", {}},
      {"Select", {}},
      {"SelectV2", {}},
      {"Cast", {}},
      {"AddN", {}},
      {"ClipByValue", {}},
      {"CheckNumerics", {}},
      {"ZerosLike", {}},
      {"OnesLike", {}},
      {"Fill", {"dims"}},
      {"LinSpace", {"start", "stop", "num"}},
      // Along axes.
      {"Sum", {"reduction_indices"}},
      {"Mean", {"reduction_indices"}},
      {"Max", {"reduction_indices"}},
      {"Min", {"reduction_indices"}},
      {"Prod", {"reduction_indices"}},
      {"All", {"reduction_indices"}},
      {"Any", {"reduction_indices"}},
      {"ArgMax", {"dimension"}},
      {"ArgMin", {"dimension"}},
      {"Cumsum", {"axis"}},
      {"Cumprod", {"axis"}},
      {"L2Loss", {}},
      {"UnsortedSegmentSum", {"num_segments"}},
      {"UnsortedSegmentMax", {"num_segments"}},
      {"UnsortedSegmentMin", {"num_segments"}},
      {"UnsortedSegmentProd", {"num_segments"}},
      // Layers.
      {"MatMul", {}},
      {"BatchMatMul", {}},
      {"BatchMatMulV2", {}},
      {"BiasAdd", {}},
      {"BiasAddV1", {}},
      {"BiasAddGrad", {}},
      {"Relu", {}},
      {"Relu6", {}},
      {"Elu", {}},
      {"Selu", {}},
      {"LeakyRelu", {}},
      {"Softplus", {}},
      {"Softsign", {}},
      {"ReluGrad", {}},
      {"Relu6Grad", {}},
      {"EluGrad", {}},
      {"SeluGrad", {}},
      {"LeakyReluGrad", {}},
      {"SoftplusGrad", {}},
      {"SoftsignGrad", {}},
      {"Softmax", {}},
      {"LogSoftmax", {}},
      {"SoftmaxCrossEntropyWithLogits", {}},
      {"SparseSoftmaxCrossEntropyWithLogits", {}},
      {"Conv2D", {}},
      {"Conv2DBackpropInput", {"input_sizes"}},
      {"Conv2DBackpropFilter", {"filter_sizes"}},
      {"DepthwiseConv2dNative", {}},
      {"DepthwiseConv2dNativeBackpropInput", {"input_sizes"}},
      {"DepthwiseConv2dNativeBackpropFilter", {"filter_sizes"}},
      {"MaxPool", {}},
      {"MaxPoolGrad", {}},
      {"AvgPool", {}},
      {"AvgPoolGrad", {"orig_input_shape"}},
      {"LRN", {}},
      {"LRNGrad", {}},
      {"InTopK", {}},
      {"TopKV2", {"k"}},
      // Moving elements.
      {"Transpose", {"perm"}},
      {"Concat", {"concat_dim"}},
      {"ConcatV2", {"axis"}},
      {"Split", {"split_dim"}},
      {"SplitV", {"size_splits", "split_dim"}},
      {"Pack", {}},
      {"Unpack", {}},
      {"Slice", {"begin", "size"}},
      {"StridedSlice", {"begin", "end", "strides"}},
      {"StridedSliceGrad", {"shape", "begin", "end", "strides"}},
      {"Tile", {"multiples"}},
      {"Pad", {"paddings"}},
      {"PadV2", {"paddings"}},
      {"MirrorPad", {"paddings"}},
      {"ReverseV2", {"axis"}},
      {"Gather", {}},
      {"GatherV2", {"axis"}},
      {"GatherNd", {}},
      {"ScatterNd", {"shape"}},
      {"OneHot", {"depth"}},
      {"BroadcastTo", {"shape"}},
      {"Diag", {}},
      {"DiagPart", {}},
      {"MatrixDiag", {}},
      {"MatrixDiagPart", {}},
      {"MatrixBandPart", {"num_lower", "num_upper"}},
      // Random numbers.
      {"RandomUniform", {"shape"}},
      {"RandomStandardNormal", {"shape"}},
      {"TruncatedNormal", {"shape"}},
      {"RandomUniformInt", {"shape", "minval", "maxval"}},
      {"StatelessRandomUniform", {"shape", "seed"}},
      {"StatelessRandomNormal", {"shape", "seed"}},
      {"StatelessTruncatedNormal", {"shape", "seed"}},
      // Variables behind handles.
      {"AssignAddVariableOp", {"resource"}},
      {"AssignSubVariableOp", {"resource"}},
      {"ResourceGather", {"resource"}},
      {"ResourceScatterAdd", {"resource"}},
      {"ResourceScatterSub", {"resource"}},
      {"ResourceScatterUpdate", {"resource"}},
      {"ResourceApplyGradientDescent", {"var"}},
      {"ResourceApplyMomentum", {"var", "accum"}},
      {"ResourceApplyAdagrad", {"var", "accum"}},
      {"ResourceApplyAdam", {"var", "m", "v"}},
      {"ResourceApplyRMSProp", {"var", "ms", "mom"}},
  };
  return *rows;
}

}  // namespace

void RegisterFakeKernels(const OpRegistry& ops, KernelRegistry& registry) {
  const CpuKernels cpu = FindCpuKernels(registry);
  RegisterAcceleratorKernels(ops, cpu, "FAKE", registry);
  for (const Row& row : Computing()) {
    // After those above: of two that fit, as for int32, the first one is taken.
    Adopt(ops, cpu, std::string(row.op),
          {"FAKE", &MakeStreamKernel, row.host_args, DeviceTypes(), ""}, registry);
  }
}

}  // namespace millrace
