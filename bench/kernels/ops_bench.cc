// SPDX-License-Identifier: Apache-2.0
// Kernels that training meets besides the dense ones, on two threads: milliseconds of the fastest
// of some runs, one line per case. ops_peer.py runs the same cases with TensorFlow in between.
//
//     bazel run -c opt //bench/kernels:ops_bench -- [case ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/all_kernels.h"
#include "ops/all_ops.h"
#include "proto/example.pb.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace {
namespace {

constexpr int64_t kSize = int64_t{4} << 20;

struct Case {
  std::string name, op;
  std::vector<Tensor> in;
  std::map<std::string, DataType> types{};
  std::map<std::string, std::string> texts{};
};

Tensor Normal(const Shape& shape, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor t(kFloat, shape);
  for (float& v : t.flat<float>()) v = normal(random);
  return t;
}
Tensor AsHalf(const Tensor& t) {
  Tensor half(DataTypeOf<Half>(), t.shape());
  for (int64_t i = 0; i < t.num_elements(); ++i) half.data<Half>()[i] = Half(t.data<float>()[i]);
  return half;
}
Tensor Truths(const Shape& shape) {
  std::mt19937 random(5);
  Tensor t(kBool, shape);
  for (bool& v : t.flat<bool>()) v = (random() & 1) != 0;
  return t;
}
Tensor As(const Tensor& t, const Shape& shape) { return *t.Reshaped(shape); }
Tensor Axis(int32_t axis) { return Tensor::FromValues<int32_t>({axis}); }
Tensor Whole(int64_t limit, int64_t n, DataType type) {
  std::mt19937_64 random(9);
  Tensor t(type, Shape({n}));
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
    if (type == kInt32) {
      t.data<int32_t>()[i] = static_cast<int32_t>(value);
    } else {
      t.data<int64_t>()[i] = value;
    }
  }
  return t;
}

std::vector<Case> FloatCases(const Tensor& x, const Tensor& y) {
  const std::map<std::string, DataType> t = {{"T", kFloat}};
  Tensor positive = x.Clone();
  for (float& v : positive.flat<float>()) v = v < 0 ? -v : v;
  std::vector<Case> cases = {
      {"log1p", "Log1p", {positive}, t},
      {"clip", "ClipByValue", {x, Tensor::Scalar<float>(-1), Tensor::Scalar<float>(1)}, t}};
  const std::pair<const char*, const char*> one[] = {
      {"erf", "Erf"},       {"expm1", "Expm1"},       {"elu", "Elu"},
      {"selu", "Selu"},     {"softplus", "Softplus"}, {"leaky", "LeakyRelu"},
      {"l2loss", "L2Loss"}, {"softsign", "Softsign"}};
  for (const auto& [name, op] : one) cases.push_back({name, op, {x}, t});
  const std::pair<const char*, const char*> two[] = {{"elu_grad", "EluGrad"},
                                                     {"selu_grad", "SeluGrad"},
                                                     {"leaky_grad", "LeakyReluGrad"},
                                                     {"softplus_grad", "SoftplusGrad"}};
  for (const auto& [name, op] : two) cases.push_back({name, op, {y, x}, t});
  const Tensor c = Truths(x.shape());
  cases.push_back({"select", "Select", {c, x, y}, t});
  cases.push_back({"selectv2", "SelectV2", {c, x, y}, t});
  cases.push_back({"selectv2_scalar_else", "SelectV2", {c, x, Tensor::Scalar<float>(0)}, t});
  cases.push_back({"selectv2_mask",
                   "SelectV2",
                   {Truths(Shape({64, 1, 1, 512})), As(x, Shape({64, 8, 16, 512})),
                    Tensor::Scalar<float>(-1e9f)},
                   t});
  cases.push_back({"where", "Where", {c}, {{"T", kBool}}});
  return cases;
}

std::vector<Case> HalfCases(const Tensor& h, const Tensor& h2, const Tensor& x) {
  const DataType half = DataTypeOf<Half>();
  const std::map<std::string, DataType> t = {{"T", half}};
  const Shape rows({kSize / 1024, 1024});
  Tensor bias(half, Shape({1024}));
  std::copy_n(h.data<Half>(), 1024, bias.data<Half>());
  return {{"half_add", "AddV2", {h, h2}, t},
          {"half_mul", "Mul", {h, h2}, t},
          {"half_relu", "Relu", {h}, t},
          {"half_exp", "Exp", {h}, t},
          {"half_sum", "Sum", {h, Axis(0)}, {{"T", half}, {"Tidx", kInt32}}},
          {"half_softmax", "Softmax", {As(h, rows)}, t},
          {"half_bias", "BiasAdd", {As(h, rows), bias}, t},
          {"half_to_float", "Cast", {h}, {{"SrcT", half}, {"DstT", kFloat}}},
          {"float_to_half", "Cast", {x}, {{"SrcT", kFloat}, {"DstT", half}}}};
}

