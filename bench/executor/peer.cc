// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/peer.h"

#include <algorithm>
#include <cstdio>

#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace millrace {

bool Peer::RunCommand(const std::string& command, const std::string& item) {
  const std::string all = StrCat("export PERF_REPS=1 PERF_PATIENCE=0 TF_CPP_MIN_LOG_LEVEL=2 ITEM='",
                                 item, "'; ", command);
  std::FILE* const out = popen(all.c_str(), "r");
  if (out == nullptr) return false;
  char line[4096];
  while (std::fgets(line, sizeof(line), out) != nullptr) {
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("name") || !row.contains("value")) continue;
    values_[row["name"].get<std::string>()].push_back(row["value"].get<double>());
  }
  return pclose(out) == 0;
}

std::vector<Peer::Way> Peer::Ways(const std::string& name) const {
  std::vector<Way> ways;
  for (const auto& [way, values] : values_) {
    if (way == name || way.starts_with(name + ".")) ways.push_back({way, values});
  }
  return ways;
}

std::map<std::string, double> Peer::Medians() const {
  std::map<std::string, double> medians;
  for (const auto& [name, values] : values_) medians[name] = Median(values);
  return medians;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string RatioText(const std::vector<double>& ours, const std::vector<double>& theirs) {
  char text[80];
  std::snprintf(text, sizeof(text), "%.3f", Median(ours) / Median(theirs));
  if (ours.size() != theirs.size()) return text;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  char bounds[80];
  std::snprintf(bounds, sizeof(bounds), " [%.3f, %.3f]", *low, *high);
  return StrCat(text, bounds);
}

void PrintWays(const Peer& peer, const std::vector<std::string>& names,
               const std::vector<double>& ours, const std::string& unit) {
  std::vector<Peer::Way> ways;
  for (const std::string& name : names) {
    for (Peer::Way& way : peer.Ways(name)) ways.push_back(std::move(way));
  }
  std::sort(ways.begin(), ways.end(), [](const Peer::Way& a, const Peer::Way& b) {
    return Median(a.values) < Median(b.values);
  });
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::printf("  %-56s %9.3f %-10s ratio %s%s\n", ways[i].name.c_str(), Median(ways[i].values),
                unit.c_str(), RatioText(ours, ways[i].values).c_str(),
                i == 0 ? "  <- the best of them" : "");
  }
}

}  // namespace millrace
