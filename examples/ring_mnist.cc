// SPDX-License-Identifier: Apache-2.0
// Digits, trained as programs for Horovod are: every process runs this program on its part of each
// batch, and gradients are averaged over all. Any launcher that says in the environment which rank
// a process is can start it:
//
//   millrace run --workers 4 -- ring_mnist
//   torchrun-like: RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1
//                  MASTER_PORT=29500 ring_mnist
//
// So many ranks end at the loss of one with a batch as many times as large. Synthetic digits, or
// with --data_dir the idx files of MNIST.
#include <cstdio>

#include "examples/training_flags.h"
#include "millrace/data_parallel.h"
#include "millrace/digits.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/losses.h"
#include "millrace/session.h"
#include "millrace/status_macros.h"

namespace mr = millrace;
namespace dp = mr::dp;
namespace layers = mr::layers;

struct Flags : mr::examples::TrainingFlags {
  int64_t steps = 200;
  double learning_rate = 0;  // 0: 0.000125 for each rank
  double timeout = 30;
};

struct Ranks {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
};

// The net, its training and its test.
struct Program {
  mr::Graph graph;
  mr::Output images, labels, loss, test_loss;
  mr::Operation train, init, begin_alike;
};

mr::Status Build(const Ranks& ranks, const Flags& flags, Program* program) {
  // Other weights at each rank, until those of rank 0 are given to all.
  program->graph.SetSeed(1 + ranks.rank);
  const mr::Scope root = program->graph.root();
  program->images = mr::Placeholder(root, mr::kFloat, {-1, mr::kDigitPixels});
  program->labels = mr::Placeholder(root, mr::kInt64, {-1});
  const auto net = layers::Sequential(
      {layers::Dense(128, {.activation = "relu"}), layers::Dense(mr::kDigitClasses)});
  const auto loss_of = mr::losses::SparseCategoricalCrossentropy({.from_logits = true});
  mr::Pass training(root.Named("train"), root, true), testing(root.Named("test"), root, false);
  program->loss = loss_of(root, program->labels, (*net)(training, program->images));
  program->test_loss = loss_of(root, program->labels, (*net)(testing, program->images));

  const double rate =
      flags.learning_rate > 0 ? flags.learning_rate : 0.000125 * static_cast<double>(ranks.size);
  const auto optimizer = dp::DistributedOptimizer(mr::optimizers::Adam({.learning_rate = rate}));
  MR_ASSIGN_OR_RETURN(const auto gradients,
                      optimizer->ComputeGradients(root, program->loss, net->trainable_weights()));
  MR_ASSIGN_OR_RETURN(program->train, optimizer->ApplyGradients(root, gradients, nullptr));
  program->init = mr::InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(program->begin_alike, dp::BroadcastVariables(root, mr::Variables(root)));
  return program->graph.status();
}

mr::Status TrainSteps(const Program& program, const Ranks& ranks, const Flags& flags,
                      const mr::Digits& digits, mr::Session* session) {
  const mr::Output feeds[] = {program.images, program.labels}, fetches[] = {program.loss};
  MR_ASSIGN_OR_RETURN(const mr::Callable step,
                      session->MakeCallable(feeds, fetches, std::span(&program.train, 1)));
  // The same batches everywhere, of which each rank takes its rows.
  const int64_t rows = flags.batch_size;
  mr::BatchSource batches(digits.train, static_cast<int>(rows * ranks.size), /*seed=*/1);
  for (int64_t i = 0; i < flags.steps; ++i) {
    const mr::BatchSource::Batch batch = batches.Next();
    const int64_t begin = rows * ranks.rank;
    const mr::Tensor values[] = {batch.images.Slice(begin, begin + rows),
                                 batch.labels.Slice(begin, begin + rows)};
    const auto result = step.Run(values);
    if (!result.ok()) return dp::Explain(result.status());
    if (ranks.rank == 0 && i % 50 == 0) {
      std::printf("step %lld - loss: %.4f\n", static_cast<long long>(i),
                  (*result)[0].scalar<float>());
      std::fflush(stdout);
    }
  }
  return mr::OkStatus();
}

mr::Status Train(const mr::Digits& digits, const Flags& flags) {
  MR_RETURN_IF_ERROR(dp::Init({.communication = {.timeout_seconds = flags.timeout}}));
  const Ranks ranks{*dp::Rank(), *dp::Size(), *dp::LocalRank(), *dp::LocalSize()};
  Program program;
  MR_RETURN_IF_ERROR(Build(ranks, flags, &program));
  mr::SessionOptions options;
  MR_RETURN_IF_ERROR(dp::ConfigureSession(&options));
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(program.graph, options));
  MR_RETURN_IF_ERROR(session.RunTargets({program.init}));
  MR_RETURN_IF_ERROR(session.RunTargets({program.begin_alike}));
  MR_RETURN_IF_ERROR(TrainSteps(program, ranks, flags, digits, &session));
  MR_ASSIGN_OR_RETURN(const auto result, session.Run({{program.images, digits.test.images},
                                                      {program.labels, digits.test.labels}},
                                                     {program.test_loss}));
  std::printf("rank %d of %d, local rank %d of %d: test loss %.9g\n", ranks.rank, ranks.size,
              ranks.local_rank, ranks.local_size, result[0].scalar<float>());
  std::fflush(stdout);
  MR_RETURN_IF_ERROR(session.Close());
  return dp::Shutdown();
}

int main(int argc, char** argv) {
  Flags flags;
  flags.batch_size = 32;
  CLI::App app("Trains on handwritten digits with as many ranks as a launcher starts",
               "ring_mnist");
  mr::examples::AddDigitsFlag(app, flags);
  app.add_option("--steps", flags.steps, "Steps to train")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Images of a step for each rank")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate, "Adam's; 0: 0.000125 for each rank")
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout, "Seconds after which a rank that is missing is told")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return mr::examples::RunProgram(app, argc, argv, [&] {
    const auto digits = mr::examples::GetDigits(flags);
    return digits.ok() ? Train(*digits, flags) : digits.status();
  });
}
