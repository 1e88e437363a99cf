// SPDX-License-Identifier: Apache-2.0
// Kernels over more elements than one block, one thread or one vector takes, against loops over
// single elements. The goldens are small.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/float_math.h"
#include "tests/kernel_conformance/node_runner.h"

namespace millrace::testing {
namespace {

pb::NodeDef Node(const std::string& op, const std::map<std::string, DataType>& types) {
  pb::NodeDef node;
  node.set_op(op);
  for (const auto& [name, type] : types) (*node.mutable_attr())[name] = TypeAttr(type);
  return node;
}

// Numbers in no order, some of them equal; `kind` makes other ones.
template <typename T>
Tensor Numbers(const Shape& shape, uint32_t kind = 1) {
  Tensor t(DataTypeOf<T>(), shape);
  uint32_t state = kind * 2654435761u;
  for (T& value : t.flat<T>()) {
    state = state * 1664525 + 1013904223;
    if constexpr (std::is_same_v<T, bool>) {
      value = (state >> 20) % 3 == 0;
    } else {
      value =
          static_cast<T>(static_cast<ComputeType<T>>(static_cast<int>(state >> 16) % 401 - 200) /
                         ComputeType<T>(kIsFloating<T> ? 16 : 1));
    }
  }
  return t;
}

Tensor Ints(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::FromValues<int32_t>(values, shape);
}

template <typename T>
void ExpectSameBits(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape().DebugString(), want.shape().DebugString());
  const T *a = got.data<T>(), *b = want.data<T>();
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    ASSERT_EQ(std::memcmp(a + i, b + i, sizeof(T)), 0) << "element " << i;
  }
}

// The element of `t` that `index`, of an output of shape `out`, takes when t is broadcast.
int64_t BroadcastAt(const Tensor& t, const Shape& out, int64_t index) {
  int64_t at = 0, step = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const int own = i - (out.rank() - t.rank());
    if (own >= 0) {
      if (t.dim(own) != 1) at += step * (index % out.dim(i));
      step *= t.dim(own);
    }
    index /= out.dim(i);
  }
  return at;
}

template <typename T>
void CheckSelect(const std::string& op, const Tensor& c, const Tensor& x, const Tensor& y,
                 const Shape& out) {
  SCOPED_TRACE(op + " " + c.shape().DebugString() + x.shape().DebugString() +
               y.shape().DebugString());
  const Tensor got = RunNode(Node(op, {{"T", DataTypeOf<T>()}}), {c, x, y}, 1);
  Tensor want(DataTypeOf<T>(), out);
  const bool rows = op == "Select" && c.rank() == 1 && out.rank() > 1;
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    const bool chosen = rows ? c.data<bool>()[i / (out.num_elements() / c.dim(0))]
                             : c.data<bool>()[BroadcastAt(c, out, i)];
    want.data<T>()[i] =
        chosen ? x.data<T>()[BroadcastAt(x, out, i)] : y.data<T>()[BroadcastAt(y, out, i)];
  }
  ExpectSameBits<T>(got, want);
}

TEST(LargeTensorsTest, SelectOfEachSizeOfElement) {
  const Shape shape({37, 1111});
  const Tensor c = Numbers<bool>(shape), rows = Numbers<bool>(Shape({37}));
  for (const char* op : {"Select", "SelectV2"}) {
    CheckSelect<int8_t>(op, c, Numbers<int8_t>(shape), Numbers<int8_t>(shape, 2), shape);
    CheckSelect<Half>(op, c, Numbers<Half>(shape), Numbers<Half>(shape, 2), shape);
    CheckSelect<float>(op, c, Numbers<float>(shape), Numbers<float>(shape, 2), shape);
    CheckSelect<double>(op, c, Numbers<double>(shape), Numbers<double>(shape, 2), shape);
    CheckSelect<Complex128>(op, c, Tensor(DataTypeOf<Complex128>(), shape),
                            Tensor(DataTypeOf<Complex128>(), shape), shape);
  }
  CheckSelect<float>("Select", rows, Numbers<float>(shape), Numbers<float>(shape, 2), shape);
}

