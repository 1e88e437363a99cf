// SPDX-License-Identifier: Apache-2.0
// Whole files: reading, writing, finding by pattern.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/io/match_files.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// What a kernel that waits for files does: its outputs, in order, or an error. Runs on a thread
// that belongs to no task and may still be in it when the step, the kernel and the task are gone:
// it has to own all that it uses.
using BlockingWork = std::function<Status(std::vector<Tensor>* outputs)>;

// Threads of the process that may wait for files at once.
constexpr int kMostBlocked = 256;
constexpr int kMostIdle = 4;

// Never destroyed: a thread may be in a system call when the process ends.
class FileThreads {
 public:
  static FileThreads& Get() {
    static auto* const threads = new FileThreads;
    return *threads;
  }

  Status Run(std::function<void()> work) {
    {
      MutexLock lock(&mu_);
      if (static_cast<int>(queue_.size()) < idle_) {
        queue_.push_back(std::move(work));
        work_came_.Signal();
        return OkStatus();
      }
      if (threads_ >= kMostBlocked) {
        return errors::ResourceExhausted(threads_, " threads of this process wait for files, the ",
                                         "most that may; is there a pipe or a mount that does not ",
                                         "answer?");
      }
      ++threads_;
    }
    try {
      std::thread([this, work = std::move(work)]() mutable { Main(std::move(work)); }).detach();
    } catch (const std::system_error& error) {
      MutexLock lock(&mu_);
      --threads_;
      return errors::ResourceExhausted("no thread to wait for a file: ", error.what());
    }
    return OkStatus();
  }

 private:
  void Main(std::function<void()> work) {
    pthread_setname_np(pthread_self(), "mr-files");
    do {
      work();
      work = nullptr;
    } while (Next(&work));
  }

  // False: the thread ends.
  bool Next(std::function<void()>* work) {
    MutexLock lock(&mu_);
    if (queue_.empty() && idle_ >= kMostIdle) {
      --threads_;
      return false;
    }
    ++idle_;
    while (queue_.empty()) work_came_.Wait(&mu_);
    --idle_;
    *work = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }

  Mutex mu_;
  CondVar work_came_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
};

// Whoever claims it ends the kernel: after that its context is gone.
struct Call {
  Call(KernelContext* c, DoneCallback d) : ctx(c), done(d) {}

  std::atomic<bool> claimed{false};
  KernelContext* const ctx;
  const DoneCallback done;
  CancellationManager* cancellation = nullptr;
  CancellationManager::Token token = 0;

  bool Claim() { return !claimed.exchange(true, std::memory_order_acq_rel); }
};

// The ComputeAsync of such a kernel: `done` is called with the end of `work`, or Cancelled with the
// step's cancellation, whichever is first; what `work` does to files may come later then.
void RunBlockingWork(KernelContext& ctx, BlockingWork work, DoneCallback done) {
  auto call = std::make_shared<Call>(&ctx, done);
  if (ctx.cancellation() != nullptr) {
    call->cancellation = ctx.cancellation();
    call->token = call->cancellation->NextToken();
    const bool registered = call->cancellation->RegisterCallback(call->token, [call] {
      if (call->Claim()) call->done(errors::Cancelled("the kernel waited for a file"));
    });
    if (!registered) return done(errors::Cancelled("the step was cancelled"));
  }
  const Status started = FileThreads::Get().Run([call, work = std::move(work)] {
    std::vector<Tensor> outputs;
    Status status = Guarded([&] { return work(&outputs); });
    if (!call->Claim()) return;
    // The cancellation may be running: its callback finds the call claimed.
    if (call->cancellation != nullptr) (void)call->cancellation->TryDeregisterCallback(call->token);
    for (std::size_t i = 0; status.ok() && i < outputs.size(); ++i) {
      call->ctx->SetOutput(static_cast<int>(i), std::move(outputs[i]));
    }
    call->done(std::move(status));
  });
  if (started.ok() || !call->Claim()) return;
  if (call->cancellation != nullptr) (void)call->cancellation->TryDeregisterCallback(call->token);
  done(started);
}

// They wait for files, and so not on a thread that others need.
class FileKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<BlockingWork> work = Prepare(ctx);
    if (!work.ok()) return done(work.status());
    RunBlockingWork(ctx, *std::move(work), done);
  }

 protected:
  // Checks the inputs.
  virtual StatusOr<BlockingWork> Prepare(KernelContext& ctx) const = 0;
};

class ReadFileKernel : public FileKernel {
 public:
  using FileKernel::FileKernel;

 protected:
  StatusOr<BlockingWork> Prepare(KernelContext& ctx) const override {
    const Tensor& path = ctx.input(0);
    if (path.rank() != 0) {
      return errors::InvalidArgument("Input filename tensor must be scalar, but had shape: ",
                                     path.shape().DebugString());
    }
    return BlockingWork([name = path.scalar<std::string>()](std::vector<Tensor>* outputs) {
      MR_ASSIGN_OR_RETURN(std::string content, PosixFileSystem()->ReadFile(name));
      outputs->push_back(Tensor::Scalar(std::move(content)));
      return OkStatus();
    });
  }
};

class WriteFileKernel : public FileKernel {
 public:
  using FileKernel::FileKernel;

 protected:
  StatusOr<BlockingWork> Prepare(KernelContext& ctx) const override {
    for (int i = 0; i < 2; ++i) {
      if (ctx.input(i).rank() == 0) continue;
      return errors::InvalidArgument(
          i == 0 ? "Input filename" : "Contents",
          " tensor must be scalar, but had shape: ", ctx.input(i).shape().DebugString());
    }
    return BlockingWork([path = ctx.input(0).scalar<std::string>(),
                         content = ctx.input(1)](std::vector<Tensor>*) -> Status {
      FileSystem* files = PosixFileSystem();
      if (const std::string_view folder = DirectoryName(path); !folder.empty()) {
        MR_RETURN_IF_ERROR(files->CreateDirectories(std::string(folder)));
      }
      return files->WriteFileAtomically(path, content.scalar<std::string>());
    });
  }
};

class MatchingFilesKernel : public FileKernel {
 public:
  using FileKernel::FileKernel;

 protected:
  StatusOr<BlockingWork> Prepare(KernelContext& ctx) const override {
    const Tensor& patterns = ctx.input(0);
    if (patterns.rank() > 1) {
      return errors::InvalidArgument("Input patterns tensor must be scalar or vector, but had ",
                                     "shape: ", patterns.shape().DebugString());
    }
    return BlockingWork([patterns](std::vector<Tensor>* outputs) {
      std::vector<std::string> found;
      for (const std::string& pattern : patterns.flat<std::string>()) {
        MR_RETURN_IF_ERROR(MatchFiles(pattern, &found));
      }
      std::sort(found.begin(), found.end());
      outputs->push_back(
          Tensor::FromValues<std::string>(found, Shape({static_cast<int64_t>(found.size())})));
      return OkStatus();
    });
  }
};

}  // namespace

void RegisterFileKernels(KernelRegistry& r) {
  RegisterCpu<ReadFileKernel>(r, "ReadFile");
  RegisterCpu<WriteFileKernel>(r, "WriteFile");
  RegisterCpu<MatchingFilesKernel>(r, "MatchingFiles");
}

}  // namespace millrace
