// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/layer_of.h"

#include <set>

namespace millrace::testing {
namespace {

namespace L = layers;

// Arguments by name, and which were asked for.
class Given {
 public:
  explicit Given(const Json& json) : json_(json) {}
  const Json* Find(const std::string& name) {
    asked_.insert(name);
    return json_.contains(name) && !json_[name].is_null() ? &json_[name] : nullptr;
  }
  template <typename T>
  void Get(const std::string& name, T* value) {
    if (const Json* json = Find(name)) *value = json->get<T>();
  }
  void Get(const std::string& name, ActivationFunction* value) {
    asked_.insert(name);
    if (!json_.contains(name)) return;
    *value = json_[name].is_null() ? std::string("linear") : json_[name].get<std::string>();
  }
  void Get(const std::string& name, Regularizer* value) {
    if (const Json* json = Find(name)) *value = RegularizerOf(*json);
  }
  void Get(const std::string& name, L::Sizes* value) {
    if (const Json* json = Find(name)) *value = SizesOf(*json);
  }
  void Get(const std::string& name, std::optional<L::Sizes>* value) {
    if (const Json* json = Find(name)) *value = SizesOf(*json);
  }
  static L::Sizes SizesOf(const Json& json) {
    L::Sizes sizes(0);
    if (json.is_number()) return L::Sizes(json.get<int64_t>());
    sizes.values.clear();
    for (const Json& size : json) {
      if (size.is_array()) {
        for (const Json& side : size) sizes.values.push_back(side);
      } else {
        sizes.values.push_back(size);
      }
    }
    return sizes;
  }
  bool AllAsked() const {
    for (const auto& [name, value] : json_.items()) {
      if (!asked_.contains(name)) return false;
    }
    return true;
  }

