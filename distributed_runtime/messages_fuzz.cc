// SPDX-License-Identifier: Apache-2.0
// The first byte chooses a message, the second how its bytes are cut into pieces. Any bytes
// either are refused or give arguments that survive the round trip.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "distributed_runtime/messages.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "tensor/fuzz_guard.h"
#include "transport/status_payloads.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {
namespace {

enum Kind {
  kRunGraphRequest,
  kRunGraphResponse,
  kRunStepRequest,
  kRunStepResponse,
  kRunCallableRequest,
  kRunCallableResponse,
  kRecvTensorResponse,
  kPayloads,
  kNumKinds,
};

std::vector<WirePiece> Cut(const uint8_t* data, std::size_t size, std::size_t piece) {
  std::vector<WirePiece> pieces;
  for (std::size_t i = 0; i < size; i += piece) {
    pieces.emplace_back(data + i, std::min(piece, size - i));
  }
  return pieces;
}

template <typename Message>
bool TooLarge(const uint8_t* data, std::size_t size) {
  Message message;
  return message.ParseFromArray(data, static_cast<int>(size)) && StandsForMuch(message);
}

struct Flat {
  explicit Flat(const WireWriter& writer)
      : bytes(writer.Flatten()),
        piece(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) {}
  WireReader reader() const { return WireReader({&piece, 1}); }
  const std::string bytes;
  const WirePiece piece;
};

// What was decoded is encoded and decoded again.
template <typename Args>
void RoundTrip(WireReader in, Status (*decode)(WireReader, Args*, RequestMeta*),
               Status (*encode)(const Args&, const RequestMeta&, WireWriter*)) {
  Args args, again;
  RequestMeta meta;
  if (!decode(in, &args, &meta).ok()) return;
  WireWriter out;
  MR_CHECK(encode(args, meta, &out).ok());
  MR_CHECK(decode(Flat(out).reader(), &again, &meta).ok());
}

std::string Seed(Kind kind, const std::string& bytes) {
  return std::string(1, static_cast<char>(kind)) + std::string(1, '\x10') + bytes;
}

void Decode(Kind kind, WireReader in, const uint8_t* data, std::size_t size) {
  switch (kind) {
    case kRunGraphRequest:
      if (TooLarge<pb::RunGraphRequest>(data, size)) return;
      return RoundTrip(in, DecodeRunGraphRequest, EncodeRunGraphRequest);
    case kRunGraphResponse: {
      if (TooLarge<pb::RunGraphResponse>(data, size)) return;
      RunGraphArgs args;
      args.recv_keys = {"key"};
      RunGraphResult result;
      if (DecodeRunGraphResponse(in, args, &result).ok()) MR_CHECK(result.recvs.size() == 1);
      return;
    }
    case kRunStepRequest:
      if (TooLarge<pb::RunStepRequest>(data, size)) return;
      return RoundTrip(in, DecodeRunStepRequest, EncodeRunStepRequest);
    case kRunStepResponse: {
      if (TooLarge<pb::RunStepResponse>(data, size)) return;
      RunStepArgs args;
      args.fetches = {"x:0"};
      RunStepResult result;
      if (DecodeRunStepResponse(in, args, &result).ok()) MR_CHECK(result.fetches.size() == 1);
      return;
    }
    case kRunCallableRequest:
      if (TooLarge<pb::RunCallableRequest>(data, size)) return;
      return RoundTrip(in, DecodeRunCallableRequest, EncodeRunCallableRequest);
    case kRunCallableResponse: {
      if (TooLarge<pb::RunCallableResponse>(data, size)) return;
      RunStepResult result;
      (void)DecodeRunCallableResponse(in, &result);
      return;
    }
    case kRecvTensorResponse: {
      if (TooLarge<pb::RecvTensorResponse>(data, size)) return;
      Tensor tensor;
      bool is_dead = false;
      if (!DecodeRecvTensorResponse(in, &tensor, &is_dead).ok() || !tensor.IsInitialized()) return;
      WireWriter out;
      if (!EncodeRecvTensorResponse(tensor, is_dead, 1, false, &out).ok()) return;
      Tensor again;
      MR_CHECK(DecodeRecvTensorResponse(Flat(out).reader(), &again, &is_dead).ok());
      MR_CHECK(TensorsEqual(again, tensor));
      return;
    }
    default: {
      Status status = errors::Internal("x");
      DecodeStatusPayloads(std::string(reinterpret_cast<const char*>(data), size), &status);
      MR_CHECK(status.code() == StatusCode::kInternal);
    }
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const Tensor floats = Tensor::FromValues<float>({1, 2, 3, 4}, Shape({2, 2}));
  const Tensor strings = Tensor::FromValues<std::string>({"one", ""});
  const auto encoded = [](auto encode) {
    WireWriter out;
    MR_CHECK(encode(&out).ok());
    return out.Flatten();
  };
  RunGraphArgs graph;
  graph.session_handle = "session";
  graph.graph_handle = "0000000000000001";
  graph.step_id = 77;
  graph.sends = {{"a;b", floats}, {"c", strings}};
  graph.recv_keys = {"key"};
  RunGraphResult received;
  received.recvs = {floats};
  RunStepArgs step;
  step.session_handle = "session";
  step.feeds = {{"x:0", floats}, {"s:0", strings}};
  step.fetches = {"x:0"};
  step.targets = {"t"};
  RunStepResult fetched;
  fetched.fetches = {strings};
  RunCallableArgs callable;
  callable.session_handle = "session";
  callable.callable = 5;
  callable.feeds = {floats, strings};
  const RequestMeta meta{.request_id = 12345, .store_errors_in_body = true};
  Status error = errors::Internal("broken");
  error.SetPayload("type.googleapis.com/x", "payload");
  WireWriter graph_error;
  EncodeRunGraphError(error, &graph_error);
  return {
      Seed(kRunGraphRequest,
           encoded([&](WireWriter* out) { return EncodeRunGraphRequest(graph, meta, out); })),
      Seed(kRunGraphResponse,
           encoded([&](WireWriter* out) { return EncodeRunGraphResponse(graph, received, out); })),
      Seed(kRunGraphResponse, graph_error.Flatten()),
      Seed(kRunStepRequest,
           encoded([&](WireWriter* out) { return EncodeRunStepRequest(step, meta, out); })),
      Seed(kRunStepResponse,
           encoded([&](WireWriter* out) { return EncodeRunStepResponse(step, fetched, out); })),
      Seed(kRunCallableRequest,
           encoded([&](WireWriter* out) { return EncodeRunCallableRequest(callable, meta, out); })),
      Seed(kRunCallableResponse,
           encoded([&](WireWriter* out) { return EncodeRunCallableResponse(fetched, out); })),
      Seed(kRecvTensorResponse, encoded([&](WireWriter* out) {
             return EncodeRecvTensorResponse(floats, false, 5, false, out);
           })),
      Seed(kRecvTensorResponse, encoded([&](WireWriter* out) {
             return EncodeRecvTensorResponse(strings, true, 5, true, out);
           })),
      Seed(kPayloads, EncodeStatusPayloads(error)),
  };
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace millrace;  // NOLINT
  if (size < 2) return 0;
  const auto kind = static_cast<Kind>(data[0] % kNumKinds);
  const std::vector<WirePiece> pieces = Cut(data + 2, size - 2, 1 + data[1]);
  Decode(kind, WireReader(pieces), data + 2, size - 2);
  return 0;
}
