// SPDX-License-Identifier: Apache-2.0
// Data sets: descriptions of sequences of elements, put together by chaining, and what reads them.
//
//   const Dataset batches = Dataset::FromTensorSlices({images, labels})
//                               .Shuffle(10000, {.seed = 1}).Batch(32).Prefetch(2);
//
// An element is a list of tensors, its components. A description belongs to no graph: AddTo and
// MakeIterator put it into one (as ops of TensorFlow's names), DatasetReader reads it directly.
// Order, batch boundaries and orders of shuffling for a seed are those of tf.data.
//
// Mistakes are kept, not thrown: the first one, with the line of the call, is in status(), passes
// on to what is made of the data set and becomes the status of the graph that it is put into.
// What only the data can show (a file that is missing, elements of other shapes in a batch) is an
// error of the step that reads the element. Copies are cheap. Thread-safe, except that functions
// given to Map and the like are called by whoever calls Map, AddTo or MakeIterator.
#ifndef MILLRACE_DATA_H_
#define MILLRACE_DATA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/session.h"

namespace millrace {

inline constexpr int64_t kAutotune = -1;  // a number of calls or a buffer size as we like

class Dataset;
struct DatasetStage;  // data/pipeline/stage.h

// Adds the nodes of a function of one element through `scope`. May be called several times and in
// several graphs, once when it is given to find out what it gives. It may use outputs of the graph
// that the data set is put into; their values are taken when the iterator is initialized.
using ElementFunction =
    std::function<std::vector<Output>(const Scope& scope, std::span<const Output> element)>;
// One bool scalar.
using ElementPredicate = std::function<Output(const Scope& scope, std::span<const Output> element)>;
// One int32 or int64 scalar.
using ElementNumber = std::function<Output(const Scope& scope, std::span<const Output> element)>;
// A data set that depends on the element.
using ElementDataset = std::function<Dataset(const Scope& scope, std::span<const Output> element)>;

// A data set of what a function of the program gives. It is called for one epoch after the other
// (by each initialization of an iterator, when the first element is asked for) and gives what is
// called for the elements.
struct GeneratorCall {
  // True when the iterator is gone: what waits for long looks at it and gives up.
  std::function<bool()> is_abandoned;
};
// Puts an element's components into *element, which comes empty, and says true; or false at the
// end. It is called by one thread at a time, not one of the program's own. What it gave is not to
// be changed afterwards.
using GeneratorNext =
    std::function<StatusOr<bool>(const GeneratorCall& call, std::vector<Tensor>* element)>;
using Generator = std::function<StatusOr<GeneratorNext>()>;  // begins an epoch
// Declared type and shape of one component of a generator's elements.
struct GeneratorComponent {
  DataType dtype = DataType::kInvalid;  // of the component in every element
  PartialShape shape{};                 // what is known of all elements
};

// How files of lines and records are read.
struct FileOptions {
  std::string compression{};         // "", "ZLIB" or "GZIP"
  int64_t buffer_bytes = 256 << 10;  // read at a time
};
// Layout of files of records that all have one length.
struct FixedLengthOptions {
  int64_t header_bytes = 0,  // skipped at the beginning of each file
      footer_bytes = 0;      // skipped at the end of each file
  FileOptions file{};        // compression and buffer
};
// Form of the lines that Dataset::Csv reads.
struct CsvOptions {
  bool header = false;         // the first line of each file is left out
  char delimiter = ',';        // between two fields
  bool quotes = true;          // "a, b" is one field
  std::string na_value{};      // read as a missing field
  std::vector<int> columns{};  // ascending; empty: all
  FileOptions file{};          // compression and buffer
};
// Order in which Dataset::ListFiles names files.
struct ListFilesOptions {
  bool shuffle = true;  // another order each time, as tf.data; false: sorted
  int64_t seed = 0;     // of the shuffle; as ShuffleOptions::seed
};
// Parallelism of Dataset::Map.
struct MapOptions {
  int64_t num_parallel = 1;  // calls at a time; kAutotune
  // Passed to the op as its attribute; this engine keeps the order of the elements either way.
  bool deterministic = true;
};
// How Dataset::Interleave takes turns among data sets, as tf.data's interleave.
struct InterleaveOptions {
  int64_t cycle_length = kAutotune;  // data sets that are open at a time
  int64_t block_length = 1;          // elements of one before it is the next one's turn
  int64_t num_parallel = 1;          // data sets that are read at the same time; kAutotune
};
// Randomness of Dataset::Shuffle.
struct ShuffleOptions {
  int64_t seed = 0;  // 0: from the graph's seed, or another order in every process
  bool reshuffle_each_iteration = true;  // another order for every epoch, initialization and reader
};
// What Dataset::Batch does at the end.
struct BatchOptions {
  bool drop_remainder = false;  // leaves out a last one that is not full
};
// Shapes and values that elements are padded to.
struct PaddedBatchOptions {
  std::vector<PartialShape> shapes{};  // by component; unknown sizes: the largest of the batch.
                                       // Empty: the shapes of the elements
  std::vector<Tensor> values{};        // scalars; empty: 0 or ""
  bool drop_remainder = false;         // leaves out a last one that is not full
};
// When Dataset::ChooseFrom ends.
struct ChooseOptions {
  // The end of the first data set that is chosen and has no more elements; false: choices of data
  // sets that have none are passed over.
  bool stop_on_empty = true;
};
// Draws of Dataset::SampleFrom.
struct SampleOptions {
  std::vector<double> weights{};  // by data set, of any sum; empty: all alike
  int64_t seed = 0;               // 0: from the graph's seed, or other draws in every process
  bool stop_on_empty = false;     // as ChooseOptions
};
// Distances within and between the windows of Dataset::Window.
struct WindowOptions {
  int64_t shift = 0;            // from one window to the next; 0: its size
  int64_t stride = 1;           // from one element of a window to its next
  bool drop_remainder = false;  // leaves out a last one that is not full
};
// Which part of the data each of several workers reads; the numbers are TensorFlow's.
enum class AutoShard { kOff = -1, kAuto = 0, kFile = 1, kData = 2, kHint = 3 };
// Shard(kShardHint, kShardHint) stands where kHint puts the worker's shard; unreadable else.
inline constexpr int64_t kShardHint = -1;
// Properties of a whole data set, for whoever distributes it.
struct DatasetOptions {
  AutoShard auto_shard = AutoShard::kAuto;  // how workers divide the elements
};

// Immutable description of a sequence of elements; the file's comment says how to use it.
class Dataset {
  using Here = std::source_location;

