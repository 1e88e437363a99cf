// SPDX-License-Identifier: Apache-2.0
#include "base/options/option_checks.h"

#include <cmath>
#include <regex>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {

void OptionChecks::Check(bool holds, std::string_view name, double value,
                         std::string_view must_be) {
  if (!status_.ok()) return;
  const bool finite = std::isfinite(value);
  if (finite && holds) return;
  status_ = errors::InvalidArgument(of_, ": ", name, " must be ",
                                    finite ? must_be : "a finite number", ", not ", value);
}

OptionChecks& OptionChecks::Finite(std::string_view name, std::optional<double> value) {
  if (value) Check(true, name, *value, "");
  return *this;
}

OptionChecks& OptionChecks::AtLeast(std::string_view name, std::optional<double> value,
                                    double least) {
  if (value) Check(*value >= least, name, *value, StrCat("at least ", least));
  return *this;
}

OptionChecks& OptionChecks::Above(std::string_view name, std::optional<double> value,
                                  double limit) {
  if (value) Check(*value > limit, name, *value, StrCat("above ", limit));
  return *this;
}

OptionChecks& OptionChecks::AtMost(std::string_view name, std::optional<double> value,
                                   double most) {
  if (value) Check(*value <= most, name, *value, StrCat("at most ", most));
  return *this;
}

OptionChecks& OptionChecks::Within(std::string_view name, std::optional<double> value, double least,
                                   double most) {
  if (value) {
    Check(*value >= least && *value <= most, name, *value, StrCat("from ", least, " to ", most));
  }
  return *this;
}

OptionChecks& OptionChecks::Below(std::string_view name, std::optional<double> value, double least,
                                  double limit) {
  if (value) {
    Check(*value >= least && *value < limit, name, *value,
          StrCat("at least ", least, " and below ", limit));
  }
  return *this;
}

OptionChecks& OptionChecks::Patterns(std::string_view name,
                                     const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (!status_.ok()) return *this;
    try {
      const std::regex readable(pattern);
    } catch (const std::regex_error& error) {
      status_ = errors::InvalidArgument(of_, ": '", pattern, "' in ", name,
                                        " is no regular expression: ", error.what());
    }
  }
  return *this;
}

}  // namespace millrace
