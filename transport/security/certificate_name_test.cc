// SPDX-License-Identifier: Apache-2.0
#include "transport/security/certificate_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr Role kRoles[] = {Role::kTask, Role::kClient, Role::kAdmin};

CertificateName Task(const std::string& job, int task, const std::string& cluster = "blue") {
  return {cluster, Role::kTask, job, task};
}

CertificateName Somebody(Role role) {
  CertificateName name = Task("worker", 1);
  name.role = role;
  if (role == Role::kTask) return name;
  return {"blue", role};
}

TEST(CertificateNameTest, ReadsWhatItWrites) {
  for (const CertificateName& name :
       {Task("ps", 0), Task("worker-2_x.y", 999'999'999, ""), Somebody(Role::kClient),
        Somebody(Role::kAdmin), CertificateName{"", Role::kAdmin}}) {
    const StatusOr<CertificateName> read = ParseCertificateUri(name.ToUri());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, name) << name.ToUri();
  }
  EXPECT_EQ(Task("ps", 3).ToUri(), "millrace://blue/job:ps/task:3");
  EXPECT_EQ(Task("ps", 3).TaskName(), "/job:ps/replica:0/task:3");
  EXPECT_EQ(Somebody(Role::kClient).TaskName(), "");
}

TEST(CertificateNameTest, RefusesEveryOtherText) {
  for (const std::string text : {"",
                                 "millrace",
                                 "millrace://",
                                 "millrace:///",
                                 "millrace://c",
                                 "millrace://c/",
                                 "/client",
                                 "millrace://c/Client",
                                 "millrace://c/client/",
                                 "millrace://c/job:/task:0",
                                 "millrace://c/job:ps",
                                 "millrace://c/job:ps/task:",
                                 "millrace://c/job:ps/task:-1",
                                 "millrace://c/job:ps/task:+1",
                                 "millrace://c/job:ps/task:01",
                                 "millrace://c/job:ps/task:1x",
                                 "millrace://c/job:ps/task:1000000000",
                                 "millrace://c/job:p s/task:0",
                                 "millrace://c/job:ps/replica:0/task:0",
                                 "millrace://c/job:a/b/task:0",
                                 "millrace://c d/client",
                                 "millrace://c%20/client",
                                 "millrace://c\xc3\xa4/client",
                                 "https://c/client",
                                 "MILLRACE://c/client"}) {
    EXPECT_EQ(ParseCertificateUri(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  const std::string with_nul("millrace://c\0/client", 20);
  EXPECT_FALSE(ParseCertificateUri(with_nul).ok());
  EXPECT_FALSE(ParseCertificateUri("millrace://" + std::string(129, 'c') + "/client").ok());
}

TEST(CertificateNameTest, HasAFormForAuthoritiesThatSignNamesOfHostsAlone) {
  for (const CertificateName& name :
       {Task("ps", 0), Task("worker-2", 999'999'999, ""), Task("ps", 1, "blue.prod-2"),
        Somebody(Role::kClient), Somebody(Role::kAdmin), CertificateName{"", Role::kAdmin}}) {
    const StatusOr<CertificateName> read = ParseCertificateDns(name.ToDns());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, name) << name.ToDns();
  }
  EXPECT_EQ(Task("ps", 3).ToDns(), "task-3.job-ps.blue.millrace.internal");
  EXPECT_EQ(Task("ps", 3, "").ToDns(), "task-3.job-ps.millrace.internal");
  EXPECT_EQ(Somebody(Role::kClient).ToDns(), "client.blue.millrace.internal");
  EXPECT_EQ((CertificateName{"", Role::kAdmin}).ToDns(), "admin.millrace.internal");
  // What is more than labels can say has the other form alone.
  for (const CertificateName& name :
       {Task("Ps", 0), Task("p_s", 0), Task("p.s", 0), Task("ps-", 0),
        Task(std::string(60, 'j'), 0), Task("ps", 0, "Blue"), Task("ps", 0, "a..b"),
        Task("ps", 0, "-a"), Task("ps", 0, std::string(64, 'c'))}) {
    EXPECT_EQ(name.ToDns(), "") << name.ToUri();
  }
}

TEST(CertificateNameTest, RefusesEveryOtherNameOfAHost) {
  for (const std::string text : {"",
                                 "millrace.internal",
                                 ".millrace.internal",
                                 "blue.millrace.internal",
                                 "task-0.millrace.internal",
                                 "job-ps.task-0.millrace.internal",
                                 "task-0.job-.millrace.internal",
                                 "task-.job-ps.millrace.internal",
                                 "task-01.job-ps.millrace.internal",
                                 "task--1.job-ps.millrace.internal",
                                 "task-+1.job-ps.millrace.internal",
                                 "task-0.job-ps..millrace.internal",
                                 "task-0.job-ps.blue.millrace.internal.",
                                 "task-0.job-ps.blue.millrace.internal.example",
                                 "task-0.job-Ps.blue.millrace.internal",
                                 "Task-0.job-ps.blue.millrace.internal",
                                 "task-0.job-ps.Blue.millrace.internal",
                                 "task-0.job-p_s.millrace.internal",
                                 "task-1000000000.job-ps.millrace.internal",
                                 "*.job-ps.blue.millrace.internal",
                                 "*.millrace.internal",
                                 "client..millrace.internal",
                                 "client.blue.",
                                 "clients.blue.millrace.internal"}) {
    EXPECT_EQ(ParseCertificateDns(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
  const std::string with_nul("client\0.millrace.internal", 25);
  EXPECT_FALSE(ParseCertificateDns(with_nul).ok());
}

TEST(CertificateNameTest, FindsANameInEitherForm) {
  const StatusOr<CertificateName> found = FindCertificateName(
      {"spiffe://company/service"}, {"ps-0.example", "task-0.job-ps.blue.millrace.internal"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Task("ps", 0));
  EXPECT_FALSE(FindCertificateName({}, {"ps-0.example", "localhost"}).ok());
  // Both forms, if they stand for the same.
  EXPECT_TRUE(FindCertificateName({"millrace://blue/job:ps/task:0"},
                                  {"task-0.job-ps.blue.millrace.internal"})
                  .ok());
  const Status two = FindCertificateName({"millrace://blue/job:ps/task:0"},
                                         {"task-1.job-ps.blue.millrace.internal"})
                         .status();
  EXPECT_NE(Message(two).find("task-1.job-ps"), std::string_view::npos) << two;
  EXPECT_FALSE(
      FindCertificateName({"millrace://blue/client"}, {"admin.blue.millrace.internal"}).ok());
  EXPECT_FALSE(
      FindCertificateName({}, {"client.blue.millrace.internal", "admin.blue.millrace.internal"})
          .ok());
  // A wildcard is nobody, and hides nobody.
  EXPECT_FALSE(FindCertificateName({}, {"*.job-ps.blue.millrace.internal"}).ok());
  EXPECT_FALSE(FindCertificateName({"millrace://blue/client"}, {"*.millrace.internal"}).ok());
}

TEST(CertificateNameTest, FindsTheOneNameAmongOthers) {
  const StatusOr<CertificateName> found =
      FindCertificateName({"spiffe://company/service", "millrace://blue/job:ps/task:0"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, Task("ps", 0));
  EXPECT_FALSE(FindCertificateName({}).ok());
  EXPECT_FALSE(FindCertificateName({"spiffe://company/service"}).ok());
  EXPECT_FALSE(FindCertificateName({"millrace://blue/client", "millrace://blue/admin"}).ok());
  EXPECT_FALSE(FindCertificateName({"millrace://blue/client", "millrace://blue/client"}).ok());
}

TEST(CertificateNameTest, BelievesTheTaskThatWasMeantAndNobodyElse) {
  const CertificateName own = Task("worker", 0);
  const std::string ps = "/job:ps/replica:0/task:0";
  EXPECT_TRUE(CheckServerName(own, ps, Task("ps", 0)).ok());
  EXPECT_TRUE(CheckServerName(own, "", Task("ps", 7)).ok());
  for (const CertificateName& peer :
       {Task("ps", 1), Task("worker", 0), Task("ps", 0, "red"), Task("ps", 0, ""),
        Somebody(Role::kClient), Somebody(Role::kAdmin)}) {
    EXPECT_EQ(CheckServerName(own, ps, peer).code(), StatusCode::kPermissionDenied) << peer.ToUri();
  }
  EXPECT_FALSE(CheckServerName(own, "", Task("ps", 7, "red")).ok());
  EXPECT_FALSE(CheckServerName(own, "", Somebody(Role::kAdmin)).ok());
  const Status wrong = CheckServerName(own, ps, Task("ps", 1));
  EXPECT_NE(Message(wrong).find("/job:ps/replica:0/task:1"), std::string_view::npos) << wrong;
  EXPECT_NE(Message(wrong).find(ps), std::string_view::npos) << wrong;
}

// Who may call what, in the order of kRoles.
TEST(CertificateNameTest, GivesEachRoleItsRightsAndNoMore) {
  struct Row {
    const char* method;
    bool may[3];
  };
  const Row rows[] = {
      {"/tensorflow.MasterService/CreateSession", {true, true, false}},
      {"/tensorflow.MasterService/RunStep", {true, true, false}},
      {"/tensorflow.MasterService/Reset", {true, true, false}},
      {"/tensorflow.WorkerService/GetStatus", {true, true, true}},
      {"/tensorflow.WorkerService/RunGraph", {true, false, false}},
      {"/tensorflow.WorkerService/RecvTensor", {true, true, false}},
      {"/tensorflow.WorkerService/RecvBuf", {true, false, false}},
      {"/tensorflow.WorkerService/CleanupAll", {true, false, false}},
      {"/millrace.ControlService/Status", {true, true, true}},
      {"/millrace.ControlService/Shutdown", {true, false, true}},
      {"/millrace.ControlService/DescribeStep", {true, false, true}},
      {"/millrace.ControlService/WhyWaiting", {true, false, true}},
      {"/millrace.ControlService/Ledger", {true, true, true}},
      {"/millrace.ControlService/Page", {true, false, true}},
      {"/millrace.ControlService/Trace", {true, false, true}},
      {"/millrace.ControlService/OfferLink", {true, false, false}},
      {"/millrace.ControlService/Unknown", {false, false, false}},
      // Not by the beginning of another one's name.
      {"/millrace.ControlService/StatusOfOthers", {false, false, false}},
      {"/tensorflow.WorkerService/GetStatusOfOthers", {true, false, false}},
      {"/other.Service/Method", {false, false, false}},
      {"", {false, false, false}},
  };
  const CertificateName own = Task("ps", 0);
  for (const Row& row : rows) {
    for (int i = 0; i < 3; ++i) {
      const CertificateName caller = Somebody(kRoles[i]);
      const Status allowed = CheckCallerName(own, caller, row.method);
      EXPECT_EQ(allowed.ok(), row.may[i]) << row.method << " " << caller.ToUri();
      if (!allowed.ok()) {
        EXPECT_EQ(allowed.code(), StatusCode::kPermissionDenied) << allowed;
      }
      CertificateName stranger = caller;
      stranger.cluster = "red";
      EXPECT_FALSE(CheckCallerName(own, stranger, row.method).ok()) << row.method;
    }
  }
}

}  // namespace
}  // namespace millrace
