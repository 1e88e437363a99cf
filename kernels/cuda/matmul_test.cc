// SPDX-License-Identifier: Apache-2.0
// Products through a cuBLASLt that computes on the host what its descriptors say: how row-major
// matrices become column-major ones, batches, biases and activations. The reference are our own
// loops, which goldens check.
#include "base/errors.h"
#include "frontend/graph_builder.h"
#include "gtest/gtest.h"
#include "kernels/cuda/library_test.h"
#include "kernels/cuda/matmul_plan.h"
#include "ops/op_registry.h"

namespace millrace {
namespace {

using testing::Element;
using testing::Numbered;
using testing::SetElement;

struct FakeOperation {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasComputeType_t compute{};
  const void* bias = nullptr;
};
struct FakeLayout {
  cudaDataType type{};
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, stride = 0;
  int32_t batch = 1;
};

// Of the last calls.
struct Seen {
  int heuristics = 0, multiplications = 0, plain_multiplications = 0;
  bool knows_no_epilogues = false, refuses_epilogues = false, refuses_plain = false;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  cublasMath_t math{};
  cublasComputeType_t compute{};
  uint32_t alignment_a = 0;
  uint64_t workspace_limit = 0;
  bool knows_nothing = false;
} seen;

DataType TypeOf(const FakeLayout& layout) {
  if (layout.type == CUDA_R_16F) return kHalf;
  return layout.type == CUDA_R_16BF ? kBfloat16 : kFloat;
}

// As cuBLASLt documents it: sums, bias (of D's type) and activation in float, rounded once.
void Multiply(const FakeOperation& op, const void* a, const FakeLayout& la, const void* b,
              const FakeLayout& lb, void* d, const FakeLayout& ld) {
  const DataType type = TypeOf(ld);
  const auto get = [&](const void* data, const FakeLayout& l, int64_t n, int64_t i, int64_t j) {
    return Element(type, data, n * l.stride + i + j * l.ld);
  };
  const auto rows = static_cast<int64_t>(ld.rows), columns = static_cast<int64_t>(ld.columns);
  const auto depth = static_cast<int64_t>(op.a == CUBLAS_OP_N ? la.columns : la.rows);
  for (int64_t n = 0; n < ld.batch; ++n) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        float sum = 0;
        for (int64_t q = 0; q < depth; ++q) {
          sum += (op.a == CUBLAS_OP_N ? get(a, la, n, i, q) : get(a, la, n, q, i)) *
                 (op.b == CUBLAS_OP_N ? get(b, lb, n, q, j) : get(b, lb, n, j, q));
        }
        if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT) sum += Element(type, op.bias, i);
        if (op.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) sum = sum < 0 ? 0 : sum;
        SetElement(type, d, n * ld.stride + i + j * ld.ld, sum);
      }
    }
  }
}

