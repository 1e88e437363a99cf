// SPDX-License-Identifier: Apache-2.0
// The messages of a link: what two tasks on one host tell each other over a local socket.
#ifndef TRANSPORT_LINK_FRAME_H_
#define TRANSPORT_LINK_FRAME_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/notification.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "transport/shm/shared_arena.h"
#include "transport/shm/shared_inbox.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

enum class FrameKind : uint8_t {
  kHello = 1,     // the first of who connected: a LinkHello
  kWelcome = 2,   // its answer
  kRequest = 3,   // a call: the method and its request
  kResponse = 4,  // its answer
  kError = 5,     // its answer: an EncodedStatus
  kCancel = 6,    // the caller does not wait any more
  kShare = 7,     // a slab of shared memory: its size and that of its blocks; the file comes along
  kUnshare = 8,   // the slab is of no use any more
  kGiveBack = 9,  // blocks that are not read any more: their places
};

// On the wire: this header, little endian, 32 bytes; for each segment where in the text it
// belongs and its size, 8 bytes each; the text; the segments' bytes. So a reader knows all sizes
// before it takes memory, and tensors go from the socket into their buffers. A segment whose size
// has the highest bit set lies in shared memory: in place of its bytes is its SharedPlace.
struct FrameHeader {
  static constexpr std::size_t kSize = 32;
  static constexpr uint32_t kMagic = 0x314c524d;  // "MRL1"
  static constexpr uint32_t kMaxSegments = 2048;
  static constexpr uint64_t kMaxText = uint64_t{1} << 31;
  static constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 40;
  static constexpr uint64_t kSharedBit = uint64_t{1} << 63;
  static constexpr uint16_t kSharesMemory = 1;  // of features: takes and gives shared memory

  FrameKind kind = FrameKind::kHello;
  uint8_t method = 0;
  uint16_t features = 0;  // of a greeting
  uint32_t num_segments = 0;
  uint64_t call_id = 0;  // of a slab, its number
  uint64_t text_size = 0;
  // Of a request: by when it must be begun, in milliseconds of the steady clock, the lowest 32 bits
  // of them; 0: whenever.
  uint32_t begin_by = 0;

  static uint32_t EncodeDeadline(Deadline deadline);
  // The one that is nearest to `now`; kNoDeadline for 0.
  static Deadline DecodeDeadline(uint32_t begin_by, Deadline now);
};

// A message on its way out. The segments' tensors must not change until it is written.
struct OutFrame {
  // Large tensors are copied into blocks of `arena`, as far as it has any; null: none are.
  OutFrame(const FrameHeader& header, WireWriter message, SharedArena* arena = nullptr);
  // A kShare frame.
  explicit OutFrame(RefPtr<SharedSlab> shared);
  // A kGiveBack frame.
  explicit OutFrame(std::span<const SharedPlace> unread);

  // The bytes of a tensor, or the place of their copy.
  struct Segment {
    Tensor tensor;
    RefPtr<SharedLease> lease;  // set: the place instead of the tensor

    const char* data() const;
    std::size_t size() const;
  };
  std::string head;  // header, table and text
  std::vector<Segment> segments;
  RefPtr<SharedSlab> slab;  // of kShare: whose file goes with the first byte

 private:
  void PutHeader(const FrameHeader& header, std::size_t text_size);
};

// A message that has come in.
class InFrame {
 public:
  FrameHeader header;
  // As long as this object; tensors read from it may share its segments for longer.
  std::span<const WirePiece> pieces() const { return pieces_; }
  WireReader reader() const { return WireReader(pieces_); }

 private:
  friend class FrameReader;
  void MakePieces();

  struct Segment {
    uint64_t text_end = 0;
    uint64_t size = 0;
    bool shared = false;
    SharedPlace place;      // of a shared one, as it was read
    RefPtr<Buffer> buffer;  // of a shared one set when the frame is complete

    // What is read from the socket for it.
    std::span<uint8_t> target();
  };
  std::string text_;
  std::vector<Segment> segments_;
  std::vector<WirePiece> pieces_;
};

