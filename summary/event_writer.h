// SPDX-License-Identifier: Apache-2.0
// Behind millrace/summary.h: what the kinds of events share.
#ifndef SUMMARY_EVENT_WRITER_H_
#define SUMMARY_EVENT_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "millrace/status.h"
#include "millrace/summary.h"
#include "proto/event.pb.h"
#include "proto/summary.pb.h"
#include "summary/event_file.h"

namespace millrace {

struct EventWriter::Impl {
  std::unique_ptr<EventFile> file;
  std::function<double()> wall_time;

  // Gives the event its time and appends it. InvalidArgument if it is too big for a message.
  Status Write(pb::Event* event);
};

// What TensorBoard shows a value with, and what the plugin keeps in its metadata. A class of data
// is not told, as TensorFlow tells none: TensorBoard then knows it by the plugin.
struct SummaryKind {
  std::string_view plugin;
  std::string_view content = {};
};

// Adds a value without its tensor to the summary of `event`. InvalidArgument for a tag or a
// description that TensorBoard could not read.
StatusOr<pb::Summary::Value*> AddValue(const SummaryKind& kind, std::string_view tag,
                                       std::string_view description, pb::Event* event);

// InvalidArgument, naming the thing, if `text` is not UTF-8: a reader would drop the whole event.
Status CheckUtf8(std::string_view thing, std::string_view text);

}  // namespace millrace

#endif  // SUMMARY_EVENT_WRITER_H_
