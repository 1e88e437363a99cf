// SPDX-License-Identifier: Apache-2.0
// Event files as TensorFlow 2 writes them, read again with our own reader.
#include <signal.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <regex>
#include <thread>

#include "millrace/millrace.h"
#include "millrace/summary.h"
#include "proto/config.pb.h"
#include "proto/graph.pb.h"
#include "proto/hparams.pb.h"
#include "proto/meta_graph.pb.h"
#include "tests/cluster/process.h"
#include "tests/summary/read_events.h"

namespace millrace {
namespace {

using testing::ReadEvents;
using testing::TensorOf;
using testing::TestDirectory;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::unique_ptr<EventWriter> NewWriter(const EventWriterOptions& options = {}) {
  StatusOr<std::unique_ptr<EventWriter>> writer = EventWriter::Create(TestDirectory(), options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

// The event after the one with the version.
pb::Event OnlyEvent(EventWriter& writer) {
  EXPECT_TRUE(writer.Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer.path());
  EXPECT_EQ(events.size(), 2u);
  return events.size() == 2 ? events[1] : pb::Event();
}

void ExpectRefused(const Status& status, std::string_view text) {
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_NE(Message(status).find(text), std::string_view::npos) << status;
}

TEST(EventWriter, NamesItsFileAndBeginsItAsTensorFlowDoes) {
  const std::string directory = TestDirectory() + "/run/train";
  double now = 1234.5;
  {
    auto writer = EventWriter::Create(directory, {.wall_time = [&now] { return now; }});
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE(std::regex_match(
        (*writer)->path().substr(directory.size()),
        std::regex(R"(/events\.out\.tfevents\.[0-9]{10}\.[^/]+\.[0-9]+\.[0-9]+\.v2)")))
        << (*writer)->path();
    // It can be read at once.
    EXPECT_EQ(ReadEvents((*writer)->path()).size(), 1u);
    auto second = EventWriter::Create(directory);
    ASSERT_TRUE(second.ok());
    EXPECT_NE((*second)->path(), (*writer)->path());
  }
  const auto names = PosixFileSystem()->List(directory);
  ASSERT_TRUE(names.ok() && names->size() == 2);
  const std::vector<pb::Event> events = ReadEvents(JoinPath(directory, (*names)[0]));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[0].source_metadata().writer(), "millrace");
  EXPECT_EQ(events[0].wall_time(), 1234.5);
}

TEST(EventWriter, WritesAScalarAsAFloatTensor) {
  const auto writer = NewWriter({.wall_time = [] { return 7.25; }});
  ASSERT_TRUE(writer->WriteScalar("loss", 0.1, 42, "the *loss*").ok());
  const pb::Event event = OnlyEvent(*writer);
  EXPECT_EQ(event.step(), 42);
  EXPECT_EQ(event.wall_time(), 7.25);
  const pb::Summary::Value& value = event.summary().value(0);
  EXPECT_EQ(value.tag(), "loss");
  EXPECT_EQ(value.metadata().plugin_data().plugin_name(), "scalars");
  EXPECT_EQ(value.metadata().plugin_data().content(), "");
  EXPECT_EQ(value.metadata().summary_description(), "the *loss*");
  EXPECT_TRUE(TensorsEqual(TensorOf(event), Tensor::Scalar<float>(0.1f)));
}

TEST(EventWriter, WritesScalarsThatAreNoNumbers) {
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteScalar("loss", kNan, 0).ok());
  ASSERT_TRUE(writer->WriteScalar("loss", -kInf, 1).ok());
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(std::isnan(TensorOf(events[1]).scalar<float>()));
  EXPECT_EQ(TensorOf(events[2]).scalar<float>(), -kInf);
}

struct HistogramCase {
  std::vector<double> values;
  int buckets;
  std::vector<double> rows;  // left edge, right edge, count
};

// The rows are TensorBoard's own (2.21).
TEST(EventWriter, CountsAHistogramAsTensorBoardDoes) {
  const std::vector<HistogramCase> cases = {
      {{1, 2, 3, 4, 5}, 4, {1, 2, 1, 2, 3, 1, 3, 4, 1, 4, 5, 2}},
      {{2, 2, 2}, 4, {2, 2, 0, 2, 2, 0, 2, 2, 0, 2, 2, 3}},
      {{}, 4, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
      {{1, 2}, 1, {1, 2, 2}},
      {{0, 0.5, 1}, 2, {0, 0.5, 1, 0.5, 1, 2}},
      {{-1, 1, 0.25, 0.5},
       3,
       {-1, -0.33333333333333337, 1, -0.33333333333333337, 0.33333333333333326, 1,
        0.33333333333333326, 1, 2}},
  };
  for (const HistogramCase& c : cases) {
    const auto writer = NewWriter();
    const Tensor values = Tensor::FromValues<double>(
        std::span(c.values), Shape({static_cast<int64_t>(c.values.size())}));
    ASSERT_TRUE(writer->WriteHistogram("h", values, 1, c.buckets).ok());
    const pb::Event event = OnlyEvent(*writer);
    const pb::SummaryMetadata& metadata = event.summary().value(0).metadata();
    EXPECT_EQ(metadata.plugin_data().plugin_name(), "histograms");
    EXPECT_TRUE(TensorsEqual(TensorOf(event),
                             Tensor::FromValues<double>(std::span(c.rows), Shape({c.buckets, 3}))))
        << TensorOf(event).DebugString(30);
  }
}

TEST(EventWriter, TakesHistogramsOfEveryRealType) {
  const auto writer = NewWriter();
  EXPECT_TRUE(writer->WriteHistogram("i", Tensor::FromValues<int64_t>({1, 2, 3}), 0).ok());
  EXPECT_TRUE(writer->WriteHistogram("b", Tensor::FromValues<bool>({true, false}), 0).ok());
  EXPECT_TRUE(writer->WriteHistogram("s", Tensor::Scalar<float>(3), 0).ok());
  // The widest range of all has no infinite edge.
  constexpr double kMost = std::numeric_limits<double>::max();
  EXPECT_TRUE(writer->WriteHistogram("w", Tensor::FromValues<double>({-kMost, kMost}), 0, 2).ok());
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(TensorOf(events[1]).dim(0), 30);
  EXPECT_TRUE(TensorsEqual(TensorOf(events[4]),
                           Tensor::FromValues<double>({-kMost, 0, 1, 0, kMost, 1}, Shape({2, 3}))))
      << TensorOf(events[4]).DebugString();
}

TEST(EventWriter, SaysHowManyValuesOfAHistogramAreNoNumbers) {
  const auto writer = NewWriter();
  ExpectRefused(writer->WriteHistogram("w", Tensor::FromValues<double>({1, kNan, kInf, kNan}), 0),
                "of 4 values 2 are NaN and 1 infinite");
  ExpectRefused(writer->WriteHistogram("w", Tensor::String("x"), 0), "real numbers");
  ExpectRefused(writer->WriteHistogram("w", Tensor::Scalar<std::complex<float>>({1, 1}), 0),
                "complex");
  ExpectRefused(writer->WriteHistogram("w", Tensor::Scalar<float>(1), 0, 0), "0 buckets");
  // Nothing of them is in the file.
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(ReadEvents(writer->path()).size(), 1u);
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The rows of a PNG, each after a byte that names its filter.
std::string Unpack(std::string_view png, std::size_t bytes) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string packed, rows(bytes, '\0');
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const uint32_t length = BigEndian(png.substr(at));
    const std::string_view chunk = png.substr(at + 4, 4 + length);
    EXPECT_EQ(BigEndian(png.substr(at + 8 + length)),
              crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), chunk.size()));
    if (chunk.substr(0, 4) == "IDAT") packed.append(chunk.substr(4));
    at += 12 + length;
  }
  uLongf size = bytes;
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(packed.data()), packed.size()),
            Z_OK);
  EXPECT_EQ(size, bytes);
  return rows;
}