// Puts together what comes from a stream socket. Not synchronised.
class FrameReader {
 public:
  enum class Result { kOpen, kClosed };

  // Memory for a tensor is taken on the word of the peer: up to `max_segment_bytes`.
  // `inbox` is for what the peer shares: null if it may share nothing.
  explicit FrameReader(uint64_t max_segment_bytes = FrameHeader::kMaxSegmentBytes,
                       std::unique_ptr<SharedInbox> inbox = nullptr)
      : max_segment_bytes_(max_segment_bytes), inbox_(std::move(inbox)) {}
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Reads what is there without waiting, or at least about a mebibyte of it, and appends the
  // frames that are complete. kClosed after the peer has closed the connection. InvalidArgument
  // if it sends something else than frames, ResourceExhausted if there is no memory for one.
  StatusOr<Result> Read(int fd, std::vector<std::unique_ptr<InFrame>>* frames);

  // Until the peer has been found to be who it should be, nothing but one greeting of at most
  // kMaxGreeting bytes is taken: what follows it stays where it is until Welcome.
  static constexpr uint64_t kMaxGreeting = 4096;
  void ExpectGreeting() { greeting_ = true; }
  void Welcome() { greeting_ = false; }

 private:
  // True if a frame was completed, or part of one was taken from the scratch bytes.
  StatusOr<bool> Consume(std::vector<std::unique_ptr<InFrame>>* frames);
  Status ConsumeAll(std::vector<std::unique_ptr<InFrame>>* frames);
  bool HasGreeting(const std::vector<std::unique_ptr<InFrame>>& frames) const {
    return greeting_ && !frames.empty();
  }
  Status ParseHeader(const uint8_t* bytes);
  Status ParseTable(const uint8_t* bytes);
  // The frame's body is there. Those about shared memory end here.
  Status Complete(std::vector<std::unique_ptr<InFrame>>* frames);
  Status TakeSlab(const InFrame& frame);
  // As readv, and takes the files that come along. -1 with errno EPROTO if there are too many.
  ssize_t Receive(int fd, iovec* parts, int num_parts);
  bool BodyIsComplete() const { return !table_missing_ && segment_ == frame_->segments_.size(); }
  // Where the next bytes of the body go; none if they belong into the scratch bytes.
  std::span<uint8_t> Target();
  void Advance(std::size_t bytes);
  std::size_t scratch_size() const { return end_ - begin_; }

  // How many files may have come whose frames have not.
  static constexpr std::size_t kMostFiles = 64;

  const uint64_t max_segment_bytes_;
  const std::unique_ptr<SharedInbox> inbox_;
  std::deque<int> files_;
  bool greeting_ = false;
  static constexpr std::size_t kScratchBytes = 64 * 1024;
  std::unique_ptr<std::array<uint8_t, kScratchBytes>> scratch_ =
      std::make_unique<std::array<uint8_t, kScratchBytes>>();
  std::size_t begin_ = 0, end_ = 0;  // of the bytes in scratch_ that were not looked at
  std::unique_ptr<InFrame> frame_;   // whose header is known
  bool table_missing_ = false;
  std::size_t filled_ = 0;  // of the text, then of the segment
  bool text_done_ = false;
  std::size_t segment_ = 0;  // the first incomplete one
};

// Puts frames into a stream socket. Not synchronised.
class FrameWriter {
 public:
  void Add(OutFrame frame) { frames_.push_back(std::move(frame)); }
  bool empty() const { return frames_.empty(); }
  // Writes without waiting; false if the socket takes no more now. Unavailable if it is broken.
  StatusOr<bool> Write(int fd);

 private:
  static std::size_t PartSize(const OutFrame& frame, std::size_t part);
  // How many bytes went out: 0 if the socket takes none.
  StatusOr<std::size_t> Send(int fd, iovec* parts, int num_parts) const;
  void Advance(std::size_t sent);

  std::deque<OutFrame> frames_;
  std::size_t part_ = 0;    // of the first frame: 0 its head, then its segments
  std::size_t offset_ = 0;  // in that part
};

}  // namespace millrace

#endif  // TRANSPORT_LINK_FRAME_H_
