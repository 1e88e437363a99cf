// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/observe_service.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "transport/grpc/blocking_call.h"
#include "transport/methods.h"

namespace millrace {
namespace {

constexpr double kLongestTrace = 3600;  // seconds
// Besides the time that the steps take: for what was recorded of them to come.
constexpr std::chrono::seconds kToAnswer(30);

Deadline DeadlineOf(double seconds) {
  if (!(seconds > 0)) seconds = 0;
  return DeadlineAfter(
      std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, kLongestTrace) * 1e3)));
}

}  // namespace

void AddObserveMethods(RpcServer* server, std::string task, ThreadPool* pool,
                       const PageTable* pages, StepTracer* tracer) {
  server->AddMethod(methods::kControlPage, [pages, pool](ServerCall* call) {
    pb::PageRequest request;
    const Status parsed = call->Parse(&request);
    if (!parsed.ok()) return call->Finish(parsed);
    PageRequest wanted;
    if (!PageRequest::Parse(request.target(), &wanted)) {
      return call->Finish(errors::InvalidArgument("'", request.target(), "' is no path of a page"));
    }
    wanted.accept = request.accept();
    // A page may take its time.
    pool->Schedule([call, pages, wanted = std::move(wanted)] {
      Page page = pages->Make(wanted);
      pb::PageResponse response;
      response.set_status(page.status);
      response.set_type(page.type);
      response.set_body(std::move(page.body));
      call->Finish(response);
    });
  });
  server->AddMethod(methods::kControlTrace, [tracer, task = std::move(task)](ServerCall* call) {
    pb::TraceRequest request;
    const Status parsed = call->Parse(&request);
    if (!parsed.ok()) return call->Finish(parsed);
    tracer->Start(
        request.num_steps(), DeadlineOf(request.seconds()),
        [call, task](StatusOr<StepTracer::Steps> steps) {
          if (!steps.ok()) return call->Finish(steps.status());
          pb::TraceResponse response;
          response.set_task(task);
          for (pb::TracedStep& step : *steps) response.add_step()->Swap(&step);
          call->Finish(response);
        },
        call->options().cancellation);
  });
}

StatusOr<Page> ReadPage(const std::string& address, const std::string& target, Deadline deadline,
                        std::shared_ptr<const LoadedCredentials> credentials) {
  pb::PageRequest request;
  request.set_target(target);
  request.set_accept("application/openmetrics-text");
  pb::PageResponse response;
  MR_RETURN_IF_ERROR(CallAndWait(address, methods::kControlPage, request, deadline,
                                 std::move(credentials), &response));
  return Page{response.status(), std::move(*response.mutable_type()),
              std::move(*response.mutable_body())};
}

StatusOr<pb::TraceResponse> TraceSteps(const std::string& address, int num_steps,
                                       std::chrono::milliseconds limit,
                                       std::shared_ptr<const LoadedCredentials> credentials) {
  pb::TraceRequest request;
  request.set_num_steps(num_steps);
  request.set_seconds(std::chrono::duration<double>(limit).count());
  pb::TraceResponse response;
  MR_RETURN_IF_ERROR(CallAndWait(address, methods::kControlTrace, request,
                                 DeadlineAfter(limit + kToAnswer), std::move(credentials),
                                 &response));
  return response;
}

}  // namespace millrace
