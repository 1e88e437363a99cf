#include <algorithm>
#include <fstream>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/callbacks.h"
#include "model/numbers.h"

namespace millrace {
namespace {

constexpr char kLineEnd[] = "\r\n";

}  // namespace

CsvLogger::CsvLogger(std::string path, CsvLoggerOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

CsvLogger::~CsvLogger() = default;

Status CsvLogger::OnTrainBegin() {
  columns_.clear();
  writes_header_ = true;
  if (options_.append) {
    std::ifstream existing(path_, std::ios::binary);
    writes_header_ = !existing || existing.peek() == std::ifstream::traits_type::eof();
  }
  file_ = std::make_unique<std::ofstream>(
      path_, std::ios::binary | (options_.append ? std::ios::app : std::ios::trunc));
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
  *file_ << text << kLineEnd << std::flush;
  if (!*file_) return errors::Unavailable("cannot write to '", path_, "': is the disk full?");
  return OkStatus();
}

Status CsvLogger::OnTrainEnd(const Logs&) {
  file_.reset();
  return OkStatus();
}

}  // namespace millrace
