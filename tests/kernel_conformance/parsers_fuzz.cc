// SPDX-License-Identifier: Apache-2.0
// What kernels read out of strings that a client or a file brings: the first byte chooses the
// kernel, the rest is the string. It is read, or what is wrong with it is said.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "google/protobuf/text_format.h"
#include "io/tensor_slice.h"
#include "kernels/all_kernels.h"
#include "kernels/common/variant_codec.h"
#include "ops/all_ops.h"
#include "proto/example.pb.h"
#include "tensor/fuzz_guard.h"
#include "tensor/tensor_proto.h"
#include "tests/kernel_conformance/graph_interpreter.h"

namespace millrace::testing {
namespace {

// --- Graphs, as text -----------------------------------------------------------------------------

std::string Attr(std::string_view name, std::string_view value) {
  return StrCat(" attr { key: '", name, "' value { ", value, " } }");
}

std::string Constant(std::string_view name, std::string_view type, std::string_view tensor) {
  return StrCat("node { name: '", name, "' op: 'Const'", Attr("dtype", StrCat("type: ", type)),
                Attr("value", StrCat("tensor { dtype: ", type, " ", tensor, " }")), " }\n");
}

std::string Strings(std::string_view name, const std::vector<std::string>& values) {
  std::string tensor = StrCat("tensor_shape { dim { size: ", values.size(), " } }");
  for (const std::string& value : values) tensor += StrCat(" string_val: '", value, "'");
  return Constant(name, "DT_STRING", tensor);
}

std::string Node(std::string_view op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& attrs = {}) {
  std::string node = StrCat("node { name: 'node' op: '", op, "'");
  for (const std::string& input : inputs) node += StrCat(" input: '", input, "'");
  for (const std::string& attr : attrs) node += attr;
  return node + " }\n";
}

constexpr char kShapes[] = "list { shape { dim { size: 2 } } shape { dim { size: -1 } } }";
constexpr char kListShapes[] = "list { shape { dim { size: 2 } } shape { dim { size: 3 } } }";
constexpr char kTypes[] = "list { type: DT_FLOAT type: DT_INT64 }";
constexpr char kAllTypes[] = "list { type: DT_FLOAT type: DT_INT64 type: DT_STRING }";
constexpr char kSplits[] = "list { type: DT_INT32 type: DT_INT64 type: DT_INT64 }";

// Keys of features, "d" of two floats, "v" of any number of integers, and how they are read.
std::string Defaults() {
  return Constant("d0", "DT_FLOAT", "tensor_shape { dim { size: 2 } } float_val: [1, 2]") +
         Constant("d1", "DT_INT64", "tensor_shape { dim { size: 1 } } int64_val: 7") +
         Strings("none", {}) + Strings("dense", {"d", "v"}) + Strings("sparse", {"f", "i", "s"}) +
         Strings("ragged", {"g", "j", "t"});
}

std::string ExampleParser() {
  return Defaults() +
         Node("ParseExampleV2", {"in", "none", "sparse", "dense", "ragged", "d0", "d1"},
              {Attr("Tdense", kTypes), Attr("dense_shapes", kShapes), Attr("num_sparse", "i: 3"),
               Attr("sparse_types", kAllTypes), Attr("ragged_value_types", kAllTypes),
               Attr("ragged_split_types", kSplits)});
}

std::string SingleExampleParser() {
  return Defaults() +
         Node("ParseSingleExample", {"in", "d0", "d1"},
              {Attr("Tdense", kTypes), Attr("dense_shapes", kShapes), Attr("num_sparse", "i: 3"),
               Attr("sparse_keys", "list { s: 'f' s: 'i' s: 's' }"),
               Attr("dense_keys", "list { s: 'd' s: 'v' }"), Attr("sparse_types", kAllTypes)});
}

std::string SequenceParser() {
  return Defaults() +
         Constant("missing", "DT_BOOL", "tensor_shape { dim { size: 2 } } bool_val: [true, true]") +
         Node("ParseSequenceExampleV2",
              {"in", "none", "sparse", "dense", "ragged", "sparse", "dense", "ragged", "missing",
               "d0", "d1"},
              {Attr("Ncontext_sparse", "i: 3"), Attr("Tcontext_dense", kTypes),
               Attr("context_sparse_types", kAllTypes),
               Attr("context_ragged_value_types", kAllTypes),
               Attr("context_ragged_split_types", kSplits), Attr("context_dense_shapes", kShapes),
               Attr("Nfeature_list_sparse", "i: 3"), Attr("Nfeature_list_dense", "i: 2"),
               Attr("feature_list_dense_types", kTypes),
               Attr("feature_list_sparse_types", kAllTypes),
               Attr("feature_list_ragged_value_types", kAllTypes),
               Attr("feature_list_ragged_split_types", kSplits),
               Attr("feature_list_dense_shapes", kListShapes)});
}

std::string CsvParser() {
  return Constant("c0", "DT_FLOAT", "tensor_shape { dim { size: 1 } } float_val: 1") +
         Constant("c1", "DT_INT32", "tensor_shape { dim { size: 0 } }") +
         Constant("c2", "DT_STRING", "tensor_shape { dim { size: 1 } } string_val: 'x'") +
         Node("DecodeCSV", {"in", "c0", "c1", "c2"},
              {Attr("OUT_TYPE", "list { type: DT_FLOAT type: DT_INT32 type: DT_STRING }")});
}

std::string Typed(std::string_view op, std::string_view type) {
  return Node(op, {"in"}, {Attr("out_type", StrCat("type: ", type))});
}

std::string PaddedRaw() {
  return Constant("length", "DT_INT32", "tensor_shape { } int_val: 8") +
         Node("DecodePaddedRaw", {"in", "length"}, {Attr("out_type", "type: DT_INT16")});
}

// The string is the pattern.
std::string Pattern() {
  return Strings("text", {"abcabc", "0:1,2"}) + Strings("other", {"[\\\\0]"}) +
         Constant("rewrite", "DT_STRING", "tensor_shape { } string_val: '<\\\\0>'") +
         Node("RegexReplace", {"text", "in", "rewrite"});
}

// --- Examples of what they read ------------------------------------------------------------------

void AddFeatures(pb::Features* features) {
  auto& map = *features->mutable_feature();
  for (const char* key : {"d", "f", "g"}) {
    map[key].mutable_float_list()->add_value(0.5f);
    map[key].mutable_float_list()->add_value(-1e30f);
  }
  for (const char* key : {"v", "i", "j"}) {
    for (const int64_t value : {int64_t{3}, int64_t{-1}, INT64_MAX}) {
      map[key].mutable_int64_list()->add_value(value);
    }
  }
  for (const char* key : {"s", "t"}) map[key].mutable_bytes_list()->add_value("text");
}

std::string OneExample() {
  pb::Example example;
  AddFeatures(example.mutable_features());
  return example.SerializeAsString();
}

std::string OneSequence() {
  pb::SequenceExample example;
  AddFeatures(example.mutable_context());
  for (const auto& [key, feature] : example.context().feature()) {
    pb::FeatureList& list = (*example.mutable_feature_lists()->mutable_feature_list())[key];
    *list.add_feature() = feature;
    *list.add_feature() = feature;
  }
  return example.SerializeAsString();
}

std::string OneTensor(pb::DataType type) {
  pb::TensorProto tensor;
  tensor.set_dtype(type);
  tensor.mutable_tensor_shape()->add_dim()->set_size(2);
  tensor.mutable_tensor_shape()->add_dim()->set_size(3);
  if (type == pb::DT_STRING) {
    for (const char* value : {"a", "", "ccc"}) tensor.add_string_val(value);
  } else {
    tensor.set_tensor_content(std::string(24, 'c'));
  }
  return tensor.SerializeAsString();
}

constexpr char kJson[] =
    R"({"features": {"feature": {"a": {"int64List": {"value": ["1", 2]}},)"
    R"( "b": {"bytesList": {"value": ["aGVsbG8="]}}, "c": {"float_list": {"value": [1.5, 1e9]}}}}})";

// A list of two elements, one of which is not set, within an optional.
std::string OneVariant() {
  pb::TensorProto inner, tensor;
  inner.set_dtype(pb::DT_VARIANT);
  pb::VariantTensorDataProto* const list = inner.add_variant_val();
  list->set_type_name("tensorflow::TensorList");
  list->set_metadata(std::string("\1\0\1", 3) + std::string(9, '\xff') + "\1\x18\1");
  list->add_tensors()->set_dtype(pb::DT_FLOAT);
  tensor.set_dtype(pb::DT_VARIANT);
  pb::VariantTensorDataProto* const optional = tensor.add_variant_val();
  optional->set_type_name("tensorflow::data::Optional");
  optional->set_metadata("\1");
  *optional->add_tensors() = inner;
  return tensor.SerializeAsString();
}

struct Reader {
  std::string graph;
  bool vector;  // what is read is a vector of one string; else a scalar
  std::string example;
};

std::vector<Reader> AllReaders() {
  return {{ExampleParser(), true, OneExample()},
          {SingleExampleParser(), false, OneExample()},
          {SequenceParser(), true, OneSequence()},
          {CsvParser(), false, "1.5,-7,\"a \"\"b\"\", c\""},
          {Typed("DecodeRaw", "DT_FLOAT"), true, "12345678"},
          {Typed("DecodeRaw", "DT_COMPLEX128"), true, std::string(32, 'x')},
          {PaddedRaw(), true, "12345"},
          {Node("DecodeBase64", {"in"}), false, "aGVsbG8gd29ybGQ"},
          {Typed("StringToNumber", "DT_INT32"), false, "-2147483648"},
          {Typed("StringToNumber", "DT_FLOAT"), false, " 1.25e-3 "},
          {Typed("ParseTensor", "DT_FLOAT"), false, OneTensor(pb::DT_FLOAT)},
          {Typed("ParseTensor", "DT_STRING"), false, OneTensor(pb::DT_STRING)},
          {Node("DecodeJSONExample", {"in"}), true, kJson},
          {Pattern(), false, "(a|b)+c?[[:alpha:]]{1,3}"}};
}

// --- Running them --------------------------------------------------------------------------------

// Objects that were read are written, and read again.
Status ReadVariant(const std::string& text) {
  pb::TensorProto proto;
  if (!proto.ParseFromString(text) || StandsForMuch(proto)) return OkStatus();
  MR_ASSIGN_OR_RETURN(const Tensor tensor, TensorFromProto(proto));
  MR_ASSIGN_OR_RETURN(const Tensor decoded, DecodedObjects(tensor));
  MR_ASSIGN_OR_RETURN(const Tensor encoded, EncodedObjects(decoded));
  const Status again = DecodedObjects(encoded).status();
  if (!again.ok()) MR_LOG(kError, again.ToString());
  MR_CHECK(again.ok());
  return OkStatus();
}

class Machine {
 public:
  Machine()
      : pool_("kernels", 0),
        device_(
            NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", 1, &pool_, &resources_)) {
    MR_CHECK(RegisterAllOps(ops_).ok());
    RegisterAllKernels(kernels_);
    for (const Reader& reader : AllReaders()) {
      pb::GraphDef graph;
      const std::string text = StrCat("node { name: 'in' op: 'Placeholder'",
                                      Attr("dtype", "type: DT_STRING"), " }\n", reader.graph);
      MR_CHECK(google::protobuf::TextFormat::ParseFromString(text, &graph));
      auto made = GraphInterpreter::Create(graph, ops_, kernels_, device_.get());
      if (!made.ok()) MR_LOG(kError, made.status().ToString(), " in ", text);
      MR_CHECK(made.ok());
      readers_.push_back({*std::move(made), reader.vector});
    }
  }
  // The last two are no kernels.
  std::size_t count() const { return readers_.size() + 2; }

