// SPDX-License-Identifier: Apache-2.0
// Loops over rows and arrays that C++ builds, and their first and second derivatives against finite
// differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "millrace/core.h"
#include "millrace/scan.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Row = std::span<const Output>;

class ScanTest : public ::testing::Test {
 protected:
  ScanTest()
      : root_(graph_.root()),
        x_(Placeholder(root_.WithOpName("x"), kDouble, PartialShape({}))),
        rows_(Placeholder(root_.WithOpName("rows"), kDouble, {-1})) {}

  StatusOr<std::vector<Tensor>> Run(const std::vector<Output>& fetches,
                                    const std::vector<Feed>& feeds) {
    if (!graph_.status().ok()) return graph_.status();
    StatusOr<Session> session = Session::Create(graph_);
    if (!session.ok()) return session.status();
    return session->Run(feeds, fetches);
  }
  std::vector<double> Values(const Output& fetch, const std::vector<Feed>& feeds) {
    const auto values = Run({fetch}, feeds);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {};
    const Tensor& t = (*values)[0];
    return {t.data<double>(), t.data<double>() + t.num_elements()};
  }
  static Tensor Doubles(const std::vector<double>& values) {
    return Tensor::FromValues<double>(values, Shape({static_cast<int64_t>(values.size())}));
  }
  double At(const Output& y, double x) {
    const auto values = Values(y, {{x_, Tensor::Scalar<double>(x)}, {rows_, kRows}});
    return values.size() == 1 ? values[0] : NAN;
  }
  // dy/dx, after a look at whether it is the slope of y at x.
  Output Derivative(const Output& y, double x) {
    const auto dx = Gradients(root_, {&y, 1}, {&x_, 1});
    EXPECT_TRUE(dx.ok()) << dx.status();
    if (!dx.ok()) return Output();
    constexpr double kStep = 1e-5;
    const double slope = (At(y, x + kStep) - At(y, x - kStep)) / (2 * kStep);
    EXPECT_NEAR(At((*dx)[0], x), slope, 1e-6 * (1 + std::abs(slope))) << "x = " << x;
    return (*dx)[0];
  }
  Output Const(double value) { return ops::Const(root_, Tensor::Scalar<double>(value), kDouble); }
  Output Sum(const Output& x) { return ops::Sum(root_, x, Tensor::FromValues<int32_t>({0})); }
  // state = sin(state x + row), and every state.
  ScanResult Waves(const Scope& scope, const ScanOptions& options = {}) {
    return Scan(
        scope, {x_}, {rows_},
        [&](const Scope& s, Row state, Row row) {
          const Output next = ops::Sin(s, ops::AddV2(s, ops::Mul(s, state[0], x_), row[0]));
          return ScanStep{{next}, {next}};
        },
        options);
  }
  std::string Error() { return std::string(graph_.status().message()); }

  const Tensor kRows = Doubles({0.3, -0.2, 0.9, 0.5});
  Graph graph_;
  Scope root_;
  Output x_, rows_;
};

TEST_F(ScanTest, GivesTheLastStateAndEveryResult) {
  const ScanResult sums = Scan(root_, {Const(10)}, {rows_}, [](const Scope& s, Row state, Row row) {
    const Output next = ops::AddV2(s, state[0], row[0]);
    return ScanStep{{next}, {next, ops::Neg(s, row[0])}};
  });
  ASSERT_THAT(sums.last, SizeIs(1)) << Error();
  ASSERT_THAT(sums.all, SizeIs(2));
  const std::vector<Feed> feeds = {{rows_, Doubles({1, 2, 3})}};
  EXPECT_THAT(Values(sums.last[0], feeds), ElementsAre(16));
  EXPECT_THAT(Values(sums.all[0], feeds), ElementsAre(11, 13, 16));
  EXPECT_THAT(Values(sums.all[1], feeds), ElementsAre(-1, -2, -3));
}

