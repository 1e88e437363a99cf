// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kTask[] = "/job:x/replica:0/task:1";

ReachOptions Options(const char* host) {
  ReachOptions options;
  options.task = "/job:ps/replica:0/task:0";
  options.addresses = {{"/job:ps/replica:0/task:0", std::string(host) + ":1000"},
                       {"/job:worker/replica:0/task:0", "worker0.example:2000"},
                       {"/job:worker/replica:0/task:1", "localhost:0"}};
  options.own_address = [host] { return std::string(host) + ":1000"; };
  options.is_on_loopback = std::string(host) == "127.0.0.1";
  return options;
}

Status Ask(const ReachOptions& options, const std::string& address, const CallerHost& caller = {}) {
  return Reach(options).Find("a session", kTask, address, caller).status();
}

// Refused for what the server may do, and not for what it is.
void ExpectRefused(const Status& status, const std::string& says) {
  EXPECT_TRUE(errors::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr(says));
}

TEST(ReachTest, TheOwnClusterIsCalledWhereItsSpecHasIt) {
  const ReachOptions loopback = Options("127.0.0.1");
  ReachOptions secret = Options("127.0.0.1");
  secret.has_credentials = secret.has_tls = secret.has_rules = true;
  const std::string own = "127.0.0.1:1000", worker = "worker0.example:2000";
  const struct {
    std::string written, reached;
  } cases[] = {
      {own, own},
      {"localhost:1000", own},
      {"LocalHost:01000", own},
      {"[::ffff:127.0.0.1]:1000", own},
      {worker, worker},
      {"Worker0.Example:2000", worker},
  };
  for (const ReachOptions& options : {loopback, secret}) {
    const Reach reach(options);
    for (const auto& c : cases) {
      const StatusOr<std::string> found = reach.Find("a session", kTask, c.written);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, c.reached) << c.written;
      EXPECT_EQ(reach.TaskAt(c.written),
                c.reached == own ? "/job:ps/replica:0/task:0" : "/job:worker/replica:0/task:0");
    }
    EXPECT_EQ(reach.TaskAt("127.0.0.1:2000"), "");
    EXPECT_EQ(reach.TaskAt("127.0.0.2:1000"), "");
  }
  // Another address of this machine may be somebody else's.
  ExpectRefused(Ask(secret, "127.0.0.2:1000"), "has credentials");
  ExpectRefused(Ask(secret, "[::1]:1000"), "has credentials");
}

TEST(ReachTest, APortThatTheSystemGaveIsTheServersOwn) {
  ReachOptions options = Options("127.0.0.1");
  options.addresses = {{"/job:ps/replica:0/task:0", "localhost:0"}};
  options.own_address = [] { return std::string("localhost:4321"); };
  options.has_credentials = true;
  EXPECT_EQ(Reach(options).TaskAt("127.0.0.1:4321"), options.task);
  EXPECT_EQ(*Reach(options).Find("a session", kTask, "127.0.0.1:4321"), "localhost:4321");
  // Which several tasks of a spec may have.
  for (const char* address : {"localhost:0", "127.0.0.1:0"}) {
    EXPECT_EQ(Reach(options).TaskAt(address), "");
    EXPECT_TRUE(errors::IsInvalidArgument(Ask(options, address))) << address;
  }
}

TEST(ReachTest, OnLoopbackTheMachineIsCalled) {
  const ReachOptions options = Options("127.0.0.1");
  for (const char* address : {"localhost:5", "127.0.0.1:5", "127.9.9.9:5", "[::1]:5"}) {
    EXPECT_TRUE(Ask(options, address).ok()) << address;
  }
  // The same, as they can be written, too.
  for (const char* address : {"LocalHost:5", "[::ffff:127.0.0.1]:5", "[0:0:0:0:0:FFFF:7f00:1]:5",
                              "[0::1]:5", "IP6-localhost:5"}) {
    EXPECT_TRUE(Ask(options, address).ok()) << address;
  }
  for (const char* address :
       {"10.1.2.3:80", "169.254.169.254:80", "0.0.0.0:80", "[::]:80", "127.example.com:80",
        "[::ffff:10.1.2.3]:80", "127.1:80", "2130706433:80"}) {
    ExpectRefused(Ask(options, address),
                  "a session brings /job:x/replica:0/task:1 at " + std::string(address) +
                      ", which is no address of the cluster of /job:ps/replica:0/task:0, nor on "
                      "this machine: start the server with --allow=network");
  }
}

TEST(ReachTest, ElsewhereOnlyTheOwnClusterIsCalled) {
  const ReachOptions options = Options("10.0.0.1");
  for (const char* address : {"10.0.0.2:80", "localhost:5", "127.0.0.1:1000"}) {
    ExpectRefused(Ask(options, address),
                  "which is no address of the cluster of /job:ps/replica:0/task:0: this server may "
                  "be started with --allow=network");
  }
  EXPECT_TRUE(Ask(options, "10.0.0.1:1000").ok());
}

