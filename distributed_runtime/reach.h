// SPDX-License-Identifier: Apache-2.0
// Which addresses a server calls: clients bring clusters, to sessions and to eager contexts, and so
// could have it call any host (docs/security.md, "Clusters that clients bring").
#ifndef DISTRIBUTED_RUNTIME_REACH_H_
#define DISTRIBUTED_RUNTIME_REACH_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/calls/caller_host.h"
#include "millrace/status.h"

namespace millrace {

struct ReachOptions {
  std::string task;  // the server's own, for errors
  // "host:port" by task, of the server's own cluster; and where the server listens, once it does.
  std::map<std::string, std::string> addresses;
  std::function<std::string()> own_address;
  bool is_on_loopback = false;   // it listens there
  bool has_credentials = false;  // which it shows to the tasks that it calls
  bool has_tls = false;          // and tasks show theirs
  bool has_rules = false;        // it was told what it may do (--allow)
  bool allows_network = false;   // and this is of it
};

// Thread-safe.
class Reach {
 public:
  explicit Reach(ReachOptions options);

  // Whether the server calls `address`, which `who` ("a session") names as `task`; a caller that is
  // known names one of itself. OK gives the address as it is to be called: tasks of the server's
  // own cluster as its spec writes them. PermissionDenied says what the rule is and how to allow
  // it; InvalidArgument if it is no address.
  StatusOr<std::string> Find(std::string_view who, std::string_view task,
                             const std::string& address, const CallerHost& caller = {}) const;
  // The server's own name of the task at an address, however that is written; "" if it is none of
  // its cluster.
  std::string TaskAt(const std::string& address) const;

  const std::map<std::string, std::string>& addresses() const { return options_.addresses; }

 private:
  struct Own {
    std::string task, address;
  };
  // That of the cluster at an address, however it is written; {} if there is none.
  Own FindOwn(const std::string& address) const;
  // Whether the server calls a host that is not of its cluster; else why not, and how to allow it.
  bool Calls(const std::string& host, const CallerHost& caller, std::string* why_not) const;

  const ReachOptions options_;
  std::map<std::string, Own> own_;  // by address, written in one way
};

// Names that a client gives, as errors may repeat them: of no more than this many bytes.
inline constexpr std::size_t kLongestName = 128;
inline constexpr std::size_t kLongestAddress = 300;  // a host name has 253
// Printable, and cut.
std::string ShortName(std::string_view name);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_REACH_H_
