// SPDX-License-Identifier: Apache-2.0
// Variables, reductions and gathered values of replicas against those of TensorFlow.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/millrace.h"
#include "tests/training_goldens/golden.h"

namespace millrace::testing {
namespace {

using Update = DistributedVariable::Update;

constexpr GoldenTolerance kValues{1e-4, 1e-5};

std::shared_ptr<Strategy> Mirrored(int replicas) {
  return MirroredStrategy({.replicas = replicas}).value();
}

VariableAggregation AggregationOf(const std::string& name) {
  return name == "MEAN"  ? VariableAggregation::kMean
         : name == "SUM" ? VariableAggregation::kSum
                         : VariableAggregation::kOnlyFirstReplica;
}

Update UpdateOf(const std::string& op) {
  return op.ends_with("assign_add")   ? Update::kAdd
         : op.ends_with("assign_sub") ? Update::kSubtract
                                      : Update::kAssign;
}

// One variable with what is done to it, in order.
class VariableCase {
 public:
  explicit VariableCase(const Json& json)
      : json_(json), strategy_(Mirrored(json["replicas"].get<int>())) {
    const Scope root = graph_.root();
    variable_ =
        strategy_->MakeVariable(root, "v", Constant(root, FloatTensor(json["initial"], Shape({3}))),
                                {.trainable = false,
                                 .synchronization = json["synchronization"] == "ON_READ"
                                                        ? VariableSynchronization::kOnRead
                                                        : VariableSynchronization::kOnWrite,
                                 .aggregation = AggregationOf(json["aggregation"])});
  }

  std::string Run();

 private:
  Operation Build(const Json& op);
  std::string Compare(Session& session, const Output& read, const Json& op) const;
  std::string Refused(const Json& op);

