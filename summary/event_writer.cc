// SPDX-License-Identifier: Apache-2.0
#include "summary/event_writer.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text/utf8.h"
#include "io/filesystem.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";
constexpr char kWriter[] = "millrace";

double MachineTime() { return static_cast<double>(WallNanos()) * 1e-9; }

Status CheckOptions(const EventWriterOptions& options) {
  if (options.max_queue_bytes <= 0) {
    return errors::InvalidArgument("EventWriterOptions.max_queue_bytes is ",
                                   options.max_queue_bytes, ": it must be positive");
  }
  if (options.flush_interval.count() < 0) {
    return errors::InvalidArgument("EventWriterOptions.flush_interval is ",
                                   options.flush_interval.count(), " ms: it must not be negative");
  }
  if (options.filename_suffix.find('/') != std::string::npos) {
    return errors::InvalidArgument("EventWriterOptions.filename_suffix is '",
                                   options.filename_suffix,
                                   "': it ends a file's name and must not have a '/'");
  }
  return OkStatus();
}

}  // namespace

Status CheckUtf8(std::string_view thing, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = Utf8Length(text.substr(at));
    if (length == 0) {
      return errors::InvalidArgument(thing, " is not UTF-8: byte ", at, " of '", CEscape(text),
                                     "' begins no character");
    }
    at += length;
  }
  return OkStatus();
}

StatusOr<pb::Summary::Value*> AddValue(const SummaryKind& kind, std::string_view tag,
                                       std::string_view description, pb::Event* event) {
  if (tag.empty()) {
    return errors::InvalidArgument("a summary for the plugin '", kind.plugin,
                                   "' has no tag: give it a name to be shown under");
  }
  MR_RETURN_IF_ERROR(CheckUtf8("a tag", tag));
  MR_RETURN_IF_ERROR(CheckUtf8(StrCat("the description of '", tag, "'"), description));
  pb::Summary::Value* value = event->mutable_summary()->add_value();
  value->set_tag(std::string(tag));
  pb::SummaryMetadata* metadata = value->mutable_metadata();
  metadata->mutable_plugin_data()->set_plugin_name(std::string(kind.plugin));
  metadata->mutable_plugin_data()->set_content(std::string(kind.content));
  metadata->set_summary_description(std::string(description));
  return value;
}

Status EventWriter::Impl::Write(pb::Event* event) {
  event->set_wall_time(wall_time());
  std::string bytes;
  if (event->ByteSizeLong() > INT32_MAX || !event->SerializeToString(&bytes)) {
    return errors::InvalidArgument("an event of ", event->ByteSizeLong(), " bytes is too big for ",
                                   file->path(), ": no message may have 2 GiB or more");
  }
  return file->Append(bytes);
}

StatusOr<std::unique_ptr<EventWriter>> EventWriter::Create(const std::string& directory,
                                                           const EventWriterOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>();
  impl->wall_time = options.wall_time ? options.wall_time : MachineTime;
  MR_ASSIGN_OR_RETURN(impl->file,
                      EventFile::Create(PosixFileSystem(), directory, options.filename_suffix,
                                        {.max_queue_bytes = options.max_queue_bytes,
                                         .flush_interval = options.flush_interval}));
  pb::Event version;
  version.set_file_version(kFileVersion);
  version.mutable_source_metadata()->set_writer(kWriter);
  MR_RETURN_IF_ERROR(impl->Write(&version));
  // At once: TensorBoard shows a run when it finds its file.
  MR_RETURN_IF_ERROR(impl->file->Flush());
  return std::unique_ptr<EventWriter>(new EventWriter(std::move(impl)));
}

EventWriter::EventWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EventWriter::~EventWriter() {
  if (const Status status = Close(); !status.ok()) {
    MR_LOG(kWarning, "events are missing from ", path(), ": ", Message(status));
  }
}

Status EventWriter::WriteScalar(std::string_view tag, double value, int64_t step,
                                std::string_view description) {
  pb::Event event;
  event.set_step(step);
  MR_ASSIGN_OR_RETURN(pb::Summary::Value * summary,
                      AddValue({.plugin = "scalars"}, tag, description, &event));
  TensorToProto(Tensor::Scalar<float>(static_cast<float>(value)), summary->mutable_tensor());
  return impl_->Write(&event);
}

Status EventWriter::WriteText(std::string_view tag, std::string_view text, int64_t step,
                              std::string_view description) {
  return WriteText(tag, Tensor::String(text), step, description);
}

Status EventWriter::WriteText(std::string_view tag, const Tensor& strings, int64_t step,
                              std::string_view description) {
  if (strings.dtype() != kString) {
    return errors::InvalidArgument("the text '", tag, "' is a tensor of ",
                                   DataTypeName(strings.dtype()), ": strings were expected");
  }
  for (const std::string& text : strings.flat<std::string>()) {
    MR_RETURN_IF_ERROR(CheckUtf8(StrCat("the text '", tag, "'"), text));
  }
  pb::Event event;
  event.set_step(step);
  MR_ASSIGN_OR_RETURN(pb::Summary::Value * summary,
                      AddValue({.plugin = "text"}, tag, description, &event));
  TensorToReadableProto(strings, summary->mutable_tensor());
  return impl_->Write(&event);
}

Status EventWriter::WriteSummary(std::string_view summary, int64_t step) {
  pb::Event event;
  event.set_step(step);
  if (summary.size() > INT32_MAX ||
      !event.mutable_summary()->ParseFromArray(summary.data(), static_cast<int>(summary.size()))) {
    return errors::InvalidArgument("these ", summary.size(),
                                   " bytes are no Summary message, which the ops ScalarSummary, "
                                   "HistogramSummary, ImageSummary and MergeSummary yield");
  }
  return impl_->Write(&event);
}

Status EventWriter::WriteSessionStart(int64_t step) {
  pb::Event event;
  event.set_step(step);
  event.mutable_session_log()->set_status(pb::SessionLog::START);
  return impl_->Write(&event);
}

Status EventWriter::WriteSessionCheckpoint(std::string_view path, int64_t step) {
  MR_RETURN_IF_ERROR(CheckUtf8("the path of a checkpoint", path));
  pb::Event event;
  event.set_step(step);
  event.mutable_session_log()->set_status(pb::SessionLog::CHECKPOINT);
  event.mutable_session_log()->set_checkpoint_path(std::string(path));
  return impl_->Write(&event);
}

Status EventWriter::WriteSessionStop() {
  pb::Event event;
  event.mutable_session_log()->set_status(pb::SessionLog::STOP);
  return impl_->Write(&event);
}

Status EventWriter::Flush() { return impl_->file->Flush(); }
Status EventWriter::Close() { return impl_->file->Close(); }
const std::string& EventWriter::path() const { return impl_->file->path(); }

}  // namespace millrace
