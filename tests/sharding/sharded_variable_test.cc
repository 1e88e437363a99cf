// SPDX-License-Identifier: Apache-2.0
// What is read and written of a variable in parts is what it would be of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/errors.h"
#include "millrace/millrace.h"
#include "millrace/partitioners.h"

namespace millrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<float> Floats(const StatusOr<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  if (!tensor.ok()) return {};
  return {tensor->flat<float>().begin(), tensor->flat<float>().end()};
}

// Element (i, j) is 10 i + j.
Tensor Table(int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) values.push_back(static_cast<float>(10 * i + j));
  }
  return Tensor::FromValues<float>(values, Shape({rows, columns}));
}

// Seven rows in up to nine parts.
class Sharded : public ::testing::TestWithParam<int> {
 protected:
  Sharded() : root_(graph_.root()) {
    v_ = MakeShardedVariable(root_, "v", Constant(root_, Table(7, 2)), FixedShards(GetParam()));
    EXPECT_EQ(v_.parts.size(), static_cast<std::size_t>(std::min(GetParam(), 7)));
    init_ = InitializeVariables(root_);
  }
  void Open() {
    auto session = Session::Create(graph_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
    ASSERT_TRUE(session_->RunTargets({init_}).ok());
  }

  Graph graph_;
  Scope root_;
  ShardedVariable v_;
  Operation init_;
  std::unique_ptr<Session> session_;
};

TEST_P(Sharded, IsReadAsOne) {
  const Output all = ReadSharded(root_, v_);
  Open();
  const auto table = Table(7, 2);
  EXPECT_THAT(Floats(session_->Eval(all)),
              ElementsAreArray(table.flat<float>().begin(), table.flat<float>().end()));
}

TEST_P(Sharded, IsAssignedAsOne) {
  const Output twice = ops::Mul(root_, Constant(root_, Table(7, 2)), 2.0f);
  const Operation assign = AssignSharded(root_, v_, twice);
  const Output all = ReadSharded(root_, v_);
  Open();
  ASSERT_TRUE(session_->RunTargets({assign}).ok());
  EXPECT_EQ(Floats(session_->Eval(all)), Floats(session_->Eval(twice)));
}

TEST_P(Sharded, FindsRowsOfAllIds) {
  const Output ids =
      Constant(root_, Tensor::FromValues<int32_t>({6, 0, 3, 3, 5, 1, 2, 4}, Shape({2, 4})));
  const Output rows = LookupSharded(root_, v_, ids);
  Open();
  const auto value = session_->Eval(rows);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->shape(), Shape({2, 4, 2}));
  EXPECT_THAT(Floats(value),
              ElementsAre(60, 61, 0, 1, 30, 31, 30, 31, 50, 51, 10, 11, 20, 21, 40, 41));
}

TEST_P(Sharded, AddsToRowsOfAllIds) {
  const Output ids = Constant(root_, Tensor::FromValues<int64_t>({6, 0, 3, 3}, Shape({4})));
  const Output updates =
      Constant(root_, Tensor::FromValues<float>({1, 2, 3, 4, 5, 6, 7, 8}, Shape({4, 2})));
  const Operation add = ScatterAddSharded(root_, v_, ids, updates);
  const Output all = ReadSharded(root_, v_);
  Open();
  ASSERT_TRUE(session_->RunTargets({add}).ok());
  EXPECT_THAT(Floats(session_->Eval(all)),
              ElementsAre(3, 5, 10, 11, 20, 21, 42, 45, 40, 41, 50, 51, 61, 63));
}

TEST_P(Sharded, RefusesIdsThatAreNoRows) {
  for (const int64_t id : {-1, 7, 100}) {
    const Output ids = Constant(root_, Tensor::FromValues<int64_t>({id}, Shape({1})));
    const Output rows = LookupSharded(root_, v_, ids);
    Open();
    const Status status = session_->Eval(rows).status();
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << id << ": " << status;
  }
}

