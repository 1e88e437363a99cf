// SPDX-License-Identifier: Apache-2.0
#include "planner/memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/node_order.h"

namespace millrace {
namespace {

// Hands the memory of its first input on. (The read of a reference is a copy.)
bool SharesInput(const Node& node) {
  static const std::set<std::string_view> ops = {
      "Enter",           "Exit",    "ExpandDims",   "Identity", "Merge", "NextIteration",
      "PreventGradient", "Reshape", "StopGradient", "Squeeze",  "Switch"};
  return ops.contains(node.type()) && node.num_inputs() > 0 && !IsRefType(node.input_types()[0]);
}

// One value, and the tasks that have it.
struct Value {
  int64_t bytes = -1;                  // -1: unknown
  std::map<std::string, int> readers;  // still to come, by task; an entry as long as it is kept
};

class Simulation {
 public:
  Simulation(const PlannedRun& run, std::map<std::string, TaskMemory>* tasks)
      : run_(run), tasks_(*tasks), value_of_(run.graph->num_node_ids()) {}

  void Run() {
    const std::vector<Node*> order = InOrder(*run_.graph);
    for (const Node* node : order) FindValues(*node);
    for (const Node* node : order) Execute(*node);
  }

 private:
  static std::string TaskOf(const Node& node) { return TaskPartOf(node.assigned_device()); }

  // Counts the readers of what the node computes.
  void FindValues(const Node& node) {
    std::vector<int>& mine = value_of_[node.id()];
    mine.assign(node.num_outputs(), -1);
    for (int i = 0; i < node.num_outputs(); ++i) {
      const DataType type = node.output_types()[i];
      if (IsRefType(type) || type == kResource) continue;
      const Edge* const in = SharesInput(node) ? node.input_edge(0) : nullptr;
      if (in != nullptr && !value_of_[in->src->id()].empty()) {
        mine[i] = value_of_[in->src->id()][in->src_output];
        continue;
      }
      Value value;
      const ByteRange bytes = BytesOf(type, run_.shape(node, i));
      if (bytes.IsExact()) value.bytes = bytes.most;
      mine[i] = static_cast<int>(values_.size());
      values_.push_back(std::move(value));
    }
    for (const Edge* edge : node.in_edges()) {
      if (edge->IsControl() || value_of_[edge->src->id()].empty()) continue;
      const int value = value_of_[edge->src->id()][edge->src_output];
      if (value >= 0) ++values_[value].readers[TaskOf(node)];
    }
  }

  void Add(const std::string& task, int64_t bytes) {
    TaskMemory& memory = tasks_[task];
    if (bytes < 0) {
      ++memory.unknown_values;
      memory.step.most = kUnbounded;
      return;
    }
    memory.step += {0, bytes};
    now_[task] += bytes;
    memory.in_order = std::max(memory.in_order, now_[task]);
  }

  void Execute(const Node& node) {
    const std::string task = TaskOf(node);
    int64_t touched = 0;
    std::set<int> made;
    for (const int index : value_of_[node.id()]) {
      if (index < 0 || begun_.contains(index) || !made.insert(index).second) continue;
      begun_.insert(index);
      Value& value = values_[index];
      touched += std::max<int64_t>(0, value.bytes);
      value.readers.try_emplace(task, 0);
      for (const auto& [reader, count] : value.readers) Add(reader, value.bytes);
    }
    std::set<int> read;
    for (const Edge* edge : node.in_edges()) {
      if (edge->IsControl() || value_of_[edge->src->id()].empty()) continue;
      const int index = value_of_[edge->src->id()][edge->src_output];
      if (index < 0) continue;
      Value& value = values_[index];
      if (read.insert(index).second && !made.contains(index)) {
        touched += std::max<int64_t>(0, value.bytes);
      }
      --value.readers[task];
    }
    TaskMemory& memory = tasks_[task];
    memory.step.least = std::max(memory.step.least, touched);
    read.insert(made.begin(), made.end());
    for (const int index : read) Release(&values_[index]);
  }

  // Where nobody is left to read it. A value that goes elsewhere is sent as soon as it is there.
  void Release(Value* value) {
    for (auto it = value->readers.begin(); it != value->readers.end();) {
      if (it->second > 0) {
        ++it;
        continue;
      }
      now_[it->first] -= std::max<int64_t>(0, value->bytes);
      it = value->readers.erase(it);
    }
  }

  const PlannedRun& run_;
  std::map<std::string, TaskMemory>& tasks_;
  std::vector<Value> values_;
  std::vector<std::vector<int>> value_of_;  // by node id and output; -1: none
  std::set<int> begun_;
  std::map<std::string, int64_t> now_;
};

}  // namespace

bool IsVariable(const Node& node) {
  return node.type() == "VariableV2" || node.type() == "Variable" || node.type() == "VarHandleOp";
}

ByteRange VariableBytes(const Node& variable) {
  return BytesOf(BaseType(variable.attrs().GetOr<DataType>("dtype", DataType::kInvalid)),
                 variable.attrs().GetOr<PartialShape>("shape", PartialShape()));
}

std::vector<TaskLoad> VariableLoads(const DataflowGraph& placed) {
  std::map<std::string, TaskLoad> tasks;
  for (const Node* node : placed.OpNodes()) {
    TaskLoad& load = tasks[TaskPartOf(node->assigned_device())];
    if (!IsVariable(*node)) continue;
    const ByteRange bytes = VariableBytes(*node);
    ++load.variables;
    load.not_exact += !bytes.IsExact();
    load.bytes += bytes;
  }
  std::vector<TaskLoad> loads;
  for (auto& [task, load] : tasks) {
    load.task = task;
    loads.push_back(std::move(load));
  }
  return loads;
}

std::vector<TaskMemory> PredictMemory(const DataflowGraph& placed, const PlannedRun& run) {
  std::map<std::string, TaskMemory> tasks;
  for (TaskLoad& load : VariableLoads(placed)) tasks[load.task].variables = std::move(load);
  Simulation(run, &tasks).Run();
  std::vector<TaskMemory> memory;
  for (auto& [task, of_task] : tasks) {
    of_task.variables.task = task;
    memory.push_back(std::move(of_task));
  }
  return memory;
}

}  // namespace millrace
