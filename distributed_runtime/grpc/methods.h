// The paths of the methods on the wire: TensorFlow's, and one service of our own.
#ifndef DISTRIBUTED_RUNTIME_GRPC_METHODS_H_
#define DISTRIBUTED_RUNTIME_GRPC_METHODS_H_

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
inline constexpr char kControlOfferLink[] = "/millrace.ControlService/OfferLink";

}  // namespace millrace::methods

#endif  // DISTRIBUTED_RUNTIME_GRPC_METHODS_H_
