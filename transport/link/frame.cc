// SPDX-License-Identifier: Apache-2.0
#include "transport/link/frame.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "links join tasks on one host");

constexpr std::size_t kTableEntry = 16;
// After this many bytes others have their turn.
constexpr std::size_t kReadBudget = 1 << 20;
constexpr int kMaxParts = 64;  // per system call

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <typename T>
T Get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

uint32_t FrameHeader::EncodeDeadline(Deadline deadline) {
  if (deadline == kNoDeadline) return 0;
  const auto count =
      std::chrono::ceil<std::chrono::milliseconds>(deadline.time_since_epoch()).count();
  return std::max<uint32_t>(static_cast<uint32_t>(count), 1);
}

Deadline FrameHeader::DecodeDeadline(uint32_t begin_by, Deadline now) {
  if (begin_by == 0) return kNoDeadline;
  const auto count =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto left = static_cast<int32_t>(begin_by - static_cast<uint32_t>(count));
  return now + std::chrono::milliseconds(left);
}

void OutFrame::PutHeader(const FrameHeader& header, std::size_t text_size) {
  Put(&head, FrameHeader::kMagic);
  Put(&head, static_cast<uint8_t>(header.kind));
  Put(&head, header.method);
  Put(&head, header.features);
  Put(&head, header.num_segments);
  Put(&head, header.begin_by);
  Put(&head, header.call_id);
  Put(&head, static_cast<uint64_t>(text_size));
}

OutFrame::OutFrame(const FrameHeader& header, WireWriter message, SharedArena* arena) {
  std::vector<WireWriter::Segment> parts = message.TakeSegments();
  const std::string& text = message.text();
  head.reserve(FrameHeader::kSize + parts.size() * kTableEntry + text.size());
  FrameHeader full = header;
  full.num_segments = static_cast<uint32_t>(parts.size());
  PutHeader(full, text.size());
  segments.reserve(parts.size());
  for (WireWriter::Segment& part : parts) {
    uint64_t size = part.tensor.num_bytes();
    Segment segment;
    if (arena != nullptr && size >= SharedArena::kLeast) segment.lease = arena->Take(size);
    if (segment.lease) {
      std::memcpy(segment.lease->data(), part.tensor.raw_data(), size);
      size |= FrameHeader::kSharedBit;
    } else {
      segment.tensor = std::move(part.tensor);
    }
    Put(&head, static_cast<uint64_t>(part.text_end));
    Put(&head, size);
    segments.push_back(std::move(segment));
  }
  head += text;
}

OutFrame::OutFrame(RefPtr<SharedSlab> shared) : slab(std::move(shared)) {
  PutHeader(FrameHeader{.kind = FrameKind::kShare, .call_id = slab->id()}, 2 * sizeof(uint64_t));
  Put(&head, static_cast<uint64_t>(slab->size()));
  Put(&head, static_cast<uint64_t>(slab->block_size()));
}

OutFrame::OutFrame(std::span<const SharedPlace> unread) {
  PutHeader(FrameHeader{.kind = FrameKind::kGiveBack}, unread.size_bytes());
  head.append(reinterpret_cast<const char*>(unread.data()), unread.size_bytes());
}

const char* OutFrame::Segment::data() const {
  return lease ? reinterpret_cast<const char*>(&lease->place())
               : static_cast<const char*>(tensor.raw_data());
}

std::size_t OutFrame::Segment::size() const {
  return lease ? sizeof(SharedPlace) : tensor.num_bytes();
}

std::span<uint8_t> InFrame::Segment::target() {
  if (shared) return {reinterpret_cast<uint8_t*>(&place), sizeof(place)};
  return {static_cast<uint8_t*>(buffer->data()), size};
}

void InFrame::MakePieces() {
  const auto* text = reinterpret_cast<const uint8_t*>(text_.data());
  std::size_t begin = 0;
  pieces_.reserve(2 * segments_.size() + 1);
  for (const Segment& segment : segments_) {
    pieces_.emplace_back(text + begin, segment.text_end - begin);
    begin = segment.text_end;
    pieces_.emplace_back(static_cast<const uint8_t*>(segment.buffer->data()), segment.size,
                         segment.buffer.get());
  }
  pieces_.emplace_back(text + begin, text_.size() - begin);
}

