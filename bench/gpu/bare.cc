// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/bare.h"

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace::bench {
namespace {

constexpr std::size_t kAddBytes = 1024 * sizeof(float);

// Milliseconds of one call, which waits for what it issued.
StatusOr<double> Time(double seconds, const std::function<Status()>& call) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(call());
  const int64_t first = SteadyNanos();
  MR_RETURN_IF_ERROR(call());
  const double one = 1e-9 * static_cast<double>(SteadyNanos() - first);
  const int calls = std::clamp(static_cast<int>(seconds / one), 5, 100000);
  const int64_t begin = SteadyNanos();
  for (int i = 0; i < calls; ++i) MR_RETURN_IF_ERROR(call());
  return 1e-6 * static_cast<double>(SteadyNanos() - begin) / calls;
}

}  // namespace

const char kBareAddPtx[] = R"(.version 6.3
.target sm_75
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}
)";

StatusOr<std::unique_ptr<Bare>> Bare::Start(CudaDriver* driver) {
  auto bare = std::unique_ptr<Bare>(new Bare(driver));
  MR_RETURN_IF_ERROR(bare->Prepare());
  return bare;
}

Bare::~Bare() {
  for (void* buffer : buffers_) {
    if (buffer != nullptr) driver_->Free(buffer);
  }
  if (module_ != nullptr) driver_->UnloadModule(module_);
  if (stream_ != nullptr) driver_->DeleteStream(stream_);
  if (has_context_) driver_->ReleaseContext(0);
}

Status Bare::Prepare() {
  MR_ASSIGN_OR_RETURN(const int gpus, driver_->NumDevices());
  if (gpus == 0) return errors::NotFound("NVIDIA's driver is there, but knows no GPU");
  MR_ASSIGN_OR_RETURN(void* const context, driver_->RetainContext(0));
  has_context_ = true;
  MR_RETURN_IF_ERROR(driver_->SetCurrent(context));
  MR_ASSIGN_OR_RETURN(stream_, driver_->NewStream(false));
  MR_ASSIGN_OR_RETURN(module_, driver_->LoadModule(kBareAddPtx));
  MR_ASSIGN_OR_RETURN(add_, driver_->FindFunction(module_, "add"));
  for (void*& buffer : buffers_) {
    MR_ASSIGN_OR_RETURN(buffer, driver_->Allocate(kAddBytes));
    MR_RETURN_IF_ERROR(driver_->Fill(buffer, 0, kAddBytes, stream_));
  }
  return driver_->Synchronize(stream_);
}

Status Bare::IssueAdditions(int additions) {
  for (int i = 0; i < additions; ++i) {
    void* arguments[] = {&buffers_[i % 2], &buffers_[2], &buffers_[1 - i % 2]};
    MR_RETURN_IF_ERROR(driver_->LaunchKernel(add_, {4, 1, 1}, {256, 1, 1}, 0, stream_, arguments));
  }
  return OkStatus();
}

StatusOr<double> Bare::Additions(int additions, double seconds) {
  return Time(seconds, [&] {
    MR_RETURN_IF_ERROR(IssueAdditions(additions));
    return driver_->Synchronize(stream_);
  });
}

StatusOr<double> Bare::GraphOfAdditions(int additions, double seconds) {
  MR_RETURN_IF_ERROR(driver_->BeginCapture(stream_));
  const Status issued = IssueAdditions(additions);
  MR_ASSIGN_OR_RETURN(void* const graph, driver_->EndCapture(stream_));
  StatusOr<double> time = issued;
  if (issued.ok()) {
    const StatusOr<void*> executable = driver_->Instantiate(graph);
    time = executable.status();
    if (executable.ok()) {
      time = Time(seconds, [&] {
        MR_RETURN_IF_ERROR(driver_->Launch(*executable, stream_));
        return driver_->Synchronize(stream_);
      });
      driver_->DeleteExecutable(*executable);
    }
  }
  driver_->DeleteGraph(graph);
  return time;
}

StatusOr<double> Bare::CopyOnDevice(std::size_t bytes, double seconds) {
  MR_ASSIGN_OR_RETURN(void* const from, driver_->Allocate(bytes));
  StatusOr<void*> to = driver_->Allocate(bytes);
  StatusOr<double> time = to.status();
  if (to.ok()) {
    time = driver_->Fill(from, 1, bytes, stream_);
    if (time.status().ok()) {
      time = Time(seconds, [&] {
        MR_RETURN_IF_ERROR(driver_->Copy(*to, from, bytes, stream_));
        return driver_->Synchronize(stream_);
      });
    }
    driver_->Free(*to);
  }
  driver_->Free(from);
  return time;
}

StatusOr<int64_t> Bare::MemoryInUse() {
  MR_ASSIGN_OR_RETURN(const CudaDriver::MemoryInfo memory, driver_->Memory());
  return memory.total - memory.free;
}

}  // namespace millrace::bench
