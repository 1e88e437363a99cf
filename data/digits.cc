// SPDX-License-Identifier: Apache-2.0
#include "millrace/digits.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "data/idx.h"
#include "data/pipeline/array_bytes.h"
#include "io/filesystem.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr int64_t kValidationSize = 5000;

Examples NewExamples(int64_t n) {
  Examples e;
  e.images = Tensor(kFloat, {n, kDigitPixels});
  e.labels = Tensor(kInt64, {n});
  e.one_hot = Tensor(kFloat, {n, kDigitClasses});
  std::memset(e.one_hot.raw_data(), 0, e.one_hot.num_bytes());
  return e;
}

void SetLabel(Examples& e, int64_t i, int label) {
  e.labels.data<int64_t>()[i] = label;
  e.one_hot.data<float>()[i * kDigitClasses + label] = 1.0f;
}

Examples Rows(const Examples& e, int64_t begin, int64_t end) {
  return {e.images.Slice(begin, end), e.labels.Slice(begin, end), e.one_hot.Slice(begin, end)};
}

// Bytes of images and labels as a file has them, with their names for errors.
struct RawExamples {
  std::string image_name, label_name;
  std::vector<int64_t> image_dims, label_dims;
  const uint8_t* images = nullptr;
  const uint8_t* labels = nullptr;
};

StatusOr<Examples> ToExamples(const RawExamples& raw) {
  if (raw.image_dims.size() != 3 || raw.image_dims[1] != 28 || raw.image_dims[2] != 28) {
    return errors::DataLoss(raw.image_name, " holds ", StrJoin(raw.image_dims, " x "),
                            " pixels, expected images of 28 x 28");
  }
  const int64_t n = raw.image_dims[0];
  if (raw.label_dims.size() != 1 || raw.label_dims[0] != n) {
    return errors::DataLoss(raw.image_name, " holds ", n, " images, but ", raw.label_name, " ",
                            StrJoin(raw.label_dims, " x "), " labels");
  }
  Examples e = NewExamples(n);
  float* const out = e.images.data<float>();
  for (int64_t i = 0; i < n * kDigitPixels; ++i) {
    out[i] = static_cast<float>(raw.images[i]) * (1.0f / 255.0f);
  }
  for (int64_t i = 0; i < n; ++i) {
    if (raw.labels[i] >= kDigitClasses) {
      return errors::DataLoss(raw.label_name, ": label ", i, " is ", int{raw.labels[i]},
                              ", expected 0 to 9");
    }
    SetLabel(e, i, raw.labels[i]);
  }
  return e;
}

StatusOr<Examples> LoadPair(const std::string& dir, const std::string& prefix) {
  const std::string image_file = prefix + "-images-idx3-ubyte";
  const std::string label_file = prefix + "-labels-idx1-ubyte";
  MR_ASSIGN_OR_RETURN(const std::string image_bytes,
                      ReadMaybeGzipped(dir + "/" + image_file, kMaxFileBytes));
  MR_ASSIGN_OR_RETURN(const std::string label_bytes,
                      ReadMaybeGzipped(dir + "/" + label_file, kMaxFileBytes));
  MR_ASSIGN_OR_RETURN(const IdxArray images, ParseIdx(image_bytes, 3, image_file));
  MR_ASSIGN_OR_RETURN(const IdxArray labels, ParseIdx(label_bytes, 1, label_file));
  return ToExamples({image_file, label_file, images.dims, labels.dims, images.values.data(),
                     labels.values.data()});
}

// Arrays x_`which` and y_`which` of mnist.npz, the form in which Keras hands MNIST out.
StatusOr<Examples> PairOf(const std::map<std::string, std::string>& arrays, const std::string& path,
                          const std::string& which) {
  const auto array = [&](const std::string& name) -> StatusOr<Tensor> {
    const auto found = arrays.find(name + ".npy");
    if (found == arrays.end()) return errors::DataLoss(path, " has no array ", name);
    MR_ASSIGN_OR_RETURN(Tensor tensor, ParseNpy(found->second, StrCat(path, "(", name, ")")));
    if (tensor.dtype() == kUint8) return tensor;
    return errors::DataLoss(path, "(", name, ") holds ", DataTypeName(tensor.dtype()),
                            ", expected uint8");
  };
  MR_ASSIGN_OR_RETURN(const Tensor images, array("x_" + which));
  MR_ASSIGN_OR_RETURN(const Tensor labels, array("y_" + which));
  const auto dims = [](const Tensor& t) {
    return std::vector<int64_t>(t.shape().dims().begin(), t.shape().dims().end());
  };
  return ToExamples({StrCat(path, "(x_", which, ")"), StrCat(path, "(y_", which, ")"), dims(images),
                     dims(labels), images.data<uint8_t>(), labels.data<uint8_t>()});
}