 public:
  static constexpr int64_t kInfinite = -1,  // cardinality of a data set without an end
      kUnknown = -2;                        // cardinality that only reading can show

  Dataset();  // no data set: FailedPrecondition

  // --- Where elements come from ---------------------------------------------------------------
  // One element with these components; or their rows, which there must be as many of in each.
  static Dataset FromTensors(std::vector<Tensor> components, Here where = Here::current());
  // Rows of the components along their first axis, one element each; as many in each
  // component.
  static Dataset FromTensorSlices(std::vector<Tensor> components, Here where = Here::current());
  // The same of outputs of the graph that the data set is for.
  static Dataset FromOutputs(std::vector<Output> components, Here where = Here::current());
  // Rows of outputs of the graph along their first axis.
  static Dataset FromOutputSlices(std::vector<Output> components, Here where = Here::current());
  // int64 scalars from `start` up (or down) to before `stop`.
  static Dataset Range(int64_t start, int64_t stop, int64_t step = 1, Here where = Here::current());
  // int64 scalars from 0 to before `stop`.
  static Dataset Range(int64_t stop, Here where = Here::current()) {
    return Range(0, stop, 1, where);
  }
  // Strings: lines without their ends, records of TFRecord files, blocks of `record_bytes`. Of
  // files, or of one whose name is an output: what Interleave and FlatMap make of names.
  static Dataset TextLines(std::vector<std::string> files, const FileOptions& options = {},
                           Here where = Here::current());
  // Lines of one file, named by a string scalar.
  static Dataset TextLines(const Output& file, const FileOptions& options = {},
                           Here where = Here::current());
  // Records of TFRecord files, one file after the other.
  static Dataset TfRecords(std::vector<std::string> files, const FileOptions& options = {},
                           Here where = Here::current());
  // Records of one file, named by a string scalar.
  static Dataset TfRecords(const Output& file, const FileOptions& options = {},
                           Here where = Here::current());
  // Blocks of `record_bytes` bytes between header and footer of each file.
  static Dataset FixedLength(std::vector<std::string> files, int64_t record_bytes,
                             const FixedLengthOptions& options = {}, Here where = Here::current());
  // Blocks of one file, named by a string scalar.
  static Dataset FixedLength(const Output& file, int64_t record_bytes,
                             const FixedLengthOptions& options = {}, Here where = Here::current());
  // One scalar component per column. `defaults` has a tensor per column: its type is the column's,
  // its one value stands for a missing field; without a value (shape [0]) the field must be there.
  static Dataset Csv(std::vector<std::string> files, std::vector<Tensor> defaults,
                     const CsvOptions& options = {}, Here where = Here::current());
  // Names of files that match (* and ? in the last part) when the iterator is initialized.
  static Dataset ListFiles(const std::string& pattern, const ListFilesOptions& options = {},
                           Here where = Here::current());
  // Of an unknown number of elements. A step that asks ends with the error that the function
  // returned, Internal for what it threw and for OutOfRange, InvalidArgument for components that
  // are not as declared; the next step asks for the next element. A step whose time is over does
  // not wait for the function: the next one gets that element. The function is of this process:
  // FailedPrecondition of a step of another task's process that is to read it.
  static Dataset FromGenerator(Generator generator, std::vector<GeneratorComponent> components,
                               Here where = Here::current());
  // The rows of arrays in a file: idx (MNIST's format, .gz too), npy, and of npz the named arrays.
  static Dataset Idx(const std::string& path, Here where = Here::current());
  // Rows of the array of an .npy file.
  static Dataset Npy(const std::string& path, Here where = Here::current());
  // Rows of the named arrays of an .npz file, one component for each name.
  static Dataset Npz(const std::string& path, const std::vector<std::string>& arrays,
                     Here where = Here::current());

