// SPDX-License-Identifier: Apache-2.0
#include "observe/page_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <list>
#include <string>
#include <thread>

#include "base/notification.h"
#include "base/strings.h"
#include "base/text/markup.h"
#include "observe/visitor_testlib.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Answer;
using testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Visitor;

struct Site {
  explicit Site(PageServerOptions options = {}) {
    pages = std::make_shared<PageTable>();
    pages->Add("/statusz", "Status", [this](const PageRequest& request) {
      const auto name = request.query.find("name");
      return Page{200, kHtmlType,
                  pages->Frame("Status <1>", "of & \"x\"",
                               MarkupText(name == request.query.end() ? "" : name->second))};
    });
    pages->Add("/big", "", [](const PageRequest&) {
      return Page{200, kTextType, std::string(50'000'000, 'x')};
    });
    pages->Add("/fails", "", [](const PageRequest&) -> Page { throw std::bad_alloc(); });
    pages->Add(
        "/healthz", "", [](const PageRequest&) { return Page{200, kTextType, "ok\n"}; },
        /*open=*/true);
    if (options.host.empty()) options.host = "127.0.0.1";
    StatusOr<std::unique_ptr<HttpServer>> started = ServePages(options, pages);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  int port() const { return server->port(); }

  std::shared_ptr<PageTable> pages;
  std::unique_ptr<HttpServer> server;
};

TEST(PageServerTest, APageIsShownWithLinksToTheOthersAndNothingFromElsewhere) {
  Site site;
  const Answer answer = Get(site.port(), "/statusz?name=a%3Cb+c");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("<a href=\"/statusz\">Status</a>"));
  EXPECT_THAT(answer.body, HasSubstr("Status &lt;1&gt;"));
  EXPECT_THAT(answer.body, HasSubstr("a&lt;b c"));
  EXPECT_THAT(answer.body, Not(HasSubstr("http://")));
  EXPECT_THAT(answer.body, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(answer.head, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(answer.head, HasSubstr(StrCat("Content-Length: ", answer.body.size())));
}

TEST(PageServerTest, WhatIsNoRequestOfOursIsSaidSo) {
  Site site;
  const auto ask = [&](const std::string& text) {
    Visitor visitor(site.port());
    EXPECT_TRUE(visitor.Send(text));
    return testing::ParseAnswer(visitor.ReadAll()).status;
  };
  EXPECT_EQ(ask("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"), 404);
  EXPECT_EQ(ask("POST /statusz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(ask("GET /statusz HTTP/2.0\r\nHost: localhost\r\n\r\n"), 505);
  EXPECT_EQ(ask("GET  /statusz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(ask("GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(ask("GET /statusz HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(ask(std::string("\x16\x03\x01\x00\xff\r\n\r\n", 9)), 400) << "TLS";
  EXPECT_EQ(ask("GET /fails HTTP/1.1\r\nHost: localhost\r\n\r\n"), 500);
  Visitor visitor(site.port());
  EXPECT_TRUE(visitor.Send("HEAD /statusz HTTP/1.0\r\nHost: localhost:1\r\n\r\n"));
  const Answer head = testing::ParseAnswer(visitor.ReadAll());
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST(PageServerTest, AHugeHeaderIsRefusedBeforeItIsRead) {
  Site site;
  Visitor visitor(site.port());
  const std::string more(4096, 'x');
  ASSERT_TRUE(visitor.Send("GET /statusz HTTP/1.1\r\nX: "));
  for (int i = 0; i < 4; ++i) (void)visitor.Send(more);
  EXPECT_EQ(testing::ParseAnswer(visitor.ReadAll()).status, 431);
  EXPECT_EQ(Get(site.port(), "/healthz").status, 200);
}

TEST(PageServerTest, AnotherSitesNameForThisHostIsNoWayIn) {
  Site site;
  for (const char* host : {"evil.example", "evil.example:80", "localhost.evil.example", ""}) {
    EXPECT_EQ(Get(site.port(), "/statusz", StrCat("Host: ", host, "\r\n")).status, 403) << host;
  }
  for (const char* host : {"127.0.0.1:1", "localhost", "[::1]:80"}) {
    EXPECT_EQ(Get(site.port(), "/statusz", StrCat("Host: ", host, "\r\n")).status, 200) << host;
  }
}

TEST(PageServerTest, WhoeverMayAskNoOtherNameIsAWayIntoLoopback) {
  PageServerOptions options;
  options.loopback_only = false;  // as with --insecure
  Site site(options);
  const auto status = [&](const std::string& host) {
    return Get(site.port(), "/statusz", StrCat("Host: ", host, "\r\n")).status;
  };
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1",
                           "[2001:db8::1]:80", "[", "localhost.evil.example", "0.0.0.0", ""}) {
    EXPECT_EQ(status(host), 403) << host;
  }
  for (const char* host : {"127.0.0.1:1", "127.1.2.3", "localhost", "LOCALHOST:8080", "[::1]:80"}) {
    EXPECT_EQ(status(host), 200) << host;
  }
  EXPECT_THAT(Get(site.port(), "/statusz", "Host: evil.example\r\n").body,
              HasSubstr("the Host header"));
  EXPECT_TRUE(NamesLoopback("Blue-1:80", "blue-1"));
  EXPECT_FALSE(NamesLoopback("blue-2:80", "blue-1"));
  EXPECT_FALSE(NamesLoopback("", ""));
}

TEST(PageServerTest, WithATokenOnlyThoseWhoKnowItSeeMoreThanHealth) {
  PageServerOptions options;
  options.is_token = [](std::string_view text) { return text == "correct-horse-battery"; };
  Site site(options);
  const Answer refused = Get(site.port(), "/statusz");
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.head, HasSubstr("WWW-Authenticate: Basic"));
  EXPECT_EQ(Get(site.port(), "/nowhere").status, 401) << "not even which pages there are";
  EXPECT_EQ(Get(site.port(), "/healthz").status, 200);
  const auto with = [&](const char* value) {
    return Get(site.port(), "/statusz", StrCat("Authorization: ", value, "\r\n")).status;
  };
  EXPECT_EQ(with("Bearer correct-horse-battery"), 200);
  EXPECT_EQ(with("Bearer wrong-horse-battery--"), 401);
  EXPECT_EQ(with("Basic YW55OmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ=="), 200) << "any:correct-...";
  EXPECT_EQ(with("Basic YW55Og=="), 401);
  EXPECT_EQ(with("Basic !"), 401);
}

TEST(PageServerTest, AnAddressThatOthersReachIsRefusedUnlessAskedFor) {
  PageServerOptions options;
  options.host = "0.0.0.0";
  const auto refused = ServePages(options, std::make_shared<PageTable>());
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied) << refused.status();
  options.loopback_only = false;
  EXPECT_TRUE(ServePages(options, std::make_shared<PageTable>()).ok());
  Site site;
  options.host = "127.0.0.1";
  options.port = site.port();
  EXPECT_EQ(ServePages(options, std::make_shared<PageTable>()).status().code(),
            StatusCode::kUnavailable);
}

TEST(PageServerTest, AThousandConnectionsThatSayNothingKeepNobodyOut) {
  Site site;
  std::list<Visitor> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.emplace_back(site.port());
    if (i % 2 == 0) (void)silent.back().Send("GET /statusz HTTP/1.1\r\nX-Slow: ");
    if (i % 100 != 99) continue;
    EXPECT_EQ(Get(site.port(), "/healthz").status, 200) << i;
  }
  EXPECT_EQ(Get(site.port(), "/statusz").status, 200);
}

TEST(PageServerTest, WhoIsSlowIsSentAway) {
  PageServerOptions options;
  options.limits.request_time = seconds(1);
  options.limits.answer_time = milliseconds(300);
  Site site(options);
  Visitor silent(site.port()), slow_writer(site.port());
  EXPECT_TRUE(slow_writer.Send("GET /sta"));
  EXPECT_TRUE(silent.WaitForEnd(seconds(20)));
  EXPECT_EQ(testing::ParseAnswer(slow_writer.ReadAll()).status, 408);
  // The page does not fit into the socket. Slower and slower: the server may be late as well.
  bool cut_off = false;
  for (milliseconds pause(600); !cut_off && pause < seconds(20); pause *= 2) {
    Visitor slow_reader(site.port());
    (void)slow_reader.Send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    std::this_thread::sleep_for(pause);
    cut_off = slow_reader.ReadAll().size() < 50'000'000;
  }
  EXPECT_TRUE(cut_off);
  Site patient;
  EXPECT_EQ(Get(patient.port(), "/big").body.size(), 50'000'000u) << "for who reads it";
}

TEST(PageServerTest, LargePagesThatNobodyReadsAreBoundedAndSmallOnesStillCome) {
  Site site;  // one big page is more than all may take
  Visitor slow(site.port());
  ASSERT_TRUE(slow.Send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  // Then the rest of it waits for him: it is more than a socket takes.
  ASSERT_TRUE(slow.WaitForAnswer());
  Answer second = Get(site.port(), "/big");
  EXPECT_EQ(second.status, 503);
  EXPECT_THAT(second.body, HasSubstr(StrCat(kMostPageBytes, " bytes")));
  EXPECT_EQ(Get(site.port(), "/healthz").status, 200);
  EXPECT_EQ(Get(site.port(), "/statusz").status, 200);
  slow.Reset();
  const auto limit = std::chrono::steady_clock::now() + seconds(20);
  do {  // once it is noticed that the slow one is gone
    second = Get(site.port(), "/big");
  } while (second.status != 200 && std::chrono::steady_clock::now() < limit);
  EXPECT_EQ(second.body.size(), 50'000'000u);
}

TEST(PageServerTest, APageThatIsBeingMadeHoldsUpNeitherHealthNorTheEnd) {
  auto pages = std::make_shared<PageTable>();
  Notification entered, leave;
  pages->Add("/slow", "", [&](const PageRequest&) {
    entered.Notify();
    leave.Wait();
    return Page{200, kTextType, "late\n"};
  });
  pages->Add("/healthz", "", [](const PageRequest&) { return Page{200, kTextType, "ok\n"}; });
  PageServerOptions options;
  options.host = "127.0.0.1";
  auto server = *ServePages(options, pages);
  Visitor visitor(server->port());
  EXPECT_TRUE(visitor.Send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  entered.Wait();
  EXPECT_EQ(Get(server->port(), "/healthz").status, 200);
  std::thread closer([&] { pages->Close(); });
  leave.Notify();
  closer.join();
  EXPECT_EQ(testing::ParseAnswer(visitor.ReadAll()).body, "late\n");
  EXPECT_EQ(Get(server->port(), "/healthz").status, 503) << "the table is closed";
  server = nullptr;
}

TEST(PageServerTest, NothingIsMadeForThoseWhoHaveLeft) {
  auto pages = std::make_shared<PageTable>();
  Notification leave;
  std::atomic<int> entered{0}, made{0};
  pages->Add("/slow", "", [&](const PageRequest&) {
    ++entered;
    leave.Wait();
    return Page{200, kTextType, "late\n"};
  });
  pages->Add("/page", "", [&](const PageRequest&) {
    ++made;
    return Page{200, kTextType, "page\n"};
  });
  PageServerOptions options;
  options.host = "127.0.0.1";
  const auto server = *ServePages(options, pages);
  constexpr char kHost[] = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::list<Visitor> patient;
  for (int i = 0; i < 2; ++i) {  // as many as there are threads for pages
    patient.emplace_back(server->port());
    EXPECT_TRUE(patient.back().Send(StrCat("GET /slow", kHost)));
  }
  for (int i = 0; i < 2000 && entered < 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  ASSERT_EQ(entered, 2);
  for (int i = 0; i < 200; ++i) {
    Visitor hasty(server->port());
    EXPECT_TRUE(hasty.Send(StrCat("GET /page", kHost)));
    std::this_thread::sleep_for(milliseconds(1));  // it is read, mostly
    hasty.Reset();
  }
  // They are noticed in order, so this one's end says that theirs were.
  Visitor last(server->port());
  EXPECT_TRUE(last.Send("no request\r\n\r\n"));
  EXPECT_EQ(testing::ParseAnswer(last.ReadAll()).status, 400);
  leave.Notify();
  for (Visitor& visitor : patient) {
    EXPECT_EQ(testing::ParseAnswer(visitor.ReadAll()).body, "late\n");
  }
  EXPECT_EQ(testing::Get(server->port(), "/page").body, "page\n");
  EXPECT_EQ(made, 1);
}

TEST(PageTextTest, NumbersForPeople) {
  EXPECT_EQ(DurationText(1.5e-6), "1.5 us");
  EXPECT_EQ(DurationText(0.0123), "12.3 ms");
  EXPECT_EQ(DurationText(99), "99 s");
  EXPECT_EQ(DurationText(200), "3 min 20 s");
  EXPECT_EQ(DurationText(3 * 3600 + 120), "3 h 2 min");
  EXPECT_EQ(DurationText(3 * 86400), "3 days 0 h");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(12'345'678), "12.3 MB");
}

}  // namespace
}  // namespace millrace
