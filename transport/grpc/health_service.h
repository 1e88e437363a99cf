// SPDX-License-Identifier: Apache-2.0
// gRPC's own health service, grpc.health.v1.Health: of rpc_server.cc alone.
#ifndef TRANSPORT_GRPC_HEALTH_SERVICE_H_
#define TRANSPORT_GRPC_HEALTH_SERVICE_H_

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/notification.h"
#include "base/string_map.h"
#include "millrace/status.h"
#include "transport/wire_reader.h"

namespace millrace {

// The service that a HealthCheckRequest asks about, "" if it names none; of one whose name is
// longer than any the beginning. False if the bytes are no such request.
bool ReadHealthRequest(std::span<const WirePiece> request, std::string* service);

// Metadata at the end of an answer that is NOT_SERVING: what is wrong with the server.
inline constexpr char kHealthReason[] = "millrace-health-reason";

// gRPC's default one lets everybody open as many watches as connections carry, and those keep a
// server from its end for as long as calls may. Nothing of this one runs on a thread of its own.
class HealthService final : public grpc::Service {
 public:
  // Calls of Watch at once, all connections together.
  static constexpr int kMostWatchers = 1024;

  // Names are added and gRPC is given the service before the first call. It must outlive the
  // server.
  HealthService();

  // A service that the server has; "", the server as a whole, is always known.
  void AddName(std::string service);
  // Whether the server can serve, whatever it is told below: not if its certificate cannot be used.
  // Asked at every call of Check, under a lock, and by Look. Before the first call.
  void SetUsable(std::function<Status()> usable) { usable_ = std::move(usable); }
  // Asks, and tells those who watch what has changed.
  void Look();
  // NOT_SERVING until the first of these; each is told to all who watch.
  void SetServing(bool serving);
  // NOT_SERVING, for good. Those who watch are told, and with that their calls end.
  void End();
  // After End: returns once no call of Watch is left, and cancels those that are left at `limit`,
  // whose clients do not take what they are told.
  void CancelWatchers(Deadline limit);

 private:
  enum Answer : uint8_t { kNone = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };
  class Watcher;

  // Whether the bytes are a request; `known` says if of a service that is known.
  bool ReadRequest(const grpc::ByteBuffer& request, bool* known) const;
  // Where the server is not usable, the trailing metadata kHealthReason says why: the answer has no
  // field for it.
  grpc::Status Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
                     grpc::ByteBuffer* answer) const;
  Answer Now(bool known) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!known) return kServiceUnknown;
    return serving_ && (usable_ == nullptr || usable_().ok()) ? kServing : kNotServing;
  }
  void TellAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  StringSet names_{""};             // constant once there are calls
  std::function<Status()> usable_;  // the same; null: always
  mutable Mutex mu_;
  CondVar unwatched_;  // signalled when the last of them has gone
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_HEALTH_SERVICE_H_
