// SPDX-License-Identifier: Apache-2.0
// What Keras calls losses, metrics and optimizers.
#ifndef MODEL_NAMES_H_
#define MODEL_NAMES_H_

#include <memory>
#include <string>

#include "millrace/history.h"
#include "millrace/losses.h"
#include "millrace/metrics.h"
#include "millrace/optimizers.h"
#include "millrace/status.h"

namespace millrace::model {

// InvalidArgument lists the names that there are.
StatusOr<losses::Loss> LossByName(const std::string& name);
StatusOr<std::shared_ptr<Optimizer>> OptimizerByName(const std::string& name);
// Those that depend on shapes as Keras chooses them for labels and predictions of these shapes.
StatusOr<metrics::Metric> MetricByName(const std::string& name, const PartialShape& y_true,
                                       const PartialShape& y_pred);
// InvalidArgument unless MetricByName knows the name.
Status CheckMetricName(const std::string& name);
// Of a metric of this name: true for those that improve upwards, such as accuracies.
bool ImprovesUpwards(const std::string& name);

}  // namespace millrace::model

#endif  // MODEL_NAMES_H_