// A row that was looked up twice gets both.
TEST_P(Sharded, GivesItsPartsGradientsAsRows) {
  const Output ids = Constant(root_, Tensor::FromValues<int64_t>({6, 0, 6}, Shape({3})));
  const Output weights = Constant(root_, Tensor::FromValues<float>({1, 10, 100}, Shape({3, 1})));
  const Output loss = ReduceSum(root_, ops::Mul(root_, LookupSharded(root_, v_, ids), weights));
  std::vector<Output> handles;
  for (const VariablePart& part : v_.parts) handles.push_back(part.variable.handle);
  const auto gradients = SparseGradients(root_, std::vector{loss}, handles);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  std::vector<Output> fetches;
  for (const SparseGradient& gradient : *gradients) {
    ASSERT_TRUE(gradient.is_sparse());
    fetches.push_back(gradient.values);
    fetches.push_back(gradient.indices);
  }
  Open();
  const auto values = session_->Run({}, fetches);
  ASSERT_TRUE(values.ok()) << values.status();
  std::vector<float> sums(7, 0.0f);
  for (std::size_t part = 0; part < v_.parts.size(); ++part) {
    const Tensor& rows = (*values)[2 * part];
    const Tensor& indices = (*values)[2 * part + 1];
    for (int64_t i = 0; i < indices.num_elements(); ++i) {
      const int64_t row =
          indices.dtype() == kInt64 ? indices.flat<int64_t>()[i] : indices.flat<int32_t>()[i];
      sums[v_.parts[part].begin + row] += rows.flat<float>()[2 * i];
    }
  }
  EXPECT_THAT(sums, ElementsAre(10, 0, 0, 0, 0, 0, 101));
}

TEST_P(Sharded, IsFoundAmongVariables) {
  const Variable other = MakeVariable(root_, "other", Zeros(root_, Shape({3})));
  const std::vector<ShardedVariable> joined = JoinParts(Variables(graph_));
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].name, "v");
  EXPECT_EQ(joined[0].shape, Shape({7, 2}));
  ASSERT_EQ(joined[0].parts.size(), v_.parts.size());
  for (std::size_t i = 0; i < v_.parts.size(); ++i) {
    EXPECT_EQ(joined[0].parts[i].variable.handle, v_.parts[i].variable.handle);
    EXPECT_EQ(joined[0].parts[i].begin, v_.parts[i].begin);
    EXPECT_EQ(joined[0].parts[i].rows, v_.parts[i].rows);
  }
  EXPECT_EQ(joined[1].name, "other");
  ASSERT_EQ(joined[1].parts.size(), 1u);
  EXPECT_EQ(joined[1].parts[0].variable.handle, other.handle);
}

// Some parts of a variable are none.
TEST(JoinParts, LeavesPartsAsTheyAreThatAreNotAll) {
  Graph graph;
  const Scope root = graph.root();
  const ShardedVariable v =
      MakeShardedVariable(root, "v", Constant(root, Table(7, 2)), FixedShards(3));
  const std::vector<Variable> some = {v.parts[0].variable, v.parts[2].variable};
  const std::vector<ShardedVariable> joined = JoinParts(some);
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].name, "v/part_0");
  EXPECT_EQ(joined[1].name, "v/part_2");
}

std::vector<int64_t> HashedRowsOf(std::vector<int64_t> ids, int64_t rows) {
  Graph graph;
  const auto count = static_cast<int64_t>(ids.size());
  const Output hashed = HashedRows(
      graph.root(), Constant(graph.root(), Tensor::FromValues<int64_t>(ids, Shape({count}))), rows);
  auto session = Session::Create(graph);
  EXPECT_TRUE(session.ok()) << session.status();
  const auto value = session->Eval(hashed);
  EXPECT_TRUE(value.ok()) << value.status();
  if (!value.ok()) return {};
  return {value->flat<int64_t>().begin(), value->flat<int64_t>().end()};
}

TEST(HashedRows, AreOtherRowsForAllNumbersAndSpreadTheFirst) {
  constexpr int64_t kParts = 4;
  for (const int64_t rows : {1, 2, 7, 10, 12, 144, 1000, 1024, 10'007}) {
    SCOPED_TRACE(rows);
    std::vector<int64_t> ids(static_cast<std::size_t>(rows));
    std::iota(ids.begin(), ids.end(), 0);
    const std::vector<int64_t> hashed = HashedRowsOf(ids, rows);
    std::vector<int64_t> sorted = hashed;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, ids);
    if (rows < 100) continue;
    // Of the first tenth of a vocabulary each part has its share, give or take a fifth of it.
    const int64_t first = rows / 10;
    std::vector<int64_t> in_part(kParts, 0);
    for (int64_t i = 0; i < first; ++i) {
      ++in_part[static_cast<std::size_t>(hashed[static_cast<std::size_t>(i)] * kParts / rows)];
    }
    for (const int64_t count : in_part) {
      EXPECT_NEAR(static_cast<double>(count), static_cast<double>(first) / kParts,
                  1 + static_cast<double>(first) / kParts / 5);
    }
  }
}

