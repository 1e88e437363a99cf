// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/strings.h"

namespace millrace::testing {
namespace {

// Nobody is there: what is sent to it is lost.
constexpr char kPrefix[] = "10.9.0.";

bool Run(const std::string& commands) {
  return std::system(StrCat("set -e; PATH=$PATH:/usr/sbin:/sbin; ", commands).c_str()) == 0;
}

bool WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

}  // namespace

std::string Network::Enter() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return StrCat("no user and network namespaces: ", std::strerror(errno));
  }
  if (!WriteFile("/proc/self/setgroups", "deny") ||
      !WriteFile("/proc/self/uid_map", StrCat("0 ", user, " 1")) ||
      !WriteFile("/proc/self/gid_map", StrCat("0 ", group, " 1"))) {
    return "a user cannot be mapped into the new namespace";
  }
  if (!Run("ip link set lo up; ip link add cells type bridge; ip link set cells up")) {
    return "no bridge can be made (is the package iproute2 there?)";
  }
  return "";
}

Network::~Network() {
  for (const auto& [number, keeper] : hosts_) {
    kill(keeper, SIGKILL);
    waitpid(keeper, nullptr, 0);
  }
}

bool Network::AddHost(int number) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return false;
  const pid_t keeper = fork();
  if (keeper == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET) != 0 || write(ready[1], "", 1) != 1) _exit(1);
    close(ready[1]);
    while (true) pause();
  }
  close(ready[1]);
  char byte = 0;
  const bool made = keeper > 0 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (keeper > 0) hosts_[number] = keeper;
  if (!made) return false;
  const std::string inside = StrCat("nsenter -t ", keeper, " -n ip ");
  return Run(StrCat("ip link add out", number, " type veth peer name in", number,
                    "; ip link set out", number, " up; ip link set in", number, " netns ", keeper,
                    "; ", inside, "link set lo up; ", inside, "addr add ", kPrefix, number,
                    "/24 dev in", number, "; ", inside, "link set in", number, " up")) &&
         Heal(number);
}

std::string Network::Address(int number) { return StrCat(kPrefix, number); }

std::string Network::RunAt(int number) const {
  return StrCat("exec nsenter -t ", hosts_.at(number), " -n ");
}

// Off the bridge, its end of the cable is still plugged in.
bool Network::Cut(int number) { return Run(StrCat("ip link set out", number, " nomaster")); }
bool Network::Heal(int number) { return Run(StrCat("ip link set out", number, " master cells")); }

}  // namespace millrace::testing
