// What a task reads from a link: any bytes, arriving in stretches of any size, are frames or are
// refused. The first byte says how long the stretches are.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/link/frame.h"

namespace millrace {
namespace {

constexpr std::size_t kLargest = 1 << 16;

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
    for (const Tensor& t : frame.segments) {
      bytes.append(static_cast<const char*>(t.raw_data()), t.num_bytes());
    }
    seeds.push_back("\x7f" + bytes);
    all += bytes;
  }
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
  FrameReader reader(kLargest);
  bool refused = false;
  for (std::size_t at = 1; at < size && !refused;) {
    const std::size_t n = std::min(stretch, size - at);
    MR_CHECK(write(ends[0], data + at, n) == static_cast<ssize_t>(n));
    at += n;
    ReadAll(ends[1], &reader, &refused);
  }
  close(ends[0]);
  close(ends[1]);
  return 0;
}
