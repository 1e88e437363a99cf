// SPDX-License-Identifier: Apache-2.0
// `millrace ckpt`: checkpoints as files, without the programs that wrote them.
#ifndef TOOLS_MILLRACE_CKPT_COMMAND_H_
#define TOOLS_MILLRACE_CKPT_COMMAND_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/checkpoint.h"
#include "tools/millrace/ckpt_remote.h"

namespace CLI {
class App;
}

namespace millrace {

void AddCkptCommand(CLI::App* app, std::function<int()>* chosen);

struct CkptFlags {
  std::vector<std::string> prefixes;  // a directory is its newest checkpoint; also of a server
  std::string output;
  bool as_json = false;
  std::string tensor;                // show: only this one
  int values = 10;                   // show: so many of each
  double tolerance = 0;              // diff: differences up to this are none
  int files = 1;                     // reshard
  std::string dtype;                 // convert: floating tensors become this
  bool by_name = false;              // convert: keys of objects become names of variables
  bool by_object = false;            // convert: names become paths of objects
  std::string mapping;               // convert: a file of lines "old=new"
  std::vector<std::string> renames;  // convert: "old=new"
};

// A checkpoint that was opened. NotFound names the prefix that was written on the command line.
struct OpenCheckpoint {
  std::string prefix;
  std::unique_ptr<FetchedCheckpoint> copy;  // of a server's
  std::unique_ptr<CheckpointReader> reader;
};
// Without `with_data` only what the index says can be read of a server's checkpoint.
StatusOr<OpenCheckpoint> OpenPrefix(const std::string& prefix, bool with_data = true);

// Each sets `*text` to what is to be printed and `*code` to the exit code.
Status CkptList(const CkptFlags& flags, std::string* text, int* code);
Status CkptShow(const CkptFlags& flags, std::string* text, int* code);
Status CkptVerify(const CkptFlags& flags, std::string* text, int* code);
Status CkptDiff(const CkptFlags& flags, std::string* text, int* code);
// These write flags.output, which must not be there.
Status CkptConvert(const CkptFlags& flags, std::string* text, int* code);
Status CkptReshard(const CkptFlags& flags, std::string* text, int* code);
Status CkptMerge(const CkptFlags& flags, std::string* text, int* code);
Status CkptAverage(const CkptFlags& flags, std::string* text, int* code);

// The elements of a tensor of numbers as doubles; empty for texts. Complex ones are two.
std::vector<double> NumbersOf(const Tensor& tensor);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_CKPT_COMMAND_H_
