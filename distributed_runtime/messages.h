// SPDX-License-Identifier: Apache-2.0
// The calls that carry tensors, between the plain structs of session/ and the wire's bytes.
// All other calls are ordinary messages.
#ifndef DISTRIBUTED_RUNTIME_MESSAGES_H_
#define DISTRIBUTED_RUNTIME_MESSAGES_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "millrace/status.h"
#include "session/master_interface.h"
#include "session/worker_interface.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

// What a request says beside its arguments.
struct RequestMeta {
  // What tells one request from all others: a server takes each once. 0: it has none.
  int64_t request_id = 0;
  bool store_errors_in_body = false;
  // Of a decoded RunGraph: how long after its arrival the step may be begun; 0: at any time.
  std::chrono::microseconds begin_within{0};
};

// Every decoder gives InvalidArgument for bytes that are not the message, and for tensors that
// cannot be parsed. Encoders fail only for tensors that cannot be sent.

Status EncodeRunGraphRequest(const RunGraphArgs& args, const RequestMeta& meta, WireWriter* out);
Status DecodeRunGraphRequest(WireReader in, RunGraphArgs* args, RequestMeta* meta);
Status EncodeRunGraphResponse(const RunGraphArgs& args, const RunGraphResult& result,
                              WireWriter* out);
// `error` travels in the body, its payloads in a field of our own that other peers ignore.
void EncodeRunGraphError(const Status& error, WireWriter* out);
// Matches the received values with args.recv_keys by name; Internal if one is missing. An
// error in the body is returned as the status.
Status DecodeRunGraphResponse(WireReader in, const RunGraphArgs& args, RunGraphResult* result);

Status EncodeRunStepRequest(const RunStepArgs& args, const RequestMeta& meta, WireWriter* out);
Status DecodeRunStepRequest(WireReader in, RunStepArgs* args, RequestMeta* meta);
Status EncodeRunStepResponse(const RunStepArgs& args, const RunStepResult& result, WireWriter* out);
void EncodeRunStepError(const Status& error, WireWriter* out);
Status DecodeRunStepResponse(WireReader in, const RunStepArgs& args, RunStepResult* result);

Status EncodeRunCallableRequest(const RunCallableArgs& args, const RequestMeta& meta,
                                WireWriter* out);
Status DecodeRunCallableRequest(WireReader in, RunCallableArgs* args, RequestMeta* meta);
Status EncodeRunCallableResponse(const RunStepResult& result, WireWriter* out);
Status DecodeRunCallableResponse(WireReader in, RunStepResult* result);

// Plain tensors come last, behind the other fields; strings come first: as TensorFlow does.
Status EncodeRecvTensorResponse(const Tensor& tensor, bool is_dead, int64_t send_start_micros,
                                bool require_ack, WireWriter* out);
// A dead value may come without a tensor: it is then not initialised.
Status DecodeRecvTensorResponse(WireReader in, Tensor* tensor, bool* is_dead);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_MESSAGES_H_
