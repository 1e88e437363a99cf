// SPDX-License-Identifier: Apache-2.0
// Data sets of folders of images: which files there are, in Keras' order and with its split, and
// the stages that make images of them.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"
#include "io/filesystem.h"
#include "io/uri.h"
#include "millrace/math.h"
#include "millrace/ops.h"
#include "millrace/preprocessing_layers.h"

namespace millrace {
namespace {

using Where = std::source_location;

constexpr std::string_view kEndings[] = {".bmp", ".gif", ".jpeg", ".jpg", ".png"};
constexpr char kEndingsText[] = "files whose names end in .bmp, .gif, .jpeg, .jpg or .png";

// A file and the number of its class.
struct Labelled {
  std::string path;
  int32_t label = 0;
};

// --- Which files there are ---------------------------------------------------------------------

bool IsImageName(std::string_view name) {
  const auto ends_with = [name](std::string_view ending) {
    return name.size() >= ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - ending.size(),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  };
  return std::any_of(std::begin(kEndings), std::end(kEndings), ends_with);
}

// Links to folders may lead in circles, which is why they are not followed.
StatusOr<bool> IsLink(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(path));
  std::error_code error;
  return std::filesystem::is_symlink(local, error);
}

// Of all folders, ordered by their whole paths as texts, then by names: "a-b/1" before "a/b/1".
StatusOr<std::vector<std::string>> ImagesBelow(const std::string& top) {
  FileSystem* const files = PosixFileSystem();
  std::map<std::string, std::vector<std::string>> found;
  for (std::vector<std::string> todo = {top}; !todo.empty();) {
    const std::string folder = std::move(todo.back());
    todo.pop_back();
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(folder));
    std::vector<std::string>& images = found[folder];
    for (const std::string& name : names) {
      std::string path = JoinPath(folder, name);
      if (files->IsDirectory(path)) {
        MR_ASSIGN_OR_RETURN(const bool is_link, IsLink(path));
        if (!is_link) todo.push_back(std::move(path));
      } else if (IsImageName(name)) {
        images.push_back(std::move(path));
      }
    }
  }
  std::vector<std::string> all;
  for (auto& [folder, images] : found) {
    all.insert(all.end(), std::make_move_iterator(images.begin()),
               std::make_move_iterator(images.end()));
  }
  return all;
}

// The folders of classes that are asked for, or all.
StatusOr<std::vector<std::string>> ClassesIn(const std::string& folder,
                                             const std::vector<std::string>& wanted) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, PosixFileSystem()->List(folder));
  std::vector<std::string> classes;
  for (const std::string& name : names) {
    if (name.starts_with('.') || !PosixFileSystem()->IsDirectory(JoinPath(folder, name))) continue;
    classes.push_back(name);
  }
  if (classes.empty()) {
    return errors::NotFound(folder,
                            " has no folders: there must be one for each class, with its images "
                            "in it, or ImageFolderOptions::labels must be kNone");
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (std::find(classes.begin(), classes.end(), wanted[i]) == classes.end()) {
      return errors::NotFound(folder, " has no folder of the class '", wanted[i],
                              "'; it has those of ", StrJoin(classes, ", "));
    }
    if (std::find(wanted.begin(), wanted.begin() + i, wanted[i]) != wanted.begin() + i) {
      return errors::InvalidArgument("the class '", wanted[i],
                                     "' is named twice in ImageFolderOptions::class_names");
    }
  }
  return wanted.empty() ? classes : wanted;
}

StatusOr<std::vector<Labelled>> ListImages(const std::string& folder,
                                           const std::vector<std::string>& classes, bool labelled) {
  std::vector<Labelled> all;
  const auto add = [&all](const std::string& below, int32_t label) -> Status {
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ImagesBelow(below));
    for (const std::string& path : paths) all.push_back({path, label});
    return OkStatus();
  };
  if (!labelled) MR_RETURN_IF_ERROR(add(folder, 0));
  for (std::size_t i = 0; i < classes.size(); ++i) {
    MR_RETURN_IF_ERROR(add(JoinPath(folder, classes[i]), static_cast<int32_t>(i)));
  }
  if (!all.empty()) return all;
  return errors::NotFound("there are no images in ", folder,
                          labelled ? " within the folders of its classes: " : ": ", kEndingsText,
                          " are looked for");
}

