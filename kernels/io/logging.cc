// SPDX-License-Identifier: Apache-2.0
// Ops that speak to people: Assert and Print.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text/log_format.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// "1 2 3...": the first elements; "..." if there are more.
std::string Summarize(const Tensor& t, int64_t max_entries) {
  const int64_t limit = max_entries < 0 ? t.num_elements() : max_entries;
  std::string text;
  const int64_t n = std::min(limit, t.num_elements());
  auto append = [&](const auto& value) { text = StrCat(text, text.empty() ? "" : " ", value); };
  DispatchType(JoinTypes<RealTypes, TypeList<bool, std::string>>(), t.dtype(), [&]<typename T>() {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, std::string>) {
        append(t.data<T>()[i]);
      } else {
        append(+static_cast<ComputeType<T>>(t.data<T>()[i]));
      }
    }
  });
  if (t.num_elements() > n) text += "...";
  return text;
}

// Seconds since the epoch.
class TimestampKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const double seconds = std::chrono::duration<double>(now).count();
    ctx.SetOutput(0, Tensor::Scalar<double>(seconds));
    return OkStatus();
  }
  bool IsExpensive() const override { return false; }
};

class AssertKernel : public Kernel {
 public:
  explicit AssertKernel(KernelConstruction& c)
      : Kernel(c), summarize_(c.attrs().GetOr<int64_t>("summarize", 3)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& condition = ctx.input(0);
    if (condition.num_elements() != 1) {
      return errors::InvalidArgument("In[0] should be a scalar: ", condition.shape().DebugString());
    }
    if (condition.scalar<bool>()) return OkStatus();
    std::string message = "assertion failed: ";
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      message = StrCat(message, i > 1 ? " " : "", "[", Summarize(ctx.input(i), summarize_), "]");
    }
    return errors::InvalidArgument(message);
  }

 private:
  const int64_t summarize_;
};

// Writes the values to standard error on its first `first_n` executions, and hands on its
// first input.
class PrintKernel : public Kernel {
 public:
  explicit PrintKernel(KernelConstruction& c)
      : Kernel(c),
        message_(c.attrs().GetOr<std::string>("message", "")),
        first_n_(c.attrs().GetOr<int64_t>("first_n", -1)),
        summarize_(c.attrs().GetOr<int64_t>("summarize", 3)) {}
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, ctx.input(0));
    if (first_n_ >= 0 && calls_.fetch_add(1, std::memory_order_relaxed) >= first_n_) {
      return OkStatus();
    }
    std::string line = message_;
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      line = StrCat(line, "[", Summarize(ctx.input(i), summarize_), "]");
    }
    line += '\n';
    WriteBesideLog(LogLevel::kInfo, line);
    return OkStatus();
  }

 private:
  const std::string message_;
  const int64_t first_n_, summarize_;
  std::atomic<int64_t> calls_{0};
};

class PrintV2Kernel : public Kernel {
 public:
  explicit PrintV2Kernel(KernelConstruction& c)
      : Kernel(c),
        stream_(c.attrs().GetOr<std::string>("output_stream", "stderr")),
        end_(c.attrs().GetOr<std::string>("end", "\n")) {
    if (stream_ != "stderr" && stream_ != "stdout" && !stream_.starts_with("log(")) {
      c.SetError(errors::InvalidArgument("Unknown output stream: ", stream_));
    }
  }
  Status Compute(KernelContext& ctx) override {
    if (ctx.input(0).num_elements() != 1) {
      return errors::InvalidArgument("Input is expected to be scalar, but got ",
                                     ctx.input(0).shape().DebugString());
    }
    const std::string line = ctx.input(0).scalar<std::string>() + end_;
    if (stream_ == "stdout") {
      std::fwrite(line.data(), 1, line.size(), stdout);
    } else {
      WriteBesideLog(Level(), line);
    }
    return OkStatus();
  }

 private:
  LogLevel Level() const {
    if (stream_ == "log(warning)") return LogLevel::kWarning;
    return stream_ == "log(error)" ? LogLevel::kError : LogLevel::kInfo;
  }

  const std::string stream_, end_;
};

}  // namespace

void RegisterLoggingKernels(KernelRegistry& r) {
  RegisterCpu<TimestampKernel>(r, "Timestamp");
  RegisterCpu<AssertKernel>(r, "Assert");
  RegisterCpu<PrintKernel>(r, "Print");
  RegisterCpu<PrintV2Kernel>(r, "PrintV2");
}

}  // namespace millrace
