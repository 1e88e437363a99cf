// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "base/text/utf8.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "transport/status_payloads.h"

namespace millrace {
namespace {

// Field numbers of the tensors (wire.md of the documentation; proto/*.proto).
constexpr uint32_t kRunGraphSend = 3, kRunGraphRecv = 1;
constexpr uint32_t kRunStepFeed = 2, kRunStepTensor = 1;
constexpr uint32_t kRunCallableFeed = 3, kRunCallableFetch = 1;
constexpr uint32_t kRecvTensor = 1, kRecvIsDead = 2, kRecvSendStartMicros = 3, kRecvRequireAck = 5;

// Our own field in responses that carry an error in their body: its payloads.
constexpr int kErrorPayloads = 1000;

// Added to a clock it must not wrap: a year.
constexpr int64_t kLongestTimeoutMicros = int64_t{366} * 24 * 3600 * 1'000'000;

// How peers of before 2021 mark a derived error.
constexpr std::string_view kOldDerivedMark = "[_Derived_]";

// A message may quote any bytes; a peer cannot read a response whose text is not UTF-8.
std::string ReadableText(std::string_view text) {
  std::string readable;
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    if (length == 0) {
      readable += CEscape(text.substr(0, 1));
    } else {
      readable += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return readable;
}

template <typename Response>
void EncodeError(const Status& error, WireWriter* out) {
  Response response;
  response.set_status_code(static_cast<pb::error::Code>(error.code()));
  response.set_status_error_message(ReadableText(Message(error)));
  out->AppendMessage(response);
  const std::string payloads = EncodeStatusPayloads(error);
  if (!payloads.empty()) out->AppendBytesField(kErrorPayloads, payloads);
}

template <typename Response>
Status ErrorInBody(const Response& response) {
  if (response.status_code() == 0) return OkStatus();
  Status status =
      MakeStatus(static_cast<StatusCode>(response.status_code()), response.status_error_message());
  const google::protobuf::UnknownFieldSet& unknown =
      response.GetReflection()->GetUnknownFields(response);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const google::protobuf::UnknownField& field = unknown.field(i);
    if (field.number() == kErrorPayloads &&
        field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      DecodeStatusPayloads(field.length_delimited(), &status);
    }
  }
  if (Message(status).find(kOldDerivedMark) != std::string_view::npos) {
    status = MarkDerived(std::move(status));
  }
  return status;
}

// Values by name, to be put in the order in which they were asked for.
class NamedTensors {
 public:
  Status Add(WireReader body) {
    std::string name;
    Tensor tensor;
    MR_RETURN_IF_ERROR(ReadNamedTensor(body, &name, &tensor));
    names_.push_back(std::move(name));
    tensors_.push_back(std::move(tensor));
    return OkStatus();
  }

  Status Take(const std::vector<std::string>& wanted, std::vector<Tensor>* out) {
    out->clear();
    out->reserve(wanted.size());
    if (names_ == wanted) {  // the usual case
      *out = std::move(tensors_);
      return OkStatus();
    }
    StringMap<int> index;
    for (std::size_t i = 0; i < names_.size(); ++i) index.try_emplace(names_[i], i);
    for (const std::string& name : wanted) {
      auto it = index.find(name);
      if (it == index.end()) it = index.find(StrCat(name, ":0"));
      if (it == index.end()) {
        return errors::Internal("the answer lacks the value of '", name, "'");
      }
      out->push_back(tensors_[it->second]);
    }
    return OkStatus();
  }