CublasLtLibrary HostCublasLt() {
  CublasLtLibrary lib;
  lib.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                    cudaDataType_t) {
    auto* const op = new FakeOperation;
    op->compute = compute;
    *made = reinterpret_cast<cublasLtMatmulDesc_t>(op);
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t op) {
    delete reinterpret_cast<FakeOperation*>(op);
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t desc,
                                          cublasLtMatmulDescAttributes_t attribute,
                                          const void* value, std::size_t size) {
    auto* const op = reinterpret_cast<FakeOperation*>(desc);
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        std::memcpy(&op->a, value, size);
        break;
      case CUBLASLT_MATMUL_DESC_TRANSB:
        std::memcpy(&op->b, value, size);
        break;
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        std::memcpy(&op->epilogue, value, size);
        break;
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        std::memcpy(&op->bias, value, size);
        break;
      default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* made, cudaDataType type,
                                      uint64_t rows, uint64_t columns, int64_t ld) {
    *made = reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{type, rows, columns, ld});
    return ld < static_cast<int64_t>(rows) ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t layout) {
    delete reinterpret_cast<FakeLayout*>(layout);
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatrixLayoutSetAttribute = [](cublasLtMatrixLayout_t desc,
                                            cublasLtMatrixLayoutAttribute_t attribute,
                                            const void* value, std::size_t size) {
    auto* const layout = reinterpret_cast<FakeLayout*>(desc);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
      std::memcpy(&layout->batch, value, size);
    } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
      std::memcpy(&layout->stride, value, size);
    } else {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* made) {
    *made = nullptr;
    seen.reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t,
                                                cublasLtMatmulPreferenceAttributes_t attribute,
                                                const void* value, std::size_t size) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
      std::memcpy(&seen.workspace_limit, value, size);
    } else if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) {
      std::memcpy(&seen.alignment_a, value, size);
    } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
      std::memcpy(&seen.reductions, value, size);
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasLtMatmulAlgoGetHeuristic =
      [](cublasLtHandle_t, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
         cublasLtMatmulHeuristicResult_t* found, int* count) {
        ++seen.heuristics;
        seen.compute = reinterpret_cast<FakeOperation*>(op)->compute;
        const bool epilogue =
            reinterpret_cast<FakeOperation*>(op)->epilogue != CUBLASLT_EPILOGUE_DEFAULT;
        *count = seen.knows_nothing || (epilogue && seen.knows_no_epilogues) ? 0 : 1;
        found->workspaceSize = 64;
        return CUBLAS_STATUS_SUCCESS;
      };
  lib.cublasLtMatmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                          const void* a_data, cublasLtMatrixLayout_t a_desc, const void* b_data,
                          cublasLtMatrixLayout_t b_desc, const void* beta, const void* c,
                          cublasLtMatrixLayout_t, void* d_data, cublasLtMatrixLayout_t d_desc,
                          const cublasLtMatmulAlgo_t*, void* workspace, std::size_t workspace_size,
                          cudaStream_t) {
    const auto& op = *reinterpret_cast<FakeOperation*>(desc);
    if (seen.refuses_epilogues && op.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    ++seen.multiplications;
    const auto& la = *reinterpret_cast<FakeLayout*>(a_desc);
    const auto& lb = *reinterpret_cast<FakeLayout*>(b_desc);
    const auto& ld = *reinterpret_cast<FakeLayout*>(d_desc);
    if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 ||
        c != d_data || workspace == nullptr || workspace_size != 64) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const uint64_t depth = op.a == CUBLAS_OP_N ? la.columns : la.rows;
    if (la.type != ld.type || lb.type != ld.type ||
        (op.a == CUBLAS_OP_N ? la.rows : la.columns) != ld.rows ||
        (op.b == CUBLAS_OP_N ? lb.columns : lb.rows) != ld.columns ||
        (op.b == CUBLAS_OP_N ? lb.rows : lb.columns) != depth) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    Multiply(op, a_data, la, b_data, lb, d_data, ld);
    return CUBLAS_STATUS_SUCCESS;
  };
  return lib;
}

CublasLibrary HostCublas() {
  CublasLibrary lib;
  lib.cublasSetMathMode = [](cublasHandle_t, cublasMath_t math) {
    seen.math = math;
    return CUBLAS_STATUS_SUCCESS;
  };
  lib.cublasSetWorkspace = [](cublasHandle_t, void* workspace, std::size_t bytes) {
    return workspace != nullptr && bytes > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  };
  lib.cublasGemmStridedBatchedEx_64 =
      [](cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
         int64_t k, const void* alpha, const void* a, cudaDataType a_type, int64_t lda,
         long long stride_a, const void* b, cudaDataType b_type, int64_t ldb, long long stride_b,
         const void* beta, void* d, cudaDataType d_type, int64_t ldd, long long stride_d,
         int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
        if (seen.refuses_plain) return CUBLAS_STATUS_NOT_SUPPORTED;
        ++seen.plain_multiplications;
        seen.compute = compute;
        if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 ||
            a_type != d_type || b_type != d_type) {
          return CUBLAS_STATUS_INVALID_VALUE;
        }
        const auto layout = [&](bool turned, int64_t rows, int64_t columns, int64_t ld,
                                int64_t stride) {
          FakeLayout made{d_type, static_cast<uint64_t>(turned ? columns : rows),
                          static_cast<uint64_t>(turned ? rows : columns), ld, stride};
          made.batch = static_cast<int32_t>(batch);
          return made;
        };
        FakeOperation op;
        op.a = ta;
        op.b = tb;
        Multiply(op, a, layout(ta != CUBLAS_OP_N, m, k, lda, stride_a), b,
                 layout(tb != CUBLAS_OP_N, k, n, ldb, stride_b), d,
                 layout(false, m, n, ldd, stride_d));
        return CUBLAS_STATUS_SUCCESS;
      };
  return lib;
}

