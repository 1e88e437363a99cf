// SPDX-License-Identifier: Apache-2.0
#include "tests/transport_conformance/transports.h"

#include <charconv>
#include <chrono>
#include <utility>

#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/grpc/rpc_server.h"
#include "transport/link/link_hub.h"

namespace millrace {
namespace {

constexpr char kCallingTask[] = "/job:worker/replica:0/task:0";
constexpr std::chrono::seconds kLimit{20};

struct Pools {
  ThreadPool control{"control", 2}, work{"work", 2};
};

class GrpcServing final : public ServingEnd {
 public:
  ~GrpcServing() override { Stop(); }
  MethodServer* methods() override { return &server_; }
  std::string Start() override {
    const StatusOr<int> port = server_.Start("127.0.0.1:0");
    return port.ok() ? StrCat("127.0.0.1:", *port) : "";
  }
  void Stop() override { server_.Shutdown(SteadyClock::now()); }

 private:
  Pools pools_;
  RpcServer server_{&pools_.control, &pools_.work};
};

class GrpcCalling final : public CallingEnd {
 public:
  explicit GrpcCalling(const std::string& address)
      : channel_(address, kServingTask, &pools_.work) {}
  Channel* channel() override { return &channel_; }

 private:
  Pools pools_;
  RpcChannel channel_;
};

// An offer as text: two hexadecimal digits for each byte.
std::string ToHex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<uint8_t>(c) >> 4];
    text += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

int64_t Budget(bool shares) { return shares ? LinkHub::DefaultBudget() : 0; }

class LinkServing final : public ServingEnd {
 public:
  explicit LinkServing(bool shares) { hub_.ShareMemory(Budget(shares), /*copies=*/false); }
  ~LinkServing() override { Stop(); }
  MethodServer* methods() override { return &hub_; }
  std::string Start() override {
    return hub_.Start().ok() ? ToHex(hub_.offer().SerializeAsString()) : "";
  }
  void Stop() override {
    hub_.StopServing(SteadyClock::now());
    hub_.Stop();
  }
  int64_t shared_bytes() const override { return hub_.shared_bytes(); }

 private:
  Pools pools_;
  LinkHub hub_{kServingTask, &pools_.control, &pools_.work};
};

class LinkCalling final : public CallingEnd {
 public:
  LinkCalling(bool shares, const std::string& address) {
    hub_.ShareMemory(Budget(shares), /*copies=*/false);
    pb::OfferLinkResponse offer;
    if (!hub_.Start().ok() || !offer.ParseFromString(FromHex(address))) return;
    const auto opened = std::make_shared<Notification>();
    hub_.Connect(kServingTask, offer, [opened] { opened->Notify(); });
    if (opened->WaitUntil(DeadlineAfter(kLimit))) link_ = hub_.Find(kServingTask);
  }
  Channel* channel() override { return link_.get(); }

 private:
  Pools pools_;
  LinkHub hub_{kCallingTask, &pools_.control, &pools_.work};
  RefPtr<Link> link_;
};

}  // namespace

std::unique_ptr<ServingEnd> NewServingEnd(const std::string& transport) {
  if (transport == "grpc") return std::make_unique<GrpcServing>();
  return std::make_unique<LinkServing>(transport == "shared_memory");
}

std::unique_ptr<CallingEnd> NewCallingEnd(const std::string& transport,
                                          const std::string& address) {
  if (transport == "grpc") return std::make_unique<GrpcCalling>(address);
  return std::make_unique<LinkCalling>(transport == "shared_memory", address);
}

}  // namespace millrace
