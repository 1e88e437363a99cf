// SPDX-License-Identifier: Apache-2.0
// Who builds a graph, and who sends it to servers: many at a time send, one builds.
#ifndef COORDINATOR_GRAPH_GATE_H_
#define COORDINATOR_GRAPH_GATE_H_

#include "base/mutex.h"

namespace millrace {

// Thread-safe. Neither side waits long: building is quick, and so is sending to a task that has
// just given a sign of life.
class GraphGate {
 public:
  class Sending {
   public:
    explicit Sending(GraphGate* gate) : gate_(gate) {
      MutexLock lock(&gate_->mu_);
      while (gate_->building_) gate_->changed_.Wait(&gate_->mu_);
      ++gate_->senders_;
    }
    ~Sending() {
      MutexLock lock(&gate_->mu_);
      if (--gate_->senders_ == 0) gate_->changed_.SignalAll();
    }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

   private:
    GraphGate* const gate_;
  };
  class Building {
   public:
    explicit Building(GraphGate* gate) : gate_(gate) {
      MutexLock lock(&gate_->mu_);
      while (gate_->building_) gate_->changed_.Wait(&gate_->mu_);
      gate_->building_ = true;
      while (gate_->senders_ > 0) gate_->changed_.Wait(&gate_->mu_);
    }
    ~Building() {
      MutexLock lock(&gate_->mu_);
      gate_->building_ = false;
      gate_->changed_.SignalAll();
    }
    Building(const Building&) = delete;
    Building& operator=(const Building&) = delete;

   private:
    GraphGate* const gate_;
  };

 private:
  Mutex mu_;
  CondVar changed_;
  bool building_ ABSL_GUARDED_BY(mu_) = false;
  int senders_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // COORDINATOR_GRAPH_GATE_H_
