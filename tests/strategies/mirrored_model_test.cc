// SPDX-License-Identifier: Apache-2.0
// Models whose weights lie on the device of every replica: that copies stay equal whatever changes
// them, that each replica reads its own, and what checkpoints keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 12, kFeatures = 4;

Tensor Samples() {
  Tensor x(kFloat, Shape({kRows, kFeatures}));
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.data<float>()[i] = static_cast<float>((i * 37) % 23) / 11.0f - 1.0f;
  }
  return x;
}

Tensor Targets() {
  Tensor y(kFloat, Shape({kRows, 1}));
  for (int64_t i = 0; i < kRows; ++i) y.data<float>()[i] = static_cast<float>(i % 5);
  return y;
}

FitOptions Silent() { return {.batch_size = 8, .shuffle = false, .verbose = Verbose::kSilent}; }

// Empty if that went well.
std::string FitOnce(Model& model) {
  const Status status = model.Fit(Samples(), Targets(), Silent()).status();
  return status.ok() ? "" : status.ToString();
}

std::unique_ptr<Model> MakeModel(int replicas, const OptimizerSpec& optimizer) {
  layers::DenseOptions first{.activation = "tanh"};
  first.kernel_constraint = constraints::MaxNorm(1.5);
  auto model = std::make_unique<Model>(
      layers::Sequential({layers::Dense(3, first), layers::BatchNormalization(), layers::Dense(1)}),
      ModelOptions{.seed = 5, .strategy = MirroredStrategy({.replicas = replicas}).value()});
  EXPECT_TRUE(model->Compile({.optimizer = optimizer, .loss = "mse"}).ok());
  return model;
}

// How many copies there are; fails where one has another value than the weight.
int ExpectEqualCopies(Model& model) {
  int count = 0;
  for (const Variable& v : Variables(model.graph())) {
    const auto value = model.session()->Eval(v.read);
    EXPECT_TRUE(value.ok()) << value.status();
    for (const Variable& copy : CopiesOf(v)) {
      const auto other = model.session()->Eval(copy.read);
      EXPECT_TRUE(other.ok()) << other.status();
      if (!value.ok() || !other.ok()) continue;
      EXPECT_TRUE(TensorsEqual(*value, *other)) << copy.name();
      ++count;
    }
  }
  return count;
}

TEST(MirroredModel, HasEveryWeightOnEveryDevice) {
  const auto model = MakeModel(3, "sgd");
  ASSERT_EQ(FitOnce(*model), "");
  for (const Variable& v : model->root()->weights()) {
    const std::vector<Variable> copies = CopiesOf(v);
    ASSERT_EQ(copies.size(), 2u) << v.name();
    for (std::size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(copies[i].name(), StrCat(v.name(), "/replica_", i + 1));
      EXPECT_EQ(copies[i].handle.op().device(), StrCat("/device:CPU:", i + 1));
    }
  }
}

TEST(MirroredModel, KeepsCopiesEqualWhateverTheOptimizerWrites) {
  for (const char* optimizer : {"sgd", "adam", "rmsprop", "lion"}) {
    SCOPED_TRACE(optimizer);
    const auto model = MakeModel(2, optimizer);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(FitOnce(*model), "");
      EXPECT_EQ(ExpectEqualCopies(*model), 8);
    }
  }
}

TEST(MirroredModel, KeepsCopiesEqualWhenAveragesTakeTheirPlace) {
  const auto model = MakeModel(
      2, optimizers::Sgd({.learning_rate = 0.1, .common = {.use_ema = true, .ema_momentum = 0.5}}));
  ASSERT_EQ(FitOnce(*model), "");
  EXPECT_EQ(ExpectEqualCopies(*model), 8);
}

TEST(MirroredModel, GivesCopiesWhatWeightsAreSetToAndWhatIsRestored) {
  const auto model = MakeModel(2, "sgd");
  ASSERT_TRUE(model->Build({{PartialShape({-1, kFeatures}), kFloat}}).ok());
  const std::vector<Tensor> first = model->GetWeights().value();
  const std::string prefix = ::testing::TempDir() + "/mirrored_weights";
  ASSERT_TRUE(model->SaveWeights(prefix).ok());
  ASSERT_EQ(FitOnce(*model), "");
  EXPECT_FALSE(TensorsEqual(model->GetWeights()->at(0), first[0]));
  const auto saver = Saver::Create(model->graph());
  ASSERT_TRUE(saver.ok()) << saver.status();
  const auto saved = (*saver)->Save(*model->session(), ::testing::TempDir() + "/mirrored_saver",
                                    {.write_meta_graph = false});
  ASSERT_TRUE(saved.ok()) << saved.status();
  const std::vector<Tensor> trained = model->GetWeights().value();

  ASSERT_TRUE(model->SetWeights(first).ok());
  EXPECT_TRUE(TensorsEqual(model->GetWeights()->at(0), first[0]));
  EXPECT_EQ(ExpectEqualCopies(*model), 8);

  ASSERT_TRUE((*saver)->Restore(*model->session(), *saved).ok());
  EXPECT_TRUE(TensorsEqual(model->GetWeights()->at(0), trained[0]));
  EXPECT_EQ(ExpectEqualCopies(*model), 8);

  const Status loaded = model->LoadWeights(prefix);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(TensorsEqual(model->GetWeights()->at(0), first[0]));
  EXPECT_EQ(ExpectEqualCopies(*model), 8);
}