Status FrameReader::ParseHeader(const uint8_t* bytes) {
  FrameHeader header;
  const uint8_t kind = bytes[4];
  header.kind = static_cast<FrameKind>(kind);
  header.method = bytes[5];
  header.features = Get<uint16_t>(bytes + 6);
  header.num_segments = Get<uint32_t>(bytes + 8);
  header.begin_by = Get<uint32_t>(bytes + 12);
  header.call_id = Get<uint64_t>(bytes + 16);
  header.text_size = Get<uint64_t>(bytes + 24);
  if (Get<uint32_t>(bytes) != FrameHeader::kMagic ||
      kind < static_cast<uint8_t>(FrameKind::kHello) ||
      kind > static_cast<uint8_t>(FrameKind::kGiveBack) ||
      (inbox_ == nullptr && kind > static_cast<uint8_t>(FrameKind::kCancel)) ||
      header.num_segments > FrameHeader::kMaxSegments || header.text_size > FrameHeader::kMaxText) {
    return errors::InvalidArgument("the bytes are not a link's frame");
  }
  if (greeting_ && (header.kind > FrameKind::kWelcome || header.num_segments > 0 ||
                    header.text_size > kMaxGreeting)) {
    return errors::InvalidArgument("a link's peer does not begin with a greeting of at most ",
                                   kMaxGreeting, " bytes");
  }
  frame_ = std::make_unique<InFrame>();
  frame_->header = header;
  table_missing_ = header.num_segments > 0;
  filled_ = 0;
  segment_ = 0;
  if (!table_missing_) frame_->text_.resize(header.text_size);
  text_done_ = !table_missing_ && header.text_size == 0;
  return OkStatus();
}

Status FrameReader::ParseTable(const uint8_t* bytes) {
  uint64_t before = 0;
  for (uint32_t i = 0; i < frame_->header.num_segments; ++i, bytes += kTableEntry) {
    InFrame::Segment segment;
    segment.text_end = Get<uint64_t>(bytes);
    const uint64_t size = Get<uint64_t>(bytes + 8);
    segment.shared = (size & FrameHeader::kSharedBit) != 0 && inbox_ != nullptr;
    segment.size = segment.shared ? size & ~FrameHeader::kSharedBit : size;
    if (segment.text_end < before || segment.text_end > frame_->header.text_size ||
        segment.size == 0 || segment.size > max_segment_bytes_) {
      return errors::InvalidArgument("a link's frame has a malformed table");
    }
    before = segment.text_end;
    if (!segment.shared) segment.buffer = HostAllocator()->Allocate(segment.size);
    if (!segment.shared && !segment.buffer) {
      return errors::ResourceExhausted("no memory for the ", segment.size,
                                       " bytes of a tensor from another task");
    }
    frame_->segments_.push_back(std::move(segment));
  }
  table_missing_ = false;
  frame_->text_.resize(frame_->header.text_size);
  text_done_ = frame_->header.text_size == 0;
  return OkStatus();
}

std::span<uint8_t> FrameReader::Target() {
  if (frame_ == nullptr || table_missing_) return {};
  if (!text_done_) {
    return {reinterpret_cast<uint8_t*>(frame_->text_.data()) + filled_,
            frame_->text_.size() - filled_};
  }
  if (segment_ == frame_->segments_.size()) return {};
  return frame_->segments_[segment_].target().subspan(filled_);
}

void FrameReader::Advance(std::size_t bytes) {
  filled_ += bytes;
  if (!text_done_) {
    if (filled_ < frame_->text_.size()) return;
    text_done_ = true;
  } else {
    if (filled_ < frame_->segments_[segment_].target().size()) return;
    ++segment_;
  }
  filled_ = 0;
}

StatusOr<bool> FrameReader::Consume(std::vector<std::unique_ptr<InFrame>>* frames) {
  const uint8_t* const bytes = scratch_->data() + begin_;
  if (frame_ == nullptr) {
    if (scratch_size() < FrameHeader::kSize) return false;
    MR_RETURN_IF_ERROR(ParseHeader(bytes));
    begin_ += FrameHeader::kSize;
  } else if (table_missing_) {
    const std::size_t table = frame_->header.num_segments * kTableEntry;
    if (scratch_size() < table) return false;
    MR_RETURN_IF_ERROR(ParseTable(bytes));
    begin_ += table;
  } else {
    const std::span<uint8_t> target = Target();
    const std::size_t n = std::min(target.size(), scratch_size());
    if (n == 0) return false;
    std::memcpy(target.data(), bytes, n);
    begin_ += n;
    Advance(n);
  }
  if (text_done_ && BodyIsComplete()) MR_RETURN_IF_ERROR(Complete(frames));
  return true;
}

Status FrameReader::Complete(std::vector<std::unique_ptr<InFrame>>* frames) {
  std::unique_ptr<InFrame> frame = std::exchange(frame_, nullptr);
  for (InFrame::Segment& segment : frame->segments_) {
    if (!segment.shared) continue;
    MR_ASSIGN_OR_RETURN(segment.buffer, inbox_->Open(segment.place, segment.size));
  }
  frame->MakePieces();
  switch (frame->header.kind) {
    case FrameKind::kShare:
      return TakeSlab(*frame);
    case FrameKind::kUnshare:
      return inbox_->Remove(static_cast<uint32_t>(frame->header.call_id));
    default:
      frames->push_back(std::move(frame));
      return OkStatus();
  }
}

Status FrameReader::TakeSlab(const InFrame& frame) {
  uint64_t size = 0, block_size = 0;
  WireReader in = frame.reader();
  if (!in.ReadBytes(&size, sizeof(size)) || !in.ReadBytes(&block_size, sizeof(block_size)) ||
      files_.empty() || frame.header.call_id > std::numeric_limits<uint32_t>::max()) {
    return errors::InvalidArgument("a link's peer shares memory without saying which");
  }
  const int fd = files_.front();
  files_.pop_front();
  return inbox_->Add(static_cast<uint32_t>(frame.header.call_id), fd, size, block_size);
}