TEST(HashedRows, LeaveNumbersThatAreNoRows) {
  EXPECT_THAT(HashedRowsOf({-1, 7, 8, INT64_MAX, INT64_MIN}, 7),
              ElementsAre(-1, 7, 8, INT64_MAX, INT64_MIN));
  EXPECT_THAT(HashedRowsOf({(int64_t{1} << 31) - 1}, int64_t{1} << 31), ::testing::SizeIs(1));
  Graph graph;
  HashedRows(graph.root(), Constant(graph.root(), Tensor::Scalar<int64_t>(0)), 0);
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
}

struct NamedInitializer {
  std::string name;
  initializers::Initializer make;
};

std::vector<NamedInitializer> SomeInitializers() {
  return {{"uniform", initializers::RandomUniform({.minval = -1, .maxval = 3, .seed = 3})},
          {"normal", initializers::RandomNormal({.mean = 1, .seed = 4})},
          {"truncated_normal", initializers::TruncatedNormal({.seed = 5})},
          {"glorot_uniform", initializers::GlorotUniform(6)},
          {"he_normal", initializers::HeNormal(7)},
          {"constant", initializers::Constant(2.5)},
          {"without_a_seed", initializers::RandomUniform()}};
}

// Values are drawn four at a time: with these widths parts begin with each of the four.
TEST(InitialValuesOfParts, AreThoseOfTheWhole) {
  for (const int64_t columns : {1, 3, 4, 130}) {
    Graph graph;
    graph.SetSeed(9);
    const Scope root = graph.root();
    std::vector<Output> wanted, got;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Output& whole) {
      names.push_back(name);
      wanted.push_back(whole);
      got.push_back(ReadSharded(root, MakeShardedVariable(root, name, whole, FixedShards(3))));
    };
    for (const NamedInitializer& initializer : SomeInitializers()) {
      add(initializer.name, initializer.make(root, Shape({11, columns})));
    }
    // Only as a whole.
    add("orthogonal", initializers::Orthogonal({.seed = 8})(root, Shape({11, columns})));
    const Operation init = InitializeVariables(root);
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({init}).ok());
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(Floats(session->Eval(got[i])), Floats(session->Eval(wanted[i])))
          << names[i] << ", width " << columns;
    }
  }
}

// All that a value is computed from, and itself.
void AddSources(const Operation& op, std::vector<Operation>* all) {
  if (std::find(all->begin(), all->end(), op) != all->end()) return;
  all->push_back(op);
  for (int i = 0; i < op.num_inputs(); ++i) AddSources(op.input(i).op(), all);
}

TEST(InitialValuesOfParts, AreComputedWhereTheyLie) {
  for (const NamedInitializer& initializer : SomeInitializers()) {
    SCOPED_TRACE(initializer.name);
    Graph graph;
    ReplicaDeviceSetterOptions setter;
    setter.ps_tasks = 3;
    setter.worker_device = "/job:worker/task:0";
    const Scope root = graph.root().WithDevice(ReplicaDeviceSetter(setter));
    const Output whole = initializer.make(root, Shape({11, 3}));
    const ShardedVariable v = MakeShardedVariable(root, "v", whole, FixedShards(3));
    ASSERT_TRUE(graph.status().ok()) << graph.status();
    ASSERT_EQ(v.parts.size(), 3u);
    EXPECT_NE(v.parts[0].variable.handle.op().device(), v.parts[1].variable.handle.op().device());
    for (const VariablePart& part : v.parts) {
      std::vector<Operation> sources;
      AddSources(part.variable.initial_value.op(), &sources);
      for (const Operation& op : sources) {
        EXPECT_EQ(op.device(), part.variable.handle.op().device()) << op.name();
        EXPECT_FALSE(op == whole.op());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, Sharded, ::testing::Values(1, 2, 3, 7, 9));

TEST(ShardedVariableErrors, SayWhatIsWrong) {
  Graph graph;
  const Scope root = graph.root();
  MakeShardedVariable(root, "v", Zeros(root, Shape({4, 4})),
                      [](const Shape&, DataType, int) -> StatusOr<std::vector<int64_t>> {
                        return std::vector<int64_t>{2, 2};
                      });
  EXPECT_TRUE(errors::IsInvalidArgument(graph.status())) << graph.status();
}

}  // namespace
}  // namespace millrace::testing