TEST_F(ScanTest, InReverseResultsStandWhereTheirRowsDid) {
  const ScanResult sums = Scan(root_, {Const(0)}, {rows_},
                               [](const Scope& s, Row state, Row row) {
                                 const Output next = ops::AddV2(s, state[0], row[0]);
                                 return ScanStep{{next}, {next}};
                               },
                               {.reverse = true});
  ASSERT_THAT(sums.all, SizeIs(1)) << Error();
  EXPECT_THAT(Values(sums.all[0], {{rows_, Doubles({1, 2, 3})}}), ElementsAre(6, 5, 3));
}

TEST_F(ScanTest, OverNoRowsTheStateIsTheInitialOneAndResultsAreEmpty) {
  const ScanResult waves = Waves(root_);
  ASSERT_THAT(waves.all, SizeIs(1)) << Error();
  const std::vector<Feed> feeds = {{x_, Tensor::Scalar<double>(4)}, {rows_, Doubles({})}};
  EXPECT_THAT(Values(waves.last[0], feeds), ElementsAre(4));
  EXPECT_THAT(Values(waves.all[0], feeds), ElementsAre());
}

TEST_F(ScanTest, ResultsThatAreMadeOutsideOrAreConstantsAreKeptTheSame) {
  const ScanResult kept = Scan(root_, {x_}, {rows_}, [&](const Scope& s, Row state, Row) {
    const Output seven = ops::Const(s, Tensor::Scalar<double>(7), kDouble);
    return ScanStep{{state[0]}, {x_, seven, state[0]}};
  });
  ASSERT_THAT(kept.all, SizeIs(3)) << Error();
  const std::vector<Feed> feeds = {{x_, Tensor::Scalar<double>(4)}, {rows_, Doubles({1, 2})}};
  EXPECT_THAT(Values(kept.all[0], feeds), ElementsAre(4, 4));
  EXPECT_THAT(Values(kept.all[1], feeds), ElementsAre(7, 7));
  EXPECT_THAT(Values(kept.all[2], feeds), ElementsAre(4, 4));
}

TEST_F(ScanTest, HasDerivativesThatHaveDerivatives) {
  for (const bool reverse : {false, true}) {
    const ScanResult waves = Waves(root_, {.reverse = reverse});
    ASSERT_THAT(waves.all, SizeIs(1)) << Error();
    const Output y = ops::AddV2(root_, Sum(ops::Square(root_, waves.all[0])), waves.last[0]);
    Derivative(Derivative(y, 0.8), -0.4);
  }
}

TEST_F(ScanTest, TheDerivativeOfRowsIsOneForEachRow) {
  // The sum of products of neighbours: d/dr[i] is what stands beside it.
  const ScanResult products =
      Scan(root_, {Const(1)}, {rows_}, [](const Scope& s, Row before, Row row) {
        return ScanStep{{row[0]}, {ops::Mul(s, before[0], row[0])}};
      });
  ASSERT_THAT(products.all, SizeIs(1)) << Error();
  const Output y = Sum(products.all[0]);
  const auto d = Gradients(root_, {&y, 1}, {&rows_, 1});
  ASSERT_TRUE(d.ok()) << d.status();
  const std::vector<Feed> feeds = {{rows_, Doubles({2, 3, 5})}};
  EXPECT_THAT(Values((*d)[0], feeds), ElementsAre(1 + 3, 2 + 5, 3));
  // Of the derivative's sum in turn: how many have it as a neighbour.
  const Output dy = Sum((*d)[0]);
  const auto dd = Gradients(root_, {&dy, 1}, {&rows_, 1});
  ASSERT_TRUE(dd.ok()) << dd.status();
  EXPECT_THAT(Values((*dd)[0], feeds), ElementsAre(1, 2, 1));
}

