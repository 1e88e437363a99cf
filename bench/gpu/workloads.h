// SPDX-License-Identifier: Apache-2.0
// What the GPU benches time, as graphs of the public API: the same on any type of device, so that
// small ones are tested where there is no GPU.
#ifndef BENCH_GPU_WORKLOADS_H_
#define BENCH_GPU_WORKLOADS_H_

#include <memory>
#include <string>
#include <vector>

#include "millrace/core.h"

namespace millrace::bench {

struct Workload {
  std::string name;
  Graph graph;
  std::vector<Operation> init;  // run once
  std::vector<Operation> step;  // what is timed
  std::vector<Output> results;  // floats that a step computes; must be finite
  int parts = 1;                // of which a step has several equal ones
  double flops = 0, bytes = 0;  // of a part: products and sums; read and written at the least
  bool fuses = true;            // whether elementwise nodes may be put together
  bool tf32 = false;            // whether float32 products may be of TensorFloat-32
};

struct WorkloadOptions {
  std::string device = "/device:GPU:0";
  bool small = false;  // for tests: the same graphs over little data
};

// H1: one element-wise addition after the other, none of them fused.
std::unique_ptr<Workload> TinyChain(const WorkloadOptions& options);
// H2: 784-512-512-10 with batch 128, and two 5x5 convolutions with batch 64; SGD; data on the
// device.
std::unique_ptr<Workload> Mlp(const WorkloadOptions& options);
std::unique_ptr<Workload> Cnn(const WorkloadOptions& options);
// H3: ten products each. `kind` is "bf16", "tf32" or "f32"; "batched" are 64 of 256^3 in bf16.
std::unique_ptr<Workload> Gemm(const WorkloadOptions& options, const std::string& kind);
// H4: a chain over 256 Mi floats.
std::unique_ptr<Workload> Elementwise(const WorkloadOptions& options);
// H5: ResNet-50 (v1.5: the stride is in the 3x3), training with momentum, images on the device.
// bfloat16 with float32 weights, statistics and loss; `dtype` kFloat for tests.
std::unique_ptr<Workload> ResNet50(const WorkloadOptions& options, DataType dtype);

// By name, as gpu_bench prints them; null if there is no such.
std::unique_ptr<Workload> MakeWorkload(const std::string& name, const WorkloadOptions& options);
std::vector<std::string> WorkloadNames();

}  // namespace millrace::bench

#endif  // BENCH_GPU_WORKLOADS_H_
