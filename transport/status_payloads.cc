// SPDX-License-Identifier: Apache-2.0
#include "transport/status_payloads.h"

#include <string_view>

#include "base/errors.h"
#include "proto/status_payloads.pb.h"

namespace millrace {
namespace {

constexpr char kPayloadsLost[] =
    "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost";

}  // namespace

std::string EncodeStatusPayloads(const Status& status) {
  pb::GrpcPayloadContainer container;
  status.ForEachPayload([&](std::string_view url, std::string_view value) {
    (*container.mutable_payloads())[{url.data(), url.size()}] = std::string(value);
  });
  return container.SerializeAsString();
}

void DecodeStatusPayloads(const std::string& bytes, Status* status) {
  if (bytes.empty() || status->ok()) return;
  pb::GrpcPayloadContainer container;
  if (!container.ParseFromString(bytes)) {
    status->SetPayload(kPayloadsLost, "");
    return;
  }
  for (const auto& [url, value] : container.payloads()) {
    status->SetPayload(url, value);
  }
}

}  // namespace millrace
