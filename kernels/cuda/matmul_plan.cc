// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

struct GemmTypes {
  cudaDataType_t data;
  cublasComputeType_t compute;
  cudaDataType_t scale;
};

StatusOr<GemmTypes> TypesOf(const GemmKey& key) {
  switch (key.type) {
    case kFloat:
      return GemmTypes{CUDA_R_32F, key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                       CUDA_R_32F};
    case kDouble:
      return GemmTypes{CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case kHalf:
      return GemmTypes{CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case kBfloat16:
      return GemmTypes{CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    default:
      return errors::Unimplemented("no products of ", DataTypeName(key.type));
  }
}

cublasLtEpilogue_t EpilogueOf(GemmKey::Epilogue epilogue) {
  switch (epilogue) {
    case GemmKey::Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case GemmKey::Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// 1 and 0 in the type that products of a type are scaled in.
class Scales {
 public:
  explicit Scales(DataType type) : wide_(type == kDouble) {}
  const void* one() const { return wide_ ? static_cast<const void*>(&wide_one_) : &one_; }
  const void* zero() const { return wide_ ? static_cast<const void*>(&wide_zero_) : &zero_; }

 private:
  const bool wide_;
  const float one_ = 1, zero_ = 0;
  const double wide_one_ = 1, wide_zero_ = 0;
};

#define MR_LT(call) MR_RETURN_IF_ERROR(CublasStatus(library_.call, #call))

}  // namespace

uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  uint32_t alignment = 256;
  while (alignment > 1 && bits % alignment != 0) alignment /= 2;
  return alignment;
}

std::vector<GemmCall> PlanGemmCalls(const gpu::ProductParams& p, DataType type) {
  GemmKey key;
  key.type = type;
  key.rows = p.n;
  key.columns = p.m;
  key.depth = p.k;
  key.transpose_a = p.transpose_b;
  key.transpose_b = p.transpose_a;
  // Row lengths of the row-major matrices: b is [k, n] or [n, k], a is [m, k] or [k, m].
  key.lda = p.transpose_b ? p.k : p.n;
  key.ldb = p.transpose_a ? p.m : p.k;
  key.ldd = p.n;
  const int rank = p.batches.rank();
  if (rank > 0) {
    key.batch = p.batches.size(rank - 1);
    key.stride_a = p.batches.stride(1, rank - 1);
    key.stride_b = p.batches.stride(0, rank - 1);
    key.stride_d = p.m * p.n;
  }
  std::vector<GemmCall> calls;
  for (int64_t first = 0; first < p.count; first += key.batch) {
    const auto at = p.batches.At(first);
    calls.push_back({key, at.offset[1], at.offset[0], first * p.m * p.n});
  }
  return calls;
}

StatusOr<std::shared_ptr<const GemmPlan>> GemmPlan::Make(const CublasLtLibrary& library,
                                                         cublasLtHandle_t handle,
                                                         const GemmKey& key,
                                                         std::size_t workspace_limit) {
  std::shared_ptr<GemmPlan> plan(new GemmPlan(library, key));
  MR_RETURN_IF_ERROR(plan->MakeDescriptors());
  MR_RETURN_IF_ERROR(plan->ChooseAlgorithm(handle, workspace_limit));
  return std::shared_ptr<const GemmPlan>(std::move(plan));
}

GemmPlan::~GemmPlan() {
  if (operation_ != nullptr) library_.cublasLtMatmulDescDestroy(operation_);
  for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) {
    if (layout != nullptr) library_.cublasLtMatrixLayoutDestroy(layout);
  }
}

Status GemmPlan::MakeOperation(cublasLtMatmulDesc_t* operation) const {
  MR_ASSIGN_OR_RETURN(const GemmTypes types, TypesOf(key_));
  MR_LT(cublasLtMatmulDescCreate(operation, types.compute, types.scale));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return CublasStatus(
        library_.cublasLtMatmulDescSetAttribute(*operation, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  };
  const cublasOperation_t a = key_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t b = key_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, a));
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, b));
  return set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(key_.epilogue));
}

Status GemmPlan::MakeDescriptors() {
  MR_ASSIGN_OR_RETURN(const GemmTypes types, TypesOf(key_));
  MR_RETURN_IF_ERROR(MakeOperation(&operation_));
  const auto rows = static_cast<uint64_t>(key_.rows), columns = static_cast<uint64_t>(key_.columns),
             depth = static_cast<uint64_t>(key_.depth);
  MR_LT(cublasLtMatrixLayoutCreate(&a_, types.data, key_.transpose_a ? depth : rows,
                                   key_.transpose_a ? rows : depth, key_.lda));
  MR_LT(cublasLtMatrixLayoutCreate(&b_, types.data, key_.transpose_b ? columns : depth,
                                   key_.transpose_b ? depth : columns, key_.ldb));
  MR_LT(cublasLtMatrixLayoutCreate(&d_, types.data, rows, columns, key_.ldd));
  if (key_.batch == 1) return OkStatus();
  const std::pair<cublasLtMatrixLayout_t, int64_t> strides[] = {
      {a_, key_.stride_a}, {b_, key_.stride_b}, {d_, key_.stride_d}};
  const auto batch = static_cast<int32_t>(key_.batch);
  for (const auto& [layout, stride] : strides) {
    MR_LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof(batch)));
    MR_LT(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &stride, sizeof(stride)));
  }
  return OkStatus();
}

