// SPDX-License-Identifier: Apache-2.0
#include "device/activity.h"

namespace millrace {

std::string_view StreamPurpose(StreamKind kind) {
  switch (kind) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kCopyIn:
      return "copy in";
    case StreamKind::kCopyOut:
      return "copy out";
    case StreamKind::kPeer:
      return "peer";
  }
  return "other";
}

}  // namespace millrace
