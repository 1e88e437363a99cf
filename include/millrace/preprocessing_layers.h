// SPDX-License-Identifier: Apache-2.0
// What makes numbers of raw data: layers, as millrace/layers.h says, and data sets of folders of
// images. No layer is trained; what they know of the data is given to them, and the functions here
// find it out.
#ifndef MILLRACE_PREPROCESSING_LAYERS_H_
#define MILLRACE_PREPROCESSING_LAYERS_H_

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "millrace/core_layers.h"
#include "millrace/data.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// --- Folders of images -------------------------------------------------------------------------

enum class ImageLabels {
  kInt,     // int32 scalar: the class' number
  kOneHot,  // float [classes]
  kBinary,  // float [1], 0 or 1: of two classes
  kNone,    // no labels, hence no classes: the files of the folder and of all folders below it
};
enum class ImageColors { kGrayscale = 1, kRgb = 3, kRgba = 4 };  // channels

// How an image of other proportions becomes one of the size that is asked for.
enum class ImageFit {
  kStretch,  // to the size, whatever becomes of the proportions
  kCrop,     // the largest part in the middle that has the size's proportions
  kPad,      // the whole image, in the middle of zeros
};
// Options of OpenImageFolder; most are those of Keras' image_dataset_from_directory.
struct ImageFolderOptions {
  int64_t height = 256,                    // pixels of each image that comes out
      width = 256;                         // pixels of each image that comes out
  ImageColors colors = ImageColors::kRgb;  // channels, whatever the files have
  ImageFit fit = ImageFit::kStretch;       // to height and width
  std::string interpolation = "bilinear";  // or "nearest"
  ImageLabels labels = ImageLabels::kInt;  // second component of the elements
  std::vector<std::string> class_names{};  // these folders, in this order; empty: all, sorted
  int64_t batch_size = 32;                 // 0: single images
  bool shuffle = true;                     // of training: another order each epoch
  // From 1 to 2^32 - 1: the order of files, the split and the orders of epochs are Keras' for it.
  // 0: orders as Dataset::Shuffle draws them, and no split.
  int64_t seed = 0;
  double validation_split = 0;  // the part of the files, the last ones, kept for validation
  bool skip_damaged = false;    // else a damaged file is an error of the step that reads it
};

// Data sets of OpenImageFolder, with what they were made of.
struct ImageFolder {
  // Of {images, labels}, images alone with kNone. Images are float [batch, height, width, channels]
  // from 0 to 255: layers::Rescaling(1.0 / 255) makes these 0 to 1. Files are read and decoded on
  // all threads, some batches ahead; under a strategy each worker reads its own.
  Dataset training;
  Dataset validation;                    // never shuffled; FailedPrecondition without a split
  std::vector<std::string> class_names;  // by label
  std::vector<std::string> training_files, validation_files;  // before epochs are shuffled
  std::vector<std::string> damaged;  // what was skipped: "PATH: what is wrong", sorted
};

// The images below `folder`, which has a folder for each class: with its files, those of folders
// in it (links to folders are not followed) and a name that does not begin with a dot. Images are
// files named .bmp, .gif (the first frame), .jpeg, .jpg and .png, in any case; each may have 2^30
// bytes of pixels. Order of files, split and values are those of Keras'
// image_dataset_from_directory with subset="both".
//
// Files are listed now, by this program, and read when the step runs, by the task that the
// iterator is on: both need the folder under this path, within --file_root of a server. An error
// of a step begins with the file and says what can be done. With `skip_damaged` all files are
// decoded once now, and those that cannot be are left out before the split.
//
// NotFound: there is no such folder, it has no folder of a class or none of `class_names`, or no
// images; DataLoss: all images are damaged; InvalidArgument: options that cannot be, a split that
// leaves no files on one side, or kBinary of other than two classes. Each names the folder.
StatusOr<ImageFolder> OpenImageFolder(const std::string& folder,
                                      const ImageFolderOptions& options = {},
                                      std::source_location where = std::source_location::current());

namespace layers {

// Values times `scale`, plus `offset`.
LayerPtr Rescaling(double scale, double offset = 0, std::string name = "",
                   Where where = Where::current());

// Mean and variance of each feature, the last axis.
struct FeatureStatistics {
  std::vector<float> mean,  // by feature, or one for all
      variance;             // by feature, or one for all; biased
};
// Over all axes but the last of a float tensor; InvalidArgument for another type or a scalar.
StatusOr<FeatureStatistics> StatisticsOf(const Tensor& data);
// Less the mean, divided by the deviation. One number of each stands for all features. These are
// constants of the graph, not weights.
LayerPtr Normalization(const FeatureStatistics& statistics, bool invert = false,
                       std::string name = "", Where where = Where::current());

// What numbers are made into.
enum class EncodingMode {
  kInt,       // int64, as they are
  kOneHot,    // floats with a last axis more, as long as the vocabulary
  kMultiHot,  // of the last axis together: 1 for each that is there
  kCount,     // how often each is there
};
// Options of StringLookup, as Keras 3's.
struct LookupOptions {
  int64_t num_oov_indices = 1;  // numbers for what is not in the vocabulary, shared out by a hash
  std::optional<std::string> mask_token{};        // is number 0
  EncodingMode output_mode = EncodingMode::kInt;  // form of the result
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// The place of each string in the vocabulary, after those for the mask and for what is not in it.
// Without num_oov_indices, -1 stands for the latter.
LayerPtr StringLookup(std::vector<std::string> vocabulary, const LookupOptions& options = {},
                      Where where = Where::current());
// Options of IntegerLookup, as Keras 3's.
struct IntegerLookupOptions {
  int64_t num_oov_indices = 1;                    // as LookupOptions
  std::optional<int64_t> mask_token{};            // is number 0
  EncodingMode output_mode = EncodingMode::kInt;  // form of the result
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// The place of each number in the vocabulary; otherwise as StringLookup.
LayerPtr IntegerLookup(std::vector<int64_t> vocabulary, const IntegerLookupOptions& options = {},
                       Where where = Where::current());

// Options of TextVectorization, as Keras 3's.
struct TextVectorizationOptions {
  bool lower = true,                              // words in lower case
      strip_punctuation = true;                   // words without punctuation, before texts are cut
  EncodingMode output_mode = EncodingMode::kInt;  // kOneHot is not one of them
  int64_t output_sequence_length = 0;             // 0: as long as the longest text of a batch
  std::string name{};  // prefix of variables and nodes; "": the kind's in snake_case
};
// Texts [batch] or [batch, 1], cut at white space, to numbers of words: 0 fills up short ones, 1 is
// what is not in the vocabulary, whose words count from 2. As counts: 0 is what is not in it.
LayerPtr TextVectorization(std::vector<std::string> vocabulary,
                           const TextVectorizationOptions& options = {},
                           Where where = Where::current());
// The words of texts, the most frequent first (and of equals the last of the alphabet, as in
// Keras); at most so many unless it is 0. InvalidArgument unless these are strings.
StatusOr<std::vector<std::string>> VocabularyOf(const Tensor& texts, int64_t max_words = 0,
                                                const TextVectorizationOptions& options = {});

}  // namespace layers
}  // namespace millrace

#endif  // MILLRACE_PREPROCESSING_LAYERS_H_
