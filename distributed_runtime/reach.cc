// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/cluster.h"

namespace millrace {
namespace {

std::string SmallLetters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// A host in one of the ways to write it: numbers as the system does, names in small letters.
std::string OneWay(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  char text[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
    if (!IN6_IS_ADDR_V4MAPPED(&v6)) {
      return inet_ntop(AF_INET6, &v6, text, sizeof(text)) == nullptr ? host : text;
    }
    std::memcpy(&v4, &v6.s6_addr[12], sizeof(v4));
    return inet_ntop(AF_INET, &v4, text, sizeof(text)) == nullptr ? host : text;
  }
  std::string name = SmallLetters(host);
  if (name == "localhost") return "127.0.0.1";  // as servers listen there
  return name == "ip6-localhost" ? "::1" : name;
}

std::string OneWay(const std::string& host, int port) { return StrCat(OneWay(host), " ", port); }

// This machine, however it is written.
bool IsThisMachine(const std::string& host) { return IsLoopbackHost(OneWay(host)); }

// gRPC takes other texts, too: for addresses without a port, for sockets that are files. Some
// versions of it tell their schemes by small letters alone, others by any.
bool IsHost(const std::string& host, std::string_view address) {
  static const std::set<std::string, std::less<>> kSchemes = {
      "dns",   "google-c2p", "google-c2p-experimental", "ipv4", "ipv6", "unix", "unix-abstract",
      "vsock", "xds"};
  in6_addr v6{};
  if (address.starts_with("[")) return inet_pton(AF_INET6, host.c_str(), &v6) == 1;
  return !host.empty() && !kSchemes.contains(SmallLetters(host)) &&
         std::all_of(host.begin(), host.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

std::string ShortName(std::string_view name) {
  if (name.size() <= kLongestName) return CEscape(name);
  return StrCat(CEscape(name.substr(0, kLongestName)), "... (", name.size(), " characters)");
}

Reach::Reach(ReachOptions options) : options_(std::move(options)) {
  for (const auto& [task, address] : options_.addresses) {
    std::string host;
    int port = 0;
    if (!SplitAddress(address, &host, &port).ok() || port == 0) continue;
    own_.try_emplace(OneWay(host, port), Own{task, address});
  }
}

Reach::Own Reach::FindOwn(const std::string& address) const {
  std::string host, listening_host;
  int port = 0, listening_port = 0;
  // A spec may leave ports to the system, for as many tasks as it likes.
  if (!SplitAddress(address, &host, &port).ok() || port == 0) return {};
  for (const auto& [task, at] : options_.addresses) {
    if (at == address) return {task, at};
  }
  const std::string text = OneWay(host, port);
  const auto own = own_.find(text);
  if (own != own_.end()) return own->second;
  const std::string listening = options_.own_address == nullptr ? "" : options_.own_address();
  if (SplitAddress(listening, &listening_host, &listening_port).ok() &&
      OneWay(listening_host, listening_port) == text) {
    return {options_.task, listening};
  }
  return {};
}

std::string Reach::TaskAt(const std::string& address) const { return FindOwn(address).task; }

bool Reach::Calls(const std::string& host, const CallerHost& caller, std::string* why_not) const {
  const ReachOptions& o = options_;
  if (!o.has_credentials) {
    if (o.has_rules && o.allows_network) return true;
    if (!o.has_rules && o.is_on_loopback) {
      if (IsThisMachine(host)) return true;
      *why_not = ", nor on this machine";
    }
  }
  // Who answers without TLS can be the client itself, which is shown nothing.
  const bool calls_back = !o.has_tls && (!o.has_rules || o.allows_network);
  if (calls_back && !caller.address.empty()) {
    if (OneWay(host) == OneWay(caller.address)) return true;
    if (caller.is_here && IsThisMachine(host)) return true;
    *why_not += StrCat(", nor on the machine of its client (", caller.address, ")");
  }
  *why_not += o.has_credentials
                  ? ": this server has credentials, which it shows to the tasks of its own cluster "
                    "only: have the task in its --cluster_spec"
              : why_not->empty()
                  ? ": this server may be started with --allow=network, for whoever may have it "
                    "call others"
                  : ": start the server with --allow=network";
  return false;
}

StatusOr<std::string> Reach::Find(std::string_view who, std::string_view task,
                                  const std::string& address, const CallerHost& caller) const {
  if (address.size() > kLongestAddress) {
    return errors::InvalidArgument(who, " brings ", ShortName(task), " at ", ShortName(address),
                                   ": an address has no more than ", kLongestAddress);
  }
  Own own = FindOwn(address);
  if (!own.task.empty()) return std::move(own.address);
  std::string host, why_not;
  int port = 0;
  if (!SplitAddress(address, &host, &port).ok() || !IsHost(host, address)) {
    return errors::InvalidArgument(who, " brings ", ShortName(task), " at ", ShortName(address),
                                   ", which is no address: expected HOST:PORT, with a name or a "
                                   "number for the host ([...] for IPv6)");
  }
  if (port == 0) {
    return errors::InvalidArgument(who, " brings ", ShortName(task), " at ", ShortName(address),
                                   ": there is no port 0 to call");
  }
  if (Calls(host, caller, &why_not)) return address;
  return errors::PermissionDenied(who, " brings ", ShortName(task), " at ", ShortName(address),
                                  ", which is no address of the cluster of ", options_.task,
                                  why_not);
}

}  // namespace millrace
