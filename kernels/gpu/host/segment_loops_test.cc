// SPDX-License-Identifier: Apache-2.0
// Segments, sorted rows and distinct elements, larger than goldens are.
#include "kernels/gpu/loops/segment_loops.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/unique_loops.h"

namespace millrace::gpu {
namespace {

std::vector<char> Scratch(int64_t n, int64_t chunks) {
  return std::vector<char>(ScatterScratchBytes<HostLauncher>(n) + RoundUp(8 * chunks));
}

template <typename T>
DataType TypeOf() {
  return DataTypeOf<T>();
}

// Distinct elements of `in` by our loops, each compared with what a search from the front finds.
template <typename T>
void ExpectUnique(const std::vector<T>& in, int64_t chunks) {
  const auto n = static_cast<int64_t>(in.size());
  std::vector<char> scratch = Scratch(n, chunks);
  int64_t distinct = -1;
  UniqueParams p;
  p.type = TypeOf<T>();
  p.index_type = kInt64;
  p.in = in.data();
  p.n = n;
  p.scratch = scratch.data();
  p.scratch_bytes = static_cast<int64_t>(scratch.size());
  p.chunks = chunks;
  p.distinct = &distinct;
  ASSERT_EQ(HostLoops().Unique({}, p), nullptr);
  std::vector<T> want;
  std::vector<int64_t> want_places(n), want_counts;
  for (int64_t i = 0; i < n; ++i) {
    const auto found = std::find(want.begin(), want.end(), in[i]);  // never a NaN
    want_places[i] = found - want.begin();
    if (found == want.end()) {
      want.push_back(in[i]);
      want_counts.push_back(0);
    }
    ++want_counts[want_places[i]];
  }
  ASSERT_EQ(distinct, static_cast<int64_t>(want.size()));
  std::vector<T> values(want.size());
  std::vector<int64_t> places(n, -1), counts(want.size(), -1);
  p.values = values.data();
  p.places = places.data();
  p.counts = counts.data();
  ASSERT_EQ(HostLoops().Unique({}, p), nullptr);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(values[i] == want[i] || (values[i] != values[i] && want[i] != want[i])) << i;
  }
  EXPECT_EQ(places, want_places);
  EXPECT_EQ(counts, want_counts);
}

TEST(Unique, KeepsTheOrderInWhichElementsComeFirst) {
  std::mt19937 random(5);
  for (const int64_t chunks : {1, 7}) {
    std::vector<int64_t> wide(1000);
    // Halves that differ in one of them only.
    for (int64_t& x : wide) x = static_cast<int64_t>(random() % 5) << 32 | random() % 5;
    wide[3] = -1;
    wide[700] = -1;
    wide[9] = std::numeric_limits<int64_t>::min();
    ExpectUnique(wide, chunks);
    std::vector<int32_t> narrow(1000);
    for (int32_t& x : narrow) x = static_cast<int32_t>(random() % 90) - 45;
    ExpectUnique(narrow, chunks);
  }
  ExpectUnique(std::vector<int32_t>{4}, 1);
  ExpectUnique(std::vector<int32_t>{}, 1);
}

TEST(Unique, TakesZerosForOneAndEachNanForItself) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ExpectUnique(std::vector<double>{0.0, kNan, -0.0, 1, kNan, -1, 1, 1e300, kNan, 0.0}, 1);
  constexpr float kNanf = std::numeric_limits<float>::quiet_NaN();
  ExpectUnique(std::vector<float>{-0.0f, kNanf, 0.0f, kNanf, 2, -2, 2}, 1);
}

TEST(SortedRows, AreCountedAndNumbered) {
  constexpr int64_t kRows = 40, kCount = 700, kChunks = 5;
  std::mt19937 random(8);
  std::vector<int32_t> indices(kCount);
  // Some that are none, and rows that nobody names.
  for (int32_t& x : indices) x = static_cast<int32_t>(random() % 50) * 2 - 10;
  std::vector<char> scratch = Scratch(kCount, kChunks);
  std::vector<int64_t> counts(kRows, -1), places(kCount), scan(kChunks);
  int64_t distinct = -1;
  SortRowsParams p;
  p.index_type = kInt32;
  p.indices = indices.data();
  p.count = kCount;
  p.rows = kRows;
  p.scratch = scratch.data();
  p.scratch_bytes = static_cast<int64_t>(scratch.size());
  p.counts = counts.data();
  p.places = places.data();
  p.distinct = &distinct;
  p.chunks = kChunks;
  p.scan_scratch = scan.data();
  ASSERT_EQ(HostLoops().SortRows({}, p), nullptr);
  std::map<int64_t, int64_t> want;
  for (const int32_t x : indices) {
    if (x >= 0 && x < kRows) ++want[x];
  }
  EXPECT_EQ(distinct, static_cast<int64_t>(want.size()));
  for (int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(counts[row], want.contains(row) ? want[row] : 0) << row;
  }
  const SortedRows sorted(scratch.data(), kCount);
  int64_t number = 0;
  for (int64_t i = 0; i < kCount && sorted.rows[i] < kRows; ++i) {
    if (i == 0 || sorted.rows[i] != sorted.rows[i - 1]) ++number;
    EXPECT_EQ(places[i], number);
    EXPECT_EQ(indices[sorted.order[i]], sorted.rows[i]);
    if (i > 0 && sorted.rows[i] == sorted.rows[i - 1]) {
      EXPECT_LT(sorted.order[i - 1], sorted.order[i]) << "not stable";
    }
  }
}

TEST(Segments, LeaveOutWhatIsOutOfRange) {
  const std::vector<float> in = {1, 2, 3, 4, 5, 6};  // 3 rows
  const std::vector<int64_t> ids = {0, 0, 2, 2, 7}, sources = {0, 9, 1, -3, 2};
  std::vector<float> out(6, 0);
  SegmentParams p;
  p.type = kFloat;
  p.id_type = p.source_type = kInt64;
  p.in = in.data();
  p.ids = ids.data();
  p.sources = sources.data();
  p.out = out.data();
  p.count = 5;
  p.inner = 2;
  p.segments = p.rows = 3;
  ASSERT_EQ(HostLoops().Segment({}, p), nullptr);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 0, 0, 3, 4}));
}

TEST(Collected, RowsComeFromAsManyTensorsAsThereAre) {
  constexpr int kTensors = 70;  // more than one call takes
  std::vector<std::vector<float>> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back({static_cast<float>(i), static_cast<float>(i) + 0.5f});
  }
  std::vector<int32_t> sources;  // backwards, with a gap at the end
  for (int i = kTensors; i-- > 0;) sources.insert(sources.end(), {i, 1});
  sources.insert(sources.end(), {-1, -1});
  std::vector<float> out(kTensors + 1, 77);
  CollectParams p;
  p.size = sizeof(float);
  p.sources = sources.data();
  p.out = out.data();
  p.count = kTensors + 1;
  for (; p.first < kTensors; p.first += CollectParams::kMost) {
    p.given = std::min(kTensors - p.first, CollectParams::kMost);
    for (int i = 0; i < p.given; ++i) p.from[i] = tensors[p.first + i].data();
    ASSERT_EQ(HostLoops().Collect({}, p), nullptr);
  }
  for (int i = 0; i < kTensors; ++i) EXPECT_EQ(out[i], static_cast<float>(kTensors - 1 - i) + 0.5f);
  EXPECT_EQ(out[kTensors], 0);
}

}  // namespace
}  // namespace millrace::gpu