TEST(EventWriter, PacksImagesAsPng) {
  const auto writer = NewWriter();
  Tensor images(kUint8, Shape({4, 2, 3, 3}));
  for (int i = 0; i < 72; ++i) images.data<uint8_t>()[i] = static_cast<uint8_t>(3 * i);
  ASSERT_TRUE(writer->WriteImages("pictures", images, 5, 2).ok());
  const pb::Event event = OnlyEvent(*writer);
  EXPECT_EQ(event.summary().value(0).metadata().plugin_data().plugin_name(), "images");
  const Tensor texts = TensorOf(event);
  ASSERT_EQ(texts.num_elements(), 4);  // the third and the fourth are left out
  const auto text = std::as_const(texts).flat<std::string>();
  EXPECT_EQ(text[0], "3");
  EXPECT_EQ(text[1], "2");
  for (int image = 0; image < 2; ++image) {
    const std::string rows = Unpack(text[2 + image], 2 * (1 + 9));
    for (int y = 0; y < 2; ++y) {
      EXPECT_EQ(rows[10 * y], '\0');
      const auto* pixels = reinterpret_cast<const char*>(images.data<uint8_t>());
      EXPECT_EQ(rows.substr(10 * y + 1, 9), std::string(pixels + 18 * image + 9 * y, 9));
    }
  }
}

