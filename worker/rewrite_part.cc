// SPDX-License-Identifier: Apache-2.0
#include "worker/rewrite_part.h"

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "graph/rewrite/rewrite.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/run_kernel.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

RewriteOptions ReadOptions(const EngineOptions& engine, const pb::GraphOptions& options) {
  RewriteOptions read;
  if (options.optimizer_options().opt_level() == pb::OptimizerOptions::L0) {
    read.fold_constants = read.merge_equal = read.simplify = read.remove_identities = false;
    read.drop_unread = read.fuse_products = false;
    return read;
  }
  const pb::RewriterConfig& config = options.rewrite_options();
  const auto is_on = [](pb::RewriterConfig::Toggle t) { return t != pb::RewriterConfig::OFF; };
  read.fold_constants = is_on(config.constant_folding());
  read.merge_equal = is_on(config.common_subgraph_elimination());
  read.simplify = is_on(config.arithmetic_optimization()) && !config.disable_meta_optimizer();
  read.drop_unread = read.remove_identities =
      is_on(config.dependency_optimization()) && !config.disable_meta_optimizer();
  read.fuse_products = is_on(config.remapping()) && !config.disable_meta_optimizer();
  read.fuse_elementwise = config.remapping() == pb::RewriterConfig::DEFAULT
                              ? engine.fusion
                              : is_on(config.remapping()) && !config.disable_meta_optimizer();
  if (const int64_t limit = options.optimizer_options().max_folded_constant_in_bytes(); limit > 0) {
    read.max_folded_bytes = limit;
  }
  return read;
}

// Host memory up to a limit in all: what would be larger is not made to be thrown away.
class LimitedAllocator final : public Allocator {
 public:
  explicit LimitedAllocator(int64_t limit) : left_(static_cast<std::size_t>(limit)) {}
  std::string_view name() const override { return "folding"; }
  RefPtr<Buffer> Allocate(std::size_t bytes) override {
    MutexLock lock(&mu_);
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    return HostAllocator()->Allocate(bytes);
  }
  AllocatorStats stats() const override { return {}; }

 private:
  Mutex mu_;
  std::size_t left_ ABSL_GUARDED_BY(mu_);
};

// Runs the node's kernel as a step would, with outputs of at most `most_bytes`.
StatusOr<std::vector<Tensor>> Compute(const WorkerEnv& env, Device* device, const Node& node,
                                      std::span<const Tensor> inputs, int64_t most_bytes) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                      env.kernels->Create(device, &node.op(), node.name(), node.attrs(),
                                          node.input_types(), node.output_types()));
  if (kernel->IsAsync()) return errors::Unimplemented("an asynchronous kernel");
  std::vector<EdgeValue> in(inputs.size()), out(node.num_outputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    in[i].value = inputs[i];
    in[i].kind = EdgeValue::Kind::kValue;
  }
  StepEnv step;
  CancellationManager cancellation;
  step.cancellation = &cancellation;
  KernelContext ctx(kernel.get(), device, &step, in, out, node.output_types());
  constexpr int64_t kTemporaries = 4;  // as much again, and a little more, beside the outputs
  LimitedAllocator memory(kTemporaries * (most_bytes + (1 << 16)));
  ctx.set_allocator(&memory);
  MR_RETURN_IF_ERROR(RunKernel(kernel.get(), ctx));
  std::vector<Tensor> outputs;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (out[i].kind != EdgeValue::Kind::kValue || out[i].value.dtype() != node.output_types()[i]) {
      return errors::Internal("the kernel gave no proper output ", i);
    }
    outputs.push_back(std::move(out[i].value));
  }
  return outputs;
}

}  // namespace

Status RewritePart(const WorkerEnv& env, const pb::GraphOptions& options, Device* device,
                   DataflowGraph* graph) {
  RewriteOptions rewrites = ReadOptions(env.engine, options);
  if (device->memory_space() != MemorySpace::kHost) {
    // Constants lie in messages; what is in host memory is none of the other passes' knowledge.
    // Elementwise ops and products have all operands on the device.
    const auto runs = [&](const char* op, DataType type = kFloat) {
      AttrMap attrs;
      attrs.Set("T", type);
      return env.kernels->Find(op, device->type(), attrs) != nullptr;
    };
    const auto runs_small = [&](const char* op) { return runs(op, kHalf) && runs(op, kBfloat16); };
    rewrites = {
        .drop_unread = rewrites.drop_unread,
        .fold_constants = false,
        .merge_equal = false,
        .simplify = false,
        .remove_identities = false,
        .fuse_products = rewrites.fuse_products && runs("_FusedMatMul") && runs("_FusedConv2D"),
        .fuse_small_products = runs_small("_FusedMatMul") && runs_small("_FusedConv2D"),
        .fuse_elementwise = rewrites.fuse_elementwise && runs("_Fused"),
        .fuse_reductions = rewrites.fuse_reductions};
  }
  return RewriteGraph(
             rewrites,
             [&](const Node& node, std::span<const Tensor> inputs) {
               return Compute(env, device, node, inputs, rewrites.max_folded_bytes);
             },
             graph)
      .status();
}

}  // namespace millrace
