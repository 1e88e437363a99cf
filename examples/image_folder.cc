// SPDX-License-Identifier: Apache-2.0
// Trains a small residual network on a folder that has a folder of images for each class: with
// --data_dir on yours, else on shapes that it draws into PNG and JPEG files.
//
// Images are read while the network computes, and are mirrored, moved and made lighter or darker
// by chance, otherwise in every epoch and the same way in every run.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/training_flags.h"
#include "millrace/keras_optimizers.h"
#include "millrace/layers.h"
#include "millrace/model.h"
#include "millrace/preprocessing_layers.h"
#include "millrace/schedules.h"
#include "millrace/status_macros.h"
#include "millrace/strategy.h"

namespace fs = std::filesystem;
namespace mr = millrace;
namespace layers = mr::layers;

struct Flags : mr::examples::TrainingFlags {
  int64_t images = 800, size = 24;
  double validation_split = 0.2;
  bool skip_damaged = false;
};

// --- Images to train on ------------------------------------------------------------------------

constexpr const char* kShapes[] = {"crosses", "discs", "squares", "stripes"};

bool IsWithin(const std::string& shape, int x, int y, int radius) {
  const int ax = std::abs(x), ay = std::abs(y);
  if (shape == "discs") return x * x + y * y <= radius * radius;
  if (ax > radius || ay > radius) return false;
  if (shape == "crosses") return ax * 3 <= radius || ay * 3 <= radius;
  return shape == "squares" || (x + radius) % 5 < 2;
}

// A shape somewhere in a noisy image of any size.
mr::Tensor Draw(const std::string& shape, std::mt19937& random) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const int height = between(24, 40), width = between(24, 40), radius = between(6, 10);
  const int top = between(radius, height - 1 - radius), left = between(radius, width - 1 - radius);
  std::array<int, 3> ground, colour;
  for (int c = 0; c < 3; ++c) {
    ground[c] = between(20, 90);
    colour[c] = ground[c] + between(40, 130);
  }
  mr::Tensor image(mr::kUint8, {height, width, 3});
  uint8_t* pixel = image.data<uint8_t>();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto& shade = IsWithin(shape, x - left, y - top, radius) ? colour : ground;
      for (int c = 0; c < 3; ++c) *pixel++ = static_cast<uint8_t>(shade[c] + between(-15, 15));
    }
  }
  return image;
}

// Draws as many images of each shape, every other one a JPEG.
mr::Status DrawImages(const std::string& folder, int64_t count) {
  mr::Graph graph;
  const mr::Scope root = graph.root();
  const mr::Output image = mr::Placeholder(root, mr::kUint8, {-1, -1, 3});
  const mr::Output path = mr::Placeholder(root, mr::kString, {});
  const mr::Operation as_png = mr::ops::WriteFile(root, path, mr::ops::EncodePng(root, image)),
                      as_jpeg = mr::ops::WriteFile(root, path, mr::ops::EncodeJpeg(root, image));
  MR_ASSIGN_OR_RETURN(mr::Session session, mr::Session::Create(graph));
  std::mt19937 random(1);
  for (int64_t i = 0; i < count; ++i) {
    const std::string shape = kShapes[i % std::size(kShapes)];
    const bool is_jpeg = i / std::size(kShapes) % 2 == 1;
    const std::string name =
        folder + "/" + shape + "/" + std::to_string(i) + (is_jpeg ? ".jpg" : ".png");
    const mr::Operation targets[] = {is_jpeg ? as_jpeg : as_png};
    const mr::Feed feeds[] = {{image, Draw(shape, random)}, {path, mr::Tensor::String(name)}};
    MR_RETURN_IF_ERROR(session.Run(feeds, {}, targets).status());
  }
  return mr::OkStatus();
}

// A new folder that is gone at the end; "" if none could be made.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "shapes_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// --- The data set ------------------------------------------------------------------------------

// Of {number, image, label}: chance comes from the number, so that a run that is stopped goes on
// with the images that it would have seen (docs/data.md, "Where an iterator stands").
std::vector<mr::Output> Vary(const mr::Scope& s, std::span<const mr::Output> element) {
  constexpr int32_t kMost = 2;  // pixels to each side
  const mr::Output image = element[1];
  const mr::Output seed = mr::ops::Pack(s, {element[0], int64_t{1}});
  const mr::Expr chances(
      s, mr::ops::StatelessRandomUniform(s, mr::Tensor::FromValues<int32_t>({4}), seed));
  const std::vector<mr::Output> chance = mr::ops::Unpack(s, chances, 4);

  const mr::Output mirrored = mr::ops::ReverseV2(s, image, mr::Tensor::FromValues<int32_t>({1}));
  const mr::Output turned =
      mr::ops::SelectV2(s, mr::ops::Less(s, chance[0], 0.5f), mirrored, image);

  const mr::Output wide = mr::ops::MirrorPad(
      s, turned, mr::Tensor::FromValues<int32_t>({kMost, kMost, kMost, kMost, 0, 0}, {3, 2}),
      "REFLECT");
  const auto offset = [&](const mr::Output& drawn) {
    return mr::ops::Cast(s, mr::Expr(s, drawn) * (2.0f * kMost + 1), mr::kInt32);
  };
  const mr::Output moved =
      mr::ops::Slice(s, wide, mr::ops::Pack(s, {offset(chance[1]), offset(chance[2]), 0}),
                     mr::ops::Shape(s, image));

  const mr::Expr lit = mr::Expr(s, moved) * (mr::Expr(s, chance[3]) * 0.6f + 0.7f);
  return {mr::ops::EnsureShape(s, lit, image.shape()), element[2]};
}

// --- The network -------------------------------------------------------------------------------

