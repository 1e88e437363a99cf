// SPDX-License-Identifier: Apache-2.0
// Checks of the numbers that a program gives as options: one list of them for each struct.
#ifndef BASE_OPTIONS_OPTION_CHECKS_H_
#define BASE_OPTIONS_OPTION_CHECKS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Keeps the first option that is not what it must be, as an InvalidArgument: "optimizer 'adam':
// beta_1 must be at least 0 and below 1, not nan". NaN and infinities are nowhere allowed; an
// option without a value always is.
class OptionChecks {
 public:
  // `of`: whose options they are, as the error begins.
  explicit OptionChecks(std::string of) : of_(std::move(of)) {}

  OptionChecks& Finite(std::string_view name, std::optional<double> value);
  OptionChecks& AtLeast(std::string_view name, std::optional<double> value, double least);
  OptionChecks& Above(std::string_view name, std::optional<double> value, double limit);
  OptionChecks& AtMost(std::string_view name, std::optional<double> value, double most);
  // From `least` to `most`, both included; and without `limit`.
  OptionChecks& Within(std::string_view name, std::optional<double> value, double least,
                       double most);
  OptionChecks& Below(std::string_view name, std::optional<double> value, double least,
                      double limit);
  // Regular expressions that can be read.
  OptionChecks& Patterns(std::string_view name, const std::vector<std::string>& patterns);

  const Status& status() const { return status_; }

 private:
  void Check(bool holds, std::string_view name, double value, std::string_view must_be);

  const std::string of_;
  Status status_;
};

// What has options, for those who are to use it without knowing which.
class ChecksOptions {
 public:
  virtual ~ChecksOptions() = default;
  virtual Status CheckOptions() const = 0;
};

}  // namespace millrace

#endif  // BASE_OPTIONS_OPTION_CHECKS_H_
