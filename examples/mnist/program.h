// SPDX-License-Identifier: Apache-2.0
#ifndef EXAMPLES_MNIST_PROGRAM_H_
#define EXAMPLES_MNIST_PROGRAM_H_

#include "examples/mnist/model.h"
#include "millrace/graph.h"
#include "millrace/variables.h"

namespace millrace::mnist {

// The training graph of one worker.
struct Program {
  Graph graph;
  Model model;
  Variable global_step;
  Operation train;
  Operation init, local_init, init_tokens, sync_op;
  Output not_ready;
  Output step_claim;         // --exact_steps: OutOfRange once all steps have been given out
  Operation report_trained;  // this worker takes no further step
  Output all_trained;        // blocks until every worker has said so
  Operation let_evaluate;    // the chief: no variable changes any more
  Output may_evaluate;       // blocks until the chief has said so
  Operation report_done;     // this worker has finished
  Output all_done;           // blocks until every worker has
};

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_PROGRAM_H_
