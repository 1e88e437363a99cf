// SPDX-License-Identifier: Apache-2.0
// Compiled loops compute what the interpreter computes, are made by another thread, and are found
// again in memory and on disk.
#include "jit/code_cache.h"

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/notification.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "jit/fused_test_util.h"
#include "jit/object_store.h"

namespace millrace::jit {
namespace {

constexpr char kComponent[] = "jit/libmillrace_jit.so";

// A busy machine would keep a patient thread waiting for longer than a test may take.
JitOptions Eager() { return {.library = kComponent, .least_work = 1, .nice = 0}; }

class CodeCacheTest : public testing::Test {
 protected:
  ~CodeCacheTest() override { CodeCache::ReplaceGlobalForTest(nullptr); }

  FusedProgram Parse(const std::string& text) {
    const auto program =
        ParseFusedProgram(text, std::vector<DataType>{kFloat}, std::vector<DataType>{kFloat});
    EXPECT_TRUE(program.ok()) << program.status();
    return *program;
  }
  // One step of a kernel made anew, which finds its loop in `cache`.
  Tensor Step(CodeCache* cache, const std::string& text) {
    CodeCache::ReplaceGlobalForTest(cache);
    const FusedProgram program = Parse(text);
    const auto kernel = runner_.MakeKernel(program, {x_});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    const auto values = runner_.Run(kernel->get(), program, {x_}, false);
    EXPECT_TRUE(values.ok()) << values.status();
    return (*values)[0];
  }
  // Steps and then waits for what that had compiled.
  JitCounts CountsAfterStep(const JitOptions& options, const std::string& text) {
    CodeCache cache(options);
    EXPECT_EQ(Step(&cache, text).data<float>()[1], -2);
    EXPECT_TRUE(cache.WaitUntilIdle());
    EXPECT_EQ(Step(&cache, text).data<float>()[1], -2);  // by the compiled loop, if there is one
    CodeCache::ReplaceGlobalForTest(nullptr);
    return cache.counts();
  }
  std::string Folder(const std::string& name) {
    return StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  }