TEST(ReachTest, AllowNetworkOpensAllHosts) {
  for (const char* host : {"127.0.0.1", "10.0.0.1"}) {
    ReachOptions options = Options(host);
    options.has_rules = options.allows_network = true;
    for (const char* address : {"10.1.2.3:80", "localhost:5", "name.example:80", "[fd00::1]:80"}) {
      EXPECT_TRUE(Ask(options, address).ok()) << address;
    }
    options.has_credentials = true;
    ExpectRefused(Ask(options, "10.1.2.3:80"), "--cluster_spec");
    ExpectRefused(Ask(options, "localhost:5"), "--cluster_spec");
    // What a graph may do besides is not the network.
    options.has_credentials = options.allows_network = false;
    ExpectRefused(Ask(options, "10.1.2.3:80"), "--allow=network");
    ExpectRefused(Ask(options, "localhost:5"), "--allow=network");
  }
}

TEST(ReachTest, AClientIsCalledBackOnItsOwnMachine) {
  const CallerHost there{"10.0.0.9", false}, v6{"fd00::9", false};
  const CallerHost here{"10.0.0.1", true};
  ReachOptions options = Options("10.0.0.1");
  for (const bool has_token : {false, true}) {
    options.has_credentials = has_token;
    EXPECT_TRUE(Ask(options, "10.0.0.9:5", there).ok());
    EXPECT_TRUE(Ask(options, "[::ffff:10.0.0.9]:5", there).ok());
    EXPECT_TRUE(Ask(options, "[fd00:0::9]:5", v6).ok());
    EXPECT_TRUE(Ask(options, "10.0.0.1:5", here).ok());
    EXPECT_TRUE(Ask(options, "localhost:5", here).ok());
    EXPECT_TRUE(Ask(options, "[::ffff:127.0.0.1]:5", here).ok());
    // That of the server, not of the client.
    ExpectRefused(Ask(options, "localhost:5", there),
                  ", nor on the machine of its client (10.0.0.9): ");
    ExpectRefused(Ask(options, "10.0.0.8:5", there), ", nor on the machine of its client");
    ExpectRefused(Ask(options, "10.0.0.9.example:5", there), ", nor on the machine");
  }
  // Nobody without a certificate could answer.
  options.has_tls = true;
  ExpectRefused(Ask(options, "10.0.0.9:5", there), "has credentials");
  // It was told what it may do, and this is not of it.
  options.has_credentials = options.has_tls = false;
  options.has_rules = true;
  ExpectRefused(Ask(options, "10.0.0.9:5", there), "--allow=network");
  ExpectRefused(Ask(options, "localhost:5", here), "--allow=network");
}

TEST(ReachTest, WhatIsNoAddressIsNotCalled) {
  ReachOptions options = Options("127.0.0.1");
  options.has_rules = options.allows_network = true;
  // The last ones are other things than they look like to the library that connects.
  for (const char* address : {"",
                              ":",
                              "host",
                              "host:",
                              "host:x",
                              "host:70000",
                              "ho st:1",
                              "a/b:1",
                              "http://host:1",
                              "fd00::1:80",
                              "::1:80",
                              "[host]:80",
                              "[fd00::1:80",
                              "unix:80",
                              "unix:file:80",
                              "unix-abstract:80",
                              "unix:%2Ftmp%2Ffile:80",
                              "ipv4:10.0.0.1:80",
                              "dns:80",
                              "UNIX:80",
                              "Unix-Abstract:80",
                              "Vsock:80",
                              "DNS:80",
                              "google-c2p:80",
                              "ho\nst:1"}) {
    const Status status = Ask(options, address);
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << address << ": " << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("HOST:PORT"));
    EXPECT_EQ(Message(status).find('\n'), std::string_view::npos);
  }
  EXPECT_THAT(std::string(Message(Ask(options, "host:0"))), HasSubstr("no port 0"));
}

TEST(ReachTest, NamesInErrorsAreShort) {
  const std::string name(5000, 'n');
  const ReachOptions options = Options("127.0.0.1");
  const std::vector<Status> refusals = {
      Ask(options, name + ":80"),
      Ask(options, std::string(200, 'n') + ":80"),
      Ask(options, std::string(299, '\x01')),
      Reach(options).Find("a session", name, "10.1.2.3:80").status(),
  };
  for (const Status& status : refusals) {
    EXPECT_FALSE(status.ok());
    EXPECT_LT(Message(status).size(), 1000u) << status;
  }
  EXPECT_THAT(std::string(Message(refusals[0])), HasSubstr("n... (5003 characters)"));
  EXPECT_EQ(ShortName("a\n"), "a\\n");
}

}  // namespace
}  // namespace millrace