TEST(LargeTensorsTest, SelectV2OfEveryWayToBroadcast) {
  const Shape out({5, 7, 3, 130});
  const Shape shapes[] = {out,
                          Shape({130}),
                          Shape({}),
                          Shape({3, 1}),
                          Shape({7, 1, 1}),
                          Shape({5, 1, 1, 130}),
                          Shape({5, 7, 1, 1}),
                          Shape({1, 7, 3, 1})};
  for (const Shape& c : shapes) {
    for (const Shape& x : shapes) {
      for (const Shape& y : shapes) {
        // One of them is whole, so that the output is known.
        if (!(c == out) && !(x == out) && !(y == out)) continue;
        CheckSelect<float>("SelectV2", Numbers<bool>(c), Numbers<float>(x), Numbers<float>(y, 2),
                           out);
      }
    }
  }
}

TEST(LargeTensorsTest, SelectV2OfStringsAndOfNothing) {
  const Tensor c = Numbers<bool>(Shape({3, 1}));
  const Tensor x = Tensor::FromValues<std::string>({"a", "b"}, Shape({2}));
  const Tensor y = Tensor::FromValues<std::string>({"y"}, Shape({1}));
  CheckSelect<bool>("SelectV2", Numbers<bool>(Shape({0, 4})), Numbers<bool>(Shape({4})),
                    Numbers<bool>(Shape({1}), 2), Shape({0, 4}));
  const Tensor got = RunNode(Node("SelectV2", {{"T", kString}}), {c, x, y}, 1);
  ASSERT_EQ(got.shape().DebugString(), Shape({3, 2}).DebugString());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(got.data<std::string>()[i],
              c.data<bool>()[i / 2] ? x.data<std::string>()[i % 2] : "y");
  }
}

int64_t Mirrored(int64_t at, int64_t before, int64_t n, int64_t skip) {
  int64_t k = at - before;
  if (k < 0) k = -k - 1 + skip;
  return k >= n ? 2 * n - 1 - k - skip : k;
}

TEST(LargeTensorsTest, MirrorPadAndItsGradient) {
  struct Case {
    Shape in;
    std::vector<int32_t> pads;
  };
  const Case cases[] = {{Shape({3, 20, 21, 5}), {0, 0, 2, 3, 4, 1, 0, 0}},
                        {Shape({4, 6, 9}), {1, 2, 0, 0, 3, 0}},
                        {Shape({50}), {7, 9}},
                        {Shape({6, 40}), {3, 2, 0, 0}},
                        {Shape({6, 40}), {0, 0, 0, 0}}};
  for (const Case& c : cases) {
    for (const bool reflect : {true, false}) {
      const int rank = c.in.rank();
      Dims dims;
      for (int i = 0; i < rank; ++i) {
        dims.push_back(c.in.dim(i) + c.pads[2 * i] + c.pads[2 * i + 1]);
      }
      const Shape out(dims);
      const Tensor pads = Ints(c.pads, Shape({rank, 2}));
      std::vector<int64_t> from(out.num_elements());
      for (int64_t i = 0; i < out.num_elements(); ++i) {
        int64_t rest = i, step = 1;
        for (int k = rank - 1; k >= 0; --k) {
          from[i] += step * Mirrored(rest % out.dim(k), c.pads[2 * k], c.in.dim(k), reflect);
          rest /= out.dim(k);
          step *= c.in.dim(k);
        }
      }
      pb::NodeDef node = Node("MirrorPad", {{"T", kInt32}, {"Tpaddings", kInt32}});
      (*node.mutable_attr())["mode"].set_s(reflect ? "REFLECT" : "SYMMETRIC");
      const Tensor x = Numbers<int32_t>(c.in), dy = Numbers<int32_t>(out, 3);
      Tensor want(kInt32, out), sum(kInt32, c.in);
      std::fill_n(sum.data<int32_t>(), sum.num_elements(), 0);
      for (int64_t i = 0; i < out.num_elements(); ++i) {
        want.data<int32_t>()[i] = x.data<int32_t>()[from[i]];
        sum.data<int32_t>()[from[i]] += dy.data<int32_t>()[i];
      }
      ExpectSameBits<int32_t>(RunNode(node, {x, pads}, 1), want);
      node.set_op("MirrorPadGrad");
      ExpectSameBits<int32_t>(RunNode(node, {dy, pads}, 1), sum);
    }
  }
}

