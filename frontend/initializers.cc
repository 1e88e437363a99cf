// SPDX-License-Identifier: Apache-2.0
#include "millrace/initializers.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/errors.h"
#include "base/hash.h"
#include "base/options/option_checks.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "millrace/math.h"

namespace millrace {
namespace initializers {
namespace {

Tensor ShapeTensor(const Shape& shape) {
  const std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::FromValues<int32_t>(dims, Shape({shape.rank()}));
}

Expr Full(const Scope& s, const Shape& shape, double value) {
  return Expr(s,
              ops::Fill(s, ShapeTensor(shape),
                        millrace::Constant(s, Tensor::Scalar<float>(static_cast<float>(value)))));
}

enum class Kind { kNormal, kTruncatedNormal, kUniform };
// Standard values: of mean 0 and deviation 1, or between 0 and 1.
using Draw = std::function<Expr(const Scope& scope, Kind kind, const Shape& shape)>;

// As Keras draws a seed for an initializer that is made without one.
int64_t AnySeed() {
  static std::random_device device;
  return std::uniform_int_distribution<int64_t>(1, 1'000'000'000)(device);
}

// What a graph's seed and the name of a node decide.
int64_t SeedOf(int64_t graph_seed, std::string_view name) {
  return static_cast<int64_t>(Hash64(name, static_cast<uint64_t>(graph_seed)) % 2147483646u);
}

// A pure function of the seed: Keras's key is [seed, 0], cut to 31 bits. Without one, the graph's
// seed and the name of the node decide, so that a program which sets the former begins with the
// same weights each time, wherever they are placed.
Draw Stateless(Seed given) {
  const int64_t seed = given.value_or(0) % 2147483646;
  const int64_t key = given ? (seed < 0 ? seed + 2147483646 : seed) : AnySeed();
  return [key, is_given = given.has_value()](const Scope& s, Kind kind, const Shape& shape) {
    const Output dims = millrace::Constant(s, ShapeTensor(shape));
    const int64_t of_graph = s.graph()->seed;
    const int64_t used =
        is_given || of_graph == 0 ? key : SeedOf(of_graph, dims.valid() ? dims.name() : "");
    const Tensor seeds = Tensor::FromValues<int32_t>({static_cast<int32_t>(used), 0});
    switch (kind) {
      case Kind::kNormal:
        return Expr(s, ops::StatelessRandomNormal(s, dims, seeds));
      case Kind::kTruncatedNormal:
        return Expr(s, ops::StatelessTruncatedNormal(s, dims, seeds));
      case Kind::kUniform:
        break;
    }
    return Expr(s, ops::StatelessRandomUniform(s, dims, seeds));
  };
}

// TensorFlow 1's seeds of an op: where only the graph has one, the op's is the count of ops
// before it.
Draw Stateful(Seed given) {
  return [given](const Scope& s, Kind kind, const Shape& shape) {
    const GraphState& state = *s.graph();
    int64_t graph_seed = state.seed, op_seed = given.value_or(0);
    if (graph_seed != 0 && !given) {
      for (int id = 2; id < state.graph->num_node_ids(); ++id) {
        op_seed += state.graph->node(id) != nullptr;
      }
    } else if (graph_seed == 0 && given) {
      graph_seed = 87654321;
    }
    const Tensor dims = ShapeTensor(shape);
    switch (kind) {
      case Kind::kNormal:
        return Expr(
            s, ops::RandomStandardNormal(s, dims, kFloat, {.seed = graph_seed, .seed2 = op_seed}));
      case Kind::kTruncatedNormal:
        return Expr(s,
                    ops::TruncatedNormal(s, dims, kFloat, {.seed = graph_seed, .seed2 = op_seed}));
      case Kind::kUniform:
        break;
    }
    return Expr(s, ops::RandomUniform(s, dims, kFloat, {.seed = graph_seed, .seed2 = op_seed}));
  };
}

// What makes values where the options are what they must be; else an error.
Initializer Checked(const OptionChecks& checks, Initializer initializer) {
  if (checks.status().ok()) return initializer;
  return [status = checks.status()](const Scope& scope, const Shape&) -> Output {
    scope.RecordError(status, std::source_location::current());
    return Output();
  };
}

Initializer Scaled(const Draw& draw, Kind kind, double factor, double offset) {
  return [=](const Scope& scope, const Shape& shape) -> Output {
    const Scope s = scope.Named("initializer");
    return draw(s, kind, shape) * factor + offset;
  };
}

Initializer Uniform(const Draw& draw, double low, double high) {
  // In float, as the ends are when TensorFlow subtracts them.
  return Scaled(draw, Kind::kUniform, static_cast<float>(high) - static_cast<float>(low), low);
}

Initializer Normal(const char* name, Kind kind, const NormalOptions& o, const Draw& draw) {
  OptionChecks checks{name};
  return Checked(checks.Finite("mean", o.mean).AtLeast("stddev", o.stddev, 0),
                 Scaled(draw, kind, o.stddev, o.mean));
}

Initializer MakeUniform(const UniformOptions& o, const Draw& draw) {
  OptionChecks checks{"RandomUniform"};
  return Checked(checks.Finite("minval", o.minval).Finite("maxval", o.maxval),
                 Uniform(draw, o.minval, o.maxval));
}

struct Fans {
  double in, out;
};

Fans FansOf(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {1, 1};
  if (rank == 1) return {static_cast<double>(shape.dim(0)), static_cast<double>(shape.dim(0))};
  double field = 1;
  for (int i = 0; i + 2 < rank; ++i) field *= static_cast<double>(shape.dim(i));
  return {field * static_cast<double>(shape.dim(rank - 2)),
          field * static_cast<double>(shape.dim(rank - 1))};
}

Initializer MakeVarianceScaling(const VarianceScalingOptions& o, const Draw& draw) {
  return [o, draw](const Scope& scope, const Shape& shape) -> Output {
    if (!(o.scale > 0 && std::isfinite(o.scale))) {
      scope.RecordError(
          errors::InvalidArgument("VarianceScaling's scale must be positive, not ", o.scale),
          std::source_location::current());
      return Output();
    }
    const Fans fans = FansOf(shape);
    const double fan = o.mode == Fan::kIn    ? fans.in
                       : o.mode == Fan::kOut ? fans.out
                                             : (fans.in + fans.out) / 2;
    const double variance = o.scale / std::max(1.0, fan);
    switch (o.distribution) {
      case Distribution::kTruncatedNormal:
        // The deviation of what is left between minus two and two.
        return Scaled(draw, Kind::kTruncatedNormal, std::sqrt(variance) / 0.87962566103423978, 0)(
            scope, shape);
      case Distribution::kUntruncatedNormal:
        return Scaled(draw, Kind::kNormal, std::sqrt(variance), 0)(scope, shape);
      case Distribution::kUniform:
        break;
    }
    const double limit = std::sqrt(3 * variance);
    return Uniform(draw, -limit, limit)(scope, shape);
  };
}

Initializer MakeOrthogonal(const OrthogonalOptions& o, const Draw& draw) {
  OptionChecks checks{"Orthogonal"};
  const auto make = [o, draw](const Scope& scope, const Shape& shape) -> Output {
    if (shape.rank() < 2) {
      scope.RecordError(
          errors::InvalidArgument("Orthogonal makes values of two axes or more, not of ",
                                  shape.DebugString()),
          std::source_location::current());
      return Output();
    }
    const Scope s = scope.Named("initializer");
    const int64_t columns = shape.dim(shape.rank() - 1);
    const int64_t rows = columns == 0 ? 0 : shape.num_elements() / columns;
    const Shape flat({std::max(rows, columns), std::min(rows, columns)});
    const Expr a = draw(s, Kind::kNormal, flat).Cast(kDouble);
    // Q of the QR decomposition whose R has a positive diagonal, which R = L' of A'A = L L' is; in
    // double, where squaring the condition of a random matrix costs nothing that floats show.
    const Tensor swap = Tensor::FromValues<int32_t>({1, 0});
    const Output l = ops::Cholesky(s, ops::MatMul(s, a, a, {.transpose_a = true}));
    const Expr q_t(s, ops::MatrixTriangularSolve(s, l, a.Transpose(swap)));
    const Expr q = (rows < columns ? q_t : q_t.Transpose(swap)).Cast(kFloat);
    return o.gain * q.Reshape(ShapeTensor(shape));
  };
  return Checked(checks.Finite("gain", o.gain), make);
}

Initializer Glorot(Distribution distribution, double scale, Fan mode, Seed seed) {
  return VarianceScaling(
      {.scale = scale, .mode = mode, .distribution = distribution, .seed = seed});
}

}  // namespace

Initializer Constant(double value) {
  return [value](const Scope& scope, const Shape& shape) -> Output {
    return Full(scope.Named("initializer"), shape, value);
  };
}
Initializer Zeros() { return Constant(0); }
Initializer Ones() { return Constant(1); }
Initializer Identity(double gain) {
  OptionChecks checks{"Identity"};
  const auto make = [gain](const Scope& scope, const Shape& shape) -> Output {
    if (shape.rank() != 2) {
      scope.RecordError(errors::InvalidArgument("Identity makes matrices, not values of shape ",
                                                shape.DebugString()),
                        std::source_location::current());
      return Output();
    }
    const Scope s = scope.Named("initializer");
    const auto index = [&](int axis) {
      return Expr(s, ops::Range(s, 0, static_cast<int32_t>(shape.dim(axis)), 1));
    };
    return index(0).ExpandDims(1).Equal(index(1).ExpandDims(0)).Cast(kFloat) * gain;
  };
  return Checked(checks.Finite("gain", gain), make);
}

Initializer RandomNormal(const NormalOptions& o) {
  return Normal("RandomNormal", Kind::kNormal, o, Stateless(o.seed));
}
Initializer TruncatedNormal(const NormalOptions& o) {
  return Normal("TruncatedNormal", Kind::kTruncatedNormal, o, Stateless(o.seed));
}
Initializer RandomUniform(const UniformOptions& o) { return MakeUniform(o, Stateless(o.seed)); }
Initializer VarianceScaling(const VarianceScalingOptions& o) {
  return MakeVarianceScaling(o, Stateless(o.seed));
}
Initializer GlorotUniform(Seed seed) {
  return Glorot(Distribution::kUniform, 1, Fan::kAverage, seed);
}
Initializer GlorotNormal(Seed seed) {
  return Glorot(Distribution::kTruncatedNormal, 1, Fan::kAverage, seed);
}
Initializer HeUniform(Seed seed) { return Glorot(Distribution::kUniform, 2, Fan::kIn, seed); }
Initializer HeNormal(Seed seed) {
  return Glorot(Distribution::kTruncatedNormal, 2, Fan::kIn, seed);
}
Initializer LecunUniform(Seed seed) { return Glorot(Distribution::kUniform, 1, Fan::kIn, seed); }
Initializer LecunNormal(Seed seed) {
  return Glorot(Distribution::kTruncatedNormal, 1, Fan::kIn, seed);
}
Initializer Orthogonal(const OrthogonalOptions& o) { return MakeOrthogonal(o, Stateless(o.seed)); }

namespace v1 {

Initializer RandomNormal(const NormalOptions& o) {
  return Normal("RandomNormal", Kind::kNormal, o, Stateful(o.seed));
}
Initializer TruncatedNormal(const NormalOptions& o) {
  return Normal("TruncatedNormal", Kind::kTruncatedNormal, o, Stateful(o.seed));
}
Initializer RandomUniform(const UniformOptions& o) { return MakeUniform(o, Stateful(o.seed)); }
Initializer VarianceScaling(const VarianceScalingOptions& o) {
  return MakeVarianceScaling(o, Stateful(o.seed));
}
Initializer Orthogonal(const OrthogonalOptions& o) { return MakeOrthogonal(o, Stateful(o.seed)); }
Initializer UniformUnitScaling(double factor, Seed seed) {
  OptionChecks checks{"UniformUnitScaling"};
  const auto make = [factor, draw = Stateful(seed)](const Scope& scope,
                                                    const Shape& shape) -> Output {
    double inputs = 1;
    for (int i = 0; i + 1 < shape.rank(); ++i) inputs *= static_cast<double>(shape.dim(i));
    const double limit = std::sqrt(3 / std::max(1.0, inputs)) * factor;
    return Uniform(draw, -limit, limit)(scope, shape);
  };
  return Checked(checks.Finite("factor", factor), make);
}

}  // namespace v1

SeedGenerator::SeedGenerator(const Scope& scope, Seed seed) {
  // As initializers do: without a seed of its own, by the graph's and by where it stands.
  const Output count = millrace::Constant(scope, Tensor::Scalar<int64_t>(0));
  if (!count.valid()) return;
  const int64_t of_graph = scope.graph()->seed;
  const int64_t start = seed ? *seed : of_graph != 0 ? SeedOf(of_graph, count.name()) : AnySeed();
  state_ = MakeVariable(scope, "seed_generator_state", ops::Pack(scope, {start, count}),
                        {.trainable = false});
}

Output SeedGenerator::Next(const Scope& scope) const {
  const Scope s = scope.ColocateWith(state_.handle);
  // A copy: what is read of the variable itself would follow its change.
  const Output key = ops::Add(s, state_.read, Tensor::FromValues<int64_t>({0, 0}));
  const Operation counted =
      AssignAdd(s.WithControlDependencies({key.op()}), state_, Tensor::FromValues<int64_t>({0, 1}));
  return ops::Identity(s.WithControlDependencies({counted}), key);
}

}  // namespace initializers

Variable MakeVariable(const Scope& scope, std::string_view name, const Shape& shape,
                      const initializers::Initializer& initializer, const VariableOptions& options,
                      std::source_location where) {
  const Scope s = scope.CalledFrom(where);
  const Output value =
      initializer(s.WithoutControlDependencies().Named(StrCat(name, "/Initializer")), shape);
  return MakeVariable(s, name, value, options, where);
}

}  // namespace millrace
