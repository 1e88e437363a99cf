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
using Seed = std::optional<int64_t>;

Initializer Zeros();
Initializer Ones();
Initializer Constant(double value);
Initializer Identity(double gain = 1);  // of matrices

struct NormalOptions {
  double mean = 0;
  double stddev = 0.05;
  Seed seed{};
};
Initializer RandomNormal(const NormalOptions& options = {});
// Those beyond two standard deviations drawn again.
Initializer TruncatedNormal(const NormalOptions& options = {});
struct UniformOptions {
  double minval = -0.05, maxval = 0.05;
  Seed seed{};
};
Initializer RandomUniform(const UniformOptions& options = {});

enum class Fan { kIn, kOut, kAverage };
enum class Distribution { kTruncatedNormal, kUntruncatedNormal, kUniform };
struct VarianceScalingOptions {
  double scale = 1;
  Fan mode = Fan::kIn;
  Distribution distribution = Distribution::kTruncatedNormal;
  Seed seed{};
};
// A variance of scale / fan, where the fans are the sizes of the last two axes, times what lies
// before those.
Initializer VarianceScaling(const VarianceScalingOptions& options = {});
Initializer GlorotUniform(Seed seed = {});
Initializer GlorotNormal(Seed seed = {});
Initializer HeUniform(Seed seed = {});
Initializer HeNormal(Seed seed = {});
Initializer LecunUniform(Seed seed = {});
Initializer LecunNormal(Seed seed = {});

struct OrthogonalOptions {
  double gain = 1;
  Seed seed{};
};
// Rows or columns, whichever are fewer, of length `gain` and at right angles. All axes but the
// last count as one.
Initializer Orthogonal(const OrthogonalOptions& options = {});

// With op seeds and the graph's seed (Graph::SetSeed): values differ from run to run of a session,
// and repeat from session to session.
namespace v1 {
Initializer RandomNormal(const NormalOptions& options = {.stddev = 1});
Initializer TruncatedNormal(const NormalOptions& options = {.stddev = 1});
Initializer RandomUniform(const UniformOptions& options = {.minval = 0, .maxval = 1});
Initializer VarianceScaling(const VarianceScalingOptions& options = {});
Initializer Orthogonal(const OrthogonalOptions& options = {});
// Uniform, of the variance factor^2 / (the product of all axes but the last).
Initializer UniformUnitScaling(double factor = 1, Seed seed = {});
}  // namespace v1

// Hands out keys for stateless random ops: [seed, 0], [seed, 1], ...
class SeedGenerator {
 public:
  SeedGenerator(const Scope& scope, Seed seed = {});
  // The next key, an int64 vector of two, each time that it is run.
  Output Next(const Scope& scope) const;
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