// As numpy.random.RandomState(seed).shuffle does it, which is Keras' way.
void ShuffleAsNumPy(std::vector<Labelled>& files, uint32_t seed) {
  std::mt19937 random(seed);
  for (auto i = static_cast<uint32_t>(files.size()); i-- > 1;) {
    uint32_t mask = i;
    for (int bits = 1; bits < 32; bits *= 2) mask |= mask >> bits;
    uint32_t drawn;
    do {
      drawn = static_cast<uint32_t>(random()) & mask;
    } while (drawn > i);
    std::swap(files[i], files[drawn]);
  }
}

// --- From a file to an image -------------------------------------------------------------------

Output RowsOrColumns(const Scope& s, const Output& image, int axis) {
  return ops::Cast(s, ops::GatherV2(s, ops::Shape(s, image), axis, 0), kFloat);
}

// Sizes are computed in float32, as Keras does.
Output Cropped(const Scope& s, const Output& image, const ImageFolderOptions& o) {
  std::vector<Input> begin, size;
  const float wanted[] = {static_cast<float>(o.height), static_cast<float>(o.width)};
  const Output given[] = {RowsOrColumns(s, image, 0), RowsOrColumns(s, image, 1)};
  for (int axis = 0; axis < 2; ++axis) {
    const Expr in_proportion = Expr(s, given[1 - axis]) * wanted[axis] / wanted[1 - axis];
    const Output kept = ops::Maximum(
        s, ops::Minimum(s, ops::Cast(s, in_proportion, kInt32), ops::Cast(s, given[axis], kInt32)),
        1);
    const Expr left_out = (Expr(s, given[axis]) - ops::Cast(s, kept, kFloat)) / 2.0f;
    size.push_back(kept);
    begin.push_back(ops::Cast(s, left_out, kInt32));
  }
  begin.push_back(0);
  size.push_back(-1);
  return ops::Slice(s, image, ops::Pack(s, begin), ops::Pack(s, size));
}

Output Resized(const Scope& s, const Output& image, const Input& size,
               const ImageFolderOptions& o) {
  const Output one = ops::ExpandDims(s, image, 0);
  const Output resized =
      o.interpolation == "nearest"
          ? ops::Cast(s, ops::ResizeNearestNeighbor(s, one, size, {.half_pixel_centers = true}),
                      kFloat)
          : ops::ResizeBilinear(s, one, size, {.half_pixel_centers = true});
  return ops::Squeeze(s, resized, {.squeeze_dims = {0}});
}

// Sizes are computed in float32, as tf.image.resize_with_pad does. At least one row and column of
// an image stays.
Output Padded(const Scope& s, const Output& image, const ImageFolderOptions& o) {
  const float wanted[] = {static_cast<float>(o.height), static_cast<float>(o.width)};
  const Expr rows(s, RowsOrColumns(s, image, 0)), columns(s, RowsOrColumns(s, image, 1));
  const Output ratio = ops::Maximum(s, columns / wanted[1], rows / wanted[0]);
  std::vector<Input> size, paddings;
  for (int axis = 0; axis < 2; ++axis) {
    const auto whole = static_cast<int32_t>(axis == 0 ? o.height : o.width);
    const Expr exact = (axis == 0 ? rows : columns) / ratio;
    const Output kept = ops::Maximum(s, ops::Cast(s, ops::Floor(s, exact), kInt32), 1);
    const Output empty = ops::Floor(s, (wanted[axis] - exact) / 2.0f);
    const Output before = ops::Maximum(s, ops::Cast(s, empty, kInt32), 0);
    const Output after = ops::Sub(s, ops::Sub(s, whole, before), kept);
    size.push_back(kept);
    paddings.push_back(ops::Pack(s, {before, ops::Maximum(s, after, 0)}));
  }
  paddings.push_back(Tensor::FromValues<int32_t>({0, 0}));
  return ops::Pad(s, Resized(s, image, ops::Pack(s, size), o), ops::Pack(s, paddings));
}

Output Decoded(const Scope& s, const Output& path, const ImageFolderOptions& o) {
  return ops::DecodeImage(s, ops::ReadFile(s, path),
                          {.channels = static_cast<int64_t>(o.colors), .expand_animations = false});
}

Output ImageOf(const Scope& s, const Output& path, const ImageFolderOptions& o) {
  const int32_t height = static_cast<int32_t>(o.height), width = static_cast<int32_t>(o.width);
  Output image = Decoded(s, path, o);
  if (o.fit == ImageFit::kCrop) image = Cropped(s, image, o);
  image = o.fit == ImageFit::kPad
              ? Padded(s, image, o)
              : Resized(s, image, Tensor::FromValues<int32_t>({height, width}), o);
  return ops::EnsureShape(s, image, PartialShape({height, width, static_cast<int64_t>(o.colors)}));
}