TEST(EventWriter, ScalesFloatingImages) {
  const auto writer = NewWriter();
  const Tensor image = Tensor::FromValues<double>({-1, 0, 0.5, 1, 2, kNan}, Shape({1, 1, 6, 1}));
  ASSERT_TRUE(writer->WriteImages("grey", image, 0).ok());
  const Tensor texts = TensorOf(OnlyEvent(*writer));
  ASSERT_EQ(texts.num_elements(), 3);
  EXPECT_EQ(Unpack(std::as_const(texts).flat<std::string>()[2], 7),
            std::string("\0\0\0\x7f\xff\xff\0", 7));
}

TEST(EventWriter, SaysWhatImagesItTakes) {
  const auto writer = NewWriter();
  ExpectRefused(writer->WriteImages("x", Tensor(kUint8, Shape({2, 2, 3})), 0), "[2,2,3]");
  ExpectRefused(writer->WriteImages("x", Tensor(kUint8, Shape({1, 2, 2, 5})), 0), "1 to 4");
  ExpectRefused(writer->WriteImages("x", Tensor(kInt32, Shape({1, 2, 2, 3})), 0), "int32");
  ExpectRefused(writer->WriteImages("x", Tensor(kUint8, Shape({1, 2, 2, 3})), 0, 0), "max_images");
}

TEST(EventWriter, WritesText) {
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteText("note", "**bold** \xc3\xa9", 3).ok());
  ASSERT_TRUE(writer
                  ->WriteText("table",
                              Tensor::FromValues<std::string>({"a", "b", "c", "d"}, Shape({2, 2})),
                              4)
                  .ok());
  ExpectRefused(writer->WriteText("bad", "caf\xe9", 0), "not UTF-8: byte 3");
  ExpectRefused(writer->WriteText("bad", Tensor::Scalar<float>(1), 0), "strings");
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].summary().value(0).metadata().plugin_data().plugin_name(), "text");
  EXPECT_EQ(TensorOf(events[1]).scalar<std::string>(), "**bold** \xc3\xa9");
  // TensorBoard reads strings in this form only.
  EXPECT_EQ(events[2].summary().value(0).tensor().string_val_size(), 4);
}

TEST(EventWriter, RefusesTagsThatTensorBoardCannotRead) {
  const auto writer = NewWriter();
  ExpectRefused(writer->WriteScalar("", 1, 0), "no tag");
  for (const char* tag : {"a\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    ExpectRefused(writer->WriteScalar(tag, 1, 0), "not UTF-8");
  }
  for (const char* tag : {"\xe2\x82\xac", "\xf0\x9f\x98\x80", "a/b c"}) {
    EXPECT_TRUE(writer->WriteScalar(tag, 1, 0).ok()) << tag;
  }
  ExpectRefused(writer->WriteScalar("a", 1, 0, "\xff"), "description of 'a'");
}

struct Program {
  Graph graph;
  Output a, b;
};

Program TwoDevices() {
  Program p;
  const Scope root = p.graph.root();
  p.a = ops::Const(root.Named("in").WithDevice("/cpu:0"), Tensor::Scalar<float>(1), kFloat);
  p.b = ops::Neg(root.Named("out"), p.a);
  return p;
}

TEST(EventWriter, WritesAGraphWithItsDevices) {
  const Program p = TwoDevices();
  ASSERT_TRUE(p.graph.status().ok());
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteGraph(p.graph).ok());
  ExpectRefused(writer->WriteGraphDef("nonsense"), "no GraphDef");
  pb::GraphDef def;
  ASSERT_TRUE(def.ParseFromString(OnlyEvent(*writer).graph_def()));
  ASSERT_EQ(def.node_size(), 2);
  EXPECT_NE(def.node(0).device(), "");
  EXPECT_EQ(def.node(1).device(), "");
}

