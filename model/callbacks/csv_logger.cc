// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/callbacks.h"
#include "model/callbacks/monitor.h"
#include "model/numbers.h"

namespace millrace {
namespace {

constexpr char kLineEnd[] = "\r\n";

}  // namespace

CsvLogger::CsvLogger(std::string path, CsvLoggerOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

CsvLogger::~CsvLogger() = default;

Status CsvLogger::OnTrainBegin() {
  namespace fs = std::filesystem;
  std::error_code error;
  bool appends = options_.append;
  if (std::exchange(keeps_state_, false) && !columns_.empty() &&
      fs::file_size(path_, error) >= static_cast<std::uintmax_t>(bytes_) && !error) {
    fs::resize_file(path_, static_cast<std::uintmax_t>(bytes_), error);
    if (error) {
      return errors::Unavailable("cannot take away the last lines of '", path_,
                                 "', which an earlier run has written: ", error.message());
    }
    appends = true;
  } else {
    columns_.clear();
  }
  const std::uintmax_t size = fs::file_size(path_, error);
  bytes_ = appends && !error ? static_cast<int64_t>(size) : 0;
  writes_header_ = bytes_ == 0;
  file_ = std::make_unique<std::ofstream>(
      path_, std::ios::binary | (appends ? std::ios::app : std::ios::trunc));
  if (!*file_) {
    return errors::Unavailable("cannot open '", path_,
                               "' to write: is there such a folder, and may it be written to?");
  }
  return OkStatus();
}

Status CsvLogger::OnEpochEnd(int64_t epoch, Logs& logs) {
  std::string text;
  if (columns_.empty()) {
    for (const auto& [name, value] : logs) columns_.push_back(name);
    std::sort(columns_.begin(), columns_.end());
    // Validation of later epochs has its columns from the start.
    const bool validated = std::any_of(columns_.begin(), columns_.end(),
                                       [](const auto& c) { return c.starts_with("val_"); });
    const std::size_t count = columns_.size();
    for (std::size_t i = 0; i < count && !validated; ++i) columns_.push_back("val_" + columns_[i]);
    if (writes_header_) {
      text = "epoch";
      for (const std::string& column : columns_) text += options_.separator + column;
      text += kLineEnd;
    }
  }
  StrAppend(&text, epoch);
  for (const std::string& column : columns_) {
    const std::optional<double> value = logs.Find(column);
    text += options_.separator + (value ? model::PythonNumber(*value) : "NA");
  }
  text += kLineEnd;
  *file_ << text << std::flush;
  if (!*file_) return errors::Unavailable("cannot write to '", path_, "': is the disk full?");
  bytes_ += static_cast<int64_t>(text.size());
  return OkStatus();
}

CallbackState CsvLogger::State() const {
  CallbackState state;
  model::Put(state, "bytes", bytes_);
  Tensor columns(kString, Shape({static_cast<int64_t>(columns_.size())}));
  std::copy(columns_.begin(), columns_.end(), columns.data<std::string>());
  state["columns"] = std::move(columns);
  return state;
}

Status CsvLogger::SetState(const CallbackState& state) {
  MR_RETURN_IF_ERROR(model::Get(state, "bytes", &bytes_));
  const auto columns = state.find("columns");
  if (columns == state.end() || columns->second.dtype() != kString) {
    return errors::InvalidArgument("the state has no 'columns'");
  }
  const auto* names = columns->second.data<std::string>();
  columns_.assign(names, names + columns->second.num_elements());
  keeps_state_ = true;
  return OkStatus();
}

Status CsvLogger::OnTrainEnd(const Logs&) {
  file_.reset();
  return OkStatus();
}

}  // namespace millrace