  const Json& json_;
  const std::shared_ptr<Strategy> strategy_;
  Graph graph_;
  DistributedVariable variable_;
};

Operation VariableCase::Build(const Json& op) {
  const Update update = UpdateOf(op["op"]);
  if (op["op"].get<std::string>().starts_with("cross_replica")) {
    const Json& given = op.contains("value") ? op["value"] : json_["initial"];
    const Output value = Constant(graph_.root(), FloatTensor(given, Shape({3})));
    return variable_.Apply(graph_.root(), update, value);
  }
  std::vector<Operation> all;
  const auto done = strategy_->Run(graph_.root(), [&](ReplicaContext& context) {
    const Json& own = json_["replica_values"][static_cast<std::size_t>(context.local_replica())];
    const Output value = Constant(context.scope(), FloatTensor(own, Shape({3})));
    all.push_back(variable_.Apply(context, update, value));
    return std::vector<Output>();
  });
  return done.ok() ? Group(graph_.root(), all) : Operation();
}

std::string VariableCase::Compare(Session& session, const Output& read, const Json& op) const {
  const auto whole = session.Eval(read);
  if (!whole.ok()) return whole.status().ToString();
  std::string why = Difference(*whole, op["cross_replica_read"], kValues);
  if (!why.empty()) return "read: " + why;
  for (std::size_t i = 0; i < variable_.copies().size(); ++i) {
    const auto copy = session.Eval(variable_.copies()[i].read);
    if (!copy.ok()) return copy.status().ToString();
    why = Difference(*copy, op["per_replica"][i], kValues);
    if (!why.empty()) return StrCat("replica ", i, ": ", why);
  }
  return "";
}

std::string VariableCase::Refused(const Json& op) {
  (void)Build(op);
  const std::string said = graph_.status().ToString();
  const std::string want = op["message"].get<std::string>().substr(0, 72);
  return said.find(want) != std::string::npos ? "" : StrCat("no '", want, "' in: ", said);
}

std::string VariableCase::Run() {
  const Output read = variable_.Read(graph_.root());
  std::vector<Operation> steps;
  for (const Json& op : json_["operations"]) {
    if (!op.contains("raises")) steps.push_back(Build(op));
  }
  std::vector<Operation> initializers;
  for (const Variable& copy : variable_.copies()) initializers.push_back(copy.initializer);
  if (!graph_.status().ok()) return graph_.status().ToString();
  SessionOptions options;
  if (Status s = strategy_->ConfigureSession(&options); !s.ok()) return s.ToString();
  auto session = Session::Create(graph_, options);
  if (!session.ok()) return session.status().ToString();
  if (auto ran = session->Run({}, {}, initializers); !ran.ok()) return ran.status().ToString();
  std::size_t next = 0;
  for (const Json& op : json_["operations"]) {
    const std::string name = op["op"];
    if (op.contains("raises")) {
      if (std::string why = Refused(op); !why.empty()) return name + ": " + why;
      continue;
    }
    if (Status s = session->RunTargets({steps[next++]}); !s.ok()) return s.ToString();
    if (std::string why = Compare(*session, read, op); !why.empty()) return name + ": " + why;
  }
  return "";
}

TEST(MirroredValuesGolden, VariablesChangeAsTensorFlowsDo) {
  const Json golden = LoadGolden("strategies/mirrored_values.json");
  Tally tally("strategies/mirrored_values variables");
  for (const Json& json : golden["variables"]) {
    tally.Add(StrCat(json["replicas"].get<int>(), " ", json["synchronization"].get<std::string>(),
                     " ", json["aggregation"].get<std::string>()),
              VariableCase(json).Run());
  }
}

// Values that each replica has, and what becomes of them.
StatusOr<std::vector<Tensor>> Evaluate(
    const Json& json,
    const std::function<std::vector<Output>(Strategy&, const Scope&, const PerReplica&)>& make) {
  const std::shared_ptr<Strategy> strategy = Mirrored(json["replicas"].get<int>());
  Graph graph;
  const PerReplica values = strategy->ValuesOf(graph.root(), [&](const Scope& scope, int replica) {
    return Constant(scope, TensorOf(json["values"][static_cast<std::size_t>(replica)]));
  });
  const std::vector<Output> outputs = make(*strategy, graph.root(), values);
  if (!graph.status().ok()) return graph.status();
  SessionOptions options;
  if (Status s = strategy->ConfigureSession(&options); !s.ok()) return s;
  auto session = Session::Create(graph, options);
  if (!session.ok()) return session.status();
  return session->Run({}, outputs);
}

ReduceOp OpOf(const Json& json) { return json["op"] == "SUM" ? ReduceOp::kSum : ReduceOp::kMean; }

TEST(MirroredValuesGolden, ValuesAreReducedAsTensorFlowDoes) {
  const Json golden = LoadGolden("strategies/mirrored_values.json");
  Tally tally("strategies/mirrored_values reduce");
  for (const Json& json : golden["reduce"]) {
    const auto got = Evaluate(json, [&](Strategy& s, const Scope& scope, const PerReplica& values) {
      if (json["axis"].is_null()) return std::vector{s.Reduce(scope, OpOf(json), values)};
      return std::vector{s.Reduce(scope, OpOf(json), values, json["axis"].get<int>())};
    });
    tally.Add(json["op"], got.ok() ? Difference(got->at(0), json["result"]["data"], kValues)
                                   : got.status().ToString());
  }
}

TEST(MirroredValuesGolden, ReplicasGetWhatAllHaveTogether) {
  const Json golden = LoadGolden("strategies/mirrored_values.json");
  Tally tally("strategies/mirrored_values all_reduce");
  for (const Json& json : golden["all_reduce"]) {
    const auto got = Evaluate(json, [&](Strategy& s, const Scope& scope, const PerReplica& values) {
      const auto all = s.Run(scope, [&](ReplicaContext& context) {
        const auto i = static_cast<std::size_t>(context.local_replica());
        return std::vector{context.AllReduce(OpOf(json), values.values[i])};
      });
      return all.ok() ? all->at(0).values : std::vector<Output>();
    });
    std::string why = got.ok() ? "" : got.status().ToString();
    if (got.ok() && got->size() != json["per_replica"].size()) why = "another number of values";
    for (std::size_t i = 0; why.empty() && i < got->size(); ++i) {
      why = Difference(got->at(i), json["per_replica"][i], kValues);
    }
    tally.Add(json["op"], why);
  }
}

TEST(MirroredValuesGolden, ValuesAreGatheredInOrder) {
  const Json golden = LoadGolden("strategies/mirrored_values.json");
  Tally tally("strategies/mirrored_values gather");
  for (const Json& json : golden["gather"]) {
    const auto got = Evaluate(json, [&](Strategy& s, const Scope& scope, const PerReplica& values) {
      return std::vector{s.GatherLocal(scope, values, json["axis"].get<int>())};
    });
    tally.Add("gather", got.ok() ? Difference(got->at(0), json["result"]["data"], kValues)
                                 : got.status().ToString());
  }
}

}  // namespace
}  // namespace millrace::testing
