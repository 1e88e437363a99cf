// SPDX-License-Identifier: Apache-2.0
// What a task reads from a link: any bytes, arriving in stretches of any size, are frames or are
// refused. The first byte says how long the stretches are.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/link/frame.h"

namespace millrace {
namespace {

constexpr std::size_t kLargest = 1 << 16;

// Of which all inputs with an odd first byte get the file.
const SharedLease& Shared() {
  static const SharedLease* const lease =
      MakeRef<SharedArena>(int64_t{8} << 20)->Take(SharedArena::kLeast).release();
  return *lease;
}

std::string BodyOf(const OutFrame& frame) {
  std::string bytes;
  for (const OutFrame::Segment& s : frame.segments) bytes.append(s.data(), s.size());
  return bytes;
}

// A slab, a tensor in it, and the end of its use.
std::string SharedSeed() {
  const auto arena = MakeRef<SharedArena>(int64_t{8} << 20);
  WireWriter message;
  MR_CHECK(message.AppendTensorField(1, Tensor(kUint8, Shape({int64_t{kLargest}}))).ok());
  const OutFrame frame(FrameHeader{.kind = FrameKind::kResponse, .call_id = 5}, std::move(message),
                       arena.get());
  MR_CHECK(frame.segments.size() == 1 && frame.segments[0].lease);
  const RefPtr<SharedSlab>& slab = frame.segments[0].lease->slab();
  const OutFrame end(FrameHeader{.kind = FrameKind::kUnshare, .call_id = slab->id()}, WireWriter());
  return "\x7f" + OutFrame(slab).head + frame.head + BodyOf(frame) + end.head;
}

void WriteWithFile(int to, const uint8_t* data, std::size_t size, int file) {
  iovec part{const_cast<uint8_t*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(file));
  MR_CHECK(sendmsg(to, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

void ReadAll(int fd, FrameReader* reader, bool* refused) {
  std::vector<std::unique_ptr<InFrame>> frames;
  *refused = !reader->Read(fd, &frames).ok();
  for (const auto& frame : frames) {
    WireReader in = frame->reader();
    std::string text;
    MR_CHECK(in.ReadString(&text, in.remaining()));
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  std::string all(1, '\x10');
  for (const int64_t floats : {0, 3, 600, 1000}) {
    WireWriter message;
    message.AppendBytesField(1, "text");
    Tensor tensor(kFloat, Shape({floats}));
    for (float& v : tensor.flat<float>()) v = 1;
    MR_CHECK(message.AppendTensorField(2, tensor).ok());
    const OutFrame frame(FrameHeader{.kind = FrameKind::kRequest, .method = 1, .call_id = 5},
                         std::move(message));
    std::string bytes = frame.head;
    bytes += BodyOf(frame);
    seeds.push_back("\x7f" + bytes);
    all += bytes;
  }
  seeds.push_back(SharedSeed());
  seeds.push_back(all);
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT: the entry's name is fixed, its scope is this function
  if (size == 0 || size > kLargest) return 0;
  const std::size_t stretch = 1 + 16 * static_cast<std::size_t>(data[0]);
  int ends[2];
  MR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const bool shares = data[0] % 2 == 1;
  FrameReader reader(kLargest, shares ? std::make_unique<SharedInbox>(
                                            /*copies=*/false, MakeRef<SharedReturns>([] {}))
                                      : nullptr);
  bool refused = false;
  for (std::size_t at = 1; at < size && !refused;) {
    const std::size_t n = std::min(stretch, size - at);
    if (shares && at == 1) {
      WriteWithFile(ends[0], data + at, n, Shared().slab()->fd());
    } else {
      MR_CHECK(write(ends[0], data + at, n) == static_cast<ssize_t>(n));
    }
    at += n;
    ReadAll(ends[1], &reader, &refused);
  }
  close(ends[0]);
  close(ends[1]);
  return 0;
}