std::vector<Case> ShapeCases(const Tensor& x) {
  const std::map<std::string, DataType> t = {{"T", kFloat}, {"Tidx", kInt32}};
  const auto rows_of = [&](int64_t n) { return As(x, Shape({kSize / n, n})); };
  std::vector<Case> cases = {{"max_axis0_64", "Max", {rows_of(64), Axis(0)}, t},
                             {"sum_axis0_4", "Sum", {rows_of(4), Axis(0)}, t},
                             {"sum_axis0_64", "Sum", {rows_of(64), Axis(0)}, t},
                             {"sum_axis0_1024", "Sum", {rows_of(1024), Axis(0)}, t},
                             {"sum_axis1_4", "Sum", {rows_of(4), Axis(1)}, t},
                             {"sum_mid_8", "Sum", {As(x, Shape({64, kSize / 512, 8})), Axis(1)}, t},
                             {"norm", "EuclideanNorm", {x, Axis(0)}, t}};
  const Tensor image = Normal(Shape({32, 128, 128, 3}), 4);
  const Tensor pads = Tensor::FromValues<int32_t>({0, 0, 4, 4, 4, 4, 0, 0}, Shape({4, 2}));
  const std::map<std::string, DataType> padding = {{"T", kFloat}, {"Tpaddings", kInt32}};
  cases.push_back({"mirror_pad", "MirrorPad", {image, pads}, padding, {{"mode", "REFLECT"}}});
  cases.push_back(
      {"mirror_pad_grad", "MirrorPadGrad", {image, pads}, padding, {{"mode", "REFLECT"}}});
  cases.push_back({"in_top_k",
                   "InTopKV2",
                   {rows_of(1024), Whole(1024, kSize / 1024, kInt32), Tensor::Scalar<int32_t>(5)},
                   {{"T", kInt32}}});
  cases.push_back({"unique", "Unique", {Whole(50000, 65536, kInt64)}, {{"T", kInt64}}});
  return cases;
}

class Bench {
 public:
  Bench() {
    if (!RegisterAllOps(ops_).ok()) std::abort();
    RegisterAllKernels(kernels_);
  }