TEST_F(ScanTest, AScanWithinAScanHasDerivatives) {
  const ScanResult outer = Scan(root_, {x_}, {rows_}, [&](const Scope& s, Row state, Row row) {
    const ScanResult inner =
        Scan(s, {state[0]}, {rows_}, [&](const Scope& t, Row before, Row other) {
          const Output next = ops::Sin(t, ops::AddV2(t, ops::Mul(t, before[0], x_), other[0]));
          return ScanStep{{next}, {ops::Mul(t, next, next)}};
        });
    if (inner.all.empty()) return ScanStep{};
    const Output sum = ops::Sum(s, inner.all[0], Tensor::FromValues<int32_t>({0}));
    return ScanStep{{ops::AddV2(s, inner.last[0], row[0])}, {sum}};
  });
  ASSERT_THAT(outer.all, SizeIs(1)) << Error();
  const Output y = Sum(outer.all[0]);
  Derivative(Derivative(y, 0.6), -0.3);
}

TEST_F(ScanTest, MapFnCallsTheBodyForEachRowOfAllElements) {
  const Output other = Placeholder(root_, kDouble, {3, 2});
  const std::vector<Output> mapped = MapFn(root_, {rows_, other}, [](const Scope& s, Row row) {
    return std::vector<Output>{ops::Mul(s, row[1], row[0]), ops::Neg(s, row[0])};
  });
  ASSERT_THAT(mapped, SizeIs(2)) << Error();
  EXPECT_EQ(mapped[0].shape(), PartialShape({-1, 2}));
  const Tensor pairs = Tensor::FromValues<double>({1, 2, 3, 4, 5, 6}, Shape({3, 2}));
  const std::vector<Feed> feeds = {{rows_, Doubles({1, 10, 100})}, {other, pairs}};
  EXPECT_THAT(Values(mapped[0], feeds), ElementsAre(1, 2, 30, 40, 500, 600));
  EXPECT_THAT(Values(mapped[1], feeds), ElementsAre(-1, -10, -100));
  const Output y = ops::Sum(root_, mapped[0], Tensor::FromValues<int32_t>({0, 1}));
  const auto d = Gradients(root_, {&y, 1}, {&rows_, 1});
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_THAT(Values((*d)[0], feeds), ElementsAre(3, 7, 11));
}