// By a loop in double, over integers that add up exactly.
template <typename T>
void CheckReduction(const std::string& op, const Shape& shape, const std::vector<int32_t>& axes) {
  SCOPED_TRACE(op + " of " + shape.DebugString());
  const Tensor x = Numbers<T>(shape);
  const Tensor got = RunNode(Node(op, {{"T", DataTypeOf<T>()}, {"Tidx", kInt32}}),
                             {x, Ints(axes, Shape({static_cast<int64_t>(axes.size())}))}, 1);
  Dims kept;
  for (int i = 0; i < shape.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) kept.push_back(shape.dim(i));
  }
  ASSERT_EQ(got.shape().DebugString(), Shape(kept).DebugString());
  std::vector<double> want(got.num_elements(), op == "Max"   ? -INFINITY
                                               : op == "Min" ? INFINITY
                                                             : 0);
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int k = shape.rank() - 1; k >= 0; --k) {
      if (std::find(axes.begin(), axes.end(), k) == axes.end()) {
        at += step * (rest % shape.dim(k));
        step *= shape.dim(k);
      }
      rest /= shape.dim(k);
    }
    const double value = static_cast<double>(static_cast<ComputeType<T>>(x.data<T>()[i]));
    want[at] = op == "Max"   ? std::max(want[at], value)
               : op == "Min" ? std::min(want[at], value)
                             : want[at] + value;
  }
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double value = static_cast<double>(static_cast<ComputeType<T>>(got.data<T>()[i]));
    // Sums of sixteenths are exact in float; 16-bit ones are rounded at the end.
    const double rounding = std::is_same_v<T, Half> ? 1e-3 * std::abs(want[i]) : 0;
    ASSERT_NEAR(value, want[i], rounding) << i;
  }
}

TEST(LargeTensorsTest, Reductions) {
  for (const char* op : {"Sum", "Max", "Min"}) {
    for (const int64_t width : {1, 2, 4, 7, 64, 100, 255, 256, 300, 5000}) {
      const int64_t rows = width > 1000 ? 70 : 200000 / width + 3;
      CheckReduction<float>(op, Shape({rows, width}), {0});
    }
    CheckReduction<float>(op, Shape({9, 1000, 8}), {1});
    CheckReduction<float>(op, Shape({50, 3, 40, 6}), {0, 2});
    CheckReduction<float>(op, Shape({50, 3, 40, 6}), {1, 3});
    CheckReduction<float>(op, Shape({3000, 5}), {1});
    CheckReduction<float>(op, Shape({100001}), {0});
    CheckReduction<int32_t>(op, Shape({3000, 5}), {0});
    CheckReduction<Half>(op, Shape({31, 700}), {0});
    CheckReduction<Half>(op, Shape({31, 1700}), {1});
    CheckReduction<double>(op, Shape({3000, 50}), {0});
  }
}

TEST(LargeTensorsTest, ExtremaOfColumnsLetNanThrough) {
  Tensor x = Numbers<float>(Shape({4000, 6}));
  x.data<float>()[6 * 1234 + 2] = NAN;
  for (const char* op : {"Max", "Min"}) {
    const Tensor got =
        RunNode(Node(op, {{"T", kFloat}, {"Tidx", kInt32}}), {x, Ints({0}, Shape({1}))}, 1);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(got.data<float>()[i]), i == 2) << op << i;
  }
}

TEST(LargeTensorsTest, HalvesOfTheSquares) {
  const Tensor x = Numbers<float>(Shape({100003}));
  double sum = 0;
  for (const float v : x.flat<float>()) sum += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_NEAR(RunNode(Node("L2Loss", {{"T", kFloat}}), {x}, 1).scalar<float>(), sum / 2,
              sum * 5e-5);
  const Tensor norm = RunNode(Node("EuclideanNorm", {{"T", kFloat}, {"Tidx", kInt32}}),
                              {x, Ints({0}, Shape({1}))}, 1);
  EXPECT_NEAR(norm.scalar<float>(), std::sqrt(sum), std::sqrt(sum) * 5e-5);
}

// One operand, or two, of 16-bit floats: what the op does to floats, rounded.
template <typename T>
void CheckSmallFloats(const std::string& op, const std::vector<Tensor>& in,
                      const std::function<float(float, float)>& exact) {
  SCOPED_TRACE(op);
  const Tensor got = RunNode(Node(op, {{"T", DataTypeOf<T>()}}), in, 1);
  const Tensor& other = in.back();
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const T want(exact(static_cast<float>(in[0].data<T>()[in[0].num_elements() == 1 ? 0 : i]),
                       static_cast<float>(other.data<T>()[other.num_elements() == 1 ? 0 : i])));
    ASSERT_EQ(got.data<T>()[i].bits, want.bits) << i;
  }
}

