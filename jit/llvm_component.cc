// SPDX-License-Identifier: Apache-2.0
// The compiler component: everything that knows LLVM. Built as a shared library that the engine
// loads when it first has something to compile (jit/code_cache.h).
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "jit/component_api.h"
#include "jit/emit_grid.h"
#include "jit/emit_ir.h"
#include "jit/make_ptx.h"
#include "ops/fused_op.h"

namespace millrace::jit {
namespace {

thread_local std::string t_error;

const char* Fail(std::string text) {
  t_error = std::move(text);
  return t_error.c_str();
}

// Made at the first use, never destroyed: code that it holds may run until the process ends.
struct Host {
  std::unique_ptr<llvm::orc::JITTargetMachineBuilder> machine;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::string target, error;
  std::atomic<int> loaded{0};
};

Host& GetHost() {
  static Host* const host = [] {
    auto* made = new Host;
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto machine = llvm::orc::JITTargetMachineBuilder::detectHost();
    if (!machine) {
      made->error = llvm::toString(machine.takeError());
      return made;
    }
    machine->setCodeGenOptLevel(llvm::CodeGenOptLevel::Aggressive);
    machine->setRelocationModel(llvm::Reloc::PIC_);
    // Products and sums stay two roundings.
    machine->getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
    made->target = std::string("LLVM ") + LLVM_VERSION_STRING + " " +
                   machine->getTargetTriple().str() + " " + machine->getCPU() + " " +
                   machine->getFeatures().getString();
    auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(*machine).create();
    if (!jit) {
      made->error = llvm::toString(jit.takeError());
      return made;
    }
    made->machine = std::make_unique<llvm::orc::JITTargetMachineBuilder>(std::move(*machine));
    made->jit = std::move(*jit);
    return made;
  }();
  return *host;
}

bool Has(const Host& host, const char* feature) {
  return host.machine->getFeatures().getString().find(feature) != std::string::npos;
}

// Two registers' worth for short programs, which hides latencies; one for those that need the
// registers for themselves.
int LanesFor(const Host& host, const MrJitProgram& program) {
  int lanes = Has(host, "+avx512vl") ? 16 : Has(host, "+avx2") ? 8 : 4;
  bool short_steps = program.num_instructions <= 10;
  for (int32_t i = 0; i < program.num_instructions; ++i) {
    const auto op = static_cast<FusedOp>(program.instructions[i].op);
    short_steps &= op != FusedOp::kExp && op != FusedOp::kLog && op != FusedOp::kTanh &&
                   op != FusedOp::kSigmoid && program.instructions[i].type != kMrJitDouble;
  }
  return short_steps ? 2 * lanes : lanes;
}

const char* Target() { return GetHost().target.c_str(); }

const char* Compile(const MrJitProgram* program, void (*take)(void*, const char*, size_t),
                    void* arg) {
  const Host& host = GetHost();
  if (!host.error.empty()) return host.error.c_str();
  auto machine = llvm::orc::JITTargetMachineBuilder(*host.machine).createTargetMachine();
  if (!machine) return Fail(llvm::toString(machine.takeError()));
  llvm::LLVMContext context;
  llvm::Module module("fused", context);
  module.setTargetTriple((*machine)->getTargetTriple().str());
  module.setDataLayout((*machine)->createDataLayout());
  EmitFused(*program, LanesFor(host, *program), &module);
  std::string problem;
  llvm::raw_string_ostream problems(problem);
  if (llvm::verifyModule(module, &problems)) return Fail("not valid code: " + problem);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if ((*machine)->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return "the target makes no object files";
  }
  passes.run(module);
  take(arg, object.data(), object.size());
  return nullptr;
}

// For one loop, which may call the C library: functions of doubles, and what the processor has no
// instruction for.
llvm::Expected<llvm::orc::JITDylib&> NewLibrary(Host* host, const char* name) {
  auto library = host->jit->createJITDylib(name + std::to_string(host->loaded.fetch_add(1)));
  if (!library) return library;
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      host->jit->getDataLayout().getGlobalPrefix());
  if (!process) return process.takeError();
  library->addGenerator(std::move(*process));
  return library;
}

const char* Load(const char* object, size_t size, MrJitCode* code) {
  Host& host = GetHost();
  if (!host.error.empty()) return host.error.c_str();
  auto library = NewLibrary(&host, "fused");
  if (!library) return Fail(llvm::toString(library.takeError()));
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object, size), "fused");
  if (auto error = host.jit->addObjectFile(*library, std::move(buffer))) {
    return Fail(llvm::toString(std::move(error)));
  }
  auto plain = host.jit->lookup(*library, kPlainName);
  if (!plain) return Fail(llvm::toString(plain.takeError()));
  auto streaming = host.jit->lookup(*library, kStreamingName);
  if (!streaming) return Fail(llvm::toString(streaming.takeError()));
  code->plain = plain->toPtr<MrJitFunction>();
  code->streaming = streaming->toPtr<MrJitFunction>();
  return nullptr;
}

// Object code of what EmitGrid makes for the host is not worth keeping: it serves machines that
// are simulated, and tests.
const char* MakeHostGrid(const MrJitProgram* program, MrJitGridFunction* function) {
  Host& host = GetHost();
  if (!host.error.empty()) return host.error.c_str();
  auto context = std::make_unique<llvm::LLVMContext>();
  auto module = std::make_unique<llvm::Module>("grid", *context);
  module->setDataLayout(host.jit->getDataLayout());
  module->setTargetTriple(host.jit->getTargetTriple().str());
  EmitGrid(*program, GridTarget::kHost, module.get());
  std::string problem;
  llvm::raw_string_ostream problems(problem);
  if (llvm::verifyModule(*module, &problems)) return Fail("not valid code: " + problem);
  auto library = NewLibrary(&host, "grid");
  if (!library) return Fail(llvm::toString(library.takeError()));
  if (auto error = host.jit->addIRModule(
          *library, llvm::orc::ThreadSafeModule(std::move(module), std::move(context)))) {
    return Fail(llvm::toString(std::move(error)));
  }
  auto found = host.jit->lookup(*library, kMrJitGridEntry);
  if (!found) return Fail(llvm::toString(found.takeError()));
  *function = found->toPtr<MrJitGridFunction>();
  return nullptr;
}

const char* CompilePtx(const MrJitProgram* program, const char* arch,
                       void (*take)(void*, const char*, size_t), void* arg) {
  std::string text, error;
  if (!MakePtx(*program, arch, &text, &error)) return Fail(std::move(error));
  take(arg, text.data(), text.size());
  return nullptr;
}

constexpr MrJitApi kApi = {&Target, &Compile, &Load, &CompilePtx, &MakeHostGrid};

}  // namespace
}  // namespace millrace::jit

extern "C" __attribute__((visibility("default"))) const MrJitApi* millrace_jit_api(
    int32_t version) {
  return version == kMrJitVersion ? &millrace::jit::kApi : nullptr;
}