Status GemmPlan::ChooseAlgorithm(cublasLtHandle_t handle, std::size_t workspace_limit) {
  cublasLtMatmulPreference_t preference = nullptr;
  MR_LT(cublasLtMatmulPreferenceCreate(&preference));
  struct Destroyer {
    const CublasLtLibrary& library;
    cublasLtMatmulPreference_t preference;
    ~Destroyer() { library.cublasLtMatmulPreferenceDestroy(preference); }
  } const destroyer{library_, preference};
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return CublasStatus(
        library_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto limit = static_cast<uint64_t>(workspace_limit);
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit));
  if (key_.type == kHalf || key_.type == kBfloat16) {
    // INPLACE and OUTPUT_TYPE add up in the output's type.
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes));
  }
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key_.align_a));
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key_.align_b));
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key_.align_d));
  MR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key_.align_d));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = library_.cublasLtMatmulAlgoGetHeuristic(
      handle, operation_, a_, b_, d_, d_, preference, 1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
    refused_.store(true, std::memory_order_relaxed);
    return OkStatus();
  }
  MR_RETURN_IF_ERROR(CublasStatus(status, "cublasLtMatmulAlgoGetHeuristic"));
  algorithm_ = found.algo;
  workspace_bytes_ = found.workspaceSize;
  return OkStatus();
}

Status GemmPlan::Run(cublasLtHandle_t handle, const void* a, const void* b, void* d,
                     const void* bias, void* workspace, cudaStream_t stream) const {
  cublasLtMatmulDesc_t operation = operation_;
  struct Destroyer {
    const CublasLtLibrary& library;
    cublasLtMatmulDesc_t own = nullptr;
    ~Destroyer() {
      if (own != nullptr) library.cublasLtMatmulDescDestroy(own);
    }
  } destroyer{library_};
  if (key_.epilogue != GemmKey::Epilogue::kNone) {
    // The bias is part of the description, which other threads use too.
    MR_RETURN_IF_ERROR(MakeOperation(&destroyer.own));
    operation = destroyer.own;
    MR_LT(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                         sizeof(bias)));
  }
  const Scales scales(key_.type);
  const cublasStatus_t status =
      library_.cublasLtMatmul(handle, operation, scales.one(), a, a_, b, b_, scales.zero(), d, d_,
                              d, d_, &algorithm_, workspace, workspace_bytes_, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    refused_.store(true, std::memory_order_relaxed);
    return errors::Unimplemented("cuBLASLt does not support this product");
  }
  return CublasStatus(status, "cublasLtMatmul");
}

Status MultiplyByCublas(const CublasLibrary& library, cublasHandle_t handle, const GemmKey& key,
                        const void* a, const void* b, void* d, void* workspace,
                        std::size_t workspace_bytes) {
  MR_ASSIGN_OR_RETURN(const GemmTypes types, TypesOf(key));
  const bool small = key.type == kHalf || key.type == kBfloat16;
  // As for cuBLASLt: sums in float throughout.
  const auto math = static_cast<cublasMath_t>(
      small ? CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
            : CUBLAS_DEFAULT_MATH);
  MR_RETURN_IF_ERROR(CublasStatus(library.cublasSetMathMode(handle, math), "cublasSetMathMode"));
  // Its own would be of memory that no session sees, and is not for recorded steps.
  MR_RETURN_IF_ERROR(CublasStatus(library.cublasSetWorkspace(handle, workspace, workspace_bytes),
                                  "cublasSetWorkspace"));
  const Scales scales(key.type);
  const cublasStatus_t status = library.cublasGemmStridedBatchedEx_64(
      handle, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
      key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, key.rows, key.columns, key.depth, scales.one(),
      a, types.data, key.lda, key.stride_a, b, types.data, key.ldb, key.stride_b, scales.zero(), d,
      types.data, key.ldd, key.stride_d, key.batch, types.compute, CUBLAS_GEMM_DEFAULT);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    return errors::Unimplemented("cuBLAS does not support this product");
  }
  return CublasStatus(status, "cublasGemmStridedBatchedEx");
}

#undef MR_LT

}  // namespace millrace