  Status Read(std::size_t index, std::string text) {
    if (index == readers_.size()) {
      Shape shape;
      TensorSlice slice;
      MR_RETURN_IF_ERROR(ParseShapeAndSlice(text, &shape, &slice));
      return slice.ShapeIn(shape).status();
    }
    if (index > readers_.size()) return ReadVariant(text);
    Tensor in(kString, readers_[index].vector ? Shape({1}) : Shape());
    *in.data<std::string>() = std::move(text);
    const std::string node = "node";
    return readers_[index].interpreter->Run({{"in:0", in}}, {}, {&node, 1}).status();
  }

 private:
  struct Ready {
    std::unique_ptr<GraphInterpreter> interpreter;
    bool vector;
  };

  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool pool_;
  ResourceManager resources_;
  const std::unique_ptr<Device> device_;
  std::vector<Ready> readers_;
};

Machine& TheMachine() {
  static auto* const machine = new Machine;
  return *machine;
}

}  // namespace
}  // namespace millrace::testing

namespace millrace {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const testing::Reader& reader : testing::AllReaders()) {
    seeds.push_back(std::string(1, static_cast<char>(seeds.size())) + reader.example);
  }
  seeds.push_back(std::string(1, static_cast<char>(seeds.size())) + "4 3 0,2:-");
  seeds.push_back(std::string(1, static_cast<char>(seeds.size())) + testing::OneVariant());
  for (const std::string& seed : seeds) {
    const Status read = testing::TheMachine().Read(seed[0], seed.substr(1));
    if (!read.ok()) MR_LOG(kError, "reader ", static_cast<int>(seed[0]), ": ", read.ToString());
    MR_CHECK(read.ok());
  }
  return seeds;
}

}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto& machine = millrace::testing::TheMachine();
  const millrace::Status read = machine.Read(
      data[0] % machine.count(), std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  using millrace::StatusCode;
  // Internal is what TensorFlow says of a slice that leaves its shape.
  MR_CHECK(
      read.ok() || read.code() == StatusCode::kInvalidArgument ||
      read.code() == StatusCode::kDataLoss || read.code() == StatusCode::kUnimplemented ||
      read.code() == StatusCode::kOutOfRange || read.code() == StatusCode::kResourceExhausted ||
      (read.code() == StatusCode::kInternal && data[0] % machine.count() + 2 == machine.count()));
  return 0;
}