 private:
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

template <typename Repeated>
std::vector<std::string> TakeStrings(Repeated* from) {
  return {std::make_move_iterator(from->begin()), std::make_move_iterator(from->end())};
}

}  // namespace

Status EncodeRunGraphRequest(const RunGraphArgs& args, const RequestMeta& meta, WireWriter* out) {
  pb::RunGraphRequest request;
  request.set_session_handle(args.session_handle);
  request.set_create_worker_session_called(!args.session_handle.empty());
  request.set_graph_handle(args.graph_handle);
  request.set_step_id(args.step_id);
  if (args.record_timeline || args.record_costs || args.record_partition_graphs) {
    pb::ExecutorOpts* opts = request.mutable_exec_opts();
    opts->set_record_timeline(args.record_timeline);
    opts->set_record_costs(args.record_costs);
    opts->set_record_partition_graphs(args.record_partition_graphs);
  }
  for (const std::string& key : args.recv_keys) request.add_recv_key(key);
  request.set_is_partial(args.is_partial);
  request.set_is_last_partial_run(args.is_last_partial);
  request.set_store_errors_in_response_body(meta.store_errors_in_body);
  request.set_request_id(meta.request_id);
  request.set_client_request_id(args.request_id);
  if (args.begin_by != kNoDeadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(args.begin_by - SteadyClock::now());
    request.set_timeout_micros(std::max<int64_t>(left.count(), 1));
  }
  out->AppendMessage(request);
  for (const auto& [key, value] : args.sends) {
    MR_RETURN_IF_ERROR(out->AppendNamedTensorField(kRunGraphSend, key, value));
  }
  return OkStatus();
}

Status DecodeRunGraphRequest(WireReader in, RunGraphArgs* args, RequestMeta* meta) {
  pb::RunGraphRequest request;
  const auto on_send = [&](WireReader body) {
    auto& [key, value] = args->sends.emplace_back();
    return ReadNamedTensor(body, &key, &value);
  };
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(in, kRunGraphSend, on_send, &request));
  // Without a session of its own a request means the one that all share.
  if (request.create_worker_session_called()) {
    args->session_handle = std::move(*request.mutable_session_handle());
  }
  args->graph_handle = std::move(*request.mutable_graph_handle());
  args->step_id = request.step_id();
  args->recv_keys = TakeStrings(request.mutable_recv_key());
  args->record_timeline = request.exec_opts().record_timeline();
  args->record_costs = request.exec_opts().record_costs();
  args->record_partition_graphs = request.exec_opts().record_partition_graphs();
  args->is_partial = request.is_partial();
  args->is_last_partial = request.is_last_partial_run();
  args->request_id = request.client_request_id();
  meta->begin_within = std::chrono::microseconds(
      std::clamp<int64_t>(request.timeout_micros(), 0, kLongestTimeoutMicros));
  meta->request_id = request.request_id();
  meta->store_errors_in_body = request.store_errors_in_response_body();
  return OkStatus();
}

Status EncodeRunGraphResponse(const RunGraphArgs& args, const RunGraphResult& result,
                              WireWriter* out) {
  if (result.recvs.size() != args.recv_keys.size()) {
    return errors::Internal("the worker returned ", result.recvs.size(), " values for ",
                            args.recv_keys.size(), " keys");
  }
  for (std::size_t i = 0; i < result.recvs.size(); ++i) {
    MR_RETURN_IF_ERROR(
        out->AppendNamedTensorField(kRunGraphRecv, args.recv_keys[i], result.recvs[i]));
  }
  pb::RunGraphResponse response;
  if (result.step_stats.dev_stats_size() > 0) *response.mutable_step_stats() = result.step_stats;
  for (const pb::GraphDef& graph : result.partition_graphs) *response.add_partition_graph() = graph;
  out->AppendMessage(response);
  return OkStatus();
}

void EncodeRunGraphError(const Status& error, WireWriter* out) {
  EncodeError<pb::RunGraphResponse>(error, out);
}

Status DecodeRunGraphResponse(WireReader in, const RunGraphArgs& args, RunGraphResult* result) {
  pb::RunGraphResponse response;
  NamedTensors values;
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(
      in, kRunGraphRecv, [&](WireReader body) { return values.Add(body); }, &response));
  if (response.has_step_stats()) result->step_stats.Swap(response.mutable_step_stats());
  for (pb::GraphDef& graph : *response.mutable_partition_graph()) {
    result->partition_graphs.push_back(std::move(graph));
  }
  MR_RETURN_IF_ERROR(ErrorInBody(response));
  return values.Take(args.recv_keys, &result->recvs);
}

Status EncodeRunStepRequest(const RunStepArgs& args, const RequestMeta& meta, WireWriter* out) {
  pb::RunStepRequest request;
  request.set_session_handle(args.session_handle);
  for (const std::string& fetch : args.fetches) request.add_fetch(fetch);
  for (const std::string& target : args.targets) request.add_target(target);
  *request.mutable_options() = args.options;
  request.set_partial_run_handle(args.partial_run_handle);
  request.set_store_errors_in_response_body(meta.store_errors_in_body);
  request.set_request_id(meta.request_id);
  out->AppendMessage(request);
  for (const auto& [name, value] : args.feeds) {
    MR_RETURN_IF_ERROR(out->AppendNamedTensorField(kRunStepFeed, name, value));
  }
  return OkStatus();
}

Status DecodeRunStepRequest(WireReader in, RunStepArgs* args, RequestMeta* meta) {
  pb::RunStepRequest request;
  const auto on_feed = [&](WireReader body) {
    auto& [name, value] = args->feeds.emplace_back();
    return ReadNamedTensor(body, &name, &value);
  };
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(in, kRunStepFeed, on_feed, &request));
  args->session_handle = std::move(*request.mutable_session_handle());
  args->fetches = TakeStrings(request.mutable_fetch());
  args->targets = TakeStrings(request.mutable_target());
  args->options.Swap(request.mutable_options());
  args->partial_run_handle = std::move(*request.mutable_partial_run_handle());
  args->request_id = meta->request_id = request.request_id();
  meta->store_errors_in_body = request.store_errors_in_response_body();
  return OkStatus();
}