FrameReader::~FrameReader() {
  for (const int fd : files_) close(fd);
}

ssize_t FrameReader::Receive(int fd, iovec* parts, int num_parts) {
  if (inbox_ == nullptr) return readv(fd, parts, num_parts);
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<std::size_t>(num_parts);
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0) return n;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      files_.push_back(Get<int>(CMSG_DATA(part) + i * sizeof(int)));
    }
  }
  if (files_.size() <= kMostFiles) return n;
  errno = EPROTO;
  return -1;
}

Status FrameReader::ConsumeAll(std::vector<std::unique_ptr<InFrame>>* frames) {
  while (!HasGreeting(*frames)) {
    MR_ASSIGN_OR_RETURN(const bool progress, Consume(frames));
    if (!progress) break;
  }
  return OkStatus();
}

StatusOr<FrameReader::Result> FrameReader::Read(int fd,
                                                std::vector<std::unique_ptr<InFrame>>* frames) {
  // What followed a greeting.
  MR_RETURN_IF_ERROR(ConsumeAll(frames));
  std::size_t total = 0;
  while (total < kReadBudget && !HasGreeting(*frames)) {
    // The scratch bytes are empty but for the beginning of a header or table.
    if (begin_ > 0) {
      std::memmove(scratch_->data(), scratch_->data() + begin_, scratch_size());
      end_ -= begin_;
      begin_ = 0;
    }
    const std::span<uint8_t> target = Target();
    iovec parts[2];
    int num_parts = 0;
    if (!target.empty()) parts[num_parts++] = {target.data(), target.size()};
    parts[num_parts++] = {scratch_->data() + end_, kScratchBytes - end_};
    const ssize_t n = Receive(fd, parts, num_parts);
    if (n == 0) return Result::kClosed;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::kOpen;
      if (errno == EPROTO) return errors::InvalidArgument("a link's peer sends too many files");
      return Result::kClosed;
    }
    const auto got = static_cast<std::size_t>(n);
    total += got;
    const std::size_t direct = std::min(got, target.size());
    if (direct > 0) Advance(direct);
    end_ += got - direct;
    if (direct > 0 && frame_ != nullptr && text_done_ && BodyIsComplete()) {
      MR_RETURN_IF_ERROR(Complete(frames));
    }
    MR_RETURN_IF_ERROR(ConsumeAll(frames));
    if (got < target.size() + (kScratchBytes - (end_ - (got - direct)))) break;  // all there was
  }
  return Result::kOpen;
}

StatusOr<bool> FrameWriter::Write(int fd) {
  while (!frames_.empty()) {
    iovec parts[kMaxParts];
    int num_parts = 0;
    std::size_t part = part_, offset = offset_, wanted = 0;
    for (const OutFrame& frame : frames_) {
      // A file goes with the first byte of a system call.
      if (frame.slab && num_parts > 0) break;
      for (; part <= frame.segments.size() && num_parts < kMaxParts; ++part) {
        const char* data = part == 0 ? frame.head.data() : frame.segments[part - 1].data();
        const std::size_t size = PartSize(frame, part);
        parts[num_parts++] = {const_cast<char*>(data) + offset, size - offset};
        wanted += size - offset;
        offset = 0;
      }
      part = 0;
      if (num_parts == kMaxParts) break;
    }
    MR_ASSIGN_OR_RETURN(const std::size_t sent, Send(fd, parts, num_parts));
    Advance(sent);
    if (sent < wanted) return false;
  }
  return true;
}

std::size_t FrameWriter::PartSize(const OutFrame& frame, std::size_t part) {
  return part == 0 ? frame.head.size() : frame.segments[part - 1].size();
}

StatusOr<std::size_t> FrameWriter::Send(int fd, iovec* parts, int num_parts) const {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<std::size_t>(num_parts);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (frames_.front().slab && part_ == 0 && offset_ == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const file = CMSG_FIRSTHDR(&message);
    file->cmsg_level = SOL_SOCKET;
    file->cmsg_type = SCM_RIGHTS;
    file->cmsg_len = CMSG_LEN(sizeof(int));
    const int shared = frames_.front().slab->fd();
    std::memcpy(CMSG_DATA(file), &shared, sizeof(shared));
  }
  for (;;) {
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
    if (errno != EINTR) {
      return errors::Unavailable("cannot write to the link: ", std::strerror(errno));
    }
  }
}

void FrameWriter::Advance(std::size_t sent) {
  while (sent > 0) {
    const OutFrame& frame = frames_.front();
    const std::size_t size = PartSize(frame, part_);
    const std::size_t step = std::min(sent, size - offset_);
    offset_ += step;
    sent -= step;
    if (offset_ < size) return;
    offset_ = 0;
    if (++part_ > frame.segments.size()) {
      part_ = 0;
      frames_.pop_front();
    }
  }
}

}  // namespace millrace
