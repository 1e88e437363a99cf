// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/task_pages.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "base/strings.h"
#include "base/text/markup.h"
#include "millrace/version.h"
#include "observe/process.h"

namespace millrace {
namespace {

constexpr int kRefreshSeconds = 5;

std::string SinceText(int64_t steady_nanos) {
  if (steady_nanos == 0) return "never";
  return StrCat(DurationText(static_cast<double>(SteadyNanos() - steady_nanos) * 1e-9), " ago");
}

double Seconds(const Histogram::Snapshot& durations) {
  return durations.count == 0 ? 0 : durations.total_seconds / static_cast<double>(durations.count);
}

std::string PeerTable(const TaskFacts& facts) {
  HtmlTable table({"task", "address", "version", "last heard of", "#received", "#values",
                   "#mean wait", "#waiting", "#failed calls"});
  for (const PeerStats& peer : facts.observed->peers.peers()) {
    const Histogram::Snapshot receives = peer.receives.Read();
    table.Row({peer.task, peer.address, facts.version_of ? facts.version_of(peer.task) : "unknown",
               SinceText(peer.last_heard.load(std::memory_order_relaxed)),
               BytesText(static_cast<double>(peer.received_bytes.value())), StrCat(receives.count),
               receives.count == 0 ? "" : DurationText(Seconds(receives)),
               StrCat(peer.receives_begun.value() - receives.count),
               StrCat(peer.failed_calls.value())});
  }
  return table.Take("This task is the only one of its cluster.");
}

}  // namespace

Page MakeStatusPage(const TaskFacts& facts, const PageTable& pages) {
  const ProcessStats process = ReadProcessStats();
  HtmlTable status({"task", facts.task});
  status.Row({"address", facts.address()});
  status.Row({"cluster id", facts.cluster_id.empty() ? "none" : facts.cluster_id});
  status.Row(
      {"up for", DurationText(static_cast<double>(SteadyNanos() - facts.started_nanos) * 1e-9)});
  status.Row({"version", StrCat("Millrace ", MILLRACE_VERSION, ", compiler ", __VERSION__)});
  status.Row(
      {"process", StrCat(getpid(), ", ", process.threads, " threads, ",
                         BytesText(static_cast<double>(process.resident_bytes)), " resident")});
  HtmlTable devices({"device", "type", "#memory limit"});
  for (const Device* device : facts.devices) {
    const int64_t limit = device->attributes().memory_limit;
    devices.Row({device->name(), device->type(),
                 limit > 0 ? BytesText(static_cast<double>(limit)) : "none"});
  }
  HtmlTable flags({"flag", "value"});
  for (const auto& [name, value] : facts.flags) flags.Row({name, value});
  const std::string silent = facts.silent();
  return {
      200, kHtmlType,
      pages.Frame("Status", facts.task,
                  StrCat(silent.empty() ? std::string()
                                        : StrCat("<p class=\"bad\">", MarkupText(silent), "</p>"),
                         status.Take(""), "<h2>Other tasks</h2>", PeerTable(facts),
                         "<h2>Devices</h2>", devices.Take("none"), "<h2>Flags</h2>",
                         flags.Take("All are as they are by default.")))};
}

// With "?all=1" also what nobody has called.
Page MakeRpcPage(const TaskFacts& facts, const PageTable& pages, const PageRequest& request) {
  const bool all = request.query.contains("all");
  HtmlTable table({"method", "over", "#calls", "#running", "#errors", "#mean", "#99 %", "#bytes in",
                   "#bytes out"});
  for (const MethodStats& method : facts.observed->rpc.methods()) {
    const int64_t begun = method.begun.value();
    if (begun == 0 && !all) continue;
    const Histogram::Snapshot latency = method.latency.Read();
    table.Row({method.method, method.carrier, StrCat(begun),
               StrCat(std::max<int64_t>(begun - method.ended.value(), 0)),
               StrCat(method.errors.value()), DurationText(Seconds(latency)),
               StrCat("≤ ", DurationText(latency.Quantile(0.99))),
               BytesText(static_cast<double>(method.request_bytes.value())),
               BytesText(static_cast<double>(method.response_bytes.value()))});
  }
  return {200, kHtmlType,
          pages.Frame("Calls", StrCat("that were served by ", facts.task),
                      table.Take("Nobody has called this task yet."), kRefreshSeconds)};
}

int64_t ResourceLine::NumberBefore(std::string_view word) const {
  const std::vector<std::string_view> words = StrSplit(text, ' ');
  for (std::size_t i = 1; i < words.size(); ++i) {
    int64_t number = 0;
    if (words[i].starts_with(word) && ParseInt64(words[i - 1], &number)) return number;
  }
  return -1;
}

std::vector<ResourceLine> ResourcesOf(const Device& device) {
  std::vector<ResourceLine> resources;
  const std::string lines = device.resource_manager()->DebugString();
  for (const std::string_view line : StrSplit(lines, '\n')) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    resources.push_back({std::string(line.substr(0, colon)), std::string(line.substr(colon + 2))});
  }
  return resources;
}