template <typename T>
void CheckOpsOfSmallFloats() {
  const Tensor x = Numbers<T>(Shape({5003})), y = Numbers<T>(Shape({5003}), 2);
  const Tensor one = Numbers<T>(Shape({}));
  const auto add = [](float a, float b) { return a + b; };
  CheckSmallFloats<T>("Add", {x, y}, add);
  CheckSmallFloats<T>("AddV2", {x, one}, add);
  CheckSmallFloats<T>("AddV2", {one, y}, add);
  CheckSmallFloats<T>("Mul", {x, y}, [](float a, float b) { return a * b; });
  CheckSmallFloats<T>("Relu", {x}, [](float a, float) { return a < 0 ? 0 : a; });
  CheckSmallFloats<T>("Exp", {x}, [](float a, float) { return float_math::Exp(a); });
  CheckSmallFloats<T>("LeakyRelu", {x}, [](float a, float) { return a > 0 ? a : a * 0.2f; });
  CheckSmallFloats<T>("ClipByValue", {x, Tensor::Scalar<T>(T(-1)), Tensor::Scalar<T>(T(2))},
                      [](float a, float) { return std::min(std::max(a, -1.0f), 2.0f); });
  pb::NodeDef sum = Node("AddN", {{"T", DataTypeOf<T>()}});
  (*sum.mutable_attr())["N"].set_i(2);
  const Tensor got = RunNode(sum, {x, y}, 1);
  const Tensor less = RunNode(Node("Less", {{"T", DataTypeOf<T>()}}), {x, y}, 1);
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const auto a = static_cast<float>(x.data<T>()[i]), b = static_cast<float>(y.data<T>()[i]);
    ASSERT_EQ(got.data<T>()[i].bits, T(a + b).bits) << i;
    ASSERT_EQ(less.data<bool>()[i], a < b) << i;
  }
}
TEST(LargeTensorsTest, OpsOfHalves) { CheckOpsOfSmallFloats<Half>(); }
TEST(LargeTensorsTest, OpsOfBfloat16) { CheckOpsOfSmallFloats<BFloat16>(); }

TEST(LargeTensorsTest, SoftmaxOfHalves) {
  const int64_t rows = 3, n = 1301;
  const Tensor x = Numbers<Half>(Shape({rows, n}));
  for (const bool log : {false, true}) {
    const Tensor got =
        RunNode(Node(log ? "LogSoftmax" : "Softmax", {{"T", DataTypeOf<Half>()}}), {x}, 1);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0, max = -INFINITY;
      const Half* row = x.data<Half>() + r * n;
      for (int64_t i = 0; i < n; ++i) max = std::max(max, static_cast<double>(float(row[i])));
      for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(float(row[i])) - max);
      for (int64_t i = 0; i < n; ++i) {
        const double shifted = static_cast<double>(float(row[i])) - max;
        const double want = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
        const auto value = static_cast<double>(float(got.data<Half>()[r * n + i]));
        ASSERT_NEAR(value, want, 1e-3 * std::abs(want) + 6e-8) << r << " " << i;
      }
    }
  }
}

TEST(LargeTensorsTest, CastsToAndFromHalves) {
  const Tensor x = Numbers<float>(Shape({3001}));
  const Tensor halves =
      RunNode(Node("Cast", {{"SrcT", kFloat}, {"DstT", DataTypeOf<Half>()}}), {x}, 1);
  const Tensor floats =
      RunNode(Node("Cast", {{"SrcT", DataTypeOf<Half>()}, {"DstT", kFloat}}), {halves}, 1);
  const Tensor ints =
      RunNode(Node("Cast", {{"SrcT", DataTypeOf<Half>()}, {"DstT", kInt32}}), {halves}, 1);
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const Half want(x.data<float>()[i]);
    ASSERT_EQ(halves.data<Half>()[i].bits, want.bits);
    ASSERT_EQ(floats.data<float>()[i], static_cast<float>(want));
    ASSERT_EQ(ints.data<int32_t>()[i], static_cast<int32_t>(static_cast<float>(want)));
  }
}

