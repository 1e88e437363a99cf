// SPDX-License-Identifier: Apache-2.0
// What a program says of NVIDIA's libraries that are there, and of those that are not.
#include "device/cuda/driver/cuda_libraries.h"

#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Each is here, with every function of its table, or the error says which is missing.
template <typename Library>
void ExpectLoadedOrNamed(const StatusOr<Library>& library, std::string_view file) {
  if (library.ok()) {
    EXPECT_NE(*library, nullptr);
    return;
  }
  EXPECT_TRUE(errors::IsNotFound(library.status())) << library.status();
  EXPECT_NE(Message(library.status()).find(file), std::string::npos) << library.status();
  EXPECT_NE(Message(library.status()).find("install"), std::string::npos) << library.status();
}

TEST(CudaLibrariesTest, EachLibraryIsLoadedOrTheErrorNamesIt) {
  ExpectLoadedOrNamed(GetCudaDriver(), "libcuda.so.1");
  ExpectLoadedOrNamed(GetCublasLt(), "libcublasLt.so.13");
  ExpectLoadedOrNamed(GetCublas(), "libcublas.so.13");
  ExpectLoadedOrNamed(GetCudnn(), "libcudnn.so.9");
  ExpectLoadedOrNamed(GetNccl(), "libnccl.so.2");
}

TEST(CudaLibrariesTest, ALoadedLibraryAnswers) {
  if (const auto cudnn = GetCudnn(); cudnn.ok()) {
    EXPECT_GE((*cudnn)->cudnnGetVersion(), 90000u);
    EXPECT_NE(Message(CudnnStatus(CUDNN_STATUS_BAD_PARAM, "cudnnCreate")).find("BAD_PARAM"),
              std::string::npos);
  }
  if (const auto nccl = GetNccl(); nccl.ok()) {
    int version = 0;
    EXPECT_EQ((*nccl)->ncclGetVersion(&version), ncclSuccess);
    EXPECT_GE(version, 22000);
  }
}

TEST(CudaLibrariesTest, ErrorsNameTheCallAndTellMemoryFromTheRest) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "cudaMalloc").ok());
  const Status memory = CudaStatus(cudaErrorMemoryAllocation, "cudaMalloc");
  EXPECT_TRUE(errors::IsResourceExhausted(memory));
  EXPECT_EQ(Message(memory), "cudaMalloc: cudaErrorMemoryAllocation");
  EXPECT_TRUE(errors::IsInternal(CublasStatus(CUBLAS_STATUS_INVALID_VALUE, "cublasGemmEx")));
  EXPECT_TRUE(
      errors::IsResourceExhausted(CublasStatus(CUBLAS_STATUS_ALLOC_FAILED, "cublasCreate")));
}

}  // namespace
}  // namespace millrace