TEST(EventWriter, WritesWhereARunPlacedTheNodesAndWhatItDid) {
  Program p = TwoDevices();
  auto session = Session::Create(p.graph, {.rewrite_graph = false});
  ASSERT_TRUE(session.ok()) << session.status();
  RunMetadata run;
  ASSERT_TRUE(
      session->Run({}, {p.b}, {}, RunOptions{.trace = true, .partition_graphs = true}, &run).ok());
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteGraph(p.graph, run).ok());
  ASSERT_TRUE(writer->WriteRunMetadata("step 9", run, 9).ok());
  ExpectRefused(writer->WriteGraph(p.graph, RunMetadata()), "RunOptions");
  ExpectRefused(writer->WriteRunMetadata("x", RunMetadata(), 0), "RunOptions.trace");
  ExpectRefused(writer->WriteRunMetadata("x", {.step_stats = "?", .partition_graphs = {}}, 0),
                "step statistics");
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 3u);
  pb::GraphDef def;
  ASSERT_TRUE(def.ParseFromString(events[1].graph_def()));
  for (const pb::NodeDef& node : def.node()) {
    EXPECT_EQ(node.device(), "/job:localhost/replica:0/task:0/device:CPU:0") << node.name();
  }
  EXPECT_EQ(events[2].step(), 9);
  EXPECT_EQ(events[2].tagged_run_metadata().tag(), "step 9");
  pb::RunMetadata metadata;
  ASSERT_TRUE(metadata.ParseFromString(events[2].tagged_run_metadata().run_metadata()));
  EXPECT_GT(metadata.step_stats().dev_stats_size(), 0);
  EXPECT_GT(metadata.partition_graphs_size(), 0);
}

TEST(EventWriter, WritesWhatSummaryOpsYield) {
  Graph graph;
  const Output summary = ops::ScalarSummary(graph.root(), "loss", 0.5f);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok());
  const auto bytes = session->Eval(summary);
  ASSERT_TRUE(bytes.ok());
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteSummary(bytes->scalar<std::string>(), 8).ok());
  ExpectRefused(writer->WriteSummary("nonsense", 8), "no Summary");
  const pb::Event event = OnlyEvent(*writer);
  EXPECT_EQ(event.step(), 8);
  ASSERT_EQ(event.summary().value_size(), 1);
  EXPECT_EQ(event.summary().value(0).tag(), "loss");
  EXPECT_EQ(event.summary().value(0).simple_value(), 0.5f);
}

TEST(EventWriter, SaysThatATrainingGoesOn) {
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteSessionStart(100).ok());
  const pb::Event event = OnlyEvent(*writer);
  EXPECT_EQ(event.step(), 100);
  EXPECT_EQ(event.session_log().status(), pb::SessionLog::START);
}

TEST(EventWriter, SaysWhatWasSavedAndThatASessionHasEnded) {
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteSessionCheckpoint("/logs/model.ckpt", 7).ok());
  ASSERT_TRUE(writer->WriteSessionStop().ok());
  ExpectRefused(writer->WriteSessionCheckpoint("\xff", 8), "UTF-8");
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].step(), 7);
  EXPECT_EQ(events[1].session_log().status(), pb::SessionLog::CHECKPOINT);
  EXPECT_EQ(events[1].session_log().checkpoint_path(), "/logs/model.ckpt");
  EXPECT_EQ(events[2].step(), 0);
  EXPECT_EQ(events[2].session_log().status(), pb::SessionLog::STOP);
}

