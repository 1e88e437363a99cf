// SPDX-License-Identifier: Apache-2.0
// Ops and kernels fit each other: nobody registered one without the other by mistake.
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/fake_accelerator.h"
#include "runtime/registries.h"

namespace millrace {
namespace {

// With those of the simulated accelerator.
const KernelRegistry& Kernels() {
  UseFakeAccelerator();
  return AllKernels();
}

std::set<std::string> OpsWithKernels() {
  std::set<std::string> ops;
  for (const KernelDef* kernel : Kernels().All()) ops.insert(kernel->op);
  return ops;
}

TEST(RegistrationTest, EveryKernelHasAnOp) {
  std::vector<std::string> orphans;
  for (const std::string& op : OpsWithKernels()) {
    if (AllOps().Find(op) == nullptr) orphans.push_back(op);
  }
  EXPECT_THAT(orphans, ::testing::IsEmpty());
}

// Ops that graphs may name before there is a kernel for them: they can be built, imported and
// shaped, and a session refuses to place them. A kernel's arrival takes its op from the list.
std::set<std::string> OpsWithoutKernels() {
  std::ifstream file("runtime/ops_without_kernels.txt");
  EXPECT_TRUE(file.good());
  std::set<std::string> ops;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') ops.insert(line);
  }
  return ops;
}

TEST(RegistrationTest, EveryOpHasAKernelOrIsListedAsWithout) {
  const std::set<std::string> with = OpsWithKernels();
  const std::set<std::string> without = OpsWithoutKernels();
  std::vector<std::string> missing, no_longer, unknown;
  for (const std::string& op : without) {
    if (AllOps().Find(op) == nullptr) unknown.push_back(op);
  }
  EXPECT_THAT(unknown, ::testing::IsEmpty()) << "there are no such ops";
  for (const OpInfo* op : AllOps().SortedOps()) {
    const bool listed = without.contains(op->def.name());
    const bool has_kernel = with.contains(op->def.name());
    if (!has_kernel && !listed) missing.push_back(op->def.name());
    if (has_kernel && listed) no_longer.push_back(op->def.name());
  }
  EXPECT_THAT(missing, ::testing::IsEmpty()) << "these ops have no kernel";
  EXPECT_THAT(no_longer, ::testing::IsEmpty()) << "these have one now; take them from the list";
}

TEST(RegistrationTest, KernelsConstrainAndNameOnlyWhatTheirOpDeclares) {
  for (const KernelDef* kernel : Kernels().All()) {
    const OpInfo* op = AllOps().Find(kernel->op);
    if (op == nullptr) continue;  // told above
    for (const auto& [attr, types] : kernel->constraints) {
      bool declared = false;
      for (const auto& candidate : op->def.attr()) declared |= candidate.name() == attr;
      EXPECT_TRUE(declared) << kernel->op << " has no attribute " << attr;
      EXPECT_FALSE(types.empty()) << kernel->op << " allows no type for " << attr;
    }
    for (const std::string& arg : kernel->host_memory_args) {
      bool declared = false;
      for (const auto& candidate : op->def.input_arg()) declared |= candidate.name() == arg;
      for (const auto& candidate : op->def.output_arg()) declared |= candidate.name() == arg;
      EXPECT_TRUE(declared) << kernel->op << " has no argument " << arg;
    }
  }
}

TEST(RegistrationTest, NoKernelIsRegisteredTwice) {
  std::set<std::string> seen;
  for (const KernelDef* kernel : Kernels().All()) {
    std::string key =
        StrCat(kernel->op, " ", kernel->device_type, " ", kernel->label, " ", kernel->priority);
    for (const auto& [attr, types] : kernel->constraints) {
      StrAppend(&key, " ", attr);
      for (DataType type : types) StrAppend(&key, ",", static_cast<int>(type));
    }
    EXPECT_TRUE(seen.insert(key).second) << key;
  }
}

}  // namespace
}  // namespace millrace
