// SPDX-License-Identifier: Apache-2.0
// Loops over the rows of tensors, and the arrays that loops fill and read.
//
//   // The running sum of x, and what it ends with.
//   const ScanResult sum = Scan(scope, {zero}, {x},
//       [](const Scope& s, std::span<const Output> state, std::span<const Output> row) {
//         const Output next = ops::AddV2(s, state[0], row[0]);
//         return ScanStep{{next}, {next}};
//       });
//   // sum.last[0]: a row; sum.all[0]: as many as x has.
//
// Gradients() goes through, also through the gradients. Errors are in the graph's status, with the
// line of the call; results are then not valid, or empty. As thread-safe as the graph.
#ifndef MILLRACE_SCAN_H_
#define MILLRACE_SCAN_H_

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph.h"

namespace millrace {

// How a TensorArray is made.
struct TensorArrayOptions {
  PartialShape element_shape{};  // what every element is known to be; unknown: anything
  bool dynamic_size = false;     // grows as it is written to
  bool clear_after_read = true;  // each element is read once, and its memory is free then
  std::string name{};            // for errors; "": that of the node
};

// An array of tensors of one type, which lives for one step. Each element is written once. A value
// of this class is the array after what was done so far: what writes gives the array after the
// write, and reads through that value see it. In a loop, `flow` is a variable: take the array with
// After(flow) inside, and give the flow of the written array as the next value. Between devices
// the array stays where it was made. Of a failed construction: not valid, and harmless to use.
class TensorArray {
  using Here = std::source_location;

 public:
  TensorArray() = default;
  // `size`: an int32 scalar. InvalidArgument of a step for one below 0, ResourceExhausted for one
  // above 2^24.
  TensorArray(const Scope& scope, DataType dtype, const Input& size,
              const TensorArrayOptions& options = {}, Here where = Here::current());
  // With the rows of `rows`, which has at least one axis.
  static TensorArray OfRows(const Scope& scope, const Output& rows, TensorArrayOptions options = {},
                            Here where = Here::current());

  // False for one that was made without arguments, or whose construction failed.
  bool valid() const { return flow_.valid(); }
  // The type of the elements.
  DataType dtype() const { return dtype_; }
  const Output& handle() const { return handle_; }  // a resource
  const Output& flow() const { return flow_; }      // a float scalar
  // The same array after what `flow` comes after: a flow of this array.
  TensorArray After(const Output& flow) const;

  // Element `index`, an int32 scalar. InvalidArgument of a step: beyond the size, another type or
  // shape, a second write, a second read unless clear_after_read is false, an element that was
  // never written and whose shape is not known (else it is zeros).
  TensorArray Write(const Scope& scope, const Input& index, const Input& value,
                    Here where = Here::current()) const;
  // The element at `index`, an int32 scalar.
  Output Read(const Scope& scope, const Input& index, Here where = Here::current()) const;
  // Rows to the places of `indices`, a vector of int32; and back.
  TensorArray Scatter(const Scope& scope, const Input& indices, const Input& rows,
                      Here where = Here::current()) const;
  // The elements at `indices`, a vector of int32, along a new first axis.
  Output Gather(const Scope& scope, const Input& indices, Here where = Here::current()) const;
  // All elements, which must have one shape, along a new first axis. Of an array without elements
  // the shape of elements must be known (Unimplemented of a step).
  Output Stack(const Scope& scope, Here where = Here::current()) const;
  // All elements one after the other along their first axis, in which alone they may differ.
  Output Concat(const Scope& scope, Here where = Here::current()) const;
  // Parts of `value` along its first axis, as long as `lengths` says, a vector of int64.
  TensorArray Split(const Scope& scope, const Input& value, const Input& lengths,
                    Here where = Here::current()) const;
  Output Size(const Scope& scope, Here where = Here::current()) const;  // an int32 scalar

 private:
  Output handle_, flow_;
  DataType dtype_ = DataType::kInvalid;
  PartialShape element_shape_{};
};

// What one iteration of a Scan gives.
struct ScanStep {
  std::vector<Output> state;      // as many as before, of the same types and shapes
  std::vector<Output> results{};  // kept of every iteration
};
// Builds an iteration: the state before it and one row of each of the elements.
using ScanFunction = std::function<ScanStep(const Scope& scope, std::span<const Output> state,
                                            std::span<const Output> row)>;
// How the iterations of a Scan are run.
struct ScanOptions {
  bool reverse = false;  // from the last row to the first; results stand where their rows did
  int64_t parallel_iterations = 10;  // that may run at once, as far as states allow
};
// What a Scan gives.
struct ScanResult {
  std::vector<Output> last{};  // the state behind the last iteration; `initial` without rows
  std::vector<Output> all{};   // of each result one for each row, along a new first axis
};
// Calls `f` once to build the body of a loop, which is given the state and row i of each of the
// `elements` (at least one; all with as many rows, which need not be known). It may use outputs
// made before. InvalidArgument: no elements, scalars, rows that differ in number, states that
// change type or shape; of a step: rows that differ in number. Without any row the shapes of
// results must be known (Unimplemented of a step).
ScanResult Scan(const Scope& scope, const std::vector<Output>& initial,
                const std::vector<Output>& elements, const ScanFunction& f,
                const ScanOptions& options = {},
                std::source_location where = std::source_location::current());

// What `f` makes of row i of the elements is row i of the results. Iterations do not wait for each
// other. Otherwise as Scan.
using RowFunction =
    std::function<std::vector<Output>(const Scope& scope, std::span<const Output> row)>;
// How the iterations of MapFn are run.
struct MapFnOptions {
  int64_t parallel_iterations = 10;  // that may run at once
};
// The results of all rows, each along a new first axis.
std::vector<Output> MapFn(const Scope& scope, const std::vector<Output>& elements,
                          const RowFunction& f, const MapFnOptions& options = {},
                          std::source_location where = std::source_location::current());

}  // namespace millrace

#endif  // MILLRACE_SCAN_H_
