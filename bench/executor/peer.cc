#include "bench/executor/peer.h"

#include <algorithm>
#include <cstdio>

#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace millrace {

bool Peer::Run(const std::string& item, const std::string& more) {
  return RunCommand(StrCat("'", program_, "' ", item, " '", graphs_, "' ", more));
}

bool Peer::RunCommand(const std::string& command) {
  const std::string all =
      StrCat("export PERF_REPS=1 PERF_PATIENCE=0 TF_CPP_MIN_LOG_LEVEL=2; ", command);
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

double Peer::Best(std::string_view prefix) const {
  double best = 0;
  for (const auto& [name, values] : values_) {
    if (!std::string_view(name).starts_with(prefix)) continue;
    const double median = Median(values);
    if (best == 0 || median < best) best = median;
  }
  return best;
}

std::map<std::string, double> Peer::Medians(std::string_view prefix) const {
  std::map<std::string, double> medians;
  for (const auto& [name, values] : values_) {
    if (std::string_view(name).starts_with(prefix)) medians[name] = Median(values);
  }
  return medians;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace millrace