  void Run(const Case& c) {
    pb::NodeDef node;
    node.set_op(c.op);
    for (const auto& [name, type] : c.types) SetType(&node, name, type);
    for (const auto& [name, text] : c.texts) (*node.mutable_attr())[name].set_s(text);
    pb::GraphDef graph;
    std::map<std::string, Tensor> feeds;
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      feeds[Feed(&graph, &node, i, c.in[i].dtype())] = c.in[i];
    }
    node.set_name("node");
    *graph.add_node() = node;
    Time(c.name, graph, feeds, {"node:0"}, {});
  }

  void RunFtrl(const Tensor& v, const Tensor& g) {
    pb::GraphDef graph;
    pb::NodeDef apply;
    std::map<std::string, Tensor> values;
    std::vector<std::string> assigns;
    for (const char* name : {"var", "accum", "linear"}) {
      pb::NodeDef* node = graph.add_node();
      node->set_name(name);
      node->set_op("Variable");
      SetType(node, "dtype", kFloat);
      (*node->mutable_attr())["shape"].mutable_shape()->add_dim()->set_size(kSize);
      apply.add_input(name);
      pb::NodeDef assign;
      assign.add_input(name);
      SetType(&assign, "T", kFloat);
      assign.set_op("Assign");
      values[Feed(&graph, &assign, 10 + assigns.size(), kFloat)] = v;
      assign.set_name(std::string(name) + "_assign");
      assigns.push_back(assign.name());
      *graph.add_node() = assign;
    }
    std::map<std::string, Tensor> feeds = {{Feed(&graph, &apply, 0, kFloat), g}};
    for (const float h : {0.01f, 0.1f, 0.1f, -0.5f}) {
      const std::string name = Feed(&graph, &apply, feeds.size(), kFloat);
      feeds[name] = Tensor::Scalar<float>(h);
    }
    apply.set_name("apply");
    apply.set_op("ApplyFtrl");
    SetType(&apply, "T", kFloat);
    *graph.add_node() = apply;
    feeds.insert(values.begin(), values.end());
    Time("ftrl", graph, feeds, {}, {"apply"}, assigns);
  }

  void RunParse(bool lists) {
    Tensor serialized(kString, Shape({4096}));
    for (int64_t i = 0; i < 4096; ++i) {
      pb::Example example;
      auto& features = *example.mutable_features()->mutable_feature();
      for (int k = 0; k < 15; ++k) {
        features["f" + std::to_string(k)].mutable_float_list()->add_value(0.1f *
                                                                          static_cast<float>(i));
        features["i" + std::to_string(k)].mutable_int64_list()->add_value(i);
      }
      serialized.data<std::string>()[i] = example.SerializeAsString();
    }
    const int each = lists ? 5 : 15;
    std::vector<std::string> keys;
    for (const char* kind : {"f", "i"}) {
      for (int k = 0; k < each; ++k) keys.push_back(kind + std::to_string(k));
    }
    const Tensor none(kString, Shape({0}));
    const Tensor given =
        Tensor::FromValues<std::string>(keys, Shape({static_cast<int64_t>(keys.size())}));
    pb::NodeDef node;
    node.set_op("ParseExampleV2");
    auto& attrs = *node.mutable_attr();
    attrs["num_sparse"].set_i(lists ? 10 : 0);
    for (const char* name :
         {"Tdense", "sparse_types", "ragged_value_types", "ragged_split_types", "dense_shapes"}) {
      attrs[name].mutable_list();
    }
    std::vector<Tensor> in = {serialized, none, lists ? given : none, lists ? none : given, none};
    for (int k = 0; k < 2 * each; ++k) {
      const DataType type = k < each ? kFloat : kInt64;
      attrs[lists ? "sparse_types" : "Tdense"].mutable_list()->add_type(
          static_cast<pb::DataType>(type));
      if (lists) continue;
      attrs["dense_shapes"].mutable_list()->add_shape()->add_dim()->set_size(1);
      in.push_back(type == kFloat ? Tensor::FromValues<float>({0})
                                  : Tensor::FromValues<int64_t>({0}));
    }
    pb::GraphDef graph;
    std::map<std::string, Tensor> feeds;
    for (std::size_t i = 0; i < in.size(); ++i) {
      feeds[Feed(&graph, &node, i, in[i].dtype())] = in[i];
    }
    node.set_name("node");
    *graph.add_node() = node;
    Time(lists ? "parse_varlen" : "parse", graph, feeds, {}, {"node"});
  }

 private:
  static void SetType(pb::NodeDef* node, const std::string& attr, DataType type) {
    (*node->mutable_attr())[attr].set_type(static_cast<pb::DataType>(type));
  }
  // A placeholder that `node` reads next; the name to feed it by.
  static std::string Feed(pb::GraphDef* graph, pb::NodeDef* node, std::size_t i, DataType type) {
    pb::NodeDef* fed = graph->add_node();
    fed->set_name("in" + std::to_string(i));
    fed->set_op("Placeholder");
    SetType(fed, "dtype", type);
    node->add_input(fed->name());
    return fed->name() + ":0";
  }

  void Time(const std::string& name, const pb::GraphDef& graph,
            const std::map<std::string, Tensor>& feeds, const std::vector<std::string>& fetches,
            const std::vector<std::string>& targets, const std::vector<std::string>& first = {}) {
    auto made = testing::GraphInterpreter::Create(graph, ops_, kernels_, device_.get());
    const auto run = [&](const std::vector<std::string>& what) {
      const auto out = (*made)->Run(feeds, fetches, what);
      if (!out.ok()) {
        std::printf("%s: %s\n", name.c_str(), out.status().ToString().c_str());
        std::exit(1);
      }
    };
    if (!made.ok()) {
      std::printf("%s: %s\n", name.c_str(), made.status().ToString().c_str());
      std::exit(1);
    }
    if (!first.empty()) run(first);
    double best = 1e9;
    for (int i = 0; i < 15; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run(targets);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      best = std::min(best, took.count());
    }
    std::printf("%-22s %9.3f ms\n", name.c_str(), best);
  }

  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_{"bench", 1};
  ResourceManager resources_;
  std::unique_ptr<Device> device_ =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool_, &resources_);
};

int Main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const auto wants = [&](const std::string& name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  const Tensor x = Normal(Shape({kSize}), 1), y = Normal(Shape({kSize}), 2);
  Bench bench;
  std::vector<Case> cases = FloatCases(x, y);
  for (auto& more : {HalfCases(AsHalf(x), AsHalf(y), x), ShapeCases(x)}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const Case& c : cases) {
    if (wants(c.name)) bench.Run(c);
  }
  if (wants("ftrl")) bench.RunFtrl(y, x);
  if (wants("parse")) bench.RunParse(false);
  if (wants("parse_varlen")) bench.RunParse(true);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
