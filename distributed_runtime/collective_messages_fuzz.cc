// SPDX-License-Identifier: Apache-2.0
// Requests to the leader of collectives, one after another: a byte for the kind, one for the
// length, the bytes of the message. Each is refused, or survives the round trip and is given to a
// directory; there every request is answered exactly once, at the latest when it is cancelled.
#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/log.h"
#include "collective/directory.h"
#include "distributed_runtime/collective_messages.h"
#include "proto/worker.pb.h"

namespace millrace {
namespace {

enum Kind { kGroup, kGroupResponse, kInstance, kBuffer, kBufferResponse, kForget, kNumKinds };

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

class Leader {
 public:
  void Take(Kind kind, std::string_view bytes) {
    switch (kind) {
      case kGroup: {
        pb::CompleteGroupRequest message, again;
        if (!Parse(bytes, &message)) return;
        const auto request = FromProto(message);
        if (!request.ok()) return;
        ToProto(*request, &again);
        MR_CHECK(FromProto(again).ok());
        directory_.JoinGroup(*request, &cancellation_,
                             [answers = NewAnswer()](const auto&) { ++*answers; });
        return;
      }
      case kGroupResponse: {
        pb::CompleteGroupResponse message, again;
        if (!Parse(bytes, &message)) return;
        const auto group = FromProto(message);
        if (!group.ok()) return;
        ToProto(**group, &again);
        MR_CHECK(FromProto(again).ok());
        for (const DeviceAttributes& member : (*group)->members) {
          MR_CHECK((*group)->RankOf(member.name) >= 0);
        }
        return;
      }
      case kInstance: {
        pb::CompleteInstanceRequest message, again;
        if (!Parse(bytes, &message)) return;
        const auto request = FromProto(message);
        if (!request.ok()) return;
        ToProto(*request, &again);
        const auto twice = FromProto(again);
        MR_CHECK(twice.ok() && twice->shape == request->shape && twice->node == request->node);
        directory_.JoinInstance(*request, &cancellation_,
                                [answers = NewAnswer()](const auto&) { ++*answers; });
        return;
      }
      case kBuffer: {
        pb::RecvBufRequest message, again;
        if (!Parse(bytes, &message)) return;
        ToProto(FromProto(message), &again);
        MR_CHECK(again.buf_rendezvous_key() == message.buf_rendezvous_key());
        return;
      }
      case kBufferResponse: {
        const WirePiece piece(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
        for (const int64_t size : {int64_t{0}, int64_t{4}, int64_t{1} << 40}) {
          const auto tensor = DecodeRecvBufResponse(WireReader({&piece, 1}), size);
          if (tensor.ok()) MR_CHECK(tensor->num_elements() == size);
        }
        return;
      }
      default:
        return directory_.ForgetStep(bytes.empty() ? 0 : bytes[0]);
    }
  }

  void End() {
    cancellation_.StartCancel(errors::Cancelled("the end"));
    for (const int answers : answers_) MR_CHECK(answers == 1);
  }

 private:
  int* NewAnswer() {
    answers_.push_back(0);
    return &answers_.back();
  }

  std::list<int> answers_;  // of each request
  CollectiveDirectory directory_;
  CancellationManager cancellation_;
};

std::string Message(Kind kind, const std::string& bytes) {
  MR_CHECK(bytes.size() < 256);
  return std::string(1, static_cast<char>(kind)) + static_cast<char>(bytes.size()) + bytes;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string two, three;
  const auto group = [](int member, int size) {
    pb::CompleteGroupRequest message;
    GroupRequest request;
    request.group_key = 5;
    request.group_size = size;
    request.device.name = "/job:w/replica:0/task:" + std::to_string(member) + "/device:CPU:0";
    request.device.device_type = "CPU";
    request.device.incarnation = 7;
    ToProto(request, &message);
    return Message(kGroup, message.SerializeAsString());
  };
  const auto instance = [](int member, bool source, int64_t step) {
    pb::CompleteInstanceRequest message;
    InstanceRequest request;
    request.node = "n";
    request.kind = CollectiveKind::kBroadcast;
    request.dtype = kFloat;
    request.shape = Shape({2, 3});
    request.group_key = 5;
    request.group_size = 2;
    request.instance_key = 9;
    request.step_id = step;
    request.device_type = "CPU";
    request.device = "/job:w/replica:0/task:" + std::to_string(member) + "/device:CPU:0";
    request.is_source = source;
    ToProto(request, &message);
    return Message(kInstance, message.SerializeAsString());
  };
  two = group(0, 2) + group(1, 2) + instance(0, true, 3) + instance(1, false, 3);
  three = group(0, 2) + group(1, 3) + group(0, 2) + group(1, 2) + instance(1, true, 0) +
          instance(1, true, 0) + Message(kForget, std::string(1, 3));
  pb::CompleteGroupResponse response;
  response.set_group_key(5);
  for (const char* task : {"0", "1"}) {
    auto* device = response.add_device_attributes();
    device->set_name(std::string("/job:w/replica:0/task:") + task + "/device:CPU:0");
    device->set_device_type("CPU");
  }
  WireWriter buffer;
  EncodeRecvBufResponse(Tensor::FromValues<uint8_t>({1, 2, 3, 4}), 5, &buffer);
  pb::RecvBufRequest request;
  request.set_buf_rendezvous_key("5:9:0:0:0:1:0");
  request.set_num_bytes(4);
  return {two, three, Message(kGroupResponse, response.SerializeAsString()),
          Message(kBuffer, request.SerializeAsString()),
          Message(kBufferResponse, buffer.Flatten())};
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  Leader leader;
  while (rest.size() >= 2) {
    const auto kind = static_cast<Kind>(static_cast<uint8_t>(rest[0]) % kNumKinds);
    const auto length = std::min<std::size_t>(static_cast<uint8_t>(rest[1]), rest.size() - 2);
    leader.Take(kind, rest.substr(2, length));
    rest.remove_prefix(2 + length);
  }
  leader.End();
  return 0;
}
