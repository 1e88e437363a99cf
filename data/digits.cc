#include "millrace/digits.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/errors.h"
#include "base/status_macros.h"
#include "data/idx.h"

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

StatusOr<Examples> LoadPair(const std::string& dir, const std::string& prefix) {
  const std::string image_file = prefix + "-images-idx3-ubyte";
  const std::string label_file = prefix + "-labels-idx1-ubyte";
  MR_ASSIGN_OR_RETURN(const std::string image_bytes,
                      ReadMaybeGzipped(dir + "/" + image_file, kMaxFileBytes));
  MR_ASSIGN_OR_RETURN(const std::string label_bytes,
                      ReadMaybeGzipped(dir + "/" + label_file, kMaxFileBytes));
  MR_ASSIGN_OR_RETURN(const IdxArray images, ParseIdx(image_bytes, 3, image_file));
  MR_ASSIGN_OR_RETURN(const IdxArray labels, ParseIdx(label_bytes, 1, label_file));
  if (images.dims[1] != 28 || images.dims[2] != 28) {
    return errors::DataLoss(image_file, " holds images of ", images.dims[1], " x ", images.dims[2],
                            " pixels, expected 28 x 28");
  }
  if (images.dims[0] != labels.dims[0]) {
    return errors::DataLoss(image_file, " holds ", images.dims[0], " images, but ", label_file, " ",
                            labels.dims[0], " labels");
  }
  Examples e = NewExamples(images.dims[0]);
  float* out = e.images.data<float>();
  for (std::size_t i = 0; i < images.values.size(); ++i) {
    out[i] = static_cast<float>(images.values[i]) * (1.0f / 255.0f);
  }
  for (int64_t i = 0; i < labels.dims[0]; ++i) {
    if (labels.values[i] >= kDigitClasses) {
      return errors::DataLoss(label_file, ": label ", i, " is ", int{labels.values[i]},
                              ", expected 0 to 9");
    }
    SetLabel(e, i, labels.values[i]);
  }
  return e;
}

}  // namespace

StatusOr<Digits> LoadDigits(std::string_view dir) {
  const std::string folder(dir);
  MR_ASSIGN_OR_RETURN(const Examples all, LoadPair(folder, "train"));
  if (all.size() <= kValidationSize) {
    return errors::DataLoss("train-images-idx3-ubyte holds only ", all.size(),
                            " images; more than ", kValidationSize, " are needed");
  }
  Digits digits;
  digits.validation = Rows(all, 0, kValidationSize);
  digits.train = Rows(all, kValidationSize, all.size());
  MR_ASSIGN_OR_RETURN(digits.test, LoadPair(folder, "t10k"));
  return digits;
}

Status CheckDigits(std::string_view dir) { return LoadDigits(dir).status(); }

BatchSource::BatchSource(const Examples& examples, int batch_size, uint64_t seed)
    : examples_(examples),
      batch_size_(batch_size),
      random_(seed),
      order_(static_cast<std::size_t>(examples.size())),
      next_(order_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
}

BatchSource::Batch BatchSource::Next() {
  Batch batch{Tensor(kFloat, {batch_size_, kDigitPixels}), Tensor(kInt64, {batch_size_}),
              Tensor(kFloat, {batch_size_, kDigitClasses})};
  float* images = batch.images.data<float>();
  int64_t* labels = batch.labels.data<int64_t>();
  float* one_hot = batch.one_hot.data<float>();
  for (int i = 0; i < batch_size_; ++i) {
    if (next_ == order_.size()) {
      std::shuffle(order_.begin(), order_.end(), random_);
      next_ = 0;
    }
    const int64_t row = order_[next_++];
    std::memcpy(images + i * kDigitPixels, examples_.images.data<float>() + row * kDigitPixels,
                kDigitPixels * sizeof(float));
    labels[i] = examples_.labels.data<int64_t>()[row];
    std::memcpy(one_hot + i * kDigitClasses, examples_.one_hot.data<float>() + row * kDigitClasses,
                kDigitClasses * sizeof(float));
  }
  return batch;
}

}  // namespace millrace
