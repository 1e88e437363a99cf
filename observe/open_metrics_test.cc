// SPDX-License-Identifier: Apache-2.0
#include "observe/open_metrics.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

TEST(HistogramTest, ADurationIsInTheBucketThatEndsAtOrAfterIt) {
  Histogram histogram;
  for (const int64_t nanos : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1001}, int64_t{2000},
                              int64_t{4'000'001}, int64_t{200'000'000'000}}) {
    histogram.Add(nanos);
  }
  const Histogram::Snapshot snapshot = histogram.Read();
  EXPECT_EQ(snapshot.buckets[0], 3) << "up to 1 us";
  EXPECT_EQ(snapshot.buckets[1], 2) << "up to 2 us";
  EXPECT_EQ(snapshot.buckets[12], 1) << "up to 4.096 ms";
  EXPECT_EQ(snapshot.buckets[Histogram::kNumBounds], 1) << "beyond all";
  EXPECT_EQ(snapshot.count, 7);
  EXPECT_NEAR(snapshot.total_seconds, 200.004005, 1e-6);
  EXPECT_EQ(snapshot.Quantile(0.5), 2e-6);
  EXPECT_EQ(Histogram().Read().Quantile(0.5), 0);
}

TEST(HistogramTest, AdditionsOfSeveralThreadsAreAllThere) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) histogram.Add(3000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().buckets[2], 40'000);
}

std::string Write(MetricsDialect dialect) {
  OpenMetricsWriter writer(dialect);
  writer.Family("mr_build", "info", "", "A \"build\".");
  writer.Sample({{"version", "1\\2\n\"3\""}}, 1);
  writer.Family("mr_sent_bytes", "counter", "bytes", "Sent.");
  writer.Sample({{"peer", "a"}}, 5e9);
  writer.Sample({{"peer", "b"}}, 0.25);
  Histogram histogram;
  histogram.Add(1'500);
  writer.Family("mr_step_seconds", "histogram", "seconds", "Steps.");
  writer.Sample({}, histogram.Read());
  return writer.Take();
}

TEST(OpenMetricsTest, FamiliesHaveTheirTypeUnitAndHelpAndTheTextEnds) {
  const std::string text = Write(MetricsDialect::kOpenMetrics);
  EXPECT_NE(text.find("# TYPE mr_sent_bytes counter\n# UNIT mr_sent_bytes bytes\n"
                      "# HELP mr_sent_bytes Sent.\nmr_sent_bytes_total{peer=\"a\"} 5000000000\n"
                      "mr_sent_bytes_total{peer=\"b\"} 0.25\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# TYPE mr_build info\n"), std::string::npos) << text;
  EXPECT_NE(text.find("mr_step_seconds_bucket{le=\"1e-06\"} 0\n"
                      "mr_step_seconds_bucket{le=\"2e-06\"} 1\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("mr_step_seconds_bucket{le=\"+Inf\"} 1\nmr_step_seconds_count 1\n"
                      "mr_step_seconds_sum 1.5e-06\n# EOF\n"),
            std::string::npos)
      << text;
}

TEST(OpenMetricsTest, TheOlderTextNamesFamiliesAsTheirSamples) {
  const std::string text = Write(MetricsDialect::kPrometheus);
  EXPECT_NE(text.find("# TYPE mr_sent_bytes_total counter\n# HELP mr_sent_bytes_total Sent.\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# TYPE mr_build_info gauge\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("# UNIT"), std::string::npos);
  EXPECT_EQ(text.find("# EOF"), std::string::npos);
  EXPECT_EQ(ChooseDialect("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            MetricsDialect::kOpenMetrics);
  EXPECT_EQ(ChooseDialect("text/html,*/*"), MetricsDialect::kPrometheus);
}

TEST(OpenMetricsTest, WhatIsWrittenIsReadAgain) {
  const auto samples = ParseOpenMetrics(Write(MetricsDialect::kOpenMetrics));
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 3u + Histogram::kNumBounds + 3u);
  EXPECT_EQ((*samples)[0].name, "mr_build_info");
  EXPECT_EQ((*samples)[0].Label("version"), "1\\2\n\"3\"");
  EXPECT_EQ((*samples)[0].Label("compiler"), "");
  EXPECT_EQ((*samples)[2].value, 0.25);
  EXPECT_EQ(samples->back().name, "mr_step_seconds_sum");
}

// Names come from clients.
TEST(OpenMetricsTest, WhatIsNoUtf8DoesNotSpoilThePage) {
  OpenMetricsWriter writer(MetricsDialect::kOpenMetrics);
  writer.Family("mr_queue_size", "gauge", "", "h\xC3(elp");
  writer.Sample({{"queue", "a\xFF\xFE b\xC3\xA9\xED\xA0\x80"}}, 1);
  const std::string text = writer.Take();
  EXPECT_NE(
      text.find(
          "queue=\"a\xEF\xBF\xBD\xEF\xBF\xBD b\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("h\xEF\xBF\xBD(elp"), std::string::npos) << text;
}

TEST(OpenMetricsTest, ALineThatIsNoMetricIsNamed) {
  for (const char* text : {"x", "{a=\"b\"} 1", "x{a} 1", "x{a=\"b} 1", "x{a=\"b\" 1", "x one",
                           "x{a=\"b\"}", "x{a=\"b\\"}) {
    EXPECT_FALSE(ParseOpenMetrics(text).ok()) << text;
  }
}

}  // namespace
}  // namespace millrace