TEST(LargeTensorsTest, InTopKCountsWhatIsLarger) {
  Tensor x = Numbers<float>(Shape({300, 90}));
  x.data<float>()[7 * 90 + 3] = INFINITY;
  x.data<float>()[8 * 90 + 3] = NAN;
  Tensor targets = Tensor(kInt32, Shape({300}));
  for (int i = 0; i < 300; ++i) targets.data<int32_t>()[i] = i == 9 ? 90 : i == 10 ? -1 : i % 90;
  const Tensor got =
      RunNode(Node("InTopKV2", {{"T", kInt32}}), {x, targets, Tensor::Scalar<int32_t>(20)}, 1);
  int in = 0;
  for (int i = 0; i < 300; ++i) {
    const float* row = x.data<float>() + i * 90;
    const int target = targets.data<int32_t>()[i];
    const bool usable = i < 7 || i > 10;
    const bool want =
        usable && std::count_if(row, row + 90, [&](float v) { return v > row[target]; }) < 20;
    ASSERT_EQ(got.data<bool>()[i], want) << i;
    in += want;
  }
  EXPECT_GT(in, 20);
}

TEST(LargeTensorsTest, UniqueOfManyValues) {
  Tensor x(kInt64, Shape({100000}));
  for (int64_t i = 0; i < 100000; ++i) x.data<int64_t>()[i] = (i * i) % 70001 - 35000;
  std::map<int64_t, int> numbers;
  std::vector<int64_t> values;
  for (const int64_t v : x.flat<int64_t>()) {
    if (numbers.emplace(v, static_cast<int>(values.size())).second) values.push_back(v);
  }
  const Tensor got = RunNode(Node("Unique", {{"T", kInt64}, {"out_idx", kInt32}}), {x}, 1);
  ASSERT_EQ(got.num_elements(), static_cast<int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got.data<int64_t>()[i], values[i]);
}

TEST(LargeTensorsTest, FtrlOfTheUsualPower) {
  const Tensor v = Numbers<float>(Shape({1000})), g = Numbers<float>(Shape({1000}), 2);
  Tensor accum(kFloat, Shape({1000})), linear = Numbers<float>(Shape({1000}), 3);
  for (int i = 0; i < 1000; ++i) accum.data<float>()[i] = 0.1f + 0.01f * static_cast<float>(i);
  const float lr = 0.1f, l1 = 0.5f, l2 = 0.25f;
  // By reference: the op's first output is the variable.
  pb::GraphDef graph;
  const auto variable = [&](const char* name) {
    pb::NodeDef node = Node("Variable", {{"dtype", kFloat}});
    node.set_name(name);
    auto* dim = (*node.mutable_attr())["shape"].mutable_shape()->add_dim();
    dim->set_size(1000);
    *graph.add_node() = node;
    pb::NodeDef value = Node("Placeholder", {{"dtype", kFloat}});
    value.set_name(std::string(name) + "_value");
    *graph.add_node() = value;
    pb::NodeDef assign = Node("Assign", {{"T", kFloat}});
    assign.set_name(std::string(name) + "_assign");
    assign.add_input(name);
    assign.add_input(value.name());
    *graph.add_node() = assign;
    return assign.name();
  };
  pb::NodeDef apply = Node("ApplyFtrl", {{"T", kFloat}});
  apply.set_name("apply");
  for (const char* name : {"var", "accum", "linear"}) apply.add_input(variable(name));
  for (const char* name : {"grad", "lr", "l1", "l2", "power"}) {
    pb::NodeDef value = Node("Placeholder", {{"dtype", kFloat}});
    value.set_name(name);
    *graph.add_node() = value;
    apply.add_input(name);
  }
  *graph.add_node() = apply;
  const Tensor got = RunGraph(graph,
                              {{"var_value:0", v},
                               {"accum_value:0", accum},
                               {"linear_value:0", linear},
                               {"grad:0", g},
                               {"lr:0", Tensor::Scalar<float>(lr)},
                               {"l1:0", Tensor::Scalar<float>(l1)},
                               {"l2:0", Tensor::Scalar<float>(l2)},
                               {"power:0", Tensor::Scalar<float>(-0.5f)}},
                              "apply:0", 1);
  ASSERT_EQ(got.num_elements(), 1000);
  for (int i = 0; i < 1000; ++i) {
    const double gi = g.data<float>()[i], a = accum.data<float>()[i], n = a + gi * gi;
    const double z =
        linear.data<float>()[i] + gi - (std::sqrt(n) - std::sqrt(a)) / lr * v.data<float>()[i];
    const double want =
        std::abs(z) > l1 ? (std::copysign(l1, z) - z) / (std::sqrt(n) / lr + 2 * l2) : 0;
    ASSERT_NEAR(got.data<float>()[i], want, 1e-4 * (1 + std::abs(want))) << i;
  }
}

}  // namespace
}  // namespace millrace::testing