TEST_F(ScanTest, AStepSaysWhereElementsHaveDifferentNumbersOfRows) {
  const Output other = Placeholder(root_, kDouble, {-1});
  const std::vector<Output> mapped = MapFn(root_, {rows_, other}, [](const Scope& s, Row row) {
    return std::vector<Output>{ops::AddV2(s, row[0], row[1])};
  });
  ASSERT_THAT(mapped, SizeIs(1)) << Error();
  const Status status =
      Run({mapped[0]}, {{rows_, Doubles({1, 2})}, {other, Doubles({1, 2, 3})}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 vs. [3]"));
}

class ScanMistakesTest : public ScanTest {
 protected:
  void Expect(const char* says) {
    EXPECT_EQ(graph_.status().code(), StatusCode::kInvalidArgument) << graph_.status();
    EXPECT_THAT(Error(), HasSubstr(says));
    EXPECT_THAT(Error(), HasSubstr("scan_test.cc"));
  }
  static ScanStep Same(const Scope&, Row state, Row) {
    return ScanStep{{state.begin(), state.end()}};
  }
};

TEST_F(ScanMistakesTest, NoElements) {
  EXPECT_THAT(Scan(root_, {x_}, {}, Same).last, SizeIs(0));
  Expect("there are no elements");
}
TEST_F(ScanMistakesTest, AScalarAsElement) {
  Scan(root_, {x_}, {x_}, Same);
  Expect("is a scalar, which has no rows");
}
TEST_F(ScanMistakesTest, KnownNumbersOfRowsThatDiffer) {
  Scan(root_, {x_}, {Placeholder(root_, kFloat, {2}), Placeholder(root_, kFloat, {3})}, Same);
  Expect("different numbers of rows: 2 and 3");
}
TEST_F(ScanMistakesTest, AStateOfAnotherShape) {
  Scan(root_, {x_}, {rows_}, [](const Scope& s, Row state, Row) {
    return ScanStep{{ops::Pack(s, {state[0], state[0]})}};
  });
  Expect("state 0 begins as double[], but the body gives double[2]");
}
TEST_F(ScanMistakesTest, AStateOfAnotherType) {
  Scan(root_, {x_}, {rows_},
       [](const Scope& s, Row state, Row) { return ScanStep{{ops::Cast(s, state[0], kFloat)}}; });
  Expect("state 0 begins as double[], but the body gives float[]");
}
TEST_F(ScanMistakesTest, FewerStates) {
  Scan(root_, {x_}, {rows_}, [](const Scope&, Row, Row) { return ScanStep{}; });
  Expect("is given 1 states and gives 0");
}
TEST_F(ScanMistakesTest, AResultThatIsNotValid) {
  MapFn(root_, {rows_}, [](const Scope&, Row) { return std::vector<Output>{Output()}; });
  Expect("result 0 of the body is not valid");
}
TEST_F(ScanMistakesTest, NoBody) {
  MapFn(root_, {rows_}, nullptr);
  Expect("there is no body");
}
TEST_F(ScanMistakesTest, NoIterationsAtATime) {
  Scan(root_, {x_}, {rows_}, Same, {.parallel_iterations = 0});
  Expect("parallel_iterations is 0");
}

TEST_F(ScanTest, ArraysAreWrittenReadStackedAndTakenApart) {
  const TensorArray empty(root_, kDouble, 3);
  const TensorArray some = empty.Write(root_, 0, 1.0).Write(root_, 2, x_);
  const TensorArray all = some.Write(root_, 1, Const(5));
  const std::vector<Feed> feeds = {{x_, Tensor::Scalar<double>(7)}};
  EXPECT_THAT(Values(all.Stack(root_), feeds), ElementsAre(1, 5, 7));
  EXPECT_EQ(Run({all.Size(root_)}, feeds)->front().scalar<int32_t>(), 3);
  const TensorArray parts =
      TensorArray(root_, kDouble, 2)
          .Split(root_, Tensor::FromValues<double>({1, 2, 3}), Tensor::FromValues<int64_t>({1, 2}));
  EXPECT_THAT(Values(parts.Read(root_, 1), {}), ElementsAre(2, 3));
  const TensorArray halves =
      TensorArray(root_, kDouble, 2)
          .Split(root_, Tensor::FromValues<double>({4, 5, 6}), Tensor::FromValues<int64_t>({2, 1}));
  EXPECT_THAT(Values(halves.Concat(root_), {}), ElementsAre(4, 5, 6));
  const Output pair = ops::Const(root_, Tensor::FromValues<double>({8, 9}), kDouble);
  const TensorArray rows = TensorArray::OfRows(root_, pair);
  EXPECT_EQ(rows.Read(root_, 0).shape(), PartialShape({}));
  EXPECT_THAT(Values(rows.Gather(root_, Tensor::FromValues<int32_t>({1, 0})), {}),
              ElementsAre(9, 8));
}

TEST_F(ScanTest, StepsSayWhatIsWrongWithTheUseOfAnArray) {
  const TensorArray array(root_, kDouble, 2, {.name = "notes"});
  const auto error = [&](const Output& fetch) {
    const Status status = Run({fetch}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error(array.Write(root_, 2, 1.0).flow()), HasSubstr("is not resizeable"));
  EXPECT_THAT(error(array.Write(root_, 0, 1.0).Write(root_, 0, 2.0).flow()),
              HasSubstr("already been written"));
  EXPECT_THAT(error(array.Read(root_, 5)), HasSubstr("array size is: 2"));
  EXPECT_THAT(error(TensorArray(root_, kDouble, -1).flow()), HasSubstr("Size should be >= 0"));
  const Status huge = Run({TensorArray(root_, kDouble, 1 << 30).flow()}, {}).status();
  EXPECT_EQ(huge.code(), StatusCode::kResourceExhausted) << huge;
  TensorArray::OfRows(root_, Const(1));
  EXPECT_THAT(Error(), HasSubstr("the rows of an array are a scalar"));
}

}  // namespace
}  // namespace millrace
