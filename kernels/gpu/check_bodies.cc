// SPDX-License-Identifier: Apache-2.0
// Checks of values: the device finds, the host judges.
#include <cstring>
#include <string>

#include "kernels/common/numerics_error.h"
#include "kernels/gpu/body.h"

namespace millrace::gpu {
namespace {

// Of CheckNumerics and CheckNumericsV2.
class CheckNumericsBody final : public Body {
 public:
  explicit CheckNumericsBody(KernelConstruction& c)
      : message_(c.attrs().GetOr<std::string>("message", "")),
        tells_signs_(c.def().name() == "CheckNumericsV2") {}

  int64_t ReportBytes() const override { return sizeof(CheckReport); }
  Status Judge(const Tensor& report) const override {
    CheckReport found;
    std::memcpy(&found, report.raw_data(), sizeof(found));
    return NumericsError({found.nan != 0, found.below != 0, found.above != 0}, message_,
                         tells_signs_);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    return ToStatus(loops.Check(queue, {in.dtype(), in.raw_data(), in.num_elements(),
                                        static_cast<CheckReport*>(call.scratch.raw_data())}));
  }

 private:
  const std::string message_;
  const bool tells_signs_;
};

}  // namespace

void AddCheckBodies(std::vector<BodyDef>* bodies) {
  for (const char* op : {"CheckNumerics", "CheckNumericsV2"}) {
    bodies->push_back({op, {{"T", FloatTypes()}}, &MakeBody<CheckNumericsBody>});
  }
}

}  // namespace millrace::gpu