  // --- What becomes of them -------------------------------------------------------------------
  Dataset Map(const ElementFunction& f, const MapOptions& options = {},
              Here where = Here::current()) const;
  Dataset Filter(const ElementPredicate& f, Here where = Here::current()) const;     // f is true
  Dataset TakeWhile(const ElementPredicate& f, Here where = Here::current()) const;  // till f fails
  Dataset FlatMap(const ElementDataset& f, Here where = Here::current()) const;      // one by one
  // Elements of the data sets that `f` makes, several data sets in turn.
  Dataset Interleave(const ElementDataset& f, const InterleaveOptions& options = {},
                     Here where = Here::current()) const;
  // `size` elements stacked; the last ones too, unless drop_remainder.
  Dataset Batch(int64_t size, const BatchOptions& options = {}, Here where = Here::current()) const;
  // `size` elements stacked, each component padded at its end to a common shape.
  Dataset PaddedBatch(int64_t size, const PaddedBatchOptions& options = {},
                      Here where = Here::current()) const;
  // Batches of elements of similar length, padded to the longest of each batch: bucket i has
  // lengths from boundaries[i - 1] (included) to boundaries[i], and batches of batch_sizes[i], one
  // size more than boundaries. Batches come as they fill; what is left comes at the end, shortest
  // bucket first. `drop_remainder` needs equal batch sizes.
  Dataset BucketByLength(const ElementNumber& length, const std::vector<int64_t>& boundaries,
                         const std::vector<int64_t>& batch_sizes,
                         const PaddedBatchOptions& options = {},
                         Here where = Here::current()) const;
  Dataset Unbatch(Here where = Here::current()) const;  // rows of each element, one element each
  // Windows of `size` elements, each given as one batch: Batch() that may overlap or leave gaps.
  Dataset Window(int64_t size, const WindowOptions& options = {},
                 Here where = Here::current()) const;
  // Any of the next `buffer_size` elements at a time; -1: of all.
  Dataset Shuffle(int64_t buffer_size, const ShuffleOptions& options = {},
                  Here where = Here::current()) const;
  // Negative: for ever; all; none.
  Dataset Repeat(int64_t count = -1, Here where = Here::current()) const;
  Dataset Take(int64_t count, Here where = Here::current()) const;  // negative: all
  Dataset Skip(int64_t count, Here where = Here::current()) const;  // negative: nothing is left
  // Each element whose number modulo `num_shards` is `index`, from 0.
  Dataset Shard(int64_t num_shards, int64_t index, Here where = Here::current()) const;
  // Components of all, as long as all have elements. Of equal types: one after the other.
  static Dataset Zip(std::vector<Dataset> inputs, Here where = Here::current());
  Dataset Concatenate(const Dataset& next, Here where = Here::current()) const;  // these come first
  // The next element of the data set whose number the next choice is: an int64 scalar, from 0. An
  // error of the step if there is no such data set. Ends with the choices. All data sets have
  // components of the same types.
  static Dataset ChooseFrom(const Dataset& choices, std::vector<Dataset> inputs,
                            const ChooseOptions& options = {}, Here where = Here::current());
  // The next element of a data set drawn by weight, independently each time.
  static Dataset SampleFrom(std::vector<Dataset> inputs, const SampleOptions& options = {},
                            Here where = Here::current());
  // An int64 scalar before the components.
  Dataset Enumerate(int64_t start = 0, Here where = Here::current()) const;
  // Kept in memory from the first whole walk on.
  Dataset Cache(Here where = Here::current()) const;
  // Up to `buffer_size` elements are read ahead of use; 0 or more, or kAutotune.
  Dataset Prefetch(int64_t buffer_size = kAutotune, Here where = Here::current()) const;
  // Elements that cannot be made are left out.
  Dataset IgnoreErrors(Here where = Here::current()) const;
  // Promises a cardinality; the walk fails where it is broken.
  Dataset AssertCardinality(int64_t count, Here where = Here::current()) const;
  Dataset WithOptions(const DatasetOptions& options) const;  // in place of options()