struct Files {
  Examples train, test;
};

StatusOr<Files> LoadFiles(const std::string& dir) {
  Files files;
  const std::string npz = dir + "/mnist.npz";
  FileSystem* const disk = PosixFileSystem();
  const std::string first = dir + "/train-images-idx3-ubyte";
  if (disk->FileExists(first) || disk->FileExists(first + ".gz") || !disk->FileExists(npz)) {
    MR_ASSIGN_OR_RETURN(files.train, LoadPair(dir, "train"));
    MR_ASSIGN_OR_RETURN(files.test, LoadPair(dir, "t10k"));
    return files;
  }
  MR_ASSIGN_OR_RETURN(const uint64_t bytes, disk->FileSize(npz));
  if (bytes > kMaxFileBytes) {
    return errors::ResourceExhausted(npz, " has ", bytes, " bytes, ", kMaxFileBytes, " at most");
  }
  MR_ASSIGN_OR_RETURN(const std::string content, disk->ReadFile(npz));
  MR_ASSIGN_OR_RETURN(const auto arrays, ParseZip(content, npz));
  MR_ASSIGN_OR_RETURN(files.train, PairOf(arrays, npz, "train"));
  MR_ASSIGN_OR_RETURN(files.test, PairOf(arrays, npz, "test"));
  return files;
}

}  // namespace

StatusOr<Digits> LoadDigits(std::string_view dir) {
  MR_ASSIGN_OR_RETURN(Files files, LoadFiles(std::string(dir)));
  if (files.train.size() <= kValidationSize) {
    return errors::DataLoss("the training set in ", dir, " holds only ", files.train.size(),
                            " images; more than ", kValidationSize, " are needed");
  }
  Digits digits;
  digits.validation = Rows(files.train, 0, kValidationSize);
  digits.train = Rows(files.train, kValidationSize, files.train.size());
  digits.test = std::move(files.test);
  return digits;
}

Status CheckDigits(std::string_view dir) { return LoadDigits(dir).status(); }

BatchSource::BatchSource(const Examples& examples, int batch_size, uint64_t seed)
    : examples_(examples),
      batch_size_(batch_size),
      seed_(seed),
      order_(static_cast<std::size_t>(examples.size())) {}

void BatchSource::Permute(int64_t pass) {
  if (pass == pass_) return;
  pass_ = pass;
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  std::seed_seq seeds{low(seed_), low(seed_ >> 32), low(static_cast<uint64_t>(pass)),
                      low(static_cast<uint64_t>(pass) >> 32)};
  std::mt19937_64 random(seeds);
  std::iota(order_.begin(), order_.end(), 0);
  std::shuffle(order_.begin(), order_.end(), random);
}

BatchSource::Batch BatchSource::At(int64_t number) {
  next_ = number + 1;
  Batch batch{Tensor(kFloat, {batch_size_, kDigitPixels}), Tensor(kInt64, {batch_size_}),
              Tensor(kFloat, {batch_size_, kDigitClasses})};
  float* images = batch.images.data<float>();
  int64_t* labels = batch.labels.data<int64_t>();
  float* one_hot = batch.one_hot.data<float>();
  const int64_t size = examples_.size();
  for (int64_t i = 0; i < batch_size_; ++i) {
    const int64_t place = number * batch_size_ + i;
    Permute(place / size);
    const int64_t row = order_[static_cast<std::size_t>(place % size)];
    std::memcpy(images + i * kDigitPixels, examples_.images.data<float>() + row * kDigitPixels,
                kDigitPixels * sizeof(float));
    labels[i] = examples_.labels.data<int64_t>()[row];
    std::memcpy(one_hot + i * kDigitClasses, examples_.one_hot.data<float>() + row * kDigitClasses,
                kDigitClasses * sizeof(float));
  }
  return batch;
}

}  // namespace millrace
