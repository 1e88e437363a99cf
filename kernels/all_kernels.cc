#include "kernels/all_kernels.h"

#include "kernels/control_flow.h"
#include "kernels/send_recv.h"

namespace millrace {

void RegisterAllKernels(KernelRegistry& registry) {
  RegisterMatMulKernels(registry);
  RegisterBiasKernels(registry);
  RegisterActivationKernels(registry);
  RegisterSoftmaxKernels(registry);

  RegisterStateKernels(registry);
  RegisterResourceVariableKernels(registry);
  RegisterVariableScatterKernels(registry);
  RegisterTrainingKernels(registry);

  RegisterQueueKernels(registry);
  RegisterAccumulatorKernels(registry);
  RegisterSaveRestoreKernels(registry);

  RegisterControlFlowKernels(registry);
  RegisterCallKernels(registry);
  RegisterSendRecvKernels(registry);
}

}  // namespace millrace
