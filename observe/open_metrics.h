// SPDX-License-Identifier: Apache-2.0
// The text in which Prometheus and its relatives read metrics: OpenMetrics 1.0.
//
// It is a page of code; prometheus-cpp would bring a registry with locks of its own, to which
// everything that the engine counts without any had to be copied first.
#ifndef OBSERVE_OPEN_METRICS_H_
#define OBSERVE_OPEN_METRICS_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/status.h"
#include "observe/metrics.h"

namespace millrace {

// Prometheus's own older text differs in a few lines; it is for those who do not ask for
// OpenMetrics.
enum class MetricsDialect { kOpenMetrics, kPrometheus };
// The one that a request with this Accept header is answered with, and its content type.
MetricsDialect ChooseDialect(std::string_view accept);
const char* ContentType(MetricsDialect dialect);

// Writes families one after the other: a family first, then its samples.
class OpenMetricsWriter {
 public:
  explicit OpenMetricsWriter(MetricsDialect dialect = MetricsDialect::kOpenMetrics)
      : dialect_(dialect) {}

  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // `type` is "gauge", "counter", "histogram" or "info"; `unit` ("": none) is the end of the name.
  void Family(std::string_view name, std::string_view type, std::string_view unit,
              std::string_view help);
  // Of the family above: a counter's name gets "_total", an info's "_info".
  void Sample(Labels labels, double value);
  void Sample(Labels labels, const Histogram::Snapshot& value);
  // Ends the text.
  std::string Take();

 private:
  void Line(std::string_view suffix, Labels labels, std::string_view le, double value);

  const MetricsDialect dialect_;
  std::string text_, name_;
  std::string_view suffix_;  // of plain samples
};

// One line of such a text.
struct MetricSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels{};
  double value = 0;

  // "" if there is no such label.
  std::string_view Label(std::string_view name) const;
};
// The samples of a text that OpenMetricsWriter wrote. InvalidArgument, quoting the line, if it is
// none.
StatusOr<std::vector<MetricSample>> ParseOpenMetrics(std::string_view text);

}  // namespace millrace

#endif  // OBSERVE_OPEN_METRICS_H_