Output LabelOf(const Scope& s, const Output& label, const ImageFolderOptions& o, int32_t classes) {
  switch (o.labels) {
    case ImageLabels::kOneHot:
      return ops::OneHot(s, label, classes, 1.0f, 0.0f);
    case ImageLabels::kBinary:
      return ops::ExpandDims(s, ops::Cast(s, label, kFloat), 0);
    default:
      return label;
  }
}

// --- Data sets ---------------------------------------------------------------------------------

// Of paths, and of labels unless there are none. Sharded by file, so that no worker decodes what
// another one reads.
Dataset NamesOf(const std::vector<Labelled>& files, bool labelled, Where where) {
  std::vector<std::string> paths;
  std::vector<int32_t> labels;
  for (const Labelled& file : files) {
    paths.push_back(file.path);
    labels.push_back(file.label);
  }
  const Shape shape({static_cast<int64_t>(files.size())});
  std::vector<Tensor> components = {Tensor::FromValues<std::string>(paths, shape)};
  if (labelled) components.push_back(Tensor::FromValues<int32_t>(labels, shape));
  DatasetStage stage = *Dataset::FromTensorSlices(components, where).stage();
  stage.gives_file_names = true;
  stage.add = [inputs =
                   std::vector<Input>(components.begin(), components.end())](StagePlace& place) {
    return AddStageOp(place, place.stage.op, {inputs},
                      {{"Toutput_types", place.stage.dtypes},
                       {"output_shapes", place.stage.shapes},
                       {"is_files", true}});
  };
  return NewDataset(std::move(stage));
}

// What Keras' seed is for TensorFlow's shuffle of epochs, which takes seeds modulo 2^31 - 1. (Of
// the two whose remainder is 0, which means no seed here, only the orders of epochs are our own.)
int64_t EpochSeed(int64_t seed) {
  constexpr int64_t kModulus = std::numeric_limits<int32_t>::max();
  return seed == 0 || seed % kModulus != 0 ? seed % kModulus : kModulus;
}

constexpr char kAdvice[] =
    "the file cannot be read as an image: mend it, take it away, or set "
    "ImageFolderOptions::skip_damaged";

// More are all files that there can be.
constexpr int64_t kMostInBatch = int64_t{1} << 40;

Dataset ImagesOf(const std::vector<Labelled>& files, const ImageFolderOptions& o, int32_t classes,
                 bool shuffle, Where where) {
  const bool labelled = o.labels != ImageLabels::kNone;
  Dataset names = NamesOf(files, labelled, where);
  if (shuffle) {
    const int64_t buffer = o.seed == 0        ? -1
                           : o.batch_size > 0 ? 8 * std::min(o.batch_size, kMostInBatch)
                                              : 1024;
    names = names.Shuffle(buffer, {.seed = EpochSeed(o.seed)}, where);
  }
  const auto read = [o, labelled, classes](const Scope& s, std::span<const Output> file) {
    std::vector<Output> element = {ImageOf(s, file[0], o)};
    if (labelled) element.push_back(LabelOf(s, file[1], o, classes));
    return element;
  };
  const Dataset images = MapFiles(names, read, {.num_parallel = kAutotune}, kAdvice, where);
  return (o.batch_size > 0 ? images.Batch(o.batch_size, {}, where) : images)
      .Prefetch(kAutotune, where);
}

// What a file may be that is skipped. Another error is not the file's own.
bool IsDamage(const Status& status) {
  return errors::IsInvalidArgument(status) || errors::IsNotFound(status) ||
         errors::IsDataLoss(status) || errors::IsResourceExhausted(status) ||
         errors::IsFailedPrecondition(status);  // a pipe or a device
}

// Decodes every file, and takes those that cannot be from `files`.
Status TakeDamaged(const std::string& folder, const ImageFolderOptions& o, Where where,
                   std::vector<Labelled>* files, std::vector<std::string>* damaged) {
  const auto decode = [o](const Scope& s, std::span<const Output> file) {
    return std::vector<Output>{ops::Size(s, Decoded(s, file[0], o))};
  };
  MR_ASSIGN_OR_RETURN(
      DatasetReader reader,
      DatasetReader::Create(
          NamesOf(*files, false, where).Map(decode, {.num_parallel = kAutotune}, where)));
  std::vector<Labelled> good;
  Status first;
  for (const Labelled& file : *files) {
    std::vector<Tensor> size;
    const StatusOr<bool> more = reader.Next(&size);
    if (more.ok() && !*more) return errors::Internal("there are fewer images than files");
    if (more.ok()) {
      good.push_back(file);
      continue;
    }
    if (!IsDamage(more.status())) return Annotate(more.status(), StrCat(" (", file.path, ")"));
    if (first.ok()) first = more.status();
    damaged->push_back(StrCat(file.path, ": ", Message(more.status())));
  }
  if (good.empty()) {
    return errors::DataLoss("none of the ", files->size(), " images in ", folder,
                            " can be read; the first: ", damaged->front());
  }
  std::sort(damaged->begin(), damaged->end());
  *files = std::move(good);
  return OkStatus();
}

