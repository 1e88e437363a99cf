// SPDX-License-Identifier: Apache-2.0
// How often the steps of a model were built, and what for: building takes the time of many steps.
#ifndef MODEL_BUILDS_H_
#define MODEL_BUILDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace millrace::model {

class Builds {
 public:
  // What a step was built for: arguments and what they are, {"y", "int64 [?]"}.
  using Signature = std::vector<std::pair<std::string, std::string>>;

  // Counts one more step of a kind ("train"). What to tell where it is not the first: how often it
  // was built, for this signature and in all, and the arguments that are others than the last time;
  // "" of the first.
  std::string Add(const std::string& kind, const Signature& signature);

 private:
  struct Built {
    int64_t times = 0;
    Signature last;
    std::map<Signature, int64_t> of_signature;
  };
  std::map<std::string, Built> built_;
};

}  // namespace millrace::model

#endif  // MODEL_BUILDS_H_
