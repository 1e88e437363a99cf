// SPDX-License-Identifier: Apache-2.0
// Gradients that TensorFlow does not have, against differences of the function itself.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "millrace/graph.h"
#include "millrace/ops.h"
#include "millrace/session.h"

namespace millrace {
namespace {

Tensor Numbers(const std::vector<float>& values, const Shape& shape) {
  return Tensor::FromValues<float>(values, shape);
}

// As many numbers as `shape` has elements, none of them 0, of both signs.
Tensor Some(const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(0.35f + 1.5f * std::sin(1.7f * static_cast<float>(i) + 0.4f));
  }
  return Numbers(values, shape);
}

using Function = std::function<Output(const Scope&, const std::vector<Output>&)>;

// The gradient of the weighted sum of f(xs) by every element of every x.
void ExpectGradient(const std::vector<Tensor>& xs, const Function& f) {
  Graph graph;
  const Scope s = graph.root();
  std::vector<Output> inputs;
  for (const Tensor& x : xs) {
    inputs.push_back(ops::Placeholder(s, x.dtype(), {.shape = PartialShape(x.shape())}));
  }
  const Output y = f(s, inputs);
  const Output weights =
      ops::Cos(s, ops::Reshape(s, ops::Cast(s, ops::Range(s, 0, ops::Size(s, y), 1), kFloat),
                               ops::Shape(s, y)));
  const Output product = ops::Reshape(s, ops::Mul(s, y, weights), {-1});
  const Output loss = ops::Sum(s, product, {0});
  const auto gradients = Gradients(s, std::vector<Output>{loss}, inputs);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();

  const auto run = [&](const std::vector<Tensor>& values, const Output& fetch) {
    std::vector<Feed> feeds;
    for (std::size_t i = 0; i < inputs.size(); ++i) feeds.push_back({inputs[i], values[i]});
    StatusOr<std::vector<Tensor>> result = session->Run(feeds, std::vector<Output>{fetch});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)[0] : Tensor();
  };
  for (std::size_t i = 0; i < xs.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE((*gradients)[i].valid());
    const Tensor analytic = run(xs, (*gradients)[i]);
    ASSERT_EQ(analytic.num_elements(), xs[i].num_elements());
    for (int64_t k = 0; k < xs[i].num_elements(); ++k) {
      constexpr float kStep = 1e-2f;
      float sums[2];
      for (const int side : {0, 1}) {
        std::vector<float> moved(xs[i].data<float>(), xs[i].data<float>() + xs[i].num_elements());
        moved[k] += side == 1 ? kStep : -kStep;
        std::vector<Tensor> values = xs;
        values[i] = Numbers(moved, xs[i].shape());
        sums[side] = run(values, loss).scalar<float>();
      }
      EXPECT_NEAR(analytic.data<float>()[k], (sums[1] - sums[0]) / (2 * kStep), 5e-3) << k;
    }
  }
}

TEST(NumericGradientTest, SoftsignTwice) {
  ExpectGradient({Some({7}), Some({7})}, [](const Scope& s, const std::vector<Output>& x) {
    return ops::SoftsignGrad(s, x[0], x[1]);
  });
}

TEST(NumericGradientTest, ResizedImagesTwice) {
  for (const bool centers : {false, true}) {
    ExpectGradient({Some({1, 5, 3, 2})}, [&](const Scope& s, const std::vector<Output>& x) {
      const Output image = ops::Fill(s, {1, 3, 4, 2}, 1.0f);
      return ops::ResizeBilinearGrad(s, x[0], image, {.half_pixel_centers = centers});
    });
    ExpectGradient({Some({1, 5, 3, 2})}, [&](const Scope& s, const std::vector<Output>& x) {
      return ops::ResizeNearestNeighborGrad(s, x[0], {3, 4}, {.half_pixel_centers = centers});
    });
  }
}

TEST(NumericGradientTest, WhatPadsAPaddedTensor) {
  ExpectGradient({Some({2, 3}), Some({})}, [](const Scope& s, const std::vector<Output>& x) {
    const Tensor paddings = Tensor::FromValues<int32_t>({1, 0, 2, 1}, Shape({2, 2}));
    return ops::PadV2(s, x[0], paddings, x[1]);
  });
}

TEST(NumericGradientTest, ASliceThatIsWrittenOver) {
  for (const Shape& value : {Shape({2, 2}), Shape({2}), Shape({2, 1}), Shape({1, 1, 2}), Shape()}) {
    ExpectGradient({Some({3, 4}), Some(value)}, [](const Scope& s, const std::vector<Output>& x) {
      return ops::TensorStridedSliceUpdate(s, x[0], {0, 3}, {2, 0}, {1, -2}, x[1]);
    });
  }
}

TEST(NumericGradientTest, MaximaOfVolumesTwice) {
  ExpectGradient({Some({1, 2, 2, 2, 2})}, [](const Scope& s, const std::vector<Output>& x) {
    const std::vector<int64_t> window = {1, 2, 2, 2, 1};
    const Output volume = ops::Const(s, Some({1, 3, 4, 3, 2}), kFloat);
    const Output pooled = ops::MaxPool3D(s, volume, window, window, "SAME");
    return ops::MaxPool3DGrad(s, volume, pooled, x[0], window, window, "SAME");
  });
}

TEST(NumericGradientTest, MaximaTwice) {
  ExpectGradient({Some({1, 4, 4, 2})}, [](const Scope& s, const std::vector<Output>& x) {
    const std::vector<int64_t> window = {1, 2, 2, 1};
    const Output image = ops::Const(s, Some({1, 7, 8, 2}), kFloat);
    const Output pooled = ops::MaxPool(s, image, window, window, "SAME");
    return ops::MaxPoolGrad(s, image, pooled, x[0], window, window, "SAME");
  });
}

// TensorFlow takes the gates of its gradient in another order than the op does.
TEST(NumericGradientTest, SequencesOfLstmCellsWithTheForgetGateFirst) {
  const std::vector<Tensor> xs = {Some({3, 2, 2}), Some({2, 2}), Some({2, 2}), Some({4, 8}),
                                  Some({2}),       Some({2}),    Some({2}),    Some({8})};
  ExpectGradient(xs, [](const Scope& s, const std::vector<Output>& x) {
    const auto made = ops::BlockLSTMV2(s, int64_t{2}, x[0], x[1], x[2], x[3], x[4], x[5], x[6],
                                       x[7], {.use_peephole = true});
    // Of the last step, which is not taken, everything is 0.
    return ops::Add(s, made.cs, made.h);
  });
}

TEST(NumericGradientTest, RealNumbersTransformedOverThreeAxes) {
  for (const Shape& shape : {Shape({2, 3, 4}), Shape({2, 3, 5}), Shape({3, 3, 6})}) {
    for (const int32_t last : {3, 4}) {
      ExpectGradient({Some(shape)}, [&](const Scope& s, const std::vector<Output>& x) {
        const Output z = ops::RFFT3D(s, x[0], {2, 3, last});
        return ops::Add(s, ops::Real(s, z), ops::Imag(s, z));
      });
    }
  }
}

TEST(NumericGradientTest, SpectraTransformedBackOverThreeAxes) {
  for (const Shape& shape : {Shape({2, 3, 3}), Shape({2, 4, 4})}) {
    for (const int32_t last : {4, 5}) {
      ExpectGradient({Some(shape), Some(shape)}, [&](const Scope& s, const std::vector<Output>& x) {
        return ops::IRFFT3D(s, ops::Complex(s, x[0], x[1]), {2, 3, last});
      });
    }
  }
}

}  // namespace
}  // namespace millrace