Page MakeMemoryPage(const TaskFacts& facts, const PageTable& pages) {
  const ProcessStats process = ReadProcessStats();
  HtmlTable system({"process", "#bytes"});
  system.Row({"resident", BytesText(static_cast<double>(process.resident_bytes))});
  system.Row(
      {"resident, at most so far", BytesText(static_cast<double>(process.peak_resident_bytes))});
  system.Row({"address space", BytesText(static_cast<double>(process.virtual_bytes))});
  HtmlTable allocators(
      {"allocator", "#in use", "#at most so far", "#limit", "#buffers", "#from the system"});
  std::vector<const Allocator*> seen;
  HtmlTable resources({"device", "name", "what it is"});
  for (const Device* device : facts.devices) {
    for (const ResourceLine& resource : ResourcesOf(*device)) {
      resources.Row({device->name(), resource.name, resource.text});
    }
    const Allocator* const allocator = device->allocator();
    if (std::find(seen.begin(), seen.end(), allocator) != seen.end()) continue;
    seen.push_back(allocator);
    const AllocatorStats stats = allocator->stats();
    allocators.Row(
        {StrCat(allocator->name(), " of ", device->name()),
         BytesText(static_cast<double>(stats.bytes_in_use)),
         BytesText(static_cast<double>(stats.peak_bytes_in_use)),
         stats.bytes_limit > 0 ? BytesText(static_cast<double>(stats.bytes_limit)) : "none",
         StrCat(stats.num_allocations), StrCat(stats.num_system_allocations)});
  }
  return {200, kHtmlType,
          pages.Frame("Memory", facts.task,
                      StrCat(system.Take(""), "<h2>Tensors</h2>", allocators.Take("none"),
                             "<h2>What lives between steps</h2>",
                             resources.Take("Nothing: no variables, queues or tables.")))};
}

void AddTaskPages(TaskFacts facts, PageTable* pages) {
  const auto shared = std::make_shared<const TaskFacts>(std::move(facts));
  const auto add = [&](const char* path, const char* title,
                       Page (*make)(const TaskFacts&, const PageTable&)) {
    pages->Add(path, title, [=](const PageRequest&) { return make(*shared, *pages); });
  };
  add("/", "", &MakeStatusPage);
  add("/statusz", "Status", &MakeStatusPage);
  add("/stepz", "Steps", &MakeStepPage);
  pages->Add("/rpcz", "Calls",
             [=](const PageRequest& request) { return MakeRpcPage(*shared, *pages, request); });
  add("/memz", "Memory", &MakeMemoryPage);
  pages->Add("/metrics", "Metrics",
             [shared](const PageRequest& request) { return MakeMetrics(*shared, request); });
  pages->Add(
      "/healthz", "",
      [shared](const PageRequest&) {
        const Status usable = shared->usable == nullptr ? OkStatus() : shared->usable();
        if (usable.ok()) return Page{200, kTextType, "ok\n"};
        return Page{503, kTextType, StrCat("not serving: ", Message(usable), "\n")};
      },
      /*open=*/true);
}

}  // namespace millrace
