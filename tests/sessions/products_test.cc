// SPDX-License-Identifier: Apache-2.0
// A session gives the same values and errors whether products take their bias and activation with
// them or not.
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gtest/gtest.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

Tensor Ramp(DataType dtype, std::vector<int64_t> dims, double step) {
  Tensor tensor(dtype, *MakeShape(dims));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const double value = step * static_cast<double>(i % 41 - 20);
    switch (dtype) {
      case kFloat:
        tensor.data<float>()[i] = static_cast<float>(value);
        break;
      case kHalf:
        tensor.data<Half>()[i] = Half(static_cast<float>(value));
        break;
      case kBfloat16:
        tensor.data<BFloat16>()[i] = BFloat16(static_cast<float>(value));
        break;
      default:
        tensor.data<double>()[i] = value;
    }
  }
  return tensor;
}

struct Ran {
  StatusOr<std::vector<Tensor>> values = Status(StatusCode::kUnknown, "not run");
  int fused = 0;  // nodes
};

Ran RunGraph(Graph& graph, std::vector<Feed> feeds, std::vector<Output> fetches, bool rewrite,
             int threads) {
  Ran ran;
  auto session = Session::Create(graph, {.intra_op_threads = threads, .rewrite_graph = rewrite});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return ran;
  RunMetadata metadata;
  ran.values = session->Run(feeds, fetches, {}, RunOptions{.partition_graphs = true}, &metadata);
  for (const std::string& text : metadata.partition_graphs) {
    pb::GraphDef def;
    EXPECT_TRUE(def.ParseFromString(text));
    for (const auto& node : def.node()) ran.fused += node.op().starts_with("_Fused") ? 1 : 0;
  }
  return ran;
}

void ExpectSame(Graph& graph, const std::vector<Feed>& feeds, const std::vector<Output>& fetches,
                int fused) {
  for (const int threads : {-1, 3}) {
    const Ran plain = RunGraph(graph, feeds, fetches, false, threads);
    const Ran with = RunGraph(graph, feeds, fetches, true, threads);
    ASSERT_TRUE(plain.values.ok()) << plain.values.status();
    ASSERT_TRUE(with.values.ok()) << with.values.status();
    EXPECT_EQ(plain.fused, 0);
    EXPECT_EQ(with.fused, fused);
    for (std::size_t i = 0; i < fetches.size(); ++i) {
      const Tensor &a = (*plain.values)[i], &b = (*with.values)[i];
      ASSERT_TRUE(a.shape() == b.shape());
      EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.num_bytes()), 0) << "fetch " << i;
    }
  }
}

// A product of x with weights of its own for every activation, so that none of them are equal.
struct Layers {
  using Make = std::function<Output(const Scope& s, const Output& x, const Output& w)>;
  Layers(DataType dtype, const Tensor& input, const Tensor& weights, const Tensor& biases,
         const Make& make) {
    const Scope s = graph.root();
    const Output x = Placeholder(s, dtype, {}), b = Placeholder(s, dtype, {});
    feeds = {{x, input}, {b, biases}};
    const auto biased = [&] {
      const Output w = Placeholder(s, dtype, {});
      feeds.emplace_back(w, weights);
      return ops::BiasAdd(s, make(s, x, w), b);
    };
    fetches = {biased(),
               ops::Relu(s, biased()),
               ops::Relu6(s, biased()),
               ops::Elu(s, biased()),
               ops::Tanh(s, biased()),
               ops::Sigmoid(s, biased())};
  }
  Graph graph;
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
};

// The elements of half and bfloat16 do not divide the products and sums evenly: a rounding more or
// less would show.
TEST(ProductsTest, MatricesGiveTheSameBits) {
  for (const DataType dtype : {kFloat, kDouble, kHalf, kBfloat16}) {
    for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {3, 5, 7}, {128, 784, 70}, {33, 0, 4}, {200, 300, 513}, {0, 4, 4}}) {
      SCOPED_TRACE(StrCat(m, " x ", k, " x ", n));
      Layers layers(
          dtype, Ramp(dtype, {m, k}, 0.05), Ramp(dtype, {k, n}, 0.03), Ramp(dtype, {n}, 0.5),
          [](const Scope& s, const Output& x, const Output& w) { return ops::MatMul(s, x, w); });
      ExpectSame(layers.graph, layers.feeds, layers.fetches, 6);
    }
  }
}

TEST(ProductsTest, ConvolutionsGiveTheSameBits) {
  for (const DataType dtype : {kFloat, kDouble, kHalf, kBfloat16}) {
    for (const auto& [batch, size, channels, filters] : std::vector<std::array<int64_t, 4>>{
             {1, 5, 1, 1}, {17, 9, 3, 8}, {5, 12, 16, 32}, {0, 5, 2, 2}}) {
      SCOPED_TRACE(StrCat(batch, " of ", size, ", ", channels, " to ", filters));
      Layers layers(dtype, Ramp(dtype, {batch, size, size, channels}, 0.05),
                    Ramp(dtype, {3, 3, channels, filters}, 0.03), Ramp(dtype, {filters}, 0.5),
                    [](const Scope& s, const Output& x, const Output& w) {
                      return ops::Conv2D(s, x, w, {1, 1, 1, 1}, "SAME");
                    });
      ExpectSame(layers.graph, layers.feeds, layers.fetches, 6);
    }
  }
}

TEST(ProductsTest, AnErrorNamesTheNodeThatItBelongsTo) {
  Graph graph;
  const Scope s = graph.root();
  const Output x = Placeholder(s, kFloat, {}), w = Placeholder(s, kFloat, {});
  const Output b = Placeholder(s, kFloat, {});
  const Output product = ops::MatMul(s.WithOpName("product"), x, w);
  const Output biased = ops::BiasAdd(s.WithOpName("biased"), product, b);
  const Output y = ops::Relu(s.WithOpName("active"), biased);
  const Tensor matrix = Ramp(kFloat, {4, 4}, 1);
  const Ran sizes =
      RunGraph(graph, {{x, matrix}, {w, Ramp(kFloat, {3, 4}, 1)}, {b, matrix}}, {y}, true, -1);
  EXPECT_EQ(sizes.values.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(sizes.values.status().message().find("Matrix size-incompatible"), std::string::npos);
  EXPECT_NE(sizes.values.status().message().find("{{node product}}"), std::string::npos)
      << sizes.values.status();
  const Ran bias =
      RunGraph(graph, {{x, matrix}, {w, matrix}, {b, Ramp(kFloat, {3}, 1)}}, {y}, true, -1);
  EXPECT_EQ(bias.values.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(bias.values.status().message().find("Must provide as many biases"), std::string::npos);
  EXPECT_NE(bias.values.status().message().find("{{node biased}}"), std::string::npos)
      << bias.values.status();
}

}  // namespace
}  // namespace millrace