TEST(EventWriter, WritesAMetaGraphAsItIs) {
  pb::MetaGraphDef meta;
  meta.mutable_graph_def()->add_node()->set_name("x");
  const std::string bytes = meta.SerializeAsString();
  const auto writer = NewWriter();
  ASSERT_TRUE(writer->WriteMetaGraph(bytes).ok());
  ExpectRefused(writer->WriteMetaGraph("nonsense"), "MetaGraphDef");
  EXPECT_EQ(OnlyEvent(*writer).meta_graph_def(), bytes);
}

pb::HParamsPluginData HParamsOf(const pb::Summary::Value& value) {
  pb::HParamsPluginData data;
  EXPECT_EQ(value.metadata().plugin_data().plugin_name(), "hparams");
  EXPECT_TRUE(data.ParseFromString(value.metadata().plugin_data().content()));
  return data;
}

TEST(EventWriter, WritesHyperparameters) {
  const auto writer = NewWriter({.wall_time = [] { return 5.0; }});
  const std::vector<std::pair<std::string, HParamValue>> values = {
      {"rate", 0.1}, {"units", 32}, {"optimizer", "adam"}, {"ema", true}};
  ASSERT_TRUE(
      writer->WriteHParams(values, {.trial_id = "trial", .metrics = {{"epoch_loss", "validation"}}})
          .ok());
  ASSERT_TRUE(writer->WriteHParamsEnd(false).ok());
  ASSERT_TRUE(writer->Close().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 3u);
  ASSERT_EQ(events[1].summary().value_size(), 2);
  EXPECT_EQ(events[1].summary().value(0).tag(), "_hparams_/experiment");
  const pb::HParamsPluginData experiment = HParamsOf(events[1].summary().value(0));
  EXPECT_EQ(experiment.experiment().hparam_infos_size(), 4);
  EXPECT_EQ(experiment.experiment().metric_infos(0).name().tag(), "epoch_loss");
  EXPECT_EQ(experiment.experiment().metric_infos(0).name().group(), "validation");
  EXPECT_EQ(events[1].summary().value(1).tag(), "_hparams_/session_start_info");
  const pb::HParamsPluginData start = HParamsOf(events[1].summary().value(1));
  EXPECT_EQ(start.session_start_info().group_name(), "trial");
  EXPECT_EQ(start.session_start_info().start_time_secs(), 5);
  const auto& hparams = start.session_start_info().hparams();
  EXPECT_EQ(hparams.at("rate").number_value(), 0.1);
  EXPECT_EQ(hparams.at("units").number_value(), 32);
  EXPECT_EQ(hparams.at("optimizer").string_value(), "adam");
  EXPECT_TRUE(hparams.at("ema").bool_value());
  const pb::HParamsPluginData end = HParamsOf(events[2].summary().value(0));
  EXPECT_EQ(events[2].summary().value(0).tag(), "_hparams_/session_end_info");
  EXPECT_EQ(end.session_end_info().status(), pb::HParamsSessionEnd::STATUS_FAILURE);
}

TEST(EventWriter, GivesEqualHyperparametersOneTrial) {
  const auto trial = [](std::vector<std::pair<std::string, HParamValue>> values) {
    const auto writer = NewWriter();
    EXPECT_TRUE(writer->WriteHParams(values).ok());
    return HParamsOf(OnlyEvent(*writer).summary().value(0)).session_start_info().group_name();
  };
  EXPECT_EQ(trial({{"a", 1.0}, {"b", "x"}}), trial({{"b", "x"}, {"a", 1}}));
  EXPECT_NE(trial({{"a", 1.0}}), trial({{"a", 2.0}}));
  const auto writer = NewWriter();
  const std::vector<std::pair<std::string, HParamValue>> twice = {{"a", 1.0}, {"a", 2.0}};
  ExpectRefused(writer->WriteHParams(twice), "'a' is given twice");
  const std::vector<std::pair<std::string, HParamValue>> infinite = {{"a", kInf}};
  ExpectRefused(writer->WriteHParams(infinite), "finite");
}