TEST(MirroredModel, ReadsInEachReplicaWhatLiesThere) {
  const auto model = MakeModel(2, "sgd");
  const Tensor before = model->Predict(Samples(), {.batch_size = kRows}).value();
  // The second replica's last bias, behind the back of everybody.
  Variable copy;
  for (const Variable& v : model->root()->trainable_weights()) {
    if (v.shape().AsShape() == Shape({1})) copy = CopiesOf(v).at(0);
  }
  ASSERT_TRUE(copy.handle.valid());
  const Operation other = Assign(model->graph().root(), copy, Tensor::FromValues<float>({100.0f}));
  ASSERT_TRUE(model->session()->RunTargets({other}).ok());
  const Tensor after = model->Predict(Samples(), {.batch_size = kRows}).value();
  for (int64_t i = 0; i < kRows; ++i) {
    const float change = after.data<float>()[i] - before.data<float>()[i];
    EXPECT_NEAR(change, i < kRows / 2 ? 0.0f : 100.0f, 1e-3) << "row " << i;
  }
}

TEST(DistributedVariables, AreSavedAsAWholeAndRestoredToAll) {
  const std::string prefix = ::testing::TempDir() + "/sum_on_read";
  const auto value_after = [&](int replicas, bool saves) -> StatusOr<std::vector<float>> {
    const auto strategy = MirroredStrategy({.replicas = replicas}).value();
    Graph graph;
    const Scope root = graph.root();
    const DistributedVariable sum =
        strategy->MakeVariable(root, "sum", Constant(root, Tensor::Scalar<float>(0)),
                               {.trainable = false,
                                .synchronization = VariableSynchronization::kOnRead,
                                .aggregation = VariableAggregation::kSum});
    const DistributedVariable mirrored = strategy->MakeVariable(
        root, "mirrored", Constant(root, Tensor::Scalar<float>(1)), {.trainable = false});
    std::vector<Operation> counted;
    const auto ran = strategy->Run(root, [&](ReplicaContext& context) {
      const float own = static_cast<float>(context.local_replica() + 1);
      counted.push_back(sum.Apply(context, DistributedVariable::Update::kAdd,
                                  Constant(context.scope(), Tensor::Scalar<float>(own))));
      return std::vector<Output>();
    });
    if (!ran.ok()) return ran.status();
    const Operation seven = mirrored.Apply(root, DistributedVariable::Update::kAssign,
                                           Constant(root, Tensor::Scalar<float>(7)));
    const Output whole = sum.Read(root);
    const auto saver = Saver::Create(graph);
    if (!saver.ok()) return saver.status();
    SessionOptions options;
    if (Status s = strategy->ConfigureSession(&options); !s.ok()) return s;
    auto session = Session::Create(graph, options);
    if (!session.ok()) return session.status();
    std::vector<Operation> begin;
    for (const auto* variable : {&sum, &mirrored}) {
      for (const Variable& copy : variable->copies()) begin.push_back(copy.initializer);
    }
    if (auto began = session->Run({}, {}, begin); !began.ok()) return began.status();
    if (saves) {
      counted.push_back(seven);
      if (auto done = session->Run({}, {}, counted); !done.ok()) return done.status();
      const auto saved = (*saver)->Save(*session, prefix, {.write_meta_graph = false});
      if (!saved.ok()) return saved.status();
    } else {
      if (Status s = (*saver)->Restore(*session, prefix); !s.ok()) return s;
    }
    std::vector<Output> fetches = {whole};
    for (const Variable& copy : sum.copies()) fetches.push_back(copy.read);
    for (const Variable& copy : mirrored.copies()) fetches.push_back(copy.read);
    const auto got = session->Run({}, fetches);
    if (!got.ok()) return got.status();
    std::vector<float> values;
    for (const Tensor& t : *got) values.push_back(t.scalar<float>());
    return values;
  };
  using ::testing::ElementsAre;
  const auto saved = value_after(2, true);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_THAT(*saved, ElementsAre(3, 1, 2, 7, 7));
  const auto restored = value_after(4, false);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_THAT(*restored, ElementsAre(3, 0.75f, 0.75f, 0.75f, 0.75f, 7, 7, 7, 7));
}

}  // namespace
}  // namespace millrace
