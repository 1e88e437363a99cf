// SPDX-License-Identifier: Apache-2.0
// Metrics whose options are checked.
#ifndef MODEL_METRICS_CHECKED_H_
#define MODEL_METRICS_CHECKED_H_

#include <string>
#include <utility>
#include <vector>

#include "base/options/option_checks.h"
#include "millrace/metrics.h"

namespace millrace::metrics {

inline OptionChecks ChecksOf(const char* name) {
  return OptionChecks(std::string("metric '") + name + "'");
}

// A metric of this rule, or one whose first batch is an error.
inline Metric Checked(const char* name, const OptionChecks& checks, Metric::Rule rule) {
  if (!checks.status().ok()) {
    rule.sums = [](const PartialShape&, const PartialShape&) { return std::vector<Metric::Sum>(); };
    rule.additions = [status = checks.status()](const Scope& scope, const Batch&) {
      scope.RecordError(status, std::source_location::current());
      return std::vector<Expr>();
    };
  }
  return Metric(name, std::move(rule));
}

}  // namespace millrace::metrics

#endif  // MODEL_METRICS_CHECKED_H_