StatusOr<const CublasLibrary*> FakePlainSource() {
  static const auto* const lib = new CublasLibrary(HostCublas());
  return lib;
}
StatusOr<const CublasLibrary*> NoPlainSource() { return errors::NotFound("no libcublas"); }

StatusOr<const CublasLtLibrary*> FakeSource() {
  static const auto* const lib = new CublasLtLibrary(HostCublasLt());
  return lib;
}

class MatMulLibraryTest : public testing::LibraryTest {
 protected:
  void SetUp() override { seen = Seen(); }

  // By the library, and by our loops.
  void Check(const std::string& op, AttrMap attrs, std::vector<Tensor> inputs, const Shape& shape,
             bool expect_done = true) {
    const DataType type = inputs[0].dtype();
    attrs.Set("T", AttrValue(type));
    const OpInfo* const info = BuiltinOps().Find(op);
    ASSERT_NE(info, nullptr);
    const std::vector<DataType> types(inputs.size(), type), made = {type};
    KernelConstruction c(nullptr, info, "node", &attrs, types, made);
    CheckAgainstLoops(c, MakeMatMulLibraryBody(c, &FakeSource, plain_).get(), std::move(inputs),
                      shape, expect_done);
  }
  void CheckFused(DataType type, const char* activation, bool expect_done = true) {
    SCOPED_TRACE(std::string(DataTypeName(type)) + " " + activation);
    AttrMap attrs;
    for (const char* name : {"transpose_a", "transpose_b"}) attrs.Set(name, AttrValue(false));
    attrs.Set("activation", AttrValue(std::string(activation)));
    Check("_FusedMatMul", attrs,
          {Numbered({3, 5}, 1, type), Numbered({5, 4}, 2, type), Numbered({4}, 3, type)}, {3, 4},
          expect_done);
  }

  CublasSource plain_ = &FakePlainSource;
};

AttrMap Attrs(std::initializer_list<std::pair<const char*, AttrValue>> values) {
  AttrMap attrs;
  for (const auto& [name, value] : values) attrs.Set(name, value);
  return attrs;
}

TEST_F(MatMulLibraryTest, MultipliesRowMajorMatricesInEveryTransposition) {
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(ta * 2 + tb);
      Check("MatMul", Attrs({{"transpose_a", ta}, {"transpose_b", tb}}),
            {Numbered(ta ? Shape({kK, kM}) : Shape({kM, kK}), 1),
             Numbered(tb ? Shape({kN, kK}) : Shape({kK, kN}), 2)},
            {kM, kN});
    }
  }
  EXPECT_EQ(seen.multiplications, 4);
}

TEST_F(MatMulLibraryTest, MultipliesBatchesInOneCallWhereStridesAllowIt) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(ta * 2 + tb);
      Check("BatchMatMulV2", Attrs({{"adj_x", ta}, {"adj_y", tb}}),
            {Numbered(ta ? Shape({2, 3, 5, 4}) : Shape({2, 3, 4, 5}), 1),
             Numbered(tb ? Shape({2, 3, 6, 5}) : Shape({2, 3, 5, 6}), 3)},
            {2, 3, 4, 6});
    }
  }
  EXPECT_EQ(seen.multiplications, 4);
  // One matrix for all of a batch: a stride of 0.
  Check("BatchMatMulV2", Attrs({{"adj_x", false}, {"adj_y", false}}),
        {Numbered({3, 2, 5}, 1), Numbered({5, 4}, 2)}, {3, 2, 4});
  EXPECT_EQ(seen.multiplications, 5);
}

