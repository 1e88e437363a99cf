// SPDX-License-Identifier: Apache-2.0
// Initial values of variables, number by number those of Keras 3 for a seed; in namespace v1 those
// of tf.compat.v1.
#ifndef MILLRACE_INITIALIZERS_H_
#define MILLRACE_INITIALIZERS_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "millrace/graph.h"
#include "millrace/variables.h"

namespace millrace {
namespace initializers {

// Adds the nodes that compute a value of a shape. One with a seed gives the same values at every
// call, run after run. Without one, the graph's seed and the names of nodes decide (Graph::SetSeed,
// ModelOptions::seed); where that is 0, too, a seed is drawn when the initializer is made. What it
// cannot do is an InvalidArgument in the graph's status.
using Initializer = std::function<Output(const Scope& scope, const Shape& shape)>;
// What decides random values; not set: see Initializer.
using Seed = std::optional<int64_t>;

// All elements 0, of type float as those of all initializers.
Initializer Zeros();
// All elements 1.
Initializer Ones();
// All elements `value`.
Initializer Constant(double value);
Initializer Identity(double gain = 1);  // of matrices

// Of RandomNormal and TruncatedNormal.
struct NormalOptions {
  double mean = 0;       // middle of the distribution
  double stddev = 0.05;  // standard deviation, before anything is cut off
  Seed seed{};           // not set: see Initializer
};
// Normal values, each drawn independently.
Initializer RandomNormal(const NormalOptions& options = {});
// Those beyond two standard deviations drawn again.
Initializer TruncatedNormal(const NormalOptions& options = {});
// Of RandomUniform.
struct UniformOptions {
  double minval = -0.05,  // the least value
      maxval = 0.05;      // above all values
  Seed seed{};            // not set: see Initializer
};
// Values spread evenly over [minval, maxval).
Initializer RandomUniform(const UniformOptions& options = {});

// What VarianceScaling divides by: inputs of a unit, outputs, or the mean of both; at least 1.
enum class Fan { kIn, kOut, kAverage };
// Where VarianceScaling's values come from; all three have the same variance.
enum class Distribution { kTruncatedNormal, kUntruncatedNormal, kUniform };
// Of VarianceScaling.
struct VarianceScalingOptions {
  double scale = 1;                                            // must be positive
  Fan mode = Fan::kIn;                                         // the fan of the variance
  Distribution distribution = Distribution::kTruncatedNormal;  // of the values
  Seed seed{};                                                 // not set: see Initializer
};
// A variance of scale / fan, where the fans are the sizes of the last two axes, times what lies
// before those.
Initializer VarianceScaling(const VarianceScalingOptions& options = {});
// Uniform values of variance 2 / (fan in + fan out); Keras's default for kernels.
Initializer GlorotUniform(Seed seed = {});
// Truncated normal values of variance 2 / (fan in + fan out).
Initializer GlorotNormal(Seed seed = {});
// Uniform values of variance 2 / fan in.
Initializer HeUniform(Seed seed = {});
// Truncated normal values of variance 2 / fan in.
Initializer HeNormal(Seed seed = {});
// Uniform values of variance 1 / fan in.
Initializer LecunUniform(Seed seed = {});
// Truncated normal values of variance 1 / fan in.
Initializer LecunNormal(Seed seed = {});

// Of Orthogonal, whose shapes have two axes or more.
struct OrthogonalOptions {
  double gain = 1;  // what the orthogonal matrix is multiplied by
  Seed seed{};      // not set: see Initializer
};
// Rows or columns, whichever are fewer, of length `gain` and at right angles. All axes but the
// last count as one.
Initializer Orthogonal(const OrthogonalOptions& options = {});

// With op seeds and the graph's seed (Graph::SetSeed): values differ from run to run of a session,
// and repeat from session to session.
namespace v1 {
// tf.compat.v1.random_normal_initializer.
Initializer RandomNormal(const NormalOptions& options = {.stddev = 1});
// tf.compat.v1.truncated_normal_initializer.
Initializer TruncatedNormal(const NormalOptions& options = {.stddev = 1});
// tf.compat.v1.random_uniform_initializer.
Initializer RandomUniform(const UniformOptions& options = {.minval = 0, .maxval = 1});
// tf.compat.v1.variance_scaling_initializer.
Initializer VarianceScaling(const VarianceScalingOptions& options = {});
// tf.compat.v1.orthogonal_initializer.
Initializer Orthogonal(const OrthogonalOptions& options = {});
// Uniform, of the variance factor^2 / (the product of all axes but the last).
Initializer UniformUnitScaling(double factor = 1, Seed seed = {});
}  // namespace v1

// Hands out keys for stateless random ops: [seed, 0], [seed, 1], ...
class SeedGenerator {
 public:
  // Makes the variable "seed_generator_state". Without a seed the graph's and a name decide, as for
  // an Initializer.
  SeedGenerator(const Scope& scope, Seed seed = {});
  // The next key, an int64 vector of two, each time that it is run.
  Output Next(const Scope& scope) const;
  // The seed and the count of the next key, an int64 vector of two; not trainable.
  const Variable& state() const { return state_; }

 private:
  Variable state_;
};

}  // namespace initializers

// A variable that starts with what an initializer gives.
Variable MakeVariable(const Scope& scope, std::string_view name, const Shape& shape,
                      const initializers::Initializer& initializer,
                      const VariableOptions& options = {},
                      std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_INITIALIZERS_H_