TEST(EventWriter, KeepsTheOrderOfEachThread) {
  constexpr int kThreads = 4, kEvents = 300;
  const auto writer = NewWriter({.max_queue_bytes = 500});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < kEvents; ++i) {
        EXPECT_TRUE(writer->WriteScalar(StrCat("thread", t), i, i).ok());
        if (i % 100 == 0) {
          EXPECT_TRUE(writer->Flush().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer->Close().ok());
  std::map<std::string, int64_t> next;
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  for (std::size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i].step(), next[events[i].summary().value(0).tag()]++);
  }
  EXPECT_EQ(events.size(), 1u + kThreads * kEvents);
}

TEST(EventWriter, ShowsWhatWasWrittenAfterTheFlushInterval) {
  const auto writer = NewWriter({.flush_interval = std::chrono::milliseconds(20)});
  ASSERT_TRUE(writer->WriteScalar("x", 1, 1).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (ReadEvents(writer->path()).size() < 2 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(ReadEvents(writer->path()).size(), 2u);
}

// The child of the next test, which runs this program once more: a writer has threads, so a fork
// alone would not do.
TEST(EventWriter, DISABLED_KillsItselfAfterAFlush) {
  const char* directory = std::getenv("EVENT_WRITER_DIRECTORY");
  ASSERT_NE(directory, nullptr);
  auto writer = EventWriter::Create(directory, {.flush_interval = std::chrono::hours(1)});
  ASSERT_TRUE(writer.ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE((*writer)->WriteScalar("x", i, i).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  ASSERT_TRUE((*writer)->WriteScalar("x", 10, 10).ok());
  kill(getpid(), SIGKILL);
}

TEST(EventWriter, LeavesWhatWasFlushedWhenTheProcessIsKilled) {
  const std::string directory = TestDirectory();
  setenv("EVENT_WRITER_DIRECTORY", directory.c_str(), 1);
  testing::Process child("/proc/self/exe", {"--gtest_also_run_disabled_tests",
                                            "--gtest_filter=*.DISABLED_KillsItselfAfterAFlush"});
  ASSERT_EQ(child.WaitForEnd(std::chrono::seconds(60)), -SIGKILL) << child.output();
  const auto names = PosixFileSystem()->List(directory);
  ASSERT_TRUE(names.ok() && names->size() == 1);
  EXPECT_GE(ReadEvents(JoinPath(directory, (*names)[0])).size(), 11u);
}

TEST(EventWriter, CanBeReadUpToWhereItWasCutOff) {
  const auto writer = NewWriter();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(writer->WriteScalar("x", i, i).ok());
  ASSERT_TRUE(writer->Close().ok());
  const auto content = PosixFileSystem()->ReadFile(writer->path());
  ASSERT_TRUE(content.ok());
  const std::string cut = writer->path() + ".cut";
  std::size_t before = 0;
  for (std::size_t bytes = 0; bytes <= content->size(); ++bytes) {
    std::ofstream(cut, std::ios::binary) << content->substr(0, bytes);
    const std::size_t events = ReadEvents(cut).size();
    EXPECT_GE(events, before);
    before = events;
  }
  EXPECT_EQ(before, 6u);
}

TEST(EventWriter, TakesNothingAfterClose) {
  const auto writer = NewWriter();
  EXPECT_TRUE(writer->Close().ok());
  EXPECT_TRUE(writer->Close().ok());
  const Status late = writer->WriteScalar("x", 1, 1);
  EXPECT_TRUE(errors::IsFailedPrecondition(late)) << late;
  EXPECT_NE(Message(late).find(writer->path()), std::string_view::npos);
}

TEST(EventWriter, RefusesOptionsThatCannotBe) {
  const std::string directory = TestDirectory();
  ExpectRefused(EventWriter::Create(directory, {.max_queue_bytes = 0}).status(), "max_queue_bytes");
  ExpectRefused(EventWriter::Create(directory, {.filename_suffix = "/x"}).status(),
                "filename_suffix");
  ExpectRefused(
      EventWriter::Create(directory, {.flush_interval = std::chrono::milliseconds(-1)}).status(),
      "flush_interval");
  // A file where the directory should be.
  ASSERT_TRUE(PosixFileSystem()->WriteFileAtomically(directory, "").ok());
  const Status status = EventWriter::Create(directory).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(Message(status).find(directory), std::string_view::npos) << status;
}

}  // namespace
}  // namespace millrace
