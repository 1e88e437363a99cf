// SPDX-License-Identifier: Apache-2.0
// Kernels over 1 Mi floats in one thread, as multiples of the time that memcpy takes to move as
// many bytes, and for functions also of a loop over the C library's. Each ratio is the median of
// alternating runs in the same process, in processor time; smaller is faster.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace {
namespace {

constexpr int64_t kSize = 1 << 20;

double Seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Ratio(const std::function<void()>& ours, const std::function<void()>& theirs) {
  const auto time = [](const std::function<void()>& f) {
    const double begin = Seconds();
    for (int i = 0; i < 5; ++i) f();
    return Seconds() - begin;
  };
  ours();
  theirs();
  std::vector<double> ratios;
  for (int i = 0; i < 9; ++i) {
    const double a = time(ours);
    ratios.push_back(a / time(theirs));
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[4];
}

class Bench {
 public:
  Bench() {
    if (!RegisterAllOps(ops_).ok()) std::abort();
    RegisterAllKernels(kernels_);
    for (Tensor* t : {&x_, &y_, &copy_}) {
      uint32_t state = 1;
      for (float& v : t->flat<float>()) {
        state = state * 1664525 + 1013904223;
        v = 0.25f + static_cast<float>(state >> 8) / 16777216.0f;
      }
    }
  }

  // Node `op` of `inputs` (1 or 2) matrices of 1024 x 1024, or of a second one given.
  void Run(const char* op, int inputs, double (*function)(double) = nullptr,
           const Tensor* second = nullptr, const char* type_attr = nullptr) {
    pb::GraphDef graph;
    std::map<std::string, Tensor> feeds = {{"x:0", x_}};
    if (inputs > 1) feeds["y:0"] = second != nullptr ? *second : y_;
    pb::NodeDef node;
    for (const auto& [name, tensor] : feeds) {
      pb::NodeDef* fed = graph.add_node();
      fed->set_name(name.substr(0, 1));
      fed->set_op("Placeholder");
      (*fed->mutable_attr())["dtype"].set_type(static_cast<pb::DataType>(tensor.dtype()));
      node.add_input(fed->name());
    }
    node.set_name("node");
    node.set_op(op);
    (*node.mutable_attr())["T"].set_type(pb::DT_FLOAT);
    if (type_attr != nullptr) (*node.mutable_attr())[type_attr].set_type(pb::DT_INT32);
    *graph.add_node() = node;
    auto made = testing::GraphInterpreter::Create(graph, ops_, kernels_, device_.get());
    if (!made.ok()) {
      std::printf("%s: %s\n", op, made.status().ToString().c_str());
      return;
    }
    const std::string fetch[] = {"node:0"};
    const auto ours = [&] {
      if (!(*made)->Run(feeds, fetch, {}).ok()) std::abort();
    };
    const double copies = Ratio(
        ours, [&] { std::memcpy(copy_.data<float>(), x_.data<float>(), kSize * sizeof(float)); });
    std::printf("%-36s %6.2f x memcpy", op, copies);
    if (function != nullptr) {
      const double library = Ratio(ours, [&] {
        const float* in = x_.data<float>();
        float* out = copy_.data<float>();
        for (int64_t i = 0; i < kSize; ++i) out[i] = static_cast<float>(function(in[i]));
      });
      std::printf("  %6.3f x library", library);
    }
    std::printf("\n");
  }

 private:
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_{"bench", 0};
  ResourceManager resources_;
  std::unique_ptr<Device> device_ =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool_, &resources_);
  Tensor x_{kFloat, {1024, 1024}}, y_{kFloat, {1024, 1024}}, copy_{kFloat, {1024, 1024}};
};

int Main() {
  Bench bench;
  Tensor row(kFloat, {1024}), axis(kInt32, {1});
  std::fill_n(row.data<float>(), 1024, 1.0f);
  bench.Run("Add", 2);
  bench.Run("Mul", 2);
  bench.Run("BiasAdd", 2, nullptr, &row);
  bench.Run("Relu", 1);
  bench.Run("ReluGrad", 2);
  bench.Run("Exp", 1, [](double x) -> double { return std::exp(static_cast<float>(x)); });
  bench.Run("Log", 1, [](double x) -> double { return std::log(static_cast<float>(x)); });
  bench.Run("Tanh", 1, [](double x) -> double { return std::tanh(static_cast<float>(x)); });
  bench.Run("Sigmoid", 1,
            [](double x) -> double { return 1.0f / (1.0f + std::exp(-static_cast<float>(x))); });
  bench.Run("Softmax", 1);
  bench.Run("SoftmaxCrossEntropyWithLogits", 2);
  for (const int32_t i : {0, 1}) {
    axis.data<int32_t>()[0] = i;
    bench.Run("Sum", 2, nullptr, &axis, "Tidx");
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
