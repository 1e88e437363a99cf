// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/strings.h"
#include "millrace/plot.h"

namespace millrace {
namespace {

constexpr std::string_view kValidation = "val_";

// A series for each metric, with the metric's name.
std::vector<PlotPanel> PanelsOf(const std::vector<PlotSeries>& metrics) {
  const auto find = [&metrics](std::string_view name) {
    return std::find_if(metrics.begin(), metrics.end(),
                        [name](const PlotSeries& metric) { return metric.name == name; });
  };
  std::vector<PlotPanel> panels;
  for (const PlotSeries& metric : metrics) {
    const std::string_view name = metric.name;
    const bool validation = name.starts_with(kValidation);
    // Drawn with its metric.
    if (validation && find(name.substr(kValidation.size())) != metrics.end()) continue;
    PlotPanel panel{.title = metric.name, .series = {metric}, .x_label = "epoch"};
    panel.series[0].name = validation ? "validation" : "train";
    const auto other = find(StrCat(kValidation, name));
    if (other != metrics.end()) {
      panel.series.push_back(*other);
      panel.series[1].name = "validation";
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

}  // namespace

std::vector<PlotPanel> HistoryPanels(const History& history) {
  std::vector<PlotSeries> metrics;
  for (const auto& [epoch, logs] : history.epochs()) {
    for (const auto& [name, value] : logs) {
      auto metric = std::find_if(metrics.begin(), metrics.end(),
                                 [&name](const PlotSeries& m) { return m.name == name; });
      if (metric == metrics.end()) metric = metrics.insert(metrics.end(), {.name = name});
      metric->x.push_back(static_cast<double>(epoch + 1));
      metric->y.push_back(value);
    }
  }
  return PanelsOf(metrics);
}

std::vector<PlotPanel> HistoryPanels(
    const std::vector<std::pair<std::string, std::vector<double>>>& history) {
  double epochs = 0;
  for (const auto& [name, values] : history) {
    epochs = std::max(epochs, static_cast<double>(values.size()));
  }
  std::vector<PlotSeries> metrics;
  for (const auto& [name, values] : history) {
    PlotSeries metric{.name = name, .y = values};
    const double count = static_cast<double>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      metric.x.push_back(std::floor((i + 1) * epochs / count));
    }
    metrics.push_back(std::move(metric));
  }
  return PanelsOf(metrics);
}

}  // namespace millrace
