// SPDX-License-Identifier: Apache-2.0
// The paths of the methods on the wire: TensorFlow's, and one service of our own.
#ifndef TRANSPORT_METHODS_H_
#define TRANSPORT_METHODS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace millrace::methods {

#define MR_MASTER_METHOD(Name) \
  inline constexpr char kMaster##Name[] = "/tensorflow.MasterService/" #Name
MR_MASTER_METHOD(CreateSession);
MR_MASTER_METHOD(ExtendSession);
MR_MASTER_METHOD(PartialRunSetup);
MR_MASTER_METHOD(RunStep);
MR_MASTER_METHOD(CloseSession);
MR_MASTER_METHOD(ListDevices);
MR_MASTER_METHOD(Reset);
MR_MASTER_METHOD(MakeCallable);
MR_MASTER_METHOD(RunCallable);
MR_MASTER_METHOD(ReleaseCallable);
#undef MR_MASTER_METHOD

#define MR_WORKER_METHOD(Name) \
  inline constexpr char kWorker##Name[] = "/tensorflow.WorkerService/" #Name
MR_WORKER_METHOD(GetStatus);
MR_WORKER_METHOD(CreateWorkerSession);
MR_WORKER_METHOD(DeleteWorkerSession);
MR_WORKER_METHOD(RegisterGraph);
MR_WORKER_METHOD(DeregisterGraph);
MR_WORKER_METHOD(RunGraph);
MR_WORKER_METHOD(CleanupGraph);
MR_WORKER_METHOD(CleanupAll);
MR_WORKER_METHOD(RecvTensor);
MR_WORKER_METHOD(RecvBuf);
MR_WORKER_METHOD(Logging);
MR_WORKER_METHOD(Tracing);
MR_WORKER_METHOD(CompleteGroup);
MR_WORKER_METHOD(CompleteInstance);
MR_WORKER_METHOD(GetStepSequence);
MR_WORKER_METHOD(MarkRecvFinished);
#undef MR_WORKER_METHOD

#define MR_EAGER_METHOD(Name) \
  inline constexpr char kEager##Name[] = "/tensorflow.eager.EagerService/" #Name
MR_EAGER_METHOD(CreateContext);
MR_EAGER_METHOD(UpdateContext);
MR_EAGER_METHOD(Enqueue);
MR_EAGER_METHOD(StreamingEnqueue);
MR_EAGER_METHOD(WaitQueueDone);
MR_EAGER_METHOD(RunComponentFunction);
MR_EAGER_METHOD(KeepAlive);
MR_EAGER_METHOD(CloseContext);
#undef MR_EAGER_METHOD

// Our own: not part of TensorFlow's protocol.
inline constexpr char kControlStatus[] = "/millrace.ControlService/Status";
inline constexpr char kControlShutdown[] = "/millrace.ControlService/Shutdown";
inline constexpr char kControlDescribeStep[] = "/millrace.ControlService/DescribeStep";
inline constexpr char kControlPage[] = "/millrace.ControlService/Page";
inline constexpr char kControlTrace[] = "/millrace.ControlService/Trace";
inline constexpr char kControlWhyWaiting[] = "/millrace.ControlService/WhyWaiting";
inline constexpr char kControlLedger[] = "/millrace.ControlService/Ledger";
inline constexpr char kControlOfferLink[] = "/millrace.ControlService/OfferLink";

// What a step needs of another task, by number: frames of links name methods so. A number keeps its
// method for ever.
inline constexpr const char* kNumbered[] = {nullptr, kWorkerRunGraph, kWorkerRecvTensor,
                                            kWorkerCleanupGraph, kWorkerRecvBuf};

// 0 if the method has none.
constexpr uint8_t NumberOf(std::string_view path) {
  for (std::size_t i = 1; i < std::size(kNumbered); ++i) {
    if (path == kNumbered[i]) return static_cast<uint8_t>(i);
  }
  return 0;
}

// For errors.
constexpr const char* PathOf(uint8_t number) {
  return number > 0 && number < std::size(kNumbered) ? kNumbered[number] : "an unknown method";
}

// A call that failed may have had its effects all the same.
constexpr bool HasEffects(std::string_view path) { return path == kWorkerRunGraph; }

// Asks for a sign of life, or for the state of a step: nobody's work waits for the answer.
constexpr bool IsQuestion(std::string_view path) {
  return path == kWorkerGetStatus || path == kControlDescribeStep;
}

}  // namespace millrace::methods

#endif  // TRANSPORT_METHODS_H_