TEST_F(MatMulLibraryTest, MultipliesBatchesThatAreBroadcastBothWays) {
  Check("BatchMatMulV2", Attrs({{"adj_x", false}, {"adj_y", false}}),
        {Numbered({3, 1, 2, 5}, 1), Numbered({4, 5, 2}, 2)}, {3, 4, 2, 2});
  EXPECT_EQ(seen.multiplications, 3);
}

TEST_F(MatMulLibraryTest, AddsABiasPerColumnAndActivates) {
  for (const DataType type : {kFloat, kHalf, kBfloat16}) {
    for (const char* activation : {"", "Relu", "Relu6", "Tanh"}) {
      SCOPED_TRACE(activation);
      Check("_FusedMatMul",
            Attrs({{"transpose_a", false},
                   {"transpose_b", false},
                   {"activation", std::string(activation)}}),
            {Numbered({3, 5}, 1, type), Numbered({5, 4}, 2, type), Numbered({4}, 3, type)}, {3, 4});
      EXPECT_EQ(seen.compute, CUBLAS_COMPUTE_32F);
    }
  }
  EXPECT_EQ(seen.multiplications, 3 * 4);
}

// 2047 + 2 and 255 + 2 take one bit more than there are: each node by itself would round them
// before it adds the bias, which brings them back among the numbers that there are.
TEST_F(MatMulLibraryTest, RoundsAProductOf16BitsOnceWithItsBias) {
  for (const auto& [type, product] : {std::pair(kHalf, 2049.0f), std::pair(kBfloat16, 257.0f)}) {
    AttrMap attrs = Attrs({{"transpose_a", false}, {"transpose_b", false}});
    attrs.Set("T", AttrValue(type));
    const std::vector<DataType> types(3, type), made = {type};
    KernelConstruction c(nullptr, BuiltinOps().Find("_FusedMatMul"), "node", &attrs, types, made);
    StreamCall call;
    call.inputs = {Tensor(type, {1, 2}), Tensor(type, {2, 1}), Tensor(type, {1})};
    call.outputs = {Tensor(type, {1, 1})};
    const float a[] = {product - 2, 2};
    for (int i = 0; i < 2; ++i) {
      SetElement(type, call.inputs[0].raw_data(), i, a[i]);
      SetElement(type, call.inputs[1].raw_data(), i, 1);
    }
    SetElement(type, call.inputs[2].raw_data(), 0, 1);
    const auto done =
        MakeMatMulLibraryBody(c, &FakeSource, plain_)->Run(call, &machine_, gpu::HostLoops());
    ASSERT_TRUE(done.ok() && *done) << done.status();
    EXPECT_EQ(Element(type, call.outputs[0].raw_data(), 0), product + 1);
  }
}

