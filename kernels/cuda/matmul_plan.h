// SPDX-License-Identifier: Apache-2.0
// Row-major products for cuBLASLt, whose matrices are column-major: C = A B is made as
// C' = B' A', where X' is what the same memory holds column by column.
#ifndef KERNELS_CUDA_MATMUL_PLAN_H_
#define KERNELS_CUDA_MATMUL_PLAN_H_

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/driver/cuda_libraries.h"
#include "kernels/gpu/products.h"
#include "millrace/dtype.h"
#include "millrace/status.h"

namespace millrace {

// One call of cublasLtMatmul, up to addresses: what algorithms are chosen by. The library's A is
// our b, its B our a.
struct GemmKey {
  enum class Epilogue : uint8_t { kNone, kBias, kBiasRelu };

  DataType type = kFloat;
  int64_t rows = 0, columns = 0, depth = 0;  // of the library's D: our n, m and k
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldd = 0;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_d = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool tf32 = false;
  // Powers of two, at most 256.
  uint32_t align_a = 256, align_b = 256, align_d = 256;

  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

// A call and where its operands begin, in elements.
struct GemmCall {
  GemmKey key;
  int64_t a = 0, b = 0, d = 0;
};

// The calls that make all matrices of a product: one, unless batches are broadcast in a way that
// needs several. Alignments are left to the caller.
std::vector<GemmCall> PlanGemmCalls(const gpu::ProductParams& product, DataType type);

// The largest power of two up to 256 that divides the address.
uint32_t AlignmentOf(const void* address);

// Descriptors and the algorithm for a key. Immutable but for what refused() says. Thread-safe.
//
// Products of half and bfloat16 are summed in float throughout: ways that add up parts of a sum in
// the output's type, as cuBLASLt otherwise takes for long and narrow products, are not asked for.
class GemmPlan {
 public:
  // At most `workspace_limit` bytes of workspace. A refused plan if the library knows no way.
  static StatusOr<std::shared_ptr<const GemmPlan>> Make(const CublasLtLibrary& library,
                                                        cublasLtHandle_t handle, const GemmKey& key,
                                                        std::size_t workspace_limit);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  // True if the library knows no way, or once Run was answered with Unimplemented.
  bool refused() const { return refused_.load(std::memory_order_relaxed); }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // D = epilogue(op(A) op(B)); `bias` is null without one. Unimplemented, with nothing issued, if
  // the library does not know it after all.
  Status Run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
             void* workspace, cudaStream_t stream) const;

 private:
  GemmPlan(const CublasLtLibrary& library, const GemmKey& key) : library_(library), key_(key) {}
  Status MakeDescriptors();
  Status MakeOperation(cublasLtMatmulDesc_t* operation) const;
  Status ChooseAlgorithm(cublasLtHandle_t handle, std::size_t workspace_limit);

  const CublasLtLibrary& library_;
  const GemmKey key_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
  mutable std::atomic<bool> refused_{false};
};

// The same by cuBLAS, which plans by itself and knows no epilogues: the key must have none.
// `workspace` is the handle's until the next call. Unimplemented, with nothing issued, if it does
// not know such products.
Status MultiplyByCublas(const CublasLibrary& library, cublasHandle_t handle, const GemmKey& key,
                        const void* a, const void* b, void* d, void* workspace,
                        std::size_t workspace_bytes);

}  // namespace millrace

#endif  // KERNELS_CUDA_MATMUL_PLAN_H_