  FusedRunner runner_{0};
  const Tensor x_ = Tensor::FromValues<float>({1, 2, 3});
};

TEST_F(CodeCacheTest, CompiledLoopsGiveTheSameBitsForRandomPrograms) {
  const std::vector<Shape> shapes = {Shape({}),        Shape({1}),       Shape({7}),
                                     Shape({3, 5}),    Shape({1000}),    Shape({17, 33}),
                                     Shape({130, 10}), Shape({9, 2050}), Shape({40001})};
  for (const int threads : {0, 1}) {
    CodeCache cache(Eager());
    CodeCache::ReplaceGlobalForTest(&cache);
    FusedRunner runner(threads);
    int compiled = 0;
    for (int seed = 0; seed < 27; ++seed) {
      std::mt19937 random(1000 + seed);
      const RandomCase c = MakeRandomCase(random, shapes[seed % shapes.size()]);
      SCOPED_TRACE(StrCat("seed ", seed, ": ", FormatFusedProgram(c.program)));
      const auto expected = runner.RunUnfused(c.program, c.inputs);
      ASSERT_TRUE(expected.ok()) << expected.status();
      const auto kernel = runner.MakeKernel(c.program, c.inputs);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      for (const bool last_reader : {false, false, true}) {
        const auto values = runner.Run(kernel->get(), c.program, c.inputs, last_reader);
        ASSERT_TRUE(values.ok()) << values.status();
        ASSERT_EQ(Difference(*values, *expected), "");
        ASSERT_TRUE(cache.WaitUntilIdle());
      }
      compiled = cache.counts().compiled;
    }
    EXPECT_GT(compiled, 8);
    EXPECT_EQ(cache.counts().failed, 0);
    CodeCache::ReplaceGlobalForTest(nullptr);
  }
}

TEST_F(CodeCacheTest, CompiledLoopsRoundEachNumberToTheNearestOf16Bits) {
  for (const DataType type : {kHalf, kBfloat16}) {
    CodeCache cache(Eager());
    CodeCache::ReplaceGlobalForTest(&cache);
    const Tensor numbers = NumbersAround16BitFloats(type);
    const auto program = ParseFusedProgram(StrCat("Cast:float>", DataTypeName(type), " i0 > t0"),
                                           std::vector<DataType>{kFloat}, {&type, 1});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto kernel = runner_.MakeKernel(*program, {numbers});
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const std::vector<Tensor> expected = {RoundedTo(type, numbers)};
    for (const char* how : {"interpreted", "compiled"}) {
      const auto values = runner_.Run(kernel->get(), *program, {numbers}, false);
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ(Difference(*values, expected), "") << how;
      ASSERT_TRUE(cache.WaitUntilIdle());
    }
    EXPECT_EQ(cache.counts().compiled, 1);
    CodeCache::ReplaceGlobalForTest(nullptr);
  }
}

TEST_F(CodeCacheTest, LoopsBeyondTheCachesGiveTheSameBits) {
  CodeCache cache(Eager());
  CodeCache::ReplaceGlobalForTest(&cache);
  // More than most last caches hold, with a tail.
  const int64_t count = (int64_t{12} << 20) + 13;
  Tensor x(kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) x.data<float>()[i] = static_cast<float>(i % 1000) - 500;
  const FusedProgram program = Parse("Mul:float i0 i0; Neg:float t0; Relu:float t1 > t1");
  FusedRunner runner(1);
  const auto kernel = runner.MakeKernel(program, {x});
  const auto interpreted = runner.Run(kernel->get(), program, {x}, false);
  ASSERT_TRUE(cache.WaitUntilIdle());
  ASSERT_EQ(cache.counts().compiled, 1);
  const auto compiled = runner.Run(kernel->get(), program, {x}, false);
  EXPECT_EQ(Difference(*compiled, *interpreted), "");
}

TEST_F(CodeCacheTest, StepsGoOnWhileAnotherThreadCompiles) {
  Notification begun, may_go_on;
  std::atomic<std::thread::id> compiler;
  JitOptions options = Eager();
  options.before_compile = [&] {
    compiler = std::this_thread::get_id();
    begun.Notify();
    may_go_on.Wait();
  };
  CodeCache cache(options);
  CodeCache::ReplaceGlobalForTest(&cache);
  const FusedProgram program = Parse("Neg:float i0; Square:float t0 > t1");
  const auto kernel = runner_.MakeKernel(program, {x_});
  // Were the step to wait for the compiler, nobody would let that go on.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*runner_.Run(kernel->get(), program, {x_}, false))[0].data<float>()[2], 9);
  }
  ASSERT_TRUE(begun.WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_NE(compiler.load(), std::this_thread::get_id());
  EXPECT_EQ(cache.counts().compiled, 0);
  may_go_on.Notify();
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().compiled, 1);
  EXPECT_EQ((*runner_.Run(kernel->get(), program, {x_}, false))[0].data<float>()[2], 9);
  CodeCache::ReplaceGlobalForTest(nullptr);
}

TEST_F(CodeCacheTest, EqualProgramsAreCompiledOnce) {
  CodeCache cache(Eager());
  for (int i = 0; i < 3; ++i) Step(&cache, "Neg:float i0; Abs:float t0 > t1");
  ASSERT_TRUE(cache.WaitUntilIdle());
  for (int i = 0; i < 3; ++i) Step(&cache, "Neg:float i0; Abs:float t0 > t1");
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().requested, 1);
  EXPECT_EQ(cache.counts().compiled, 1);
  CodeCache::ReplaceGlobalForTest(nullptr);
}

TEST_F(CodeCacheTest, WhatIsRunLittleIsNotCompiled) {
  EXPECT_EQ(CountsAfterStep({.library = kComponent}, "Neg:float i0 > t0").requested, 0);
}