TEST_F(MatMulLibraryTest, AsksForAnAlgorithmOncePerShapeAndMath) {
  const auto multiply = [&] {
    Check("MatMul", Attrs({{"transpose_a", false}, {"transpose_b", false}}),
          {Numbered({3, 5}, 1), Numbered({5, 4}, 2)}, {3, 4});
  };
  multiply();
  const int once = seen.heuristics;
  EXPECT_EQ(seen.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(seen.workspace_limit, uint64_t{32} << 20);
  machine_.math_.tf32 = true;
  multiply();
  EXPECT_GT(seen.heuristics, once);
  EXPECT_EQ(seen.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_F(MatMulLibraryTest, LeavesToOurLoopsWhatTheLibraryDoesNotKnow) {
  seen.knows_nothing = seen.refuses_plain = true;
  Check("MatMul", Attrs({{"transpose_a", false}, {"transpose_b", false}}),
        {Numbered({3, 5}, 1), Numbered({5, 4}, 2)}, {3, 4}, /*expect_done=*/false);
}

// As of doubles, and of rows that begin at odd addresses.
TEST_F(MatMulLibraryTest, AddsABiasItselfWhereTheLibraryKnowsNoWayWithOne) {
  for (bool* const cause : {&seen.knows_no_epilogues, &seen.refuses_epilogues}) {
    *cause = true;
    machine_.properties_.ordinal += 1000;  // the other cause's plans are not found
    for (const DataType type : {kFloat, kHalf, kBfloat16}) {
      for (const char* activation : {"", "Relu", "Tanh"}) CheckFused(type, activation);
    }
    *cause = false;
  }
  EXPECT_EQ(seen.multiplications, 2 * 3 * 3);
  EXPECT_EQ(seen.plain_multiplications, 0);
}

TEST_F(MatMulLibraryTest, AsksOnceForWhatTheLibraryDoesNotKnow) {
  seen.knows_no_epilogues = true;
  CheckFused(kFloat, "Relu");
  EXPECT_EQ(seen.heuristics, 2);
  // Addresses of other alignments are other questions.
  const int asked = seen.heuristics;
  for (int i = 0; i < 200; ++i) CheckFused(kFloat, "Relu");
  EXPECT_LT(seen.heuristics, asked + 200);
}

TEST_F(MatMulLibraryTest, MultipliesByTheOlderLibraryWhatTheNewerOneDoesNotKnow) {
  seen.knows_nothing = true;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(ta * 2 + tb);
      Check("MatMul", Attrs({{"transpose_a", ta}, {"transpose_b", tb}}),
            {Numbered(ta ? Shape({5, 3}) : Shape({3, 5}), 1),
             Numbered(tb ? Shape({4, 5}) : Shape({5, 4}), 2)},
            {3, 4});
      Check("BatchMatMulV2", Attrs({{"adj_x", ta}, {"adj_y", tb}}),
            {Numbered(ta ? Shape({2, 5, 4}) : Shape({2, 4, 5}), 1),
             Numbered(tb ? Shape({2, 6, 5}) : Shape({2, 5, 6}), 3)},
            {2, 4, 6});
    }
  }
  EXPECT_EQ(seen.math, CUBLAS_DEFAULT_MATH);
  EXPECT_EQ(seen.compute, CUBLAS_COMPUTE_32F);
  for (const DataType type : {kHalf, kBfloat16}) {
    for (const char* activation : {"", "Relu", "Tanh"}) CheckFused(type, activation);
    EXPECT_EQ(seen.math, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    EXPECT_EQ(seen.compute, CUBLAS_COMPUTE_32F);
  }
  EXPECT_EQ(seen.multiplications, 0);
  EXPECT_EQ(seen.plain_multiplications, 8 + 6);
}

TEST_F(MatMulLibraryTest, LeavesToOurLoopsWhatNoLibraryIsThereFor) {
  seen.knows_nothing = true;
  plain_ = &NoPlainSource;
  CheckFused(kFloat, "Relu", /*expect_done=*/false);
}

// Parts of a sum in 16 bits lose what the sum would have kept.
TEST_F(MatMulLibraryTest, AddsUpProductsOf16BitsInFloatOnly) {
  for (const DataType type : {kHalf, kBfloat16}) {
    CheckFused(type, "");
    EXPECT_EQ(seen.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  }
  CheckFused(kFloat, "");
  EXPECT_EQ(seen.reductions, CUBLASLT_REDUCTION_SCHEME_MASK);
}

TEST(AlignmentOf, IsThePowerOfTwoThatDividesTheAddress) {
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1000)), 256u);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1080)), 128u);
  EXPECT_EQ(AlignmentOf(reinterpret_cast<void*>(0x1004)), 4u);
}

}  // namespace
}  // namespace millrace
