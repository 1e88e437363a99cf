// SPDX-License-Identifier: Apache-2.0
#include "jit/make_ptx.h"

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <memory>

#include "jit/emit_grid.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace millrace::jit {
namespace {

constexpr char kTriple[] = "nvptx64-nvidia-cuda";

struct Arch {
  const char* name;
  const char* version;  // of PTX, the first that knows it
};
constexpr Arch kArchs[] = {{"sm_75", "+ptx63"}, {"sm_80", "+ptx70"}, {"sm_86", "+ptx71"},
                           {"sm_87", "+ptx74"}, {"sm_89", "+ptx78"}, {"sm_90", "+ptx78"},
                           {"sm_90a", "+ptx80"}};

const llvm::Target* FindTarget(std::string* error) {
  static const bool initialized = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  static_cast<void>(initialized);
  return llvm::TargetRegistry::lookupTarget(kTriple, *error);
}

const Arch* FindArch(const std::string& name, std::string* error) {
  *error = "no PTX is made for " + name + ", but for";
  for (const Arch& arch : kArchs) {
    if (name == arch.name) return &arch;
    *error += std::string(" ") + arch.name;
  }
  return nullptr;
}

}  // namespace

bool MakePtx(const MrJitProgram& program, const std::string& name, std::string* ptx,
             std::string* error) {
  const Arch* const arch = FindArch(name, error);
  if (arch == nullptr) return false;
  const llvm::Target* const target = FindTarget(error);
  if (target == nullptr) return false;
  llvm::TargetOptions options;
  // Products and sums stay two roundings, and say so to whoever assembles them.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(kTriple, arch->name, arch->version, options, std::nullopt,
                                  std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  llvm::LLVMContext context;
  llvm::Module module("fused", context);
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine->createDataLayout());
  EmitGrid(program, GridTarget::kNvptx, &module);
  llvm::raw_string_ostream problems(*error);
  error->clear();
  if (llvm::verifyModule(module, &problems)) return false;
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    *error = "the target makes no text";
    return false;
  }
  passes.run(module);
  ptx->assign(text.data(), text.size());
  return true;
}

}  // namespace millrace::jit
