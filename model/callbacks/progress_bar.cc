// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "base/strings.h"
#include "millrace/callbacks.h"
#include "model/numbers.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWidth = 20;  // of the bar
constexpr std::chrono::milliseconds kRedrawn{50};

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string Rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.0f", value);
  return text;
}

std::string PerStep(double seconds) {
  if (seconds >= 1 || seconds == 0) return Rounded(seconds) + "s/step";
  if (seconds >= 1e-3) return Rounded(seconds * 1e3) + "ms/step";
  return Rounded(seconds * 1e6) + "us/step";
}

std::string Values(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) {
    StrAppend(&text, " - ", name, ": ", model::ConsoleNumber(value));
  }
  return text;
}

}  // namespace

// One line that counts steps: an epoch, an evaluation or a prediction.
struct ProgressBar::Bar {
  Verbose verbose;
  std::ostream* out;
  bool in_training = false;
  int64_t done = 0, total = -1;
  Clock::time_point begin{}, first_step_end{}, drawn{};

  void Begin(int64_t steps) {
    done = 0;
    total = steps;
    begin = drawn = Clock::now();
  }

  // The first step prepares what later ones use, and is not counted if there are others.
  double SecondsPerStep(Clock::time_point now) const {
    if (done == 0) return 0;
    if (done == 1) return Seconds(now - begin);
    return Seconds(now - first_step_end) / static_cast<double>(done - 1);
  }

  std::string Count() const { return StrCat(done, "/", total >= 0 ? StrCat(total) : "Unknown"); }

  std::string Drawn(Clock::time_point now, bool finished, const Logs& logs) const {
    std::string text = "\r" + Count() + " ";
    const int64_t full = total > 0 ? done * kWidth / total : 0;
    for (int i = 0; i < kWidth && total > 0; ++i) text += i < full ? "━" : "─";
    const double per_step = SecondsPerStep(now);
    if (finished || total < 0) {
      StrAppend(&text, " ", Rounded(Seconds(now - begin)), "s ");
    } else {
      StrAppend(&text, " ETA ", Rounded(per_step * static_cast<double>(total - done)), "s ");
    }
    // What a longer line has left is wiped out.
    return text + PerStep(per_step) + Values(logs) + "\x1b[K";
  }

  void Step(int64_t number, const Logs& logs) {
    const Clock::time_point now = Clock::now();
    if (done == 0) first_step_end = now;
    done = number;
    if (verbose != Verbose::kBar || now - drawn < kRedrawn) return;
    drawn = now;
    *out << Drawn(now, false, logs) << std::flush;
  }

  void End(const Logs& logs) {
    const Clock::time_point now = Clock::now();
    if (verbose == Verbose::kSilent) return;
    if (total < 0) total = done;
    if (verbose == Verbose::kBar) {
      *out << Drawn(now, true, logs) << std::endl;
      return;
    }
    *out << Count() << " - " << Rounded(Seconds(now - begin)) << "s - "
         << PerStep(SecondsPerStep(now)) << Values(logs) << std::endl;
  }
};

ProgressBar::ProgressBar(ProgressBarOptions options) : bar_(std::make_unique<Bar>()) {
  bar_->out = options.out != nullptr ? options.out : &std::cout;
  bar_->verbose = options.verbose;
  if (options.verbose == Verbose::kAuto) {
    const bool on_terminal = options.out == nullptr && isatty(STDOUT_FILENO) == 1;
    bar_->verbose = on_terminal ? Verbose::kBar : Verbose::kLines;
  }
}

ProgressBar::~ProgressBar() = default;

bool ProgressBar::reads_batch_logs() const { return bar_->verbose == Verbose::kBar; }

Status ProgressBar::OnTrainBegin() {
  bar_->in_training = true;
  return OkStatus();
}

Status ProgressBar::OnEpochBegin(int64_t epoch) {
  if (params().epochs > 1 && bar_->verbose != Verbose::kSilent) {
    *bar_->out << "Epoch " << epoch + 1 << "/" << params().epochs << std::endl;
  }
  bar_->Begin(params().steps);
  return OkStatus();
}

Status ProgressBar::OnTrainBatchEnd(int64_t batch, const Logs& logs) {
  bar_->Step(batch + 1, logs);
  return OkStatus();
}

Status ProgressBar::OnEpochEnd(int64_t, Logs& logs) {
  bar_->End(logs);
  return OkStatus();
}

Status ProgressBar::OnTrainEnd(const Logs&) {
  bar_->in_training = false;
  return OkStatus();
}

Status ProgressBar::OnTestBegin() {
  if (!bar_->in_training) bar_->Begin(params().steps);
  return OkStatus();
}

Status ProgressBar::OnTestBatchEnd(int64_t batch, const Logs& logs) {
  if (!bar_->in_training) bar_->Step(batch + 1, logs);
  return OkStatus();
}

Status ProgressBar::OnTestEnd(const Logs& logs) {
  if (!bar_->in_training) bar_->End(logs);
  return OkStatus();
}

Status ProgressBar::OnPredictBegin() {
  bar_->Begin(params().steps);
  return OkStatus();
}

Status ProgressBar::OnPredictBatchEnd(int64_t batch, const Tensor&) {
  bar_->Step(batch + 1, Logs());
  return OkStatus();
}

Status ProgressBar::OnPredictEnd() {
  bar_->End(Logs());
  return OkStatus();
}

}  // namespace millrace
