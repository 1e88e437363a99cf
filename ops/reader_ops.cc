// SPDX-License-Identifier: Apache-2.0
// Readers of files, and summaries.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

Status UnknownVectors(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, UnknownDims(1));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"AudioSummary", "tag: string, tensor: float", "summary: string",
     "sample_rate: float; max_outputs: int >= 1 = 3", ScalarShape, kPlain,
     "15: Use AudioSummaryV2."},
    {"AudioSummaryV2", "tag: string, tensor: float, sample_rate: float", "summary: string",
     "max_outputs: int >= 1 = 3", ScalarShape},
    {"FixedLengthRecordReader", "", "reader_handle: Ref(string)",
     "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0; "
     "container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful | kReplaced},
    {"IdentityReader", "", "reader_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''", HandleVectorShape, kStateful | kReplaced},
    {"ReaderNumRecordsProduced", "reader_handle: Ref(string)", "records_produced: int64", "",
     ScalarShape},
    {"ReaderNumWorkUnitsCompleted", "reader_handle: Ref(string)", "units_completed: int64", "",
     ScalarShape},
    {"ReaderRead", "reader_handle: Ref(string), queue_handle: Ref(string)",
     "key: string, value: string", "", ScalarShape},
    {"ReaderReadUpTo", "reader_handle: Ref(string), queue_handle: Ref(string), num_records: int64",
     "keys: string, values: string", "", UnknownVectors},
    {"ReaderReset", "reader_handle: Ref(string)", "", "", NoOutputs},
    {"TFRecordReader", "", "reader_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''; compression_type: string = ''",
     HandleVectorShape, kStateful | kReplaced},
    {"TextLineReader", "", "reader_handle: Ref(string)",
     "skip_header_lines: int = 0; container: string = ''; shared_name: string = ''",
     HandleVectorShape, kStateful | kReplaced},
    {"WholeFileReader", "", "reader_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''", HandleVectorShape, kStateful},
    {"FixedLengthRecordReaderV2", "", "reader_handle: resource",
     "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0; "
     "container: string = ''; shared_name: string = ''; encoding: string = ''",
     ScalarShape, kStateful},
    {"HistogramSummary", "tag: string, values: T", "summary: string", "T: reals = float",
     ScalarShape},
    {"IdentityReaderV2", "", "reader_handle: resource",
     "container: string = ''; shared_name: string = ''", ScalarShape, kStateful},
    {"MergeSummary", "inputs: N * string", "summary: string", "N: int >= 1", ScalarShape},
    {"ReaderNumRecordsProducedV2", "reader_handle: resource", "records_produced: int64", "",
     ScalarShape, kStateful},
    {"ReaderNumWorkUnitsCompletedV2", "reader_handle: resource", "units_completed: int64", "",
     ScalarShape, kStateful},
    {"ReaderReadUpToV2", "reader_handle: resource, queue_handle: resource, num_records: int64",
     "keys: string, values: string", "", UnknownVectors, kStateful},
    {"ReaderReadV2", "reader_handle: resource, queue_handle: resource",
     "key: string, value: string", "", ScalarShape, kStateful},
    {"ReaderResetV2", "reader_handle: resource", "", "", NoOutputs, kStateful},
    {"ImageSummary", "tag: string, tensor: T", "summary: string",
     "max_images: int >= 1 = 3; T: {uint8, float, half, double} = float; bad_color: tensor = "
     "uint8[255, 0, 0, 255]",
     ScalarShape},
    {"ScalarSummary", "tags: string, values: T", "summary: string", "T: reals", ScalarShape},
    {"TFRecordReaderV2", "", "reader_handle: resource",
     "container: string = ''; shared_name: string = ''; compression_type: string = ''", ScalarShape,
     kStateful},
    {"TensorSummary", "tensor: T", "summary: string",
     "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''",
     ScalarShape},
    {"TensorSummaryV2", "tag: string, tensor: T, serialized_summary_metadata: string",
     "summary: string", "T: type", ScalarShape},
    {"TextLineReaderV2", "", "reader_handle: resource",
     "skip_header_lines: int = 0; container: string = ''; shared_name: string = ''", ScalarShape,
     kStateful},
    {"WholeFileReaderV2", "", "reader_handle: resource",
     "container: string = ''; shared_name: string = ''", ScalarShape, kStateful},
};

}  // namespace

Status RegisterReaderOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
