// SPDX-License-Identifier: Apache-2.0
// A peer for the executor's bench: oneTBB's flow graph on the same chains and layers of nodes that
// do nothing, and on layers of bodies of 10 us, on two threads.
//
//   tbb_peer [ITEM]   null, wide; any other item has nothing to measure
//
// Built by hand only (the library is not needed otherwise: libtbb-dev in Debian), with
// bazel build //bench/executor:tbb_peer.
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Message = oneapi::tbb::flow::continue_msg;
using Node = oneapi::tbb::flow::continue_node<Message>;

// `deep` layers of `wide` nodes; each waits for itself and its neighbour of the layer before, or
// for the one node before it in a chain (wide is 1).
class Layers {
 public:
  Layers(int wide, int deep, std::chrono::microseconds work) : wide_(wide) {
    const auto body = [work](const Message&) {
      if (work.count() > 0) {
        const auto end = Clock::now() + work;
        while (Clock::now() < end) {
        }
      }
      return Message();
    };
    nodes_.reserve(static_cast<std::size_t>(wide) * deep);
    for (int i = 0; i < wide * deep; ++i) nodes_.push_back(std::make_unique<Node>(graph_, body));
    for (int i = wide; i < wide * deep; ++i) {
      const int layer = i / wide * wide - wide;  // where the layer before begins
      make_edge(*nodes_[layer + i % wide], *nodes_[i]);
      if (wide > 1) make_edge(*nodes_[layer + (i + 1) % wide], *nodes_[i]);
    }
  }

  void Run() {
    for (int i = 0; i < wide_; ++i) nodes_[i]->try_put(Message());
    graph_.wait_for_all();
  }

  // Prints the mean seconds of a node, times `scale`, over steps of 0.3 s after some to warm up.
  void Measure(const char* name, double scale) {
    const auto time = [this](int steps) {
      const auto start = Clock::now();
      for (int i = 0; i < steps; ++i) Run();
      return std::chrono::duration<double>(Clock::now() - start).count() / steps;
    };
    time(3);
    const int steps = std::max(1, static_cast<int>(0.3 / time(2)));
    std::printf("{\"name\": \"%s\", \"value\": %.4f}\n", name,
                time(steps) / static_cast<double>(nodes_.size()) * scale);
  }

 private:
  const int wide_;
  oneapi::tbb::flow::graph graph_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view item = argc > 1 ? argv[1] : "";
  const oneapi::tbb::global_control threads(oneapi::tbb::global_control::max_allowed_parallelism,
                                            2);
  using std::chrono::microseconds;
  if (item.empty() || item == "null") {
    Layers(1, 100'000, microseconds(0)).Measure("A.null_chain_100k.tbb", 1e9);
  }
  if (item.empty() || item == "wide") {
    Layers(100, 1000, microseconds(0)).Measure("A.wide_100x1000_null.tbb", 1e9);
    Layers(100, 20, microseconds(10)).Measure("A.wide_100x20_10us.tbb", 1e6);
  }
  return 0;
}