  // --- What is known of them ------------------------------------------------------------------
  const Status& status() const;
  const std::vector<DataType>& dtypes() const;      // of the components
  const std::vector<PartialShape>& shapes() const;  // unknown sizes where elements differ
  int64_t cardinality() const;                      // elements, kInfinite or kUnknown
  DatasetOptions options() const;                   // of WithOptions
  // "TensorSlice > Shuffle(100) > Batch(32)"
  std::string DebugString() const;

  // The variant tensor of the data set; not valid on an error, which the graph then has.
  Output AddTo(const Scope& scope, Here where = Here::current()) const;

  explicit Dataset(std::shared_ptr<const DatasetStage> stage);  // of the library's own
  const std::shared_ptr<const DatasetStage>& stage() const { return stage_; }  // its last step

 private:
  std::shared_ptr<const DatasetStage> stage_;
};

// A place in a data set that lives in sessions of the graph.
struct DatasetIterator {
  // Back to the beginning. A data set that reshuffles has another order each time; one with a cache
  // goes on with it.
  Operation initializer;
  // The components of the next element, all of one fetch. OutOfRange at the end; FailedPrecondition
  // before the initializer ran.
  std::vector<Output> next;
};
// Nodes of an iterator, with this name, that walks over the data set in steps of the graph.
DatasetIterator MakeIterator(const Scope& scope, const Dataset& dataset,
                             std::string_view name = "iterator",
                             std::source_location where = std::source_location::current());

// Reads a data set from a program, with a graph and a session of its own. Not thread-safe.
class DatasetReader {
 public:
  // The data set's first mistake, or what a session says.
  static StatusOr<DatasetReader> Create(const Dataset& dataset, const SessionOptions& options = {});
  DatasetReader(DatasetReader&&) noexcept;  // leaves what may be assigned to or destroyed
  DatasetReader& operator=(DatasetReader&&) noexcept;
  ~DatasetReader();

  // True and the next element, or false at the end (and again after it).
  StatusOr<bool> Next(std::vector<Tensor>* element);
  // From the beginning, as an iterator's initializer.
  Status Restart();
  // What is left, but no more than `limit` elements (ResourceExhausted: an endless one does not
  // fit).
  StatusOr<std::vector<std::vector<Tensor>>> ReadAll(int64_t limit = 1 << 20);

 private:
  struct Impl;
  explicit DatasetReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Arrays of files as whole tensors: NotFound, DataLoss for a damaged file, Unimplemented for types
// that there are no tensors of, each with the path. Big-endian and Fortran order are read, too.
StatusOr<Tensor> ReadNpy(const std::string& path);
StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::string& path);  // arrays by name
StatusOr<Tensor> ReadIdx(const std::string& path);  // MNIST's format, .gz too

}  // namespace millrace

#endif  // MILLRACE_DATA_H_