// --- The call ----------------------------------------------------------------------------------

Status CheckOptions(const ImageFolderOptions& o) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (o.height < 1 || o.width < 1 || o.height > kMost || o.width > kMost) {
    return errors::InvalidArgument("images of ", o.height, " x ", o.width,
                                   " pixels: height and width must be at least 1");
  }
  const auto channels = static_cast<int>(o.colors);
  if (channels != 1 && channels != 3 && channels != 4) {
    return errors::InvalidArgument("colors of ", channels,
                                   " channels: they must be kGrayscale, kRgb or kRgba");
  }
  if (o.interpolation != "bilinear" && o.interpolation != "nearest") {
    return errors::InvalidArgument("interpolation '", o.interpolation,
                                   "' is neither 'bilinear' nor 'nearest'");
  }
  if (o.batch_size < 0) {
    return errors::InvalidArgument("batches of ", o.batch_size,
                                   " images: batch_size must be at least 1, or 0 for no batches");
  }
  if (o.seed < 0 || o.seed > std::numeric_limits<uint32_t>::max()) {
    return errors::InvalidArgument("the seed ", o.seed,
                                   " is not from 1 to 4294967295, nor 0 for none");
  }
  if (!(o.validation_split >= 0 && o.validation_split < 1)) {
    return errors::InvalidArgument("a validation_split of ", o.validation_split,
                                   ": it must be at least 0 and below 1");
  }
  if (o.validation_split > 0 && o.shuffle && o.seed == 0) {
    return errors::InvalidArgument(
        "a validation_split of shuffled files needs a seed: the next call, or another worker, "
        "would validate with images that this one trains on");
  }
  if (o.labels == ImageLabels::kNone && !o.class_names.empty()) {
    return errors::InvalidArgument("there are class_names, but no labels (kNone)");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ImageFolder> OpenImageFolder(const std::string& folder, const ImageFolderOptions& options,
                                      std::source_location where) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  const bool labelled = options.labels != ImageLabels::kNone;
  ImageFolder result;
  if (labelled) {
    MR_ASSIGN_OR_RETURN(result.class_names, ClassesIn(folder, options.class_names));
  }
  if (options.labels == ImageLabels::kBinary && result.class_names.size() != 2) {
    return errors::InvalidArgument("kBinary is of two classes; ", folder, " has ",
                                   result.class_names.size(), ": ",
                                   StrJoin(result.class_names, ", "));
  }
  MR_ASSIGN_OR_RETURN(std::vector<Labelled> files,
                      ListImages(folder, result.class_names, labelled));
  if (options.skip_damaged) {
    MR_RETURN_IF_ERROR(TakeDamaged(folder, options, where, &files, &result.damaged));
  }
  if (options.shuffle && options.seed != 0) {
    ShuffleAsNumPy(files, static_cast<uint32_t>(options.seed));
  }
  const auto kept =
      static_cast<std::ptrdiff_t>(options.validation_split * static_cast<double>(files.size()));
  if (options.validation_split > 0 && kept == 0) {
    return errors::InvalidArgument("a validation_split of ", options.validation_split, " of the ",
                                   files.size(), " images in ", folder,
                                   " is no image; make it larger, or leave it out");
  }
  const std::vector<Labelled> training(files.begin(), files.end() - kept),
      validation(files.end() - kept, files.end());
  const auto classes = static_cast<int32_t>(result.class_names.size());
  result.training = ImagesOf(training, options, classes, options.shuffle, where);
  MR_RETURN_IF_ERROR(result.training.status());
  if (!validation.empty()) {
    result.validation = ImagesOf(validation, options, classes, false, where);
    MR_RETURN_IF_ERROR(result.validation.status());
  }
  for (const Labelled& file : training) result.training_files.push_back(file.path);
  for (const Labelled& file : validation) result.validation_files.push_back(file.path);
  return result;
}

}  // namespace millrace