TEST_F(CodeCacheTest, WithoutTheComponentEverythingIsInterpreted) {
  const JitCounts counts =
      CountsAfterStep({.library = "/nowhere/jit.so", .least_work = 1}, "Neg:float i0 > t0");
  EXPECT_EQ(counts.requested, 1);
  EXPECT_EQ(counts.failed, 1);
  EXPECT_EQ(FindComponent({.library = "/nowhere/jit.so"}), "");
}

TEST_F(CodeCacheTest, AComponentThatIsNoneIsNotUsed) {
  const std::string path = Folder("not_a_library.so");
  std::ofstream(path) << "text";
  EXPECT_EQ(CountsAfterStep({.library = path, .least_work = 1}, "Neg:float i0 > t0").failed, 1);
}

TEST_F(CodeCacheTest, ObjectsAreFoundOnDiskByTheNextProcess) {
  JitOptions options = Eager();
  options.cache_dir = Folder("kept");
  EXPECT_EQ(CountsAfterStep(options, "Neg:float i0 > t0").compiled, 1);
  const JitCounts again = CountsAfterStep(options, "Neg:float i0 > t0");
  EXPECT_EQ(again.compiled, 0);
  EXPECT_EQ(again.read_from_disk, 1);
  EXPECT_EQ(CountsAfterStep(options,
                            "Neg:float i0; Relu6:float i0; Sub:float t0 t1; "
                            "Add:float t2 i0 > t3")
                .compiled,
            1);
}

class ObjectStoreTest : public testing::Test {
 protected:
  const std::string folder_ = StrCat(std::getenv("TEST_TMPDIR"), "/objects");
  std::string Path(const std::string& key) { return StrCat(folder_, "/", ObjectFileName(key)); }
};

TEST_F(ObjectStoreTest, WhatWasWrittenIsRead) {
  EXPECT_FALSE(ReadObject(folder_, "a").has_value());
  WriteObject(folder_, "a", "the object");
  EXPECT_EQ(ReadObject(folder_, "a"), "the object");
  WriteObject(folder_, "a", "another one");
  EXPECT_EQ(ReadObject(folder_, "a"), "another one");
  EXPECT_FALSE(ReadObject(folder_, "b").has_value());
}

TEST_F(ObjectStoreTest, AFileThatIsDamagedAnywhereIsNone) {
  WriteObject(folder_, "key", "the object");
  std::ifstream in(Path("key"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::ofstream(Path("key"), std::ios::binary | std::ios::trunc) << damaged;
    EXPECT_FALSE(ReadObject(folder_, "key").has_value()) << "byte " << i;
    std::ofstream(Path("key"), std::ios::binary | std::ios::trunc) << whole.substr(0, i);
    EXPECT_FALSE(ReadObject(folder_, "key").has_value()) << i << " bytes";
  }
  std::ofstream(Path("key"), std::ios::binary | std::ios::trunc) << whole;
  EXPECT_TRUE(ReadObject(folder_, "key").has_value());
}

TEST_F(ObjectStoreTest, AFileOfAnotherKeyIsNone) {
  WriteObject(folder_, "one", "the object");
  ASSERT_EQ(rename(Path("one").c_str(), Path("two").c_str()), 0);
  EXPECT_FALSE(ReadObject(folder_, "two").has_value());
}

TEST_F(ObjectStoreTest, WhatOthersCouldHaveWrittenIsNotRun) {
  WriteObject(folder_, "open", "the object");
  ASSERT_EQ(chmod(Path("open").c_str(), 0666), 0);
  EXPECT_FALSE(ReadObject(folder_, "open").has_value());
  ASSERT_EQ(chmod(Path("open").c_str(), 0600), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_FALSE(ReadObject(folder_, "open").has_value());
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  EXPECT_TRUE(ReadObject(folder_, "open").has_value());
}

}  // namespace
}  // namespace millrace::jit