Status EncodeRunStepResponse(const RunStepArgs& args, const RunStepResult& result,
                             WireWriter* out) {
  if (result.fetches.size() != args.fetches.size()) {
    return errors::Internal("the step returned ", result.fetches.size(), " values for ",
                            args.fetches.size(), " fetches");
  }
  StringSet sent;  // clients match by name: a name that was asked for twice travels once
  for (std::size_t i = 0; i < result.fetches.size(); ++i) {
    if (result.fetches.size() > 1 && !sent.insert(args.fetches[i]).second) continue;
    MR_RETURN_IF_ERROR(
        out->AppendNamedTensorField(kRunStepTensor, args.fetches[i], result.fetches[i]));
  }
  // TensorFlow's master always has the metadata field, if empty.
  pb::RunStepResponse response;
  *response.mutable_metadata() = result.metadata;
  out->AppendMessage(response);
  return OkStatus();
}

void EncodeRunStepError(const Status& error, WireWriter* out) {
  EncodeError<pb::RunStepResponse>(error, out);
}

Status DecodeRunStepResponse(WireReader in, const RunStepArgs& args, RunStepResult* result) {
  pb::RunStepResponse response;
  NamedTensors values;
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(
      in, kRunStepTensor, [&](WireReader body) { return values.Add(body); }, &response));
  result->metadata.Swap(response.mutable_metadata());
  MR_RETURN_IF_ERROR(ErrorInBody(response));
  return values.Take(args.fetches, &result->fetches);
}

Status EncodeRunCallableRequest(const RunCallableArgs& args, const RequestMeta& meta,
                                WireWriter* out) {
  pb::RunCallableRequest request;
  request.set_session_handle(args.session_handle);
  request.set_handle(args.callable);
  request.set_request_id(meta.request_id);
  out->AppendMessage(request);
  for (const Tensor& feed : args.feeds) {
    MR_RETURN_IF_ERROR(out->AppendTensorField(kRunCallableFeed, feed));
  }
  return OkStatus();
}

namespace {
Status ReadTensorInto(WireReader body, std::vector<Tensor>* out) {
  MR_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(body));
  out->push_back(std::move(tensor));
  return OkStatus();
}
}  // namespace

Status DecodeRunCallableRequest(WireReader in, RunCallableArgs* args, RequestMeta* meta) {
  pb::RunCallableRequest request;
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(
      in, kRunCallableFeed, [&](WireReader body) { return ReadTensorInto(body, &args->feeds); },
      &request));
  args->session_handle = std::move(*request.mutable_session_handle());
  args->callable = request.handle();
  args->request_id = meta->request_id = request.request_id();
  meta->store_errors_in_body = false;
  return OkStatus();
}

Status EncodeRunCallableResponse(const RunStepResult& result, WireWriter* out) {
  for (const Tensor& fetch : result.fetches) {
    MR_RETURN_IF_ERROR(out->AppendTensorField(kRunCallableFetch, fetch));
  }
  pb::RunCallableResponse response;
  *response.mutable_metadata() = result.metadata;
  out->AppendMessage(response);
  return OkStatus();
}

Status DecodeRunCallableResponse(WireReader in, RunStepResult* result) {
  pb::RunCallableResponse response;
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(
      in, kRunCallableFetch,
      [&](WireReader body) { return ReadTensorInto(body, &result->fetches); }, &response));
  result->metadata.Swap(response.mutable_metadata());
  return OkStatus();
}

Status EncodeRecvTensorResponse(const Tensor& tensor, bool is_dead, int64_t send_start_micros,
                                bool require_ack, WireWriter* out) {
  // What a dead value's tensor looks like does not matter, but peers expect one.
  const Tensor& value = tensor.IsInitialized() ? tensor : Tensor(kFloat, Shape({0}));
  const bool tensor_first = !IsMemcpyable(value.dtype());
  if (tensor_first) MR_RETURN_IF_ERROR(out->AppendTensorField(kRecvTensor, value));
  out->AppendVarintField(kRecvSendStartMicros, static_cast<uint64_t>(send_start_micros));
  if (is_dead) out->AppendVarintField(kRecvIsDead, 1);
  if (require_ack) out->AppendVarintField(kRecvRequireAck, 1);
  if (!tensor_first) MR_RETURN_IF_ERROR(out->AppendTensorField(kRecvTensor, value));
  return OkStatus();
}

Status DecodeRecvTensorResponse(WireReader in, Tensor* tensor, bool* is_dead) {
  pb::RecvTensorResponse response;
  std::vector<Tensor> tensors;
  MR_RETURN_IF_ERROR(ReadMessageWithTensors(
      in, kRecvTensor, [&](WireReader body) { return ReadTensorInto(body, &tensors); }, &response));
  *is_dead = response.is_dead();
  if (tensors.empty() && !*is_dead) return errors::Internal("the answer holds no tensor");
  *tensor = tensors.empty() ? Tensor() : std::move(tensors.back());
  return OkStatus();
}

}  // namespace millrace