 private:
  const Json& json_;
  std::set<std::string> asked_;
};

std::unique_ptr<Layer> ConvOf(const std::string& kind, Given& g, const std::string& name) {
  int64_t filters = 0;
  L::Sizes size = 1;
  g.Get("filters", &filters);
  g.Get("kernel_size", &size);
  if (kind == "Conv2DTranspose" || kind == "Conv3DTranspose") {
    L::ConvTransposeOptions o{.name = name};
    g.Get("strides", &o.strides);
    g.Get("padding", &o.padding);
    g.Get("activation", &o.activation);
    g.Get("use_bias", &o.use_bias);
    return kind == "Conv2DTranspose" ? L::Conv2DTranspose(filters, size, o)
                                     : L::Conv3DTranspose(filters, size, o);
  }
  if (kind == "DepthwiseConv2D") {
    L::DepthwiseConvOptions o{.name = name};
    g.Get("strides", &o.strides);
    g.Get("padding", &o.padding);
    g.Get("depth_multiplier", &o.depth_multiplier);
    g.Get("dilation_rate", &o.dilation_rate);
    g.Get("activation", &o.activation);
    return L::DepthwiseConv2D(size, o);
  }
  L::ConvOptions o{.name = name};
  g.Get("strides", &o.strides);
  g.Get("padding", &o.padding);
  g.Get("dilation_rate", &o.dilation_rate);
  g.Get("groups", &o.groups);
  g.Get("activation", &o.activation);
  g.Get("use_bias", &o.use_bias);
  if (kind == "Conv3D") return L::Conv3D(filters, size, o);
  return kind == "Conv1D" ? L::Conv1D(filters, size, o) : L::Conv2D(filters, size, o);
}

std::unique_ptr<Layer> PoolOf(const std::string& kind, Given& g, const std::string& name) {
  L::GlobalPoolingOptions global{.name = name};
  g.Get("keepdims", &global.keep_dims);
  if (kind == "GlobalAveragePooling1D") return L::GlobalAveragePooling1D(global);
  if (kind == "GlobalAveragePooling2D") return L::GlobalAveragePooling2D(global);
  if (kind == "GlobalAveragePooling3D") return L::GlobalAveragePooling3D(global);
  if (kind == "GlobalMaxPooling1D") return L::GlobalMaxPooling1D(global);
  if (kind == "GlobalMaxPooling2D") return L::GlobalMaxPooling2D(global);
  if (kind == "GlobalMaxPooling3D") return L::GlobalMaxPooling3D(global);
  L::PoolingOptions o{.name = name};
  L::Sizes size = 2;
  g.Get("pool_size", &size);
  g.Get("strides", &o.strides);
  g.Get("padding", &o.padding);
  if (kind == "MaxPooling1D") return L::MaxPooling1D(size, o);
  if (kind == "MaxPooling2D") return L::MaxPooling2D(size, o);
  if (kind == "MaxPooling3D") return L::MaxPooling3D(size, o);
  if (kind == "AveragePooling1D") return L::AveragePooling1D(size, o);
  if (kind == "AveragePooling2D") return L::AveragePooling2D(size, o);
  if (kind == "AveragePooling3D") return L::AveragePooling3D(size, o);
  return nullptr;
}

std::unique_ptr<Layer> NormalizationOf(const std::string& kind, Given& g, const std::string& name) {
  if (kind == "BatchNormalization") {
    L::BatchNormalizationOptions o{.name = name};
    g.Get("axis", &o.axis);
    g.Get("momentum", &o.momentum);
    g.Get("epsilon", &o.epsilon);
    g.Get("center", &o.center);
    g.Get("scale", &o.scale);
    return L::BatchNormalization(o);
  }
  if (kind == "LayerNormalization") {
    L::LayerNormalizationOptions o{.name = name};
    if (const Json* axis = g.Find("axis")) {
      o.axes = axis->is_array() ? axis->get<std::vector<int>>() : std::vector{axis->get<int>()};
    }
    g.Get("epsilon", &o.epsilon);
    g.Get("center", &o.center);
    g.Get("scale", &o.scale);
    return L::LayerNormalization(o);
  }
  if (kind == "GroupNormalization") {
    L::GroupNormalizationOptions o{.name = name};
    g.Get("groups", &o.groups);
    g.Get("epsilon", &o.epsilon);
    return L::GroupNormalization(o);
  }
  if (kind == "UnitNormalization") return L::UnitNormalization({-1}, name);
  return nullptr;
}

L::RecurrentPtr RecurrentOf(const std::string& kind, Given& g, const std::string& name) {
  int64_t units = 0;
  L::RecurrentOptions o{.name = name};
  g.Get("units", &units);
  g.Get("activation", &o.activation);
  g.Get("recurrent_activation", &o.recurrent_activation);
  g.Get("use_bias", &o.use_bias);
  g.Get("unit_forget_bias", &o.unit_forget_bias);
  g.Get("reset_after", &o.reset_after);
  g.Get("return_sequences", &o.return_sequences);
  g.Get("go_backwards", &o.go_backwards);
  g.Get("stateful", &o.stateful);
  g.Get("unroll", &o.unroll);
  g.Get("zero_output_for_mask", &o.zero_output_for_mask);
  if (kind == "SimpleRNN") return L::SimpleRnn(units, o);
  if (kind == "LSTM") return L::Lstm(units, o);
  if (kind == "GRU") return L::Gru(units, o);
  return nullptr;
}

std::unique_ptr<Layer> SequenceOf(const std::string& kind, Given& g, const std::string& name) {
  if (kind == "Bidirectional" || kind == "TimeDistributed") {
    const Json* inner = g.Find("layer");
    if (inner == nullptr) return nullptr;
    const std::string inner_kind = (*inner)[0];
    if (kind == "TimeDistributed") {
      return L::TimeDistributed(LayerOf(inner_kind, (*inner)[1], ""), name);
    }
    Given arguments((*inner)[1]);
    L::BidirectionalOptions o{.name = name};
    std::string mode = "concat";
    g.Get("merge_mode", &mode);
    o.merge_mode = mode == "sum"   ? L::MergeMode::kSum
                   : mode == "mul" ? L::MergeMode::kMultiply
                   : mode == "ave" ? L::MergeMode::kAverage
                                   : L::MergeMode::kConcatenate;
    return L::Bidirectional(RecurrentOf(inner_kind, arguments, ""), o);
  }
  if (kind == "MultiHeadAttention") {
    L::MultiHeadAttentionOptions o{.name = name};
    int64_t heads = 0, key_dim = 0;
    g.Get("num_heads", &heads);
    g.Get("key_dim", &key_dim);
    g.Get("value_dim", &o.value_dim);
    g.Get("output_shape", &o.output_dim);
    g.Get("use_bias", &o.use_bias);
    g.Get("use_causal_mask", &o.causal);
    return L::MultiHeadAttention(heads, key_dim, o);
  }
  return RecurrentOf(kind, g, name);
}

std::unique_ptr<Layer> ShapeLayerOf(const std::string& kind, Given& g, const std::string& name) {
  std::vector<int64_t> sizes;
  std::vector<int> axes;
  if (kind == "Flatten") return L::Flatten(name);
  if (kind == "Reshape") {
    g.Get("target_shape", &sizes);
    return L::Reshape(sizes, name);
  }
  if (kind == "Permute") {
    g.Get("dims", &axes);
    return L::Permute(axes, name);
  }
  if (kind == "RepeatVector") {
    int64_t n = 0;
    g.Get("n", &n);
    return L::RepeatVector(n, name);
  }
  L::Sizes border = 1, size = 2;
  g.Get("padding", &border);
  g.Get("cropping", &border);
  g.Get("size", &size);
  if (kind == "ZeroPadding1D") return L::ZeroPadding1D(border, name);
  if (kind == "ZeroPadding2D") return L::ZeroPadding2D(border, name);
  if (kind == "Cropping1D") return L::Cropping1D(border, name);
  if (kind == "Cropping2D") return L::Cropping2D(border, name);
  if (kind == "UpSampling1D") return L::UpSampling1D(size.values[0], name);
  if (kind == "UpSampling2D") return L::UpSampling2D(size, name);
  return nullptr;
}

std::unique_ptr<Layer> MergeOf(const std::string& kind, Given& g, const std::string& name) {
  if (kind == "Add") return L::Add(name);
  if (kind == "Subtract") return L::Subtract(name);
  if (kind == "Multiply") return L::Multiply(name);
  if (kind == "Average") return L::Average(name);
  if (kind == "Maximum") return L::Maximum(name);
  if (kind == "Minimum") return L::Minimum(name);
  if (kind == "Concatenate") {
    int axis = -1;
    g.Get("axis", &axis);
    return L::Concatenate(axis, name);
  }
  if (kind == "Dot") {
    L::DotOptions o{.name = name};
    std::vector<int> axes;
    g.Get("axes", &axes);
    g.Get("normalize", &o.normalize);
    return L::Dot({axes.at(0), axes.at(1)}, o);
  }
  return nullptr;
}

std::unique_ptr<Layer> ElementwiseOf(const std::string& kind, Given& g, const std::string& name) {
  double number = 0;
  if (kind == "Masking") {
    g.Get("mask_value", &number);
    return L::Masking(number, name);
  }
  if (kind == "LeakyReLU") {
    number = 0.3;
    g.Get("negative_slope", &number);
    return L::LeakyRelu(number, name);
  }
  if (kind == "ELU") {
    number = 1;
    g.Get("alpha", &number);
    return L::Elu(number, name);
  }
  if (kind == "ReLU") {
    L::ReluOptions o{.name = name};
    g.Get("max_value", &o.max_value.emplace());
    if (g.Find("max_value") == nullptr) o.max_value.reset();
    g.Get("negative_slope", &o.negative_slope);
    g.Get("threshold", &o.threshold);
    return L::Relu(o);
  }
  if (kind == "PReLU") {
    L::PreluOptions o{.name = name};
    g.Get("shared_axes", &o.shared_axes);
    return L::Prelu(o);
  }
  if (kind == "Softmax") {
    int axis = -1;
    g.Get("axis", &axis);
    return L::Softmax(axis, name);
  }
  return nullptr;
}

std::unique_ptr<Layer> CoreOf(const std::string& kind, Given& g, const std::string& name) {
  if (kind == "Dense") {
    int64_t units = 0;
    L::DenseOptions o{.name = name};
    g.Get("units", &units);
    g.Get("activation", &o.activation);
    g.Get("use_bias", &o.use_bias);
    g.Get("kernel_regularizer", &o.kernel_regularizer);
    g.Get("bias_regularizer", &o.bias_regularizer);
    g.Get("activity_regularizer", &o.activity_regularizer);
    return L::Dense(units, o);
  }
  if (kind == "Embedding") {
    int64_t in = 0, out = 0;
    L::EmbeddingOptions o{.name = name};
    g.Get("input_dim", &in);
    g.Get("output_dim", &out);
    g.Get("mask_zero", &o.mask_zero);
    return L::Embedding(in, out, o);
  }
  if (kind == "Activation") {
    ActivationFunction activation;
    g.Get("activation", &activation);
    return L::Activation(activation, name);
  }
  if (kind == "Dropout") {
    double rate = 0;
    g.Get("rate", &rate);
    return L::Dropout(rate, {.name = name});
  }
  return nullptr;
}

}  // namespace

Regularizer RegularizerOf(const Json& json) {
  if (json.contains("L1")) return regularizers::L1(json["L1"].get<double>());
  if (json.contains("L2")) return regularizers::L2(json["L2"].get<double>());
  return regularizers::L1L2(json["L1L2"][0].get<double>(), json["L1L2"][1].get<double>());
}

std::unique_ptr<Layer> LayerOf(const std::string& class_name, const Json& arguments,
                               const std::string& name) {
  using Maker = std::unique_ptr<Layer> (*)(const std::string&, Given&, const std::string&);
  for (const Maker maker :
       {Maker(CoreOf), Maker(ElementwiseOf), Maker(ConvOf), Maker(PoolOf), Maker(NormalizationOf),
        Maker(ShapeLayerOf), Maker(MergeOf), Maker(SequenceOf)}) {
    // Others' arguments have the same names and other types.
    if (maker == Maker(ConvOf) && class_name.find("Conv") == std::string::npos) continue;
    if (maker == Maker(PoolOf) && class_name.find("Pooling") == std::string::npos) continue;
    Given given(arguments);
    std::unique_ptr<Layer> layer = maker(class_name, given, name);
    if (layer != nullptr) return given.AllAsked() ? std::move(layer) : nullptr;
  }
  return nullptr;
}

Status SetValue(const Scope& scope, Session& session, const Variable& variable,
                const Tensor& value) {
  return session.RunTargets({Assign(scope, variable, Constant(scope, value))});
}

}  // namespace millrace::testing