std::shared_ptr<mr::Layer> Convolution(int64_t filters, int64_t kernel, int64_t stride = 1) {
  return layers::Conv2D(filters, kernel, {.strides = stride, .padding = "same", .use_bias = false});
}

// Moving means that are those of the last dozens of steps: a small folder has few steps.
std::shared_ptr<mr::Layer> Normalization() {
  return layers::BatchNormalization({.momentum = 0.9, .synchronized = true});
}

// What two convolutions add to what comes in, which a third one brings to the same shape.
layers::LayerPtr ResidualBlock(int64_t filters, int64_t stride) {
  const auto first = Convolution(filters, 3, stride), second = Convolution(filters, 3),
             shortcut = Convolution(filters, 1, stride);
  const auto norm1 = Normalization(), norm2 = Normalization(), norm3 = Normalization();
  return layers::Functional({first, norm1, second, norm2, shortcut, norm3},
                            [=](mr::Pass& pass, std::span<const mr::Output> in) {
                              const mr::Scope& s = pass.scope();
                              const mr::Output x =
                                  mr::ops::Relu(s, (*norm1)(pass, (*first)(pass, in[0])));
                              const mr::Output added = (*norm2)(pass, (*second)(pass, x));
                              const mr::Output kept = (*norm3)(pass, (*shortcut)(pass, in[0]));
                              return mr::ops::Relu(s, mr::ops::AddV2(s, added, kept));
                            });
}

layers::LayerPtr SmallResNet(int64_t classes) {
  return layers::Sequential(
      {layers::Rescaling(1.0 / 255), layers::Conv2D(12, 3, {.padding = "same", .use_bias = false}),
       layers::BatchNormalization({.momentum = 0.9, .synchronized = true}),
       layers::Activation("relu"), ResidualBlock(12, 1), ResidualBlock(24, 2), ResidualBlock(48, 2),
       layers::GlobalAveragePooling2D(), layers::Dense(classes)});
}

// --- Training ----------------------------------------------------------------------------------

mr::Status TrainOn(const std::string& data_dir, const Flags& flags,
                   const std::shared_ptr<mr::Strategy>& strategy) {
  MR_ASSIGN_OR_RETURN(const mr::ImageFolder folder,
                      mr::OpenImageFolder(data_dir, {.height = flags.size,
                                                     .width = flags.size,
                                                     .batch_size = 0,
                                                     .seed = 1,
                                                     .validation_split = flags.validation_split,
                                                     .skip_damaged = flags.skip_damaged}));
  std::printf("%zu images of %zu classes, %zu to validate with; %zu were damaged\n",
              folder.training_files.size(), folder.class_names.size(),
              folder.validation_files.size(), folder.damaged.size());
  for (const std::string& file : folder.damaged) std::printf("  %s\n", file.c_str());
  const mr::Dataset training = folder.training.Enumerate()
                                   .Map(Vary, {.num_parallel = mr::kAutotune})
                                   .Batch(flags.batch_size)
                                   .Prefetch();

  // Small at the end, where large steps would undo from epoch to epoch what was learnt.
  const auto rate = mr::schedules::CosineDecay(
      {.initial_learning_rate = 0.004,
       .decay_steps = std::max(1.0, static_cast<double>(training.cardinality() * flags.epochs))});
  mr::Model model(SmallResNet(static_cast<int64_t>(folder.class_names.size())),
                  {.seed = 1, .strategy = strategy});
  MR_RETURN_IF_ERROR(
      model.Compile({.optimizer = mr::optimizers::Adam({.learning_rate = rate}),
                     .loss = mr::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}}));
  MR_ASSIGN_OR_RETURN(
      const mr::History history,
      model.Fit(training, {.epochs = flags.epochs,
                           .validation_dataset = folder.validation.Batch(flags.batch_size)}));
  std::printf("%s%s", model.Summary().c_str(), history.ToTable().c_str());
  const double accuracy = history.values("val_accuracy").back();
  std::printf("accuracy on images that were kept back: %.4f\n", accuracy);
  return mr::examples::CheckAccuracy(accuracy, flags);
}

mr::Status Train(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(
      const auto strategy,
      mr::MakeStrategy(flags.strategy, {.replicas = static_cast<int>(flags.replicas),
                                        .server = {.insecure = flags.insecure}}));
  if (!flags.data_dir.empty()) return TrainOn(flags.data_dir, flags, strategy);
  const TemporaryFolder drawn;
  if (drawn.path().empty()) {
    return mr::Status(mr::StatusCode::kUnavailable,
                      "no folder for images could be made in " +
                          fs::temp_directory_path().string() +
                          ": set TMPDIR to one that can be written to");
  }
  MR_RETURN_IF_ERROR(DrawImages(drawn.path(), flags.images));
  return TrainOn(drawn.path(), flags, strategy);
}

int main(int argc, char** argv) {
  Flags flags;
  flags.epochs = 12;
  flags.batch_size = 32;
  CLI::App app("Trains a small residual network on folders of images", "image_folder");
  mr::examples::AddTrainingFlags(app, flags);
  app.add_option("--data_dir", flags.data_dir,
                 "Folder that has a folder of images for each class; drawn shapes without it");
  app.add_option("--images", flags.images, "Shapes to draw")
      ->check(CLI::Range(40, 1'000'000))
      ->capture_default_str();
  app.add_option("--size", flags.size, "Height and width that images are brought to")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_option("--validation_split", flags.validation_split, "Part of the images kept back")
      ->check(CLI::Range(0.01, 0.9))
      ->capture_default_str();
  app.add_flag("--skip_damaged", flags.skip_damaged,
               "Leave out files that are no images, and list them");
  return mr::examples::RunProgram(app, argc, argv, [&] { return Train(flags); });
}
